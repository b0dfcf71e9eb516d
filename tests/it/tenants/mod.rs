//! Access tokens of users, and the border between orgs.

mod border;
mod command_line;
mod events;
mod tokens;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Daemon, Link};

/// Creates a token with these parameters; returns its text.
pub(crate) async fn token(owner: &Link, params: Value) -> String {
    let made = owner.call("tokens.create", params).await;
    made["secret"].as_str().unwrap().to_owned()
}

/// A connection of a user of this org, with these scopes.
pub(crate) async fn user_of(daemon: &Daemon, org: &str, scopes: &[&str]) -> Link {
    let owner = daemon.client().await;
    let params = json!({ "org": org, "user": "eve", "scopes": scopes });
    let text = token(&owner, params).await;
    daemon.client_with(&text).await
}

/// Every scope.
pub(crate) const ALL: &[&str] = &["read", "run", "approve", "node", "admin"];

/// The text of a call.
pub(crate) fn call(method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

/// A whole HTTP response.
pub(crate) struct HttpText {
    pub(crate) text: String,
}

impl HttpText {
    /// Its body, which is JSON.
    pub(crate) fn body(&self) -> Value {
        let body = self.text.split_once("\r\n\r\n").unwrap().1;
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{}", self.text))
    }
}

/// Sends a request with this token in a thread of its own and reads until the connection is closed.
/// `route` has the verb and the path.
pub(crate) fn http(daemon: &Daemon, token: &str, route: &str, body: &str) -> JoinHandle<HttpText> {
    let address = daemon.url().strip_prefix("http://").unwrap().to_owned();
    let request = format!(
        "{route} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer \
         {token}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        HttpText { text }
    })
}
