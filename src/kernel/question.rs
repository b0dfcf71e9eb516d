//! A run's question to the user.

use super::ids::{AgentId, QuestionId, RunId, SessionId, SessionKey};
use super::time::Timestamp;
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// State of a question.
    #[schemars(rename = "QuestionState")]
    QuestionState {
        /// Waiting for an answer.
        Open = "open",
        /// Answered.
        Answered = "answered",
        /// The deadline passed without an answer.
        Expired = "expired",
        /// The run ended before an answer.
        Closed = "closed",
    }
}

/// A run's question to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// It has the same digits as the id of the step that asks.
    pub id: QuestionId,
    /// Tenant that owns the run.
    pub org: String,
    /// The run that asks.
    pub run: RunId,
    /// The number of the step that asks.
    pub step: u32,
    /// The session of that run.
    pub session: SessionId,
    /// The root session of its tree, where the user sees the question.
    pub root_session: SessionId,
    /// The text of the question.
    pub text: String,
    /// Suggested answers; the user may give another one.
    pub choices: Vec<String>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// Deadline after which it expires without an answer.
    pub expires_at: Timestamp,
    /// Its progress.
    pub state: QuestionState,
    /// The answer; `None` while there is none.
    pub answer: Option<String>,
    /// The principal that answered.
    pub answered_by: Option<String>,
    /// When it was answered, expired or closed.
    pub ended_at: Option<Timestamp>,
}

/// The origin of a question, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The agent that asks.
    pub agent: AgentId,
    /// Key of its session.
    pub session: SessionKey,
    /// The label of its run.
    pub label: Option<String>,
    /// The beginning of its run's task.
    pub title: String,
    /// Levels below the root session.
    pub depth: u32,
}
