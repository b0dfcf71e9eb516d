//! A step: one journaled action of a run. Its intent is committed before the effect, its
//! outcome after, under one id.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ids::{RunId, StepId};
use super::run::{PauseReason, Usage};
use super::text_enum::text_enum;
use super::time::Timestamp;

text_enum! {
    /// What a step does.
    StepKind {
        /// Asks the model.
        Model = "model",
        /// Calls a tool.
        Tool = "tool",
        /// Runs the program that the agent is.
        Command = "command",
        /// Shortens what the model sees of the transcript.
        Compaction = "compaction",
    }
}

impl StepKind {
    /// May it use what a budget counts?
    pub fn asks_a_model(self) -> bool {
        matches!(self, StepKind::Model | StepKind::Compaction)
    }

    /// Does it answer what stands in the transcript? Then its outcome is a text of the agent,
    /// and at its intent what waits enters the turn.
    pub fn answers(self) -> bool {
        matches!(self, StepKind::Model | StepKind::Command)
    }
}

/// With this begins the error of a model call whose request the provider found too long.
pub const TOO_LONG: &str = "context_too_long";

text_enum! {
    /// What a repeat of the step would do to the world.
    Effect {
        /// Nothing: repeat freely.
        Read = "read",
        /// Nothing more: repeat with the same key.
        Idempotent = "idempotent",
        /// Something again: never repeat blindly.
        Once = "once",
    }
}

text_enum! {
    /// How far a step has come.
    StepState {
        /// Committed; the effect may begin.
        Intended = "intended",
        /// The effect of a `once` step has begun.
        Started = "started",
        /// It has an outcome.
        Done = "done",
        /// It failed, and the failure is its outcome.
        Failed = "failed",
        /// Begun, and nobody knows whether it happened.
        Uncertain = "uncertain",
    }
}

impl StepState {
    /// Does it still need an outcome?
    pub fn is_open(self) -> bool {
        matches!(self, StepState::Intended | StepState::Started)
    }
}

text_enum! {
    /// What a step waits for whose outcome comes from elsewhere.
    WaitKind {
        /// The end of the turn that answers a message to another session.
        Reply = "reply",
        /// The ends of all these runs.
        Child = "child",
        /// The end of one of these runs.
        AnyChild = "any_child",
        /// A person's answer.
        Answer = "answer",
        /// A person's leave to be carried out at all.
        Approval = "approval",
        /// A person's word on whether its effect has happened.
        Review = "review",
        /// A value of its run's environment.
        Value = "value",
        /// The provider of its model, which takes no requests before the window is over. Then the
        /// step is carried out once more.
        Provider = "provider",
    }
}

impl WaitKind {
    /// Why a run holds still that has nothing else to do.
    pub fn pause(self) -> PauseReason {
        match self {
            WaitKind::Reply => PauseReason::Reply,
            WaitKind::Child | WaitKind::AnyChild => PauseReason::Child,
            WaitKind::Answer | WaitKind::Value => PauseReason::Input,
            WaitKind::Approval => PauseReason::Approval,
            WaitKind::Review => PauseReason::Review,
            WaitKind::Provider => PauseReason::Provider,
        }
    }
}

/// A step's outcome comes from elsewhere, or the window runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What it waits for.
    pub kind: WaitKind,
    /// When the window is over; `None`: never, somebody must say something.
    pub until: Option<Timestamp>,
}

/// One journaled action of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its id, the idempotency key of its effect.
    pub id: StepId,
    /// The run it belongs to.
    pub run: RunId,
    /// Its place in the run: 1, 2, 3 …
    pub seq: u32,
    /// What it does.
    pub kind: StepKind,
    /// For a tool call, which tool.
    pub tool: Option<String>,
    /// For a tool call, the model's name for the call.
    pub tool_call: Option<String>,
    /// For a tool call, the step of the model answer that asked for it.
    pub asked_by: Option<StepId>,
    /// What a repeat would do.
    pub effect: Effect,
    /// How far it has come.
    pub state: StepState,
    /// For a tool call its arguments.
    pub input: Value,
    /// For a step that answers, the last message of the transcript that it sees.
    pub seen_up_to: Option<i64>,
    /// The message that holds its outcome.
    pub message_seq: Option<i64>,
    /// The arguments on one line.
    pub params_summary: Option<String>,
    /// The outcome on one line.
    pub result_summary: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// How often it was begun: 1, and one more for each recovery that met it open.
    pub attempts: u32,
    /// When its intent was committed.
    pub started_at: Timestamp,
    /// When its outcome was committed.
    pub ended_at: Option<Timestamp>,
    /// Its outcome comes from elsewhere: nobody carries it out any more.
    pub waits: Option<Wait>,
    /// What it used of a model, if it asked one.
    pub used: Option<Used>,
}

/// What one step used of the model that answered it, which need not be the one of its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// Which model.
    pub model: String,
    /// How much of it.
    #[serde(flatten)]
    pub usage: Usage,
}

impl Step {
    /// Was it a model call whose request the provider found too long?
    pub fn was_too_long(&self) -> bool {
        let error = self.error.as_deref().unwrap_or_default();
        self.kind == StepKind::Model
            && self.state == StepState::Failed
            && error.starts_with(TOO_LONG)
    }
}

/// The name in a model call's input, and in the metadata of its answer, below which stands what
/// the call is for, where a run goes by plans.
pub const NODE: &str = "node";

text_enum! {
    /// What a model call is for, where a run goes by plans.
    Node {
        /// What is to be done.
        Plan = "plan",
        /// What came of it.
        Reflect = "reflect",
        /// The answer.
        Respond = "respond",
    }
}

/// The name in a model call's input below which stands why it is the last one of its run.
pub const CUT: &str = "cut";

text_enum! {
    /// Why a run by plans is to answer with what it has.
    Cut {
        /// Its model calls are used up.
        MaxLoops = "max_loops",
        /// The model gives no plan that can be carried out.
        BadPlan = "bad_plan",
    }
}

/// A step that a runner wants to take; the store gives it its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Its id.
    pub id: StepId,
    /// What it does.
    pub kind: StepKind,
    /// For a tool call, which tool.
    pub tool: Option<String>,
    /// For a tool call, the model's name for the call.
    pub tool_call: Option<String>,
    /// For a tool call, the step of the model answer that asked for it.
    pub asked_by: Option<StepId>,
    /// What a repeat would do.
    pub effect: Effect,
    /// For a tool call its arguments, else null.
    pub input: Value,
    /// The arguments on one line.
    pub params_summary: Option<String>,
    /// For a call that a sealed subagent carries out, what that one is given to know. It is
    /// kept with the latest user message.
    pub context: Option<Value>,
}

text_enum! {
    /// Why the transcript is shortened for the model.
    Why {
        /// It has outgrown `sessions.window`.
        Window = "window",
        /// The provider has refused it as too long.
        Provider = "provider",
        /// Somebody has asked for it.
        Asked = "asked",
    }
}

impl Intent {
    /// Shortens what the model sees of the transcript.
    pub fn compaction(id: StepId, why: Why) -> Self {
        Intent {
            id,
            kind: StepKind::Compaction,
            tool: None,
            tool_call: None,
            asked_by: None,
            // Its outcome is an entry of the transcript, which is written once.
            effect: Effect::Read,
            input: serde_json::json!({ "why": why }),
            params_summary: Some(format!("why: {why}")),
            context: None,
        }
    }

    /// The step that it becomes at place `seq` of its run.
    pub fn into_step(
        self,
        run: RunId,
        seq: u32,
        seen_up_to: Option<i64>,
        started_at: Timestamp,
    ) -> Step {
        Step {
            id: self.id,
            run,
            seq,
            kind: self.kind,
            tool: self.tool,
            tool_call: self.tool_call,
            asked_by: self.asked_by,
            effect: self.effect,
            state: StepState::Intended,
            input: self.input,
            seen_up_to,
            message_seq: None,
            params_summary: self.params_summary,
            result_summary: None,
            error: None,
            attempts: 1,
            started_at,
            ended_at: None,
            waits: None,
            used: None,
        }
    }
}
