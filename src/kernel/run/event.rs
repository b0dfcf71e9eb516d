//! The events that the run state machine accepts.

use crate::kernel::run::{CancelRequest, PauseReason, RunError};

/// What is still pending for a run that ends its turn, in either direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Runs that its session requested have not ended.
    pub open_children: bool,
    /// Announces are in its session's transcript that no model call has seen.
    pub unseen_announces: bool,
}

impl Pending {
    /// True if nothing is pending in either direction.
    pub fn is_nothing(self) -> bool {
        !self.open_children && !self.unseen_announces
    }
}

/// An event of the run state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// It got a slot and its session's turn.
    Started,
    /// The intents of new steps were committed.
    StepsIntended {
        /// Number of the new steps.
        count: u32,
    },
    /// A step has its outcome.
    StepEnded {
        /// The kind of the step.
        kind: super::step::StepKind,
        /// Model usage of the step.
        usage: crate::kernel::run::Usage,
        /// Warnings for the caller of the run.
        warnings: Vec<String>,
    },
    /// Its turn has ended.
    TurnEnded {
        /// The final text of the turn; `None` or blank if there was no answer.
        text: Option<String>,
        /// What is pending, read in the same transaction.
        owed: Pending,
    },
    /// A child run ended, or an announce was dismissed: re-check what is pending.
    OwedChanged {
        /// What is pending, read in the same transaction.
        owed: Pending,
    },
    /// Announces were appended to its transcript while it was settling.
    AnnouncesDelivered,
    /// The daemon drains: the run goes back to the queue at a step boundary.
    Parked,
    /// It is paused for this reason.
    Paused(PauseReason),
    /// The reason of its pause is gone.
    Resumed,
    /// It failed and cannot continue.
    Failed(RunError),
    /// It cannot continue; its partial result is kept as its result.
    FailedWithPartial {
        /// Why it cannot continue.
        error: RunError,
        /// The partial result.
        found: String,
    },
    /// It exceeded its own time limit.
    TimedOut,
    /// A cancel was requested.
    CancelRequested(CancelRequest),
    /// A cancel was requested of a queued run whose program goes on: it ends once the program has.
    ProgramCancelRequested(CancelRequest),
    /// Its executor has stopped.
    ExecutorGone {
        /// Ids of the processes it had started that could not be terminated; empty if none is left.
        surviving_processes: Vec<u32>,
    },
    /// It was recovered after a restart or the loss of its executor, as [`super::recover`] decided.
    Recovered {
        /// Whether it counts towards the maximum number of recoveries.
        counts: bool,
        /// Delay before it may start again, in milliseconds; 0 = none.
        delay_ms: u64,
    },
    /// It cannot be continued after a crash.
    Interrupted(RunError),
}
