//! The transport to servers at a URL (streamable HTTP), and its authentication. Secrets are read
//! from the environment at the start of each connection.

use std::collections::HashMap;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use reqwest::{Client, redirect};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use crate::config::ServerTable;
use crate::outbound;

/// The timeout for connecting.
const CONNECT: Duration = Duration::from_secs(10);

/// The transport to a server at a URL.
pub(super) type Http = StreamableHttpClientTransport<Client>;

/// Creates the transport to the server of `table` at `url`. The error names a variable that is not
/// set, but never a value.
pub(super) fn transport(url: &str, table: &ServerTable) -> Result<Http, String> {
    let client = outbound::client(url)
        .connect_timeout(CONNECT)
        // A redirect could send the secrets to another host.
        .redirect(redirect::Policy::none())
        .build();
    let client = client.map_err(|fault| fault.to_string())?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.custom_headers = headers(table)?;
    if let Some(name) = &table.auth.bearer_env {
        config.auth_header = Some(variable(name)?);
    }
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn headers(table: &ServerTable) -> Result<HashMap<HeaderName, HeaderValue>, String> {
    let mut headers = HashMap::new();
    let written = table
        .headers
        .iter()
        .map(|(name, value)| (name, value.expose().to_owned()));
    for (name, value) in written {
        put(&mut headers, name, &value)?;
    }
    for (name, variable_name) in &table.auth.header_envs {
        put(&mut headers, name, &variable(variable_name)?)?;
    }
    Ok(headers)
}

fn put(
    headers: &mut HashMap<HeaderName, HeaderValue>,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let header = name
        .parse()
        .map_err(|_| format!("{name:?} is not a valid header name"))?;
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("the value of header {name} has invalid characters"))?;
    value.set_sensitive(true);
    headers.insert(header, value);
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    match std::env::var(name) {
        Ok(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
        Ok(_) => Err(format!("variable {name} (auth) is empty")),
        Err(_) => Err(format!(
            "variable {name} (auth) is not set in the daemon's environment"
        )),
    }
}
