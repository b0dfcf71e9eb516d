//! What a program that a run has started may ask of the daemon: to look at its run and at what
//! is below it, to wait for that, and to cancel it. It approves nothing, and it changes nothing
//! that is not its own. The table of methods asks before each call.

use serde_json::{Map, Value};

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::registry::{Object, Registry};

/// The methods, each with the fields that name what it is about: one of them must be there, and
/// what it names must belong to the run. Those without fields are about nobody's own.
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
pub(super) fn check(
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
        // What is no text at all is refused by the method itself.
        .flatten()
        .collect();
    if named.is_empty() {
        return Err(refusal(run, method).hint("name a run or a session of its own"));
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

/// What a program of `run` is told that asks for more than it may.
pub(super) fn refusal(run: RunId, what: &str) -> Fault {
    Fault::new(
        Kind::Forbidden,
        format!(
            "a program that run {run} has started may not call {what}: over the socket it may \
             look at its own run and at what is below it, wait for that and cancel it. Nothing \
             was done"
        ),
    )
    .hint("ask for the rest from outside of the run")
    .with("runId", run.to_string())
}
