//! The actions that follow from a run's transition, as data, so that tests can inspect them. The
//! state machine decides, the store applies the durable ones in the same transaction, and the
//! registry performs the rest after the commit.

/// An action that follows from a run's transition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// In the transaction: write the outbox row that announces this run's end.
    Announce,
    /// In the transaction: cancel every open descendant run, with `by: parent_ended`.
    CancelDescendants,
    /// In the transaction: re-check the requester's settling run; it may have nothing pending any
    /// more.
    SettleRequester,
    /// In the transaction: append the event of this change to the event log.
    Emit(Milestone),
    /// After the commit: queue the run for a slot.
    Enqueue,
    /// After the commit: free its slot and its session's turn.
    Release,
    /// After the commit: stop its executor, then report [`super::event::RunEvent::ExecutorGone`].
    StopExecutor,
    /// After the commit: wake the waiters of this run, which then read its row again.
    WakeWaiters,
}

/// A change of a run's state that has an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Milestone {
    /// It got its first slot.
    Started,
    /// It got a slot again.
    Resumed,
    /// Its turn has ended, and it waits for child runs or announces.
    Settling,
    /// It is paused without a slot.
    Paused,
    /// It reached its terminal outcome.
    Ended,
}
