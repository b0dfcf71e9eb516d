//! What can happen to a run. The machine takes these and nothing else.

use super::run::{CancelRequest, PauseReason, RunError};

/// What a run that ends its turn still owes or is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// Runs asked for from its session that have not ended.
    pub open_children: bool,
    /// Announces for its session that no model call has seen.
    pub unseen_announces: bool,
}

impl Owed {
    /// Nothing is owed in either direction.
    pub fn is_nothing(self) -> bool {
        !self.open_children && !self.unseen_announces
    }
}

/// What can happen to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum RunEvent {
    /// It was given a slot and its session's turn.
    Started,
    /// Intents of this many steps are written.
    StepsIntended {
        /// How many.
        count: u32,
    },
    /// A step has its outcome.
    StepEnded {
        /// What it did.
        kind: super::step::StepKind,
        /// What it used.
        usage: super::run::Usage,
        /// What the caller should know of it.
        warnings: Vec<String>,
    },
    /// Its turn is over, with this final text.
    TurnEnded {
        /// `None` or blank: it had no answer.
        text: Option<String>,
        /// What is owed, read in the same transaction.
        owed: Owed,
    },
    /// A child ended, or an announce was put aside: look again whether anything is owed.
    OwedChanged {
        /// What is owed, read in the same transaction.
        owed: Owed,
    },
    /// Announces were appended to its transcript while it was settling.
    AnnouncesDelivered,
    /// The daemon drains: back to the queue, at a step boundary.
    Parked,
    /// It must hold still.
    Paused(PauseReason),
    /// What it waited for is there.
    Resumed,
    /// It cannot go on.
    Failed(RunError),
    /// It cannot go on, and what it has found so far is its result.
    Cut {
        /// Why.
        error: RunError,
        /// What it has found.
        found: String,
    },
    /// Its own limit passed.
    TimedOut,
    /// Somebody wants it to end.
    CancelRequested(CancelRequest),
    /// Its executor has stopped. Of what it had started nothing is left but these processes,
    /// which could not be ended.
    ExecutorGone {
        /// Their numbers.
        left: Vec<u32>,
    },
    /// A restart (or a lost executor) met it; what is to be done was decided by
    /// [`super::recover`].
    Recovered {
        /// It counts against the recoveries that are tried.
        counts: bool,
        /// Wait this long before going on.
        delay_ms: u64,
    },
    /// It cannot be carried on after a crash.
    Interrupted(RunError),
}
