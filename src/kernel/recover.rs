//! What becomes of an open run that no executor holds any more: after a kill, or after its
//! drive task was lost.

use super::event::RunEvent;
use super::ids::StepId;
use super::run::{Run, RunError, RunState};
use super::step::{Effect, Step, StepKind, StepState};
use super::time::Timestamp;

/// The settings of recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPolicy {
    /// Open runs whose last activity is older are closed, milliseconds.
    pub max_age_ms: u64,
    /// So many recoveries in the middle of a step, without a finished step since, are tried.
    pub max_attempts: u32,
}

impl Default for RecoveryPolicy {
    fn default() -> Self {
        RecoveryPolicy {
            max_age_ms: 24 * 3600 * 1000,
            max_attempts: 5,
        }
    }
}

/// What happens to one open step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepFate {
    /// Its effect has not begun: carried out now.
    Perform,
    /// Its effect may have begun, and may be repeated.
    Repeat,
    /// Its effect may have happened and must not be repeated: the model is told so.
    Uncertain,
}

/// What happens to one open run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What the machine is given.
    pub event: RunEvent,
    /// What happens to its open steps, in call order. Empty when the run ends.
    pub steps: Vec<(StepId, StepFate)>,
    /// Its end is told without waking anybody's model.
    pub quietly: bool,
}

/// Decides what becomes of `run`, whose open steps are `open` in call order.
///
/// `unclean`: the executor was lost to a kill or a panic, not to a drain.
pub fn recover(
    run: &Run,
    open: &[Step],
    unclean: bool,
    policy: RecoveryPolicy,
    now: Timestamp,
) -> Plan {
    if run.cancel.is_none() {
        let idle = now.since(run.last_activity_at);
        if idle > policy.max_age_ms {
            return ends(
                "too_old",
                format!(
                    "nothing had happened for {} when the daemon came back (recovery.max_age {})",
                    duration(idle),
                    duration(policy.max_age_ms)
                ),
                true,
            );
        }
    }
    let counts = unclean && run.state == RunState::Running && !open.is_empty();
    let recoveries = run.recoveries + u32::from(counts);
    if run.cancel.is_none() && counts && recoveries > policy.max_attempts {
        return ends(
            "recovery_attempts",
            format!(
                "the daemon ended in the middle of the same step {recoveries} times \
                 (recovery.max_attempts {})",
                policy.max_attempts
            ),
            false,
        );
    }
    let steps = open.iter().map(|step| (step.id, fate(step))).collect();
    Plan {
        event: RunEvent::Recovered {
            counts,
            delay_ms: if counts { delay_ms(recoveries) } else { 0 },
        },
        steps,
        quietly: false,
    }
}

/// What happens to one open step.
pub fn fate(step: &Step) -> StepFate {
    match (step.kind, step.effect, step.state) {
        (StepKind::Tool, Effect::Once, StepState::Started) => StepFate::Uncertain,
        (StepKind::Tool, Effect::Once, _) => StepFate::Perform,
        _ => StepFate::Repeat,
    }
}

/// The first recovery goes on at once, the next ones after 1, 5, 25 … seconds.
fn delay_ms(recoveries: u32) -> u64 {
    match recoveries {
        0 | 1 => 0,
        n => 1000 * 5u64.saturating_pow((n - 2).min(6)),
    }
}

fn ends(kind: &str, message: String, quietly: bool) -> Plan {
    Plan {
        event: RunEvent::Interrupted(RunError::new(kind, message)),
        steps: Vec::new(),
        quietly,
    }
}

fn duration(ms: u64) -> String {
    humantime::format_duration(std::time::Duration::from_secs(ms / 1000)).to_string()
}
