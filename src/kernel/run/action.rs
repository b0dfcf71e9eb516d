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
    /// In the transaction: append an event of this kind to the event log.
    Emit(EventKind),
    /// After the commit: queue the run for a slot.
    Enqueue,
    /// After the commit: free its slot and its session's turn.
    Release,
    /// After the commit: stop its executor, then report [`super::event::RunEvent::ExecutorGone`].
    StopExecutor,
    /// After the commit: wake the waiters of this run, which then read its row again.
    WakeWaiters,
}

crate::kernel::text::text_enum::text_enum! {
    /// The kind of an entry in the event log.
    EventKind {
        /// A session was created.
        SessionCreated = "session.created",
        /// A session was renamed, got another model or folder, or was reset, archived or restored.
        SessionUpdated = "session.updated",
        /// A session was deleted together with its transcript.
        SessionDeleted = "session.deleted",
        /// A new run is queued for its first slot.
        RunQueued = "run.queued",
        /// A run got its first slot.
        RunStarted = "run.started",
        /// A step's intent or outcome was committed.
        RunStep = "run.step",
        /// A run's turn has ended, but the run still waits for child runs or announces.
        RunSettling = "run.settling",
        /// A run is paused without a slot.
        RunPaused = "run.paused",
        /// A paused or requeued run got a slot again.
        RunResumed = "run.resumed",
        /// A run reached its terminal outcome.
        RunEnded = "run.ended",
        /// A run got new warnings, such as a leased resource that could not be released cleanly.
        RunWarned = "run.warned",
        /// A transcript has a new entry.
        MessageAdded = "message.added",
        /// The set of skills of a folder changed.
        SkillsChanged = "skills.changed",
        /// The announce of a run's end is queued for delivery.
        AnnounceQueued = "announce.queued",
        /// The announce of a run's end is in its requester's transcript.
        AnnounceDelivered = "announce.delivered",
        /// The announce of a run's end cannot be delivered; the result stays on the run.
        AnnounceHeld = "announce.held",
        /// A client acknowledged an announce in its inbox.
        AnnounceAcked = "announce.acked",
        /// An announce was dismissed and will not be delivered.
        AnnounceDismissed = "announce.dismissed",
        /// A tool call has started.
        ToolStarted = "tool.started",
        /// A tool call has its outcome.
        ToolCompleted = "tool.completed",
        /// A child run that carries out a tool call has begun or ended one of its own steps.
        ToolProgress = "tool.progress",
        /// An agent was called into its caller's session.
        SubAgentCallStart = "sub_agent.call_start",
        /// A called agent produced a piece of text.
        SubAgentPartial = "sub_agent.partial",
        /// A called agent has answered.
        SubAgentComplete = "sub_agent.complete",
        /// A called agent has failed.
        SubAgentError = "sub_agent.error",
        /// A planner delegated a task to another agent.
        DelegationStart = "delegation.start",
        /// A run that a planner delegated to has ended.
        DelegationComplete = "delegation.complete",
        /// The circuit breaker of an agent opened or closed for delegated calls.
        DelegationBreaker = "delegation.breaker",
        /// A run asks the user a question.
        QuestionAsked = "question.asked",
        /// A question was answered, expired, or was closed with its run.
        QuestionAnswered = "question.answered",
        /// A tool call waits for a person's approval.
        ApprovalRequested = "approval.requested",
        /// An approval was allowed, denied, expired, or was closed with its run.
        ApprovalResolved = "approval.resolved",
        /// Programs of a run may carry its environment from now on.
        EnvApplied = "env.applied",
        /// A run has ended, and no process carries its environment any more.
        EnvRestored = "env.restored",
        /// A run is paused because values of its environment are missing.
        EnvMissing = "env.missing",
        /// A client provided environment values for a run.
        EnvProvided = "env.provided",
        /// The set of configured agents changed.
        AgentsChanged = "agents.changed",
        /// Spending or failures within one hour passed a configured threshold.
        UsageAlert = "usage.alert",
        /// A condition that an operator should look at.
        AlertRaised = "alert.raised",
        /// A model provider stopped or resumed accepting requests.
        ProviderHealth = "provider.health",
        /// The daemon has started.
        GatewayStarted = "gateway.started",
        /// The daemon accepts no new work until it is stopped or resumes.
        GatewayDraining = "gateway.draining",
        /// The daemon accepts work again, after a drain or a restart.
        GatewayResumed = "gateway.resumed",
    }
}
