//! The address of a client behind proxies. Called for everything that counts or logs by address.
//!
//! Each proxy appends the address that connected to it, so only the entries at the right that
//! trusted proxies have written can be believed.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The address of the client whose request came over a connection from `peer`: the rightmost one
/// that is not in `trusted`, or `peer` itself if that is not a trusted proxy.
///
/// If both headers are present and name different clients, `peer` is returned: a client could have
/// written the one that the proxy passes on.
pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let is_trusted = |address: &IpAddr| trusted.iter().any(|network| network.contains(address));
    if !is_trusted(&peer) {
        return peer;
    }
    let rightmost = |hops: Vec<Option<IpAddr>>| {
        let mut client = peer;
        for hop in hops.into_iter().rev() {
            // An entry that is no address hides the ones before it.
            let Some(address) = hop else { break };
            client = address;
            if !is_trusted(&address) {
                break;
            }
        }
        client
    };
    let standard = entries(headers, &FORWARDED).map(|list| list.map(forwarded_for).collect());
    let older = entries(headers, &X_FORWARDED_FOR).map(|list| list.map(address).collect());
    match (standard.map(rightmost), older.map(rightmost)) {
        (Some(one), Some(other)) if one != other => peer,
        (Some(client), _) | (None, Some(client)) => client,
        (None, None) => peer,
    }
}

/// The entries of all headers of this name, in order; `None` without such a header.
fn entries<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<impl Iterator<Item = &'a str> + use<'a>> {
    let values = headers.get_all(name).into_iter();
    let values: Vec<&str> = values
        .map(|value| value.to_str().unwrap_or_default())
        .collect();
    (!values.is_empty()).then(|| values.into_iter().flat_map(|value| value.split(',')))
}

/// The address in the parameter `for` of an entry of `Forwarded` (RFC 7239).
fn forwarded_for(entry: &str) -> Option<IpAddr> {
    let mut pairs = entry.split(';').filter_map(|pair| pair.split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(node.trim().trim_matches('"'))
}

/// Parses `192.0.2.1`, `192.0.2.1:47011`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:47011`.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if text.matches(':').count() == 1 => text.split_once(':')?.0,
        None => text,
    };
    bare.parse()
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(peer: &str, headers: &[(&HeaderName, &str)]) -> String {
        let trusted = ["127.0.0.1/32", "10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        client_address(peer.parse().unwrap(), &map, &trusted).to_string()
    }

    #[test]
    fn only_a_trusted_proxy_is_believed() {
        let one = [(&X_FORWARDED_FOR, "192.0.2.7")];
        assert_eq!(client("127.0.0.1", &one), "192.0.2.7");
        assert_eq!(client("192.0.2.1", &one), "192.0.2.1");
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
    }

    #[test]
    fn the_rightmost_address_that_is_no_proxy_counts() {
        for (list, expected) in [
            ("1.1.1.1, 192.0.2.7", "192.0.2.7"),
            ("192.0.2.7, 10.1.1.1, 10.2.2.2", "192.0.2.7"),
            ("10.1.1.1", "10.1.1.1"),
            ("192.0.2.7:1234", "192.0.2.7"),
            ("[2001:db8::1]:80, fd00::5", "2001:db8::1"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            // What is no address hides what is before it.
            ("192.0.2.7, unknown, 10.2.2.2", "10.2.2.2"),
            ("", "127.0.0.1"),
            ("192.0.2.7,", "127.0.0.1"),
        ] {
            assert_eq!(
                client("127.0.0.1", &[(&X_FORWARDED_FOR, list)]),
                expected,
                "{list}"
            );
        }
        let lines = [
            (&X_FORWARDED_FOR, "1.1.1.1"),
            (&X_FORWARDED_FOR, "192.0.2.7"),
        ];
        assert_eq!(client("127.0.0.1", &lines), "192.0.2.7");
        for (list, expected) in [
            ("for=192.0.2.7;proto=https;by=10.0.0.1", "192.0.2.7"),
            ("For=\"[2001:db8::1]:4711\", for=10.0.0.1", "2001:db8::1"),
            ("for=_hidden", "127.0.0.1"),
            ("proto=https", "127.0.0.1"),
        ] {
            assert_eq!(
                client("127.0.0.1", &[(&FORWARDED, list)]),
                expected,
                "{list}"
            );
        }
    }

    #[test]
    fn a_header_that_the_proxy_only_passes_on_changes_nothing() {
        let both = |other| {
            let headers = [(&X_FORWARDED_FOR, "192.0.2.7"), (&FORWARDED, other)];
            client("127.0.0.1", &headers)
        };
        assert_eq!(both("for=192.0.2.7"), "192.0.2.7");
        assert_eq!(both("for=8.8.8.8"), "127.0.0.1");
    }
}
