//! What must be done because a run has moved: data, so that tests can look at it. The
//! machine decides, the store does the durable ones in the same transaction, the registry
//! does the others after the commit.

/// What must be done because a run has moved.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// In the transaction: write the outbox row of this run's end.
    Announce,
    /// In the transaction: cancel every open run below, `by: parent_ended`.
    CancelDescendants,
    /// In the transaction: the requester's settling run may be owed nothing any more.
    SettleRequester,
    /// In the transaction: append this kind to the event log.
    Emit(EventKind),
    /// After the commit: the run wants a slot.
    Enqueue,
    /// After the commit: its slot and its session's turn are free.
    Release,
    /// After the commit: stop its executor, then report [`super::event::RunEvent::ExecutorGone`].
    StopExecutor,
    /// After the commit: whoever waits for it reads the row again.
    WakeWaiters,
}

super::text_enum::text_enum! {
    /// Kinds of the event log.
    EventKind {
        /// A session was made.
        SessionCreated = "session.created",
        /// A session was renamed, given another model or folder, reset, archived or brought back.
        SessionUpdated = "session.updated",
        /// A session is gone, with its transcript.
        SessionDeleted = "session.deleted",
        /// A run wants a slot, the first time.
        RunQueued = "run.queued",
        /// A run got its first slot.
        RunStarted = "run.started",
        /// A step has an intent or an outcome.
        RunStep = "run.step",
        /// A run's turn is over, not yet the run.
        RunSettling = "run.settling",
        /// A run holds still.
        RunPaused = "run.paused",
        /// A run wants a slot again.
        RunResumed = "run.resumed",
        /// A run has ended.
        RunEnded = "run.ended",
        /// What a run was lent could not be taken back as it should.
        RunWarned = "run.warned",
        /// A transcript has a new entry.
        MessageAdded = "message.added",
        /// The skills of a folder have changed.
        SkillsChanged = "skills.changed",
        /// A run's end waits to be told.
        AnnounceQueued = "announce.queued",
        /// A run's end is in its requester's transcript.
        AnnounceDelivered = "announce.delivered",
        /// A run's end cannot be told; it stays on the run.
        AnnounceHeld = "announce.held",
        /// The client has taken note of an announce.
        AnnounceAcked = "announce.acked",
        /// Somebody has decided that a run's end need not be told.
        AnnounceDismissed = "announce.dismissed",
        /// A tool call begins.
        ToolStarted = "tool.started",
        /// A tool call has its outcome.
        ToolCompleted = "tool.completed",
        /// A run that carries out a call of a tool has begun or ended a step of its own.
        ToolProgress = "tool.progress",
        /// An agent was called into its caller's session.
        SubAgentCallStart = "sub_agent.call_start",
        /// It says something.
        SubAgentPartial = "sub_agent.partial",
        /// It has answered.
        SubAgentComplete = "sub_agent.complete",
        /// It has failed.
        SubAgentError = "sub_agent.error",
        /// A plan has another agent do something.
        DelegationStart = "delegation.start",
        /// That agent has ended.
        DelegationComplete = "delegation.complete",
        /// Calls of an agent are let through no more, or again.
        DelegationBreaker = "delegation.breaker",
        /// A run asks a person something.
        QuestionAsked = "question.asked",
        /// A question is over: answered, run out, or closed with its run.
        QuestionAnswered = "question.answered",
        /// A call of a tool waits for a person's leave.
        ApprovalRequested = "approval.requested",
        /// An approval is over: allowed, denied, run out, or closed with its run.
        ApprovalResolved = "approval.resolved",
        /// Programs of a run may carry its environment from now on.
        EnvApplied = "env.applied",
        /// A run has ended, and nothing carries its environment any more.
        EnvRestored = "env.restored",
        /// A run holds still for values of its environment.
        EnvMissing = "env.missing",
        /// Somebody has given values to a run.
        EnvProvided = "env.provided",
        /// Other agents count than before.
        AgentsChanged = "agents.changed",
        /// More was spent, or more has failed, in an hour than somebody wants to be told of.
        UsageAlert = "usage.alert",
        /// Something that a person should look at.
        AlertRaised = "alert.raised",
        /// A provider of models takes no requests, or does again.
        ProviderHealth = "provider.health",
        /// The daemon is up.
        GatewayStarted = "gateway.started",
        /// The daemon takes no work until it is stopped or resumes.
        GatewayDraining = "gateway.draining",
        /// The daemon takes work again after it was away.
        GatewayResumed = "gateway.resumed",
    }
}
