//! Data of events about calls of other agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Word;
use crate::kernel::ids::{AgentId, RunId};
use crate::kernel::run::Usage;
use crate::kernel::time::Timestamp;

/// Another agent was called in the session of this event's run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentCallStart {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: Option<String>,
    /// Child run that carries out the call.
    pub child_run_id: RunId,
    /// Message to the agent on one line.
    pub args_summary: String,
}

/// A called agent emitted part of its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentPartial {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carries out the call.
    pub child_run_id: RunId,
    /// Byte offset of this piece in the answer; 0 at the beginning, also when the answer restarts.
    pub offset: usize,
    /// The text of this piece.
    pub text: String,
    /// When the piece was emitted.
    pub at: Timestamp,
    /// Approximate number of output tokens so far.
    pub tokens_so_far: u64,
}

/// A called agent has answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentComplete {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carried out the call.
    pub child_run_id: RunId,
    /// Answer, truncated to 32 KiB.
    pub text: String,
    /// Model usage of the child run.
    pub usage: Usage,
    /// Duration from the call to the end of the child run, in milliseconds.
    pub duration_ms: u64,
}

/// A called agent has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubAgentError {
    /// The called agent.
    pub agent: AgentId,
    /// Display name of that agent when the call was made.
    pub agent_name: String,
    /// Id that the model gave the call.
    pub tool_call_id: String,
    /// Child run that carried out the call.
    pub child_run_id: RunId,
    /// What happened.
    pub error: String,
    /// Earlier errors in the child run, latest first; at most 5.
    pub cause: Vec<String>,
    /// Model usage of the child run.
    pub usage: Usage,
    /// Duration from the call to the end of the child run, in milliseconds.
    pub duration_ms: u64,
}

/// A plan has delegated a task to another agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationStart {
    /// The agent delegated to.
    pub sub_agent_id: AgentId,
    /// Display name of that agent when the call was made: its title, otherwise its id.
    pub sub_agent_name: String,
    /// Id of the `delegate` tool call.
    pub tool_call_id: Option<String>,
    /// Child run that carries out the task.
    pub child_run_id: RunId,
    /// The task, truncated to 200 characters.
    pub task: String,
}

/// A delegation of a plan has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationComplete {
    /// The agent delegated to.
    pub sub_agent_id: AgentId,
    /// Display name of that agent when the call was made: its title, otherwise its id.
    pub sub_agent_name: String,
    /// Id of the `delegate` tool call.
    pub tool_call_id: String,
    /// Child run that carried out the task.
    pub child_run_id: RunId,
    /// True if the child run succeeded.
    pub success: bool,
    /// Start of the result, at most 500 characters; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_preview: Option<String>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The circuit breaker of an agent opened or closed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DelegationBreaker {
    /// The agent whose calls it guards.
    pub agent: AgentId,
    /// Display name of that agent.
    pub agent_name: String,
    /// `open`: calls are refused; `closed`: calls pass again.
    pub state: Word,
    /// When it closes; absent if it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}
