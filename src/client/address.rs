//! The URL of a gateway: which host and port it names, and whether the connection is encrypted.

use super::ClientError;

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayUrl {
    /// The host name or address; an IPv6 address is without brackets.
    pub host: String,
    /// The port; 80, or 443 with TLS, if the URL has none.
    pub port: u16,
    /// Whether it begins with `https://` or `wss://`.
    pub tls: bool,
}

impl GatewayUrl {
    /// Parses a URL that begins with `http://`, `https://`, `ws://` or `wss://`.
    pub fn parse(url: &str) -> Result<Self, ClientError> {
        let invalid = |message: &str| ClientError::Url {
            url: url.to_owned(),
            message: message.to_owned(),
        };
        let parsed: http::Uri = url
            .parse()
            .map_err(|_| invalid("it must look like http://127.0.0.1:7777"))?;
        let tls = match parsed.scheme_str() {
            Some("ws" | "http") => false,
            Some("wss" | "https") => true,
            _ => {
                return Err(invalid(
                    "it must begin with http:// or https://, or with ws:// or wss://",
                ));
            }
        };
        let host = parsed.host().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("it names no host"))?;
        Ok(GatewayUrl {
            host: host
                .trim_start_matches('[')
                .trim_end_matches(']')
                .to_owned(),
            port: parsed.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            tls,
        })
    }

    /// Host and port, as in a `Host` header.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_without_sense_are_refused() {
        for bad in ["", "127.0.0.1:7777", "http://", "https://", "ftp://a"] {
            let parsed = GatewayUrl::parse(bad);
            assert!(matches!(parsed, Err(ClientError::Url { .. })), "{bad}");
        }
        for (url, authority, tls) in [
            ("http://localhost", "localhost:80", false),
            ("https://localhost", "localhost:443", true),
            ("ws://[::1]:7777/", "[::1]:7777", false),
            ("wss://gateway.lan:1", "gateway.lan:1", true),
        ] {
            let parsed = GatewayUrl::parse(url).unwrap();
            assert_eq!((&*parsed.authority(), parsed.tls), (authority, tls));
        }
        assert_eq!(GatewayUrl::parse("https://[::1]").unwrap().host, "::1");
    }
}
