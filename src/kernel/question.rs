//! A question of a run to a person.

use super::ids::{AgentId, QuestionId, RunId, SessionId, SessionKey};
use super::text_enum::text_enum;
use super::time::Timestamp;

text_enum! {
    /// How far a question has come.
    QuestionState {
        /// Somebody may answer.
        Open = "open",
        /// Somebody has.
        Answered = "answered",
        /// Nobody has in time: a no.
        Expired = "expired",
        /// Its run has ended before.
        Closed = "closed",
    }
}

/// A question of a run to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its id.
    pub id: QuestionId,
    /// The tenant.
    pub org: String,
    /// Who asks.
    pub run: RunId,
    /// Its step that asks.
    pub step: u32,
    /// The session of that run.
    pub session: SessionId,
    /// The topmost session of its tree: where a person looks.
    pub root_session: SessionId,
    /// What is asked.
    pub text: String,
    /// Answers that are proposed; a person may give another one.
    pub choices: Vec<String>,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it runs out as "no answer".
    pub expires_at: Timestamp,
    /// How far it has come.
    pub state: QuestionState,
    /// What was answered.
    pub answer: Option<String>,
    /// By whom.
    pub answered_by: Option<String>,
    /// When it was over.
    pub ended_at: Option<Timestamp>,
}

/// Where a question comes from, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The agent that asks.
    pub agent: AgentId,
    /// Its session.
    pub session: SessionKey,
    /// The name of its run.
    pub label: Option<String>,
    /// What its run is about.
    pub title: String,
    /// Levels below the root session.
    pub depth: u32,
}
