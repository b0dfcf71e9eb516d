//! Counts ended runs and model usage in the transaction of the change, and raises an alert once per
//! hour for a passed threshold.

use serde_json::json;

use super::context::Context;
use crate::kernel::fault::Fault;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::usage::{HOUR, Verdict};
use crate::kernel::run::{Outcome, Run, RunState, Usage};
use crate::kernel::time::Timestamp;
use crate::store::tables::usage;

/// Minimum number of runs ended in an hour before the failure rate counts.
const LEAST_RUNS: u64 = 10;

/// Once this returns, the ended run is counted.
pub fn run_ended(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let RunState::Ended(outcome) = run.state else {
        return Ok(());
    };
    usage::add_run(context.tx, run, outcome)?;
    failures(context, run, outcome)
}

fn failures(context: &mut Context<'_>, run: &Run, outcome: Outcome) -> Result<(), Fault> {
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
        true => alert(context, &run.org, "failure_rate", percent, u64::from(most)),
        false => Ok(()),
    }
}

/// Once this returns, the usage of `model` by the run is counted.
pub fn used(context: &mut Context<'_>, run: &Run, model: &str, used: Usage) -> Result<(), Fault> {
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
        true => alert(context, &run.org, "cost_per_hour", spent, most),
        false => Ok(()),
    }
}

fn alert(
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
    let data = json!({
        "threshold": what,
        "value": value,
        "limit": limit,
        "since": Timestamp(hour * HOUR),
        "until": Timestamp((hour + 1) * HOUR),
    });
    context.emit_org(EventKind::UsageAlert, org, data);
    Ok(())
}
