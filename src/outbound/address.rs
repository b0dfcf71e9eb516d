//! The addresses that the tool `fetch` and webhooks may connect to: the public internet, and what
//! their settings add. Every address is checked here before a connection, whether it is
//! part of the URL or a name was resolved to it.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::IpNet;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Private hosts and networks that may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Private {
    hosts: Vec<String>,
    networks: Vec<IpNet>,
}

impl Private {
    /// Parses entries such as `wiki.lan`, `10.0.0.7` or `10.0.0.0/8`; an entry that is no address
    /// or network is a host name.
    pub fn new(entries: &[String]) -> Self {
        let mut private = Private::default();
        for entry in entries {
            let entry = entry.trim();
            let network = IpNet::from_str(entry);
            match network.or_else(|_| IpAddr::from_str(entry).map(IpNet::from)) {
                Ok(network) => private.networks.push(network),
                Err(_) => private.hosts.push(entry.to_ascii_lowercase()),
            }
        }
        private
    }

    /// True if `host` may be connected to at this address.
    pub(crate) fn allows(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address)
            || self
                .networks
                .iter()
                .any(|network| network.contains(&address))
            || self
                .hosts
                .iter()
                .any(|named| named.eq_ignore_ascii_case(host))
    }

    /// Refuses a host that is a forbidden address; a name is checked when it is resolved.
    pub(crate) fn check_literal(&self, host: &str) -> Result<(), Refused> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse() {
            Ok(address) if !self.allows(bare, address) => Err(Refused(bare.to_owned())),
            _ => Ok(()),
        }
    }
}

/// The error for a host without any permitted address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not a public address", self.0)
    }
}

impl std::error::Error for Refused {}

/// The refusal among the causes of an error.
pub(crate) fn refused_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Refused> {
    let mut source = Some(error);
    while let Some(cause) = source {
        if let Some(refused) = cause.downcast_ref() {
            return Some(refused);
        }
        source = cause.source();
    }
    None
}

/// A DNS resolver that returns only permitted addresses, so that connections use exactly the
/// addresses that were checked.
pub(crate) struct Guarded(pub Arc<Private>);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let private = Arc::clone(&self.0);
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found
                .filter(|address| private.allows(&host, address.ip()))
                .collect();
            if allowed.is_empty() {
                return Err(Refused(host).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// True for an address of the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_special = match (a, b, c) {
        // This network, private, loopback, and everything that is not unicast.
        (0 | 10 | 127 | 224..=255, ..) => true,
        // Carrier-grade NAT.
        (100, 64..=127, _) => true,
        // Link-local, including the metadata services of clouds.
        (169, 254, _) => true,
        (172, 16..=31, _) | (192, 168, _) => true,
        // Protocol assignments, documentation, relays, benchmarks.
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18 | 19, _) => true,
        (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // NAT64 by its well-known prefix: as public as the embedded IPv4 address. Elsewhere in that
        // range networks choose where the address stands.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        // Protocol assignments including tunnels, documentation, tunnels over IPv4.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        // Global unicast; everything else is local, multicast or unassigned.
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_10_only_public_addresses_are_reached() {
        let none = Private::default();
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.8",
            "198.18.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00:808:808",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::1",
        ] {
            let parsed = address.parse().unwrap();
            assert!(!none.allows(address, parsed), "{address}");
        }
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.215.14",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "64:ff9b::808:808",
            "::ffff:8.8.8.8",
        ] {
            let parsed = address.parse().unwrap();
            assert!(none.allows(address, parsed), "{address}");
        }
    }

    #[test]
    fn a_setting_names_what_is_reached_besides() {
        let named = ["wiki.lan", "10.0.0.0/8", "127.0.0.1"].map(str::to_owned);
        let private = Private::new(&named);
        let allows = |host: &str, address: &str| private.allows(host, address.parse().unwrap());
        assert!(allows("WIKI.lan", "192.168.1.7"));
        assert!(allows("x", "10.9.9.9") && allows("x", "127.0.0.1"));
        assert!(!allows("x", "127.0.0.2") && !allows("x", "192.168.1.7"));
        assert!(!allows("evil.wiki.lan", "192.168.1.7"));
        assert!(private.check_literal("[::1]").is_err());
        assert!(private.check_literal("10.1.1.1").is_ok());
        assert!(private.check_literal("example.org").is_ok());
    }

    #[tokio::test]
    async fn g10_10_a_name_that_leads_home_is_refused() {
        let guarded = Guarded(Arc::default());
        let found = guarded.resolve("localhost".parse().unwrap()).await;
        let error = found.err().expect("refused");
        assert!(error.is::<Refused>(), "{error}");
        let private = Private::new(&["localhost".to_owned()]);
        let guarded = Guarded(Arc::new(private));
        assert!(guarded.resolve("localhost".parse().unwrap()).await.is_ok());
    }
}
