//! How connections to the outside are made: the client over HTTP that providers, tool servers and
//! the collector of traces are asked with.
//!
//! The proxy variables of the daemon's environment hold for all of them, but never for an address
//! of this machine: what listens there would be asked for elsewhere.

use std::net::IpAddr;

use reqwest::{Client, ClientBuilder, Url};

/// What clients for the server at `address` have in common.
pub fn client(address: &str) -> ClientBuilder {
    // An error says that one is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("abide/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true);
    if address.starts_with("http:") {
        // Nothing is to be verified: the certificates of the system need not be read.
        builder = builder.tls_certs_only([]);
    }
    match is_loopback(address) {
        true => builder.no_proxy(),
        false => builder,
    }
}

/// Is this an address of the machine itself?
fn is_loopback(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok_and(|ip| {
        let ip = ip.to_canonical();
        // A connection to no address in particular is one to this machine.
        ip.is_loopback() || ip.is_unspecified()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_go_past_a_proxy() {
        for url in [
            "http://127.0.0.1:1/v1",
            "http://127.9.9.9",
            "http://127.1:80/",
            "http://[::1]:1",
            "http://[::ffff:127.0.0.1]/mcp",
            "http://0.0.0.0:11434",
            "http://localhost/v1",
            "https://LocalHost:8443",
            "http://localhost.:8080",
            "http://models.localhost/v1",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "https://api.openai.com/v1",
            "http://10.0.0.1",
            "http://128.0.0.1",
            "http://localhost.example",
            "http://notlocalhost",
            "http://[::2]",
            "no address",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
