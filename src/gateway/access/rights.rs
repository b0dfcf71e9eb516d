//! Who may call which method, as the method table states it. The table of handlers checks this
//! before each call.
//!
//! - Callers on the Unix socket without a token read and request work. A user's decisions
//!   (approvals, answers, trust, agents, secrets) need the token, because the system reports which
//!   user calls but not whether it is a person.
//! - A caller with a token needs the scope that the row names. What concerns the whole daemon is for
//!   callers of its owner's org.
//! - Programs that a run has started read their run and its descendants, wait for them, and cancel
//!   them. They cannot approve anything or change anything outside that subtree.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::scope::Scope;
use crate::registry::{Object, Principal, Registry};
use crate::wire::method::{Access, Concerns, MethodRow};

/// Refuses a call that `who` may not make. Returns the principal for which it is made: a program acts
/// in the org of its run, whichever that is.
pub(crate) fn check(
    registry: &Registry,
    who: &Arc<Principal>,
    method: &MethodRow,
    params: Option<&str>,
    token_file: &Path,
) -> Result<Arc<Principal>, Fault> {
    if let Some(run) = who.run {
        check_program(registry, run, method, params)?;
        let of_run = registry.principal_of(run)?;
        return of_run
            .map(Arc::new)
            .ok_or_else(|| refusal(run, method.name));
    }
    if let Some(token) = &who.token {
        token.count_call()?;
    }
    if !who.with_token {
        check_tokenless(method, token_file)?;
    }
    check_client(who, method.name, method.scope, method.concerns)?;
    Ok(Arc::clone(who))
}

/// Refuses `what`, a method or route, to a client without its scope, and what concerns the whole
/// daemon to a client of another org than its owner's.
pub(crate) fn check_client(
    who: &Principal,
    what: &str,
    scope: Option<Scope>,
    concerns: Concerns,
) -> Result<(), Fault> {
    if let Some(scope) = scope.filter(|scope| !who.scopes.contains(*scope)) {
        let message = format!(
            "{what} needs the scope {scope}, and this token has {}; nothing was done",
            who.scopes
        );
        return Err(Fault::new(Kind::Forbidden, message)
            .hint("use a token with that scope, or have an administrator create one")
            .with("scope", scope.as_str())
            .with("scopes", who.scopes.to_string()));
    }
    if concerns == Concerns::Daemon && !who.is_of_owner_org() {
        let message = format!(
            "{what} concerns the whole daemon and is for the org of its owner; nothing was done"
        );
        return Err(
            Fault::new(Kind::Forbidden, message).hint("have the operator of the daemon do it")
        );
    }
    Ok(())
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

    fn check_row(who: &Principal, row: &MethodRow) -> Result<(), Fault> {
        check_client(who, row.name, row.scope, row.concerns)
    }

    #[test]
    fn a_missing_scope_is_named_with_those_that_the_token_has() {
        let mut who = Principal::owner();
        for row in METHODS {
            assert!(check_row(&who, row).is_ok(), "{}", row.name);
        }
        who.scopes = [Scope::Read, Scope::Run].into_iter().collect();
        for row in METHODS {
            let may = row.scope.is_none_or(|scope| who.scopes.contains(scope));
            match check_row(&who, row) {
                Ok(()) => assert!(may, "{}", row.name),
                Err(fault) => {
                    let scope = row.scope.unwrap().as_str();
                    assert!(!may && fault.message.contains(scope), "{fault}");
                    assert!(fault.message.contains("has read,run"), "{fault}");
                }
            }
        }
    }

    #[test]
    fn another_org_does_not_operate_the_daemon() {
        let mut who = Principal::owner();
        who.org = "other".to_owned();
        let refused = METHODS.iter().filter(|row| check_row(&who, row).is_err());
        let refused: Vec<&str> = refused.map(|row| row.name).collect();
        assert_eq!(
            refused,
            [
                "gateway.drain",
                "gateway.cancel_runs",
                "gateway.config",
                "gateway.reload",
                "gateway.backup",
                "gateway.doctor",
                "agents.reload",
                "mcp.list",
                "trust.add",
                "trust.list",
                "trust.revoke",
                "webhooks.list",
                "webhooks.dead",
                "webhooks.replay",
                "webhooks.drop",
            ]
        );
    }

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
                "nodes.answer",
                "nodes.approve",
                "nodes.call",
                "nodes.invite",
                "nodes.refuse",
                "nodes.remove",
                "nodes.rename",
                "questions.answer",
                "runs.provide_env",
                "runs.resolve",
                "sessions.set_servers",
                "tokens.create",
                "tokens.revoke",
                "trust.add",
                "trust.revoke",
                "webhooks.drop",
                "webhooks.replay",
            ]
        );
    }
}
