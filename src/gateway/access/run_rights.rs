//! Rights of programs that a run has started: read their run and its descendants, wait for them,
//! and cancel them. They cannot approve anything or change anything outside that subtree. The
//! method table checks this before each call.

use serde_json::{Map, Value};

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::registry::{Object, Registry};

/// Allowed methods, each with the fields that name its object. At least one of the fields must be
/// present, and the objects must belong to the run. Methods without fields concern no particular
/// run or session.
const ALLOWED: &[(&str, &[&str])] = &[
    ("rpc.discover", &[]),
    ("gateway.hello", &[]),
    ("gateway.ping", &[]),
    ("agents.list", &[]),
    ("agents.get", &[]),
    ("runs.get", &["runId"]),
    ("runs.steps", &["runId"]),
    ("runs.cancel", &["runId"]),
    ("agent.wait", &["runId", "runIds"]),
    ("sessions.get", &["sessionKey"]),
    ("sessions.history", &["sessionKey"]),
];

/// Refuses a call that a program of `run` may not make.
pub(crate) fn check(
    registry: &Registry,
    run: RunId,
    method: &'static str,
    params: Option<&str>,
) -> Result<(), Fault> {
    let Some((_, fields)) = ALLOWED.iter().find(|(name, _)| *name == method) else {
        return Err(refusal(run, method));
    };
    if fields.is_empty() {
        return Ok(());
    }
    let params: Map<String, Value> = params
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let named: Vec<&str> = fields
        .iter()
        .filter_map(|field| params.get(*field))
        .flat_map(|value| match value {
            Value::Array(items) => items.iter().map(Value::as_str).collect(),
            value => vec![value.as_str()],
        })
        // A value that is not a string is refused by the method itself.
        .flatten()
        .collect();
    if named.is_empty() {
        return Err(refusal(run, method)
            .hint("name its own run, a descendant run, or one of their sessions"));
    }
    for name in named {
        let object = match name.parse() {
            Ok(id) => Object::Run(id),
            Err(_) => Object::Session(
                SessionKey::parse(name).map_err(|fault| Fault::params("sessionKey", fault))?,
            ),
        };
        if !registry.owns(run, &object)? {
            return Err(refusal(run, method).with("id", name));
        }
    }
    Ok(())
}

/// Error for a program of `run` that calls something it may not.
pub(crate) fn refusal(run: RunId, what: &str) -> Fault {
    Fault::new(
        Kind::Forbidden,
        format!(
            "a program that run {run} has started may not call {what}: over the socket it may \
             read its own run and its descendants, wait for them and cancel them. Nothing \
             was done"
        ),
    )
    .hint("make this call from outside the run")
    .with("runId", run.to_string())
}
