//! The turn of an outside agent: a program that speaks the Agent Client Protocol and works by
//! itself. Its prompt is one step, whose input holds what a later attempt needs.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::step::{Step, StepKind, StepState};
use crate::kernel::text::text_enum::text_enum;

/// The key of an [`OutsideTurn`] in the input of its step and in the metadata of its answer.
pub const OUTSIDE: &str = "acp";

text_enum! {
    /// How the agent opens one of its earlier sessions.
    Reopens {
        /// It repeats the whole conversation first.
        Load = "load",
        /// It repeats nothing.
        Resume = "resume",
    }
}

/// The session in which an outside agent was prompted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideTurn {
    /// The name of the agent that has the session.
    pub agent: String,
    /// The agent's id of the session. It is stored before the prompt is sent: without it nothing
    /// was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// How the agent opens the session again; `None`: it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopens: Option<Reopens>,
}

impl OutsideTurn {
    /// The turn whose prompt this step is; `None` for other steps.
    pub fn of(step: &Step) -> Option<OutsideTurn> {
        match step.kind {
            StepKind::Command => OutsideTurn::within(&step.input),
            _ => None,
        }
    }

    /// The turn in a step's input or in an answer's metadata.
    pub fn within(value: &Value) -> Option<OutsideTurn> {
        OutsideTurn::deserialize(value.get(OUTSIDE)?).ok()
    }

    /// The input of its step.
    pub fn input(&self) -> Value {
        json!({ OUTSIDE: self })
    }

    /// True if this attempt's prompt may have been sent.
    pub fn may_have_begun(&self, step: &Step) -> bool {
        step.state == StepState::Started && self.session.is_some()
    }
}

/// True for a step that is carried out by the program of an outside turn among `open`: the prompt
/// itself, or a call of the agent. While the prompt or one of its calls waits, all of them do.
pub fn is_held(step: &Step, open: &[Step]) -> bool {
    let prompt = match step.kind {
        StepKind::Command => Some(step.id),
        _ => step.asked_by,
    };
    let is_prompt = |other: &&Step| Some(other.id) == prompt && OutsideTurn::of(other).is_some();
    let Some(prompt) = open.iter().find(is_prompt) else {
        return false;
    };
    let mut calls = open
        .iter()
        .filter(|other| other.asked_by == Some(prompt.id));
    prompt.waits.is_some() || calls.any(|call| call.waits.is_some())
}
