//! `questions.*`: what runs ask people, and what people answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{self, PageSize, choice};
use super::shapes::Word;
use crate::kernel::ids::{AgentId, QuestionId, RunId, SessionKey};
use crate::kernel::time::Timestamp;

choice! {
    /// How far a question has come.
    State {
        /// Somebody may answer.
        Open = "open",
        /// Somebody has.
        Answered = "answered",
        /// Nobody has in time.
        Expired = "expired",
        /// Its run has ended before.
        Closed = "closed",
    }
}

/// `questions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListQuestions {
    /// Only those of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// With that: those of the whole tree in which it lies; true if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<bool>,
    /// Only those in this state; any if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListQuestions {}

/// What `questions.list` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Questions {
    /// A page of them, oldest first.
    pub questions: Vec<Question>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `questions.answer`: one of `text` and `choice`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// Which.
    #[serde(deserialize_with = "input::id")]
    pub id: QuestionId,
    /// In one's own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// One of the proposed answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
}
impl Params for AnswerQuestion {}

/// What a run asks people, with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// The run that asks.
    pub run_id: RunId,
    /// That run's session.
    pub session_key: SessionKey,
    /// The top of the tree in which it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_session_key: Option<SessionKey>,
    /// The agent that asks.
    pub agent: AgentId,
    /// The run's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What the run is about.
    pub title: String,
    /// Levels below the root session.
    pub depth: u32,
    /// What is asked.
    pub text: String,
    /// Answers that are proposed; another one may be given.
    pub choices: Vec<String>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it runs out as "no answer".
    pub expires_at: Timestamp,
    /// `open`, `answered`, `expired` or `closed`.
    pub state: Word,
    /// What was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// By whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}
