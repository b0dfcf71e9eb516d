//! `questions.*`: questions of runs to the user, and the answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{self, PageSize};
use super::shapes::Word;
use crate::kernel::ids::{AgentId, QuestionId, RunId, SessionKey};
use crate::kernel::question::QuestionState;
use crate::kernel::time::Timestamp;

/// Parameters of `questions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListQuestions {
    /// Only questions of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// With `sessionKey`: questions of the whole session tree that contains it; true if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<bool>,
    /// Only questions in this state; any state if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<QuestionState>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `questions.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Questions {
    /// One page of questions, oldest first.
    pub questions: Vec<Question>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Parameters of `questions.answer`. Exactly one of `text` and `choice` is required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// Id of the question.
    #[serde(deserialize_with = "input::id")]
    pub id: QuestionId,
    /// Free-form answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// One of the proposed answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
}

/// A question of a run to the user, with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Id of the question.
    pub id: QuestionId,
    /// Run that asks.
    pub run_id: RunId,
    /// Session of that run.
    pub session_key: SessionKey,
    /// Root session of the tree that contains it; absent if that session was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_session_key: Option<SessionKey>,
    /// Agent that asks.
    pub agent: AgentId,
    /// Label of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Title of the run: the start of its task on one line.
    pub title: String,
    /// Depth of the run below the root session.
    pub depth: u32,
    /// Text of the question.
    pub text: String,
    /// Proposed answers; a free-form answer is also accepted.
    pub choices: Vec<String>,
    /// When the question was asked.
    pub asked_at: Timestamp,
    /// Deadline; without an answer by then, the outcome is "no answer".
    pub expires_at: Timestamp,
    /// `open`, `answered`, `expired` or `closed`.
    pub state: Word,
    /// The answer; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Principal that answered; absent without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// When the question left state `open`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}
