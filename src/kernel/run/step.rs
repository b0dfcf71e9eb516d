//! A step: one journaled action of a run. Its intent is committed before the effect and its outcome
//! after it, under one id.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::{PauseReason, Usage};
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;

text_enum! {
    /// The kind of action that a step performs.
    StepKind {
        /// It calls the model.
        Model = "model",
        /// It calls a tool.
        Tool = "tool",
        /// It runs the program that the agent is.
        Command = "command",
        /// It compacts the model's view of the transcript.
        Compaction = "compaction",
    }
}

impl StepKind {
    /// True if it may use tokens or cost that a budget counts.
    pub fn asks_a_model(self) -> bool {
        matches!(self, StepKind::Model | StepKind::Compaction)
    }

    /// True if its outcome is the agent's answer to the transcript. At its intent, waiting messages
    /// are added to the turn.
    pub fn answers(self) -> bool {
        matches!(self, StepKind::Model | StepKind::Command)
    }
}

/// Maximum number of characters in the summary of a step or run.
pub const SUMMARY: usize = 200;

/// Prefix of the error of a model call whose request was too long for the provider.
pub const TOO_LONG: &str = "context_too_long";

text_enum! {
    /// What repeating the step would do to the outside world.
    EffectClass {
        /// No effect: it can be repeated freely.
        Read = "read",
        /// No further effect: it can be repeated with the same idempotency key.
        Idempotent = "idempotent",
        /// The effect would happen again: it is never repeated blindly.
        Once = "once",
        /// As `once`, but the effect happens in a process that outlives this one and answers for
        /// the step's id: carried out again, the step continues the same effect.
        Kept = "kept",
    }
}

impl EffectClass {
    /// True if its begin is committed before the effect: it must not happen twice.
    pub fn is_once(self) -> bool {
        matches!(self, EffectClass::Once | EffectClass::Kept)
    }

    /// The word for users. Who keeps an effect does not concern them.
    pub fn shown(self) -> &'static str {
        match self {
            EffectClass::Kept => EffectClass::Once.as_str(),
            other => other.as_str(),
        }
    }
}

text_enum! {
    /// The progress of a step.
    StepState {
        /// Its intent is committed; the effect may begin.
        Intended = "intended",
        /// The effect of a step that must not happen twice has begun.
        Started = "started",
        /// It has an outcome.
        Done = "done",
        /// It failed, and the failure is its outcome.
        Failed = "failed",
        /// The effect began, and it is unknown whether it happened.
        Uncertain = "uncertain",
    }
}

impl StepState {
    /// True while it has no outcome.
    pub fn is_open(self) -> bool {
        matches!(self, StepState::Intended | StepState::Started)
    }
}

text_enum! {
    /// What a step with an external outcome waits for.
    WaitKind {
        /// The end of the turn that answers a message to another session.
        Reply = "reply",
        /// The ends of all the runs it names.
        Child = "child",
        /// The end of one of the runs it names.
        AnyChild = "any_child",
        /// A user's answer to a question.
        Answer = "answer",
        /// A person's approval of the call.
        Approval = "approval",
        /// A person's decision on whether its effect happened.
        Review = "review",
        /// A value of its run's environment.
        Value = "value",
        /// Its model's provider, which accepts no requests before the deadline. Then the step is
        /// carried out again.
        Provider = "provider",
    }
}

impl WaitKind {
    /// The pause reason of a run whose steps all wait.
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

/// A step's wait for an external outcome or a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepWait {
    /// The kind of the wait.
    pub kind: WaitKind,
    /// The deadline; `None`: it waits until the outcome arrives.
    pub until: Option<Timestamp>,
}

/// One journaled action of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its id, which is the idempotency key of its effect.
    pub id: StepId,
    /// The run it belongs to.
    pub run: RunId,
    /// Its position in the run: 1, 2, 3 …
    pub seq: u32,
    /// The kind of action.
    pub kind: StepKind,
    /// For a tool call, the name of the tool.
    pub tool: Option<String>,
    /// For a tool call, the model's id for the call; `None` for the call of an outside agent.
    pub tool_call: Option<String>,
    /// For a tool call, the step whose model answer requested it, or the prompt of the outside agent
    /// that makes it.
    pub asked_by: Option<StepId>,
    /// What repeating it would do.
    pub effect: EffectClass,
    /// Its progress.
    pub state: StepState,
    /// For a tool call, its arguments; otherwise the parameters of the step, or null.
    pub input: Value,
    /// For a step that answers, seq of the last transcript entry that it sees.
    pub seen_up_to: Option<i64>,
    /// Seq of the transcript entry that holds its outcome.
    pub message_seq: Option<i64>,
    /// The arguments on one line.
    pub params_summary: Option<String>,
    /// The outcome on one line.
    pub result_summary: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Number of attempts: 1, plus one for each recovery that found it open.
    pub attempts: u32,
    /// When its intent was committed.
    pub started_at: Timestamp,
    /// When its outcome was committed.
    pub ended_at: Option<Timestamp>,
    /// The external outcome that it waits for; while set, the step is not carried out.
    pub waits: Option<StepWait>,
    /// Its model usage, if it called a model.
    pub used: Option<ModelUsage>,
}

/// A step's usage of the model that answered it, which may differ from the run's model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelUsage {
    /// The model, as `provider/name`.
    pub model: String,
    /// The usage of that model.
    #[serde(flatten)]
    pub usage: Usage,
}

impl Step {
    /// True for a call that an outside agent makes itself, during its turn.
    pub fn is_outside_call(&self) -> bool {
        self.kind == StepKind::Tool && self.tool_call.is_none()
    }

    /// The id of its tool call for clients: the model's, or for a call of an outside agent its own.
    pub fn shown_call(&self) -> Option<String> {
        match self.is_outside_call() {
            true => Some(self.id.to_string()),
            false => self.tool_call.clone(),
        }
    }

    /// True for a model call whose request was too long for the provider.
    pub fn was_too_long(&self) -> bool {
        let error = self.error.as_deref().unwrap_or_default();
        self.kind == StepKind::Model
            && self.state == StepState::Failed
            && error.starts_with(TOO_LONG)
    }
}

/// The key for the [`Node`] in a model call's input and in its answer's metadata, in a planning
/// run.
pub const PLAN_PHASE_KEY: &str = "node";

text_enum! {
    /// The purpose of a model call in a planning run.
    Node {
        /// Plan what to do.
        Plan = "plan",
        /// Reflect on the results.
        Reflect = "reflect",
        /// Write the final answer.
        Respond = "respond",
    }
}

/// The key for the [`Cut`] in a model call's input, set if the call is the last of its run.
pub const FORCED_ANSWER_KEY: &str = "cut";

text_enum! {
    /// Why a planning run must answer with what it has.
    Cut {
        /// Its model calls are used up.
        MaxLoops = "max_loops",
        /// The model gives no plan that can be carried out.
        BadPlan = "bad_plan",
    }
}

/// A step that a runner wants to take; the store assigns its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Intent {
    /// Its id, the idempotency key of its effect.
    pub id: StepId,
    /// The kind of action.
    pub kind: StepKind,
    /// For a tool call, the name of the tool.
    pub tool: Option<String>,
    /// For a tool call, the model's id for the call; `None` for the call of an outside agent.
    pub tool_call: Option<String>,
    /// For a tool call, the step whose model answer requested it, or the prompt of the outside agent
    /// that makes it.
    pub asked_by: Option<StepId>,
    /// What repeating it would do.
    pub effect: EffectClass,
    /// For a tool call, its arguments; otherwise the parameters of the step, or null.
    pub input: Value,
    /// The arguments on one line.
    pub params_summary: Option<String>,
    /// For a call that a sealed subagent carries out, its context pack, which is stored with the
    /// latest user message.
    pub context: Option<Value>,
}

text_enum! {
    /// Why the transcript is compacted.
    Why {
        /// It exceeds `sessions.window`.
        Window = "window",
        /// The provider refused it as too long.
        Provider = "provider",
        /// A client requested it.
        Asked = "asked",
    }
}

impl Intent {
    /// The intent of a compaction for this reason.
    pub fn compaction(id: StepId, why: Why) -> Self {
        Intent {
            id,
            kind: StepKind::Compaction,
            tool: None,
            tool_call: None,
            asked_by: None,
            // Its outcome is a transcript entry, which is written once.
            effect: EffectClass::Read,
            input: serde_json::json!({ "why": why }),
            params_summary: Some(format!("why: {why}")),
            context: None,
        }
    }

    /// The step with position `seq` in its run.
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
