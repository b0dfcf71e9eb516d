//! Runs that end other than by the outcome of a step, and what an end is counted in: usage, and the
//! circuit breaker of delegations.

use super::RunAfter;
use super::context::Context;
use super::delegation::emit_to_caller;
use super::moves::{end_turn, load, move_run};
use crate::contract::catalog::Resolved;
use crate::kernel::delegation::named;
use crate::kernel::event::{DelegationBreaker, RunWarned, UsageAlert};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::machine::add_warnings;
use crate::kernel::run::step::Intent;
use crate::kernel::run::usage::{HOUR, Verdict};
use crate::kernel::run::{Outcome, Run, RunError, RunState, Usage};
use crate::kernel::text::storable;
use crate::kernel::time::Timestamp;
use crate::store::tables::{runs, usage};

/// The end of a turn as the runner decides it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnEnd {
    /// The final text.
    pub text: Option<String>,
    /// Next steps for the case that a steer message is waiting; the turn then continues with them.
    pub more: Vec<Intent>,
}

/// Why an open run ends other than by the outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Conclusion {
    /// A cancel was requested and the executor has stopped.
    ExecutorGone {
        /// Process ids of its child processes that could not be stopped.
        left: Vec<u32>,
    },
    /// Its turn has ended without a further step.
    EndTurn(TurnEnd),
    /// Its time limit passed; checked again in the transaction.
    TimedOut,
    /// It failed.
    Failed(RunError),
    /// It failed, and its partial findings are its result.
    Cut {
        /// The error.
        error: RunError,
        /// The partial findings.
        found: String,
    },
}

/// Once this returns, the run is back in its queue, at a step boundary.
pub fn park(context: &mut Context<'_>, id: RunId) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    let run = move_run(context, &run, RunEvent::Parked)?;
    Ok(RunAfter::with_steps(run, Vec::new()))
}

/// Once this returns, the run has ended or is marked to end. A run that had ended is unchanged.
pub fn conclude(context: &mut Context<'_>, id: RunId, why: Conclusion) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    if run.state.is_terminal() {
        return Ok(RunAfter::with_steps(run, Vec::new()));
    }
    let event = match why {
        Conclusion::ExecutorGone { left } => RunEvent::ExecutorGone {
            surviving_processes: left,
        },
        Conclusion::Failed(error) => RunEvent::Failed(error),
        Conclusion::Cut { error, found } => RunEvent::FailedWithPartial {
            error,
            found: storable(&found),
        },
        Conclusion::EndTurn(end) => {
            let ended = end_turn(context, &run, end)?;
            return Ok(RunAfter {
                run: ended.run,
                messages: ended.messages,
                steps: ended.steps,
            });
        }
        Conclusion::TimedOut => {
            if run.remaining_at(context.now.steady) != Some(0) {
                return Err(Fault::new(
                    Kind::Conflict,
                    format!("run {id} has time left"),
                ));
            }
            RunEvent::TimedOut
        }
    };
    let run = move_run(context, &run, event)?;
    Ok(RunAfter::with_steps(run, Vec::new()))
}

/// Once this returns, the run has these warnings, each once, with an event for the new ones.
pub fn warn_run(context: &mut Context<'_>, id: RunId, warnings: Vec<String>) -> Result<(), Fault> {
    let mut run = load(context, id)?;
    let before = run.warnings.len();
    add_warnings(&mut run.warnings, warnings);
    if run.warnings.len() > before {
        runs::set_warnings(context.tx, id, &run.warnings)?;
        let warnings = run.warnings[before..].to_vec();
        context.emit(&run, RunWarned { warnings });
    }
    Ok(())
}

/// Minimum number of runs ended in an hour before the failure rate counts.
const LEAST_RUNS: u64 = 10;

/// Once this returns, the ended run is counted.
pub fn count_run(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let RunState::Ended(outcome) = run.state else {
        return Ok(());
    };
    usage::add_run(context.tx, run, outcome)?;
    check_failure_rate(context, run, outcome)
}

fn check_failure_rate(context: &mut Context<'_>, run: &Run, outcome: Outcome) -> Result<(), Fault> {
    let Some(most) = context.settings.thresholds.failed_percent else {
        return Ok(());
    };
    if Verdict::of(outcome) != Verdict::Failed {
        return Ok(());
    }
    let hour = usage::hour(context.now.wall);
    let (all, failed) = usage::failed(context.tx, &run.org, hour)?;
    let percent = failed * 100 / all.max(1);
    match all >= LEAST_RUNS && percent >= u64::from(most) {
        true => alert_usage(context, &run.org, "failure_rate", percent, u64::from(most)),
        false => Ok(()),
    }
}

/// Once this returns, the usage of `model` by the run is counted.
pub fn count_use(
    context: &mut Context<'_>,
    run: &Run,
    model: &str,
    used: Usage,
) -> Result<(), Fault> {
    let now = context.now.wall;
    usage::add_use(context.tx, run, model, used, now)?;
    let Some(most) = context.settings.thresholds.cost_micros else {
        return Ok(());
    };
    if used.cost_micros == 0 {
        return Ok(());
    }
    let spent = usage::spent(context.tx, &run.org, usage::hour(now))?;
    match spent >= most {
        true => alert_usage(context, &run.org, "cost_per_hour", spent, most),
        false => Ok(()),
    }
}

fn alert_usage(
    context: &mut Context<'_>,
    org: &str,
    what: &'static str,
    value: u64,
    limit: u64,
) -> Result<(), Fault> {
    let hour = usage::hour(context.now.wall);
    if !usage::record_alert(context.tx, org, what, hour)? {
        return Ok(());
    }
    let data = UsageAlert {
        threshold: what.into(),
        value,
        limit,
        since: Timestamp(hour * HOUR),
        until: Timestamp((hour + 1) * HOUR),
    };
    context.emit_org(org, data);
    Ok(())
}

/// Key in a fault's data that marks a refusal by the breaker.
pub const BREAKER: &str = "breaker";
/// Key in such a fault's data that holds the agent's display name.
pub const AGENT_NAME: &str = "agentName";

/// Refuses a call of an agent whose breaker is open.
pub fn refuse_failing_agent(
    context: &mut Context<'_>,
    org: &str,
    agent: &Resolved,
) -> Result<(), Fault> {
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
pub fn update_breaker(
    context: &mut Context<'_>,
    run: &Run,
    caller: RunId,
    agent_name: &str,
) -> Result<(), Fault> {
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
    let until = policy.open_until(&ends, context.now.wall);
    let state = match until {
        Some(_) => "open",
        None if was_open && !policy.has_tripped(&ends) => "closed",
        None => return Ok(()),
    };
    let data = DelegationBreaker {
        agent: run.agent.clone(),
        agent_name: agent_name.to_owned(),
        state: state.into(),
        until,
    };
    emit_to_caller(context, caller, data)
}
