//! The HTTP client for all outgoing connections: to providers, MCP servers, webhooks and the trace
//! collector. [`address`] restricts those that users or models choose.
//!
//! The proxy variables of the daemon's environment apply to all of them, but never to addresses of
//! this machine: a proxy would look for such a server on its own machine.

pub mod address;

use std::error::Error;
use std::net::IpAddr;

use reqwest::{Client, ClientBuilder, Url};

/// A client builder with the common settings for the server at `address`.
pub fn client(address: &str) -> ClientBuilder {
    // An error means that a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("abide/", env!("CARGO_PKG_VERSION")))
        .tcp_nodelay(true);
    if address.starts_with("http:") {
        // Plain HTTP verifies no certificates, so the system's need not be loaded.
        builder = builder.tls_certs_only([]);
    }
    match is_loopback(address) {
        true => builder.no_proxy(),
        false => builder,
    }
}

/// The error with its causes, each said once.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}

/// Whether this is an address of this machine.
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
        // Connecting to the unspecified address reaches this machine.
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
