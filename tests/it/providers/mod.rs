//! Providers over HTTP, with the real binary and real sockets: whole turns with tools, server
//! failures, and what is sent back after a kill.

mod bounds;
mod budgets;
mod chat;
mod conversations;
mod faults;
mod forms;
mod health;
mod history;
mod keys;
mod long;
mod malformed;
mod messages;
pub(crate) mod outside;
mod streams;
mod switch;
mod tables;

use serde_json::Value;

use crate::harness::{ModelServer, Place, Script};

/// A place whose models are at `server`: `chat/…` over Chat Completions, `claude/…` over Messages.
/// The backoff is short.
pub(crate) fn place(server: &ModelServer, model: &str) -> Place {
    let mut place = Place::new(Script::new());
    for (name, kind, path) in [("chat", "openai", "/v1"), ("claude", "anthropic", "")] {
        for (field, value) in [
            ("kind", kind.to_owned()),
            ("base_url", server.url(path)),
            ("retry_wait", "1ms".to_owned()),
        ] {
            place.set(&format!("providers.{name}.{field}"), &format!("{value:?}"));
        }
    }
    place.with("defaults.model", &format!("{model:?}"))
}

/// The messages of a request.
fn messages_of(request: &Value) -> &Vec<Value> {
    request["messages"].as_array().unwrap()
}
