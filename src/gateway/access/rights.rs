//! Who may call which method, as the method table states it. The table of handlers checks this
//! before each call.
//!
//! - Callers on the Unix socket without a token read and request work. A user's decisions
//!   (approvals, answers, trust, agents, secrets) need the token, because the system reports which
//!   user calls but not whether it is a person.
//! - Programs that a run has started read their run and its descendants, wait for them, and cancel
//!   them. They cannot approve anything or change anything outside that subtree.

use std::path::Path;

use serde_json::{Map, Value};

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::registry::{Object, Principal, Registry};
use crate::wire::method::{Access, MethodRow};

/// Refuses a call that `who` may not make.
pub(crate) fn check(
    registry: &Registry,
    who: &Principal,
    method: &MethodRow,
    params: Option<&str>,
    token_file: &Path,
) -> Result<(), Fault> {
    match who.run {
        Some(run) => check_program(registry, run, method, params),
        None if who.with_token => Ok(()),
        None => check_tokenless(method, token_file),
    }
}

fn check_program(
    registry: &Registry,
    run: RunId,
    method: &MethodRow,
    params: Option<&str>,
) -> Result<(), Fault> {
    if method.access < Access::Program {
        return Err(refusal(run, method.name));
    }
    if method.object.is_empty() {
        return Ok(());
    }
    let params: Map<String, Value> = params
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let named: Vec<&str> = method
        .object
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
        return Err(refusal(run, method.name)
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
            return Err(refusal(run, method.name).with("id", name));
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

fn check_tokenless(method: &MethodRow, token_file: &Path) -> Result<(), Fault> {
    if method.access > Access::Token {
        return Ok(());
    }
    let name = method.name;
    let file = token_file.display();
    Err(Fault::new(
        Kind::Unauthorized,
        format!(
            "{name} makes a decision for a user and needs the token over the socket, too; nothing \
             was done"
        ),
    )
    .hint(format!(
        "send Authorization: Bearer with the token in {file} (abide does this automatically; \
         if the file is elsewhere, name it with --token-file)"
    ))
    .with("tokenFile", file.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::methods::METHODS;

    #[test]
    fn what_decides_for_a_person_needs_the_token() {
        let needs = METHODS
            .iter()
            .filter(|row| check_tokenless(row, Path::new("/s/token")).is_err());
        let mut needs: Vec<&str> = needs.map(|row| row.name).collect();
        needs.sort_unstable();
        assert_eq!(
            needs,
            [
                "agents.create",
                "agents.delete",
                "agents.update",
                "approvals.forget",
                "approvals.resolve",
                "gateway.backup",
                "questions.answer",
                "runs.provide_env",
                "runs.resolve",
                "trust.add",
                "trust.revoke",
            ]
        );
    }
}
