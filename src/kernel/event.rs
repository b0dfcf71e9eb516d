//! The events of the log: their kinds, and the data of each kind. Commands write it, and
//! `rpc.discover` shows its schemas; a test checks the events of a real daemon against them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::kernel::text::text_enum::text_enum;

mod delegation;
mod gateway;
mod node;
mod pattern;
mod request;
mod run;
mod session;

pub use delegation::*;
pub use gateway::*;
pub use node::*;
pub use pattern::KindPattern;
pub use request::*;
pub use run::*;
pub use session::*;

/// Value of an enum that later versions may extend.
pub type Word = Cow<'static, str>;

/// Declares the kinds of events with their text and their data: a type of the same name, or the one
/// in parentheses if several kinds share it.
macro_rules! events {
    ($($(#[$doc:meta])* $kind:ident $(($shared:ident))? = $text:literal,)+) => {
        text_enum! {
            /// The kind of an entry in the event log.
            EventKind { $($(#[$doc])* $kind = $text,)+ }
        }

        impl EventKind {
            /// Schema of the data of this kind.
            pub fn data_schema(self, generator: &mut SchemaGenerator) -> Schema {
                match self {
                    $(EventKind::$kind => schema::<data!($kind $($shared)?)>(generator),)+
                }
            }
        }

        /// The data of an event, which determines its kind.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum EventData {
            $($(#[$doc])* $kind(data!($kind $($shared)?)),)+
        }

        impl EventData {
            /// The kind of the event.
            pub fn kind(&self) -> EventKind {
                match self {
                    $(EventData::$kind(_) => EventKind::$kind,)+
                }
            }
        }

        $(from! { $kind $($shared)? })+
    };
}

macro_rules! data {
    ($kind:ident) => {
        $kind
    };
    ($kind:ident $shared:ident) => {
        $shared
    };
}

/// Data of one kind only needs no mention of that kind.
macro_rules! from {
    ($kind:ident) => {
        impl From<$kind> for EventData {
            fn from(data: $kind) -> Self {
                EventData::$kind(data)
            }
        }
    };
    ($kind:ident $shared:ident) => {};
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

events! {
    /// A session was created.
    SessionCreated = "session.created",
    /// A session was renamed, got another agent, model or folder, or was reset, archived or
    /// restored.
    SessionUpdated = "session.updated",
    /// A session was deleted together with its transcript.
    SessionDeleted = "session.deleted",
    /// A new run is queued for its first slot.
    RunQueued = "run.queued",
    /// A run got its first slot.
    RunStarted(RunMoved) = "run.started",
    /// A step's intent or outcome was committed.
    RunStep(StepMoved) = "run.step",
    /// A run's turn has ended, but the run still waits for child runs or announces.
    RunSettling(RunMoved) = "run.settling",
    /// A run is paused without a slot.
    RunPaused = "run.paused",
    /// A paused or requeued run got a slot again.
    RunResumed(RunMoved) = "run.resumed",
    /// A run got new warnings, such as a leased resource that could not be released cleanly.
    RunWarned = "run.warned",
    /// A run reached its terminal outcome.
    RunEnded = "run.ended",
    /// A transcript has a new entry.
    MessageAdded = "message.added",
    /// The announce of a run's end is queued for delivery.
    AnnounceQueued = "announce.queued",
    /// The announce of a run's end is in its requester's transcript.
    AnnounceDelivered = "announce.delivered",
    /// The announce of a run's end cannot be delivered; the result stays on the run.
    AnnounceHeld = "announce.held",
    /// An announce was dismissed and will not be delivered.
    AnnounceDismissed = "announce.dismissed",
    /// A client acknowledged an announce in its inbox.
    AnnounceAcked = "announce.acked",
    /// A tool call has started.
    ToolStarted(StepMoved) = "tool.started",
    /// A tool call has its outcome.
    ToolCompleted(StepMoved) = "tool.completed",
    /// A child run that carries out a tool call has begun or ended one of its own steps.
    ToolProgress = "tool.progress",
    /// Programs of a run may carry its environment from now on.
    EnvApplied = "env.applied",
    /// A run has ended, and no process carries its environment any more.
    EnvRestored(EnvNames) = "env.restored",
    /// A run is paused because values of its environment are missing.
    EnvMissing(EnvNames) = "env.missing",
    /// A client provided environment values for a run.
    EnvProvided(EnvNames) = "env.provided",
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
    /// The set of configured agents changed.
    AgentsChanged = "agents.changed",
    /// The set of skills of a folder changed.
    SkillsChanged = "skills.changed",
    /// A run asks the user a question.
    QuestionAsked = "question.asked",
    /// A question was answered, expired, or was closed with its run.
    QuestionAnswered = "question.answered",
    /// A tool call waits for a person's approval.
    ApprovalRequested = "approval.requested",
    /// An approval was allowed, denied, expired, or was closed with its run.
    ApprovalResolved = "approval.resolved",
    /// A node waits for an operator to admit it.
    NodeWaiting = "node.waiting",
    /// A node was paired.
    NodePaired = "node.paired",
    /// A node is connected.
    NodeConnected(NodeNamed) = "node.connected",
    /// A node was not heard of for 20 seconds.
    NodeLost = "node.lost",
    /// A node offers something that no operator has decided on.
    NodeOfferChanged = "node.offer_changed",
    /// An operator has renamed a node, or has decided on what it offers.
    NodeChanged = "node.changed",
    /// A node's allow-list asks the operator about a program.
    NodeAsked = "node.asked",
    /// A node was removed.
    NodeRemoved = "node.removed",
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
