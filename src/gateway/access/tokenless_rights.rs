//! Rights of callers on the Unix socket without a token: read, and request work. A user's decisions
//! (approvals, answers, trust, agents, secrets) need the token, because the system reports which
//! user calls but not whether it is a person. The method table checks this before each call.

use std::path::Path;

use crate::gateway::methods::descriptions;
use crate::kernel::fault::{Fault, Kind};

/// Changing methods that need no token. A drain and a reload do what a signal of the same user can
/// do, too. Every other changing method, new ones included, needs the token.
const ORDINARY: &[&str] = &[
    "agent.run",
    "agents.reload",
    "gateway.drain",
    "gateway.reload",
    "memory.delete",
    "runs.cancel",
    "runs.dismiss_announce",
    "runs.retry",
    "runs.retry_announce",
    "runs.steer",
    "sessions.ack",
    "sessions.cancel",
    "sessions.compact",
    "sessions.create",
    "sessions.delete",
    "sessions.patch",
    "sessions.reset",
    "sessions.send",
    "sessions.spawn",
    "skills.refresh",
];

/// Refuses `method` if it needs the token; the caller has none.
pub(crate) fn check(method: &str, token_file: &Path) -> Result<(), Fault> {
    if !descriptions::changes(method) || ORDINARY.contains(&method) {
        return Ok(());
    }
    let file = token_file.display();
    Err(Fault::new(
        Kind::Unauthorized,
        format!(
            "{method} makes a decision for a user and needs the token over the socket, too; nothing \
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

    #[test]
    fn what_decides_for_a_person_needs_the_token_and_what_only_looks_does_not() {
        let needs = |method| check(method, Path::new("/s/token")).is_err();
        for method in [
            "approvals.resolve",
            "approvals.forget",
            "questions.answer",
            "runs.resolve",
            "runs.provide_env",
            "trust.add",
            "trust.revoke",
            "agents.create",
            "agents.update",
            "agents.delete",
            "gateway.backup",
            "tokens.create",
        ] {
            assert!(needs(method), "{method}");
        }
        for about in descriptions::METHODS {
            if about.effect == descriptions::Effect::Reads {
                assert!(!needs(about.name), "{}", about.name);
            }
        }
        for method in ORDINARY {
            assert!(
                descriptions::about(method).is_some(),
                "{method} does not exist"
            );
        }
    }
}
