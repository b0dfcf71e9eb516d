//! Data of events about requests to users: questions and approvals.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Word;
use crate::kernel::ids::{AgentId, ApprovalId, QuestionId, SessionKey};
use crate::kernel::time::Timestamp;

/// A run asks the user a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAsked {
    /// Id of the question.
    pub question_id: QuestionId,
    /// Text of the question.
    pub text: String,
    /// Proposed answers.
    pub choices: Vec<String>,
    /// Deadline; without an answer by then, the outcome is "no answer".
    pub expires_at: Timestamp,
    /// Session of the run.
    pub session_key: SessionKey,
    /// Agent of the run.
    pub agent: AgentId,
    /// Label of the run.
    pub label: Option<String>,
}

/// A question was answered, expired or closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuestionAnswered {
    /// Id of the question.
    pub question_id: QuestionId,
    /// `answered`, `expired` or `closed`.
    pub state: Word,
    /// The answer; null without one.
    pub answer: Option<String>,
    /// Principal that answered; null without an answer.
    pub by: Option<String>,
}

/// A tool call waits for a user's approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequested {
    /// Id of the approval.
    pub approval_id: ApprovalId,
    /// Name of the tool.
    pub tool: String,
    /// Id that the model gave the call.
    pub tool_call_id: Option<String>,
    /// Arguments on one line; `approvals.list` has them in full.
    pub params_summary: Option<String>,
    /// The policy rule that requires approval.
    pub why: String,
    /// Deadline; without a decision by then, the call is denied.
    pub expires_at: Timestamp,
    /// Session of the run that wants to make the call.
    pub session_key: SessionKey,
    /// Agent of the run.
    pub agent: AgentId,
    /// Label of the run.
    pub label: Option<String>,
}

/// An approval was decided, expired or closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalResolved {
    /// Id of the approval.
    pub approval_id: ApprovalId,
    /// Name of the tool.
    pub tool: String,
    /// `allowed`, `denied`, `expired` or `closed`.
    pub state: Word,
    /// Principal that decided; for a remembered decision, the principal that made it.
    pub by: Option<String>,
    /// Scope of later calls that the decision covers: `session` or `agent`; null if none.
    pub remember: Option<Word>,
}
