//! Data of events about runs, their steps and their environment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EventData, Word};
use crate::kernel::ids::{AgentId, RunId, SessionKey, StepId};
use crate::kernel::policy::overlay;
use crate::kernel::run::step::{Step, StepKind};
use crate::kernel::run::{CancelRequest, RunError, Usage};
use crate::kernel::time::Timestamp;

/// A run was accepted and waits for a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunQueued {
    /// Agent that executes the run.
    pub agent: AgentId,
    /// Label of the run.
    pub label: Option<String>,
    /// Title of the run: the start of its task on one line.
    pub title: String,
    /// Session the run works in.
    pub session_key: SessionKey,
    /// Session that requested the run.
    pub parent: Option<SessionKey>,
    /// `meta` of the request, unchanged.
    pub meta: Option<Value>,
}

/// A run changed its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMoved {
    /// The new state.
    pub state: Word,
}

/// A run was paused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPaused {
    /// Why: `child`, `reply`, `approval`, `review`, `input` or `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Word>,
    /// For `provider`: when the next request is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// For `provider`: its error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Warnings about a run after its end: resources leased to it could not be released properly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunWarned {
    /// Warnings for the caller, also added to the run's `warnings`.
    pub warnings: Vec<String>,
}

/// A run has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunEnded {
    /// `ok`, `error`, `timeout`, `cancelled` or `interrupted`.
    pub state: Word,
    /// Why it did not end `ok`.
    pub error: Option<RunError>,
    /// The cancel request; null if the run was not cancelled.
    pub cancel: Option<CancelRequest>,
    /// Number of tool calls that have an outcome.
    pub tool_calls: u32,
    /// Number of model calls that have an outcome.
    pub loops: u32,
    /// Model usage of the run.
    pub usage: Usage,
    /// `meta` of the request, unchanged.
    pub meta: Option<Value>,
    /// Number of steer messages that arrived too late for any of the run's model calls.
    pub steers_dropped: u64,
}

/// The intent or outcome of a step was committed; tool steps have `toolName`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepMoved {
    /// Id of the step.
    pub step_id: StepId,
    /// Position of the step in the run, counted from 1.
    pub seq: u32,
    /// `intended`, `started`, `done`, `failed` or `uncertain`.
    pub state: Word,
    /// Name of the tool; null for a model call.
    pub tool_name: Option<String>,
    /// Id that the model gave the call; for a call of an outside agent the id of the step.
    pub tool_call_id: Option<String>,
    /// Arguments on one line.
    pub params_summary: Option<String>,
    /// Outcome on one line.
    pub result_summary: Option<String>,
    /// Why the step failed.
    pub error: Option<String>,
    /// `subagent:<agent>`: the step belongs to a run that a plan of this run delegated to. Absent
    /// for the run's own steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

impl EventData {
    /// The event of the present state of `step`; `source` as in [`StepMoved`].
    pub fn of_step(step: &Step, source: Option<String>) -> EventData {
        let data = StepMoved {
            step_id: step.id,
            seq: step.seq,
            state: step.state.as_str().into(),
            tool_name: step.tool.clone(),
            tool_call_id: step.shown_call(),
            params_summary: step.params_summary.clone(),
            result_summary: step.result_summary.clone(),
            error: step.error.clone(),
            source,
        };
        match (step.kind, step.state.is_open()) {
            (StepKind::Tool, true) => EventData::ToolStarted(data),
            (StepKind::Tool, false) => EventData::ToolCompleted(data),
            (StepKind::Model | StepKind::Command | StepKind::Compaction, _) => {
                EventData::RunStep(data)
            }
        }
    }
}

/// A child run that carries out a tool call began or finished one of its own steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolProgress {
    /// Id that the parent's model gave the call.
    pub tool_call_id: String,
    /// The child run.
    pub child_run_id: RunId,
    /// The step of the child run.
    pub progress: Progress,
}

/// A step of a child run that carries out a tool call.
// The fields of a tool's step are null if they have no value; a model call has none of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// `tool_start`, `tool_complete`, or `thinking` (once per model call).
    pub r#type: Word,
    /// `running`, `completed` or `error`.
    pub status: Word,
    /// Id that the child's model gave its tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub sub_tool_call_id: Option<Option<String>>,
    /// Name of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub tool_name: Option<Option<String>>,
    /// Arguments on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub params_summary: Option<Option<String>>,
    /// Outcome on one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub result_summary: Option<Option<String>>,
    /// Why the step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub error: Option<Option<String>>,
}

/// From now on, programs of the run may carry its environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvApplied {
    /// Names of the variables, each with its origin.
    pub env: Vec<EnvName>,
}

/// A variable of a run's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EnvName {
    /// Name of the variable.
    pub name: String,
    /// Origin of the variable: `agent`, `skill:NAME` or `request`.
    pub from: Word,
    /// Why it has no value; the run is paused until `runs.provide_env` gives one. Absent if it has
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

impl From<&overlay::EnvName> for EnvName {
    fn from(known: &overlay::EnvName) -> Self {
        EnvName {
            name: known.name.clone(),
            from: known.from.clone().into(),
            missing: None,
        }
    }
}

/// Variables of a run's environment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EnvNames {
    /// Names of the variables.
    pub names: Vec<String>,
}
