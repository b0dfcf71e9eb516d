//! What meets at a commit of the store: the settings that its commands apply, and the work for the
//! registry that follows from them.

use crate::kernel::delegation::breaker::BreakerPolicy;
use crate::kernel::ids::{AgentId, RunId, SessionId};
use crate::kernel::policy::Policy;
use crate::kernel::run::budget::Budget;
use crate::kernel::run::limits::SpawnLimits;
use crate::kernel::run::recover::{Loss, RecoveryPolicy};
use crate::kernel::run::step::SUMMARY;
use crate::kernel::run::{Lane, Outcome, Run, RunOrigin, RunState, Usage};
use crate::kernel::text::preview;
use crate::kernel::time::Timestamp;
use crate::kernel::token::AccessToken;

/// Settings that commands apply.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    /// Limits of spawning.
    pub limits: SpawnLimits,
    /// How open runs are recovered after a kill.
    pub recovery: RecoveryPolicy,
    /// What sessions may do with each other.
    pub policy: Policy,
    /// Maximum number of turns of a reply exchange after the first answer.
    pub max_ping_pong: u32,
    /// When calls of a failing agent are refused.
    pub breaker: BreakerPolicy,
    /// Budget of a run without a parent run, shared with its descendants.
    pub tree_budget: Budget,
    /// Maximum number of audit rows; the newest are kept.
    pub audit_rows: u32,
    /// Maximum number of memories per namespace.
    pub max_memories: u32,
    /// Thresholds that raise a usage alert.
    pub thresholds: Thresholds,
}

/// Alert thresholds per hour; `None` disables one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Cost of a tenant, in millionths.
    pub cost_micros: Option<u64>,
    /// Percentage of failed runs.
    pub failed_percent: Option<u32>,
}

/// A run that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The run.
    pub run: RunId,
    /// Its session, which has one turn at a time.
    pub session: SessionId,
    /// Levels below a root session. A called run has a greater depth than its caller in the same
    /// session.
    pub depth: u32,
    /// For a called run: the run whose turn it leases, and that run's step.
    pub called_by: Option<(RunId, u32)>,
    /// Slots are shared fairly between root sessions.
    pub root_session: SessionId,
    /// Within a root session, slots are shared fairly between requesters.
    pub requester: SessionId,
    /// Its lane.
    pub lane: Lane,
    /// It held a slot before, delivers announces, or is a called run; it goes before new work.
    pub first: bool,
    /// It is in the middle of its session's turn, so no other turn may begin there first.
    pub in_turn: bool,
    /// Earliest start time; used for recovery backoff.
    pub not_before: Option<Timestamp>,
}

impl Ticket {
    /// The ticket of a queued run; `in_turn` says whether it is in the middle of a turn.
    pub fn of(run: &Run, in_turn: bool) -> Ticket {
        let step = run.delegated.as_ref().map(|of| of.step);
        Ticket {
            run: run.id,
            session: run.session,
            depth: run.depth,
            called_by: run.parent_run.zip(step).filter(|_| run.is_called()),
            root_session: run.root_session,
            requester: run
                .requester
                .as_ref()
                .map_or(run.session, |requester| requester.session),
            lane: run.lane,
            in_turn,
            first: run.started_at.is_some()
                || run.origin == RunOrigin::Wake
                // It is part of a turn under way.
                || run.is_called(),
            not_before: run.not_before,
        }
    }
}

/// A pending wait with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PendingWait {
    /// The wait of a run's step.
    Step(RunId, u32),
    /// The wait of a client's call for the reply of this run.
    Call(RunId),
}

/// The start of a delegation, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelegationStarted {
    /// The child run.
    pub run: RunId,
    /// The parent run.
    pub parent: RunId,
    /// The trace id of both.
    pub trace: String,
    /// The agent that carries it out.
    pub agent: AgentId,
    /// The agent of the parent run.
    pub supervisor: AgentId,
    /// The delegation mode; `spawn` if the parent does not wait.
    pub mode: &'static str,
    /// The beginning of the task.
    pub task: String,
}

/// The end of a delegation, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The child run.
    pub run: RunId,
    /// The parent run.
    pub parent: RunId,
    /// The trace id of both.
    pub trace: String,
    /// The agent that carried it out.
    pub agent: AgentId,
    /// The delegation mode; `spawn` if the parent did not wait.
    pub mode: &'static str,
    /// The child run's outcome.
    pub outcome: Outcome,
    /// Milliseconds from accepted to ended.
    pub lived_ms: u64,
    /// Number of tool calls that it made.
    pub tool_calls: u32,
    /// Model usage of the run.
    pub usage: Usage,
    /// The beginning of its result, or of its error.
    pub said: String,
}

impl Delegation {
    /// The end of this run's delegation; `None` if it is open or has no parent run.
    pub fn of(run: &Run) -> Option<Delegation> {
        let (RunState::Ended(outcome), Some(parent)) = (run.state, run.parent_run) else {
            return None;
        };
        let error = run.error.as_ref().map(|error| error.message.as_str());
        let said = run.result.as_deref().or(error).unwrap_or_default();
        let ended = run.ended_at.unwrap_or(run.created_at);
        Some(Delegation {
            run: run.id,
            parent,
            trace: run.trace_id.clone(),
            agent: run.agent.clone(),
            mode: Self::mode(run),
            outcome,
            lived_ms: ended.since(run.created_at),
            tool_calls: run.tool_calls,
            usage: run.usage,
            said: preview(said, SUMMARY),
        })
    }

    /// The delegation mode of a run; its origin (such as `spawn`) if no step waits for it.
    pub fn mode(run: &Run) -> &'static str {
        match &run.delegated {
            Some(delegated) => delegated.mode.as_str(),
            None => run.origin.as_str(),
        }
    }
}

/// The log line that the previous process may not have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedLog {
    /// The line about the start.
    Begin,
    /// The line about the end.
    End,
}

/// Work for the registry after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitEffect {
    /// The run waits for a slot.
    Enqueue(Ticket),
    /// The run's executor must stop.
    StopExecutor(RunId),
    /// A waiting step of the run may be carried out now by its drive task.
    Released(RunId),
    /// The run is settling, or paused while its time counts, with this many milliseconds left of
    /// its limit.
    Settling(RunId, Option<u64>),
    /// The run is paused in the middle of this session's turn and keeps the turn; the number is its
    /// depth.
    Paused(RunId, SessionId, u32),
    /// The wait has this deadline.
    Window(PendingWait, Timestamp),
    /// The wait is over and needs no timer.
    WindowClosed(PendingWait),
    /// A turn that answered another session has ended, and its follow-up is due.
    Exchange(RunId),
    /// The run has ended.
    Ended(RunId),
    /// The run has ended, and processes may still hold its environment.
    Carried(RunId),
    /// The run has ended with this outcome, this many milliseconds after it was accepted.
    Outcome(RunId, Outcome, u64),
    /// A delegation has started.
    DelegationBegun(Box<DelegationStarted>),
    /// A delegation has ended.
    DelegationOver(Box<Delegation>),
    /// A kill may have prevented this log line of the run.
    Untold(RunId, MissedLog),
    /// Stored agents or trusted projects have changed.
    AgentsChanged,
    /// The access token is new or revoked.
    TokenChanged(Box<AccessToken>),
    /// The run must be recovered once its age can be determined.
    AgeUnknown(RunId, Loss),
    /// The session has undelivered announces and no turn under way.
    Deliverable(SessionId),
    /// A deleted session has rows to purge.
    Purge(SessionId),
}
