//! Circuit breaker of delegations, computed from rows: calls of an agent that keeps failing are
//! refused for a while, and the caller's stream gets an event when the breaker opens or closes.

use serde_json::json;

use super::context::Context;
use super::delegated::emit_to_caller;
use crate::contract::catalog::Resolved;
use crate::kernel::delegation::named;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::{Outcome, Run, RunState};
use crate::store::tables::runs;

/// Key in a fault's data that marks a refusal by the breaker.
pub const BREAKER: &str = "breaker";
/// Key in such a fault's data that holds the agent's display name.
pub const AGENT_NAME: &str = "agentName";

/// Refuses a call of an agent whose breaker is open.
pub fn refuse(context: &mut Context<'_>, org: &str, agent: &Resolved) -> Result<(), Fault> {
    let policy = context.settings.breaker;
    if policy.failures == 0 {
        return Ok(());
    }
    let ends = runs::ends_of_calls(context.tx, org, &agent.id)?;
    let now = context.now.wall;
    let Some(until) = policy.open_until(&ends, now) else {
        return Ok(());
    };
    Err(Fault::new(
        Kind::Unavailable,
        format!(
            "{} has failed {} times in a row (delegation.breaker.failures): it is not \
             called again before {until}. Nothing was created",
            named(&agent.id, agent.name()),
            ends.iter().take_while(|end| end.failed).count()
        ),
    )
    .hint("continue without it, or retry later")
    .with(BREAKER, agent.id.as_str())
    .with(AGENT_NAME, agent.name())
    .with("retryAfterMs", until.since(now)))
}

/// Emits an event to the caller's stream if the end of a call opens or closes the breaker.
pub fn ended(context: &mut Context<'_>, run: &Run, caller: RunId) -> Result<(), Fault> {
    let policy = context.settings.breaker;
    let cancelled = run.state == RunState::Ended(Outcome::Cancelled);
    if policy.failures == 0 || cancelled {
        return Ok(());
    }
    let ends = runs::ends_of_calls(context.tx, &run.org, &run.agent)?;
    let before = ends.get(1..).unwrap_or_default();
    // A call that was under way when the breaker opened does not count.
    let was_open = policy.has_tripped(before);
    if was_open && before.first().is_some_and(|end| run.created_at <= end.at) {
        return Ok(());
    }
    let mut data = match policy.open_until(&ends, context.now.wall) {
        Some(until) => json!({ "state": "open", "until": until }),
        None if was_open && !policy.has_tripped(&ends) => json!({ "state": "closed" }),
        None => return Ok(()),
    };
    data["agent"] = json!(run.agent);
    let delegated = run.delegated.as_ref();
    data["agentName"] = json!(delegated.map(|of| &of.agent_name));
    emit_to_caller(context, caller, EventKind::DelegationBreaker, data)
}
