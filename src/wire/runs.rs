//! `agent.*` and `runs.*`: start turns, wait for runs, and inspect them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::environment::Env;
use super::input::{self, PageSize, RunTimeout, WaitTimeout};
use super::schema;
use super::shapes::{Run, Step};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::text::text_enum::text_enum;
use crate::kernel::time::Timestamp;

/// Parameters of `agent.run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Turn {
    /// Key of the session; the session is created if it does not exist.
    pub session_key: SessionKey,
    /// Text of the user message.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub message: String,
    /// Agent for the session if this call creates it.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Client-chosen run id, a UUID version 7; generated if unset.
    #[serde(default, deserialize_with = "input::chosen_run")]
    #[schemars(schema_with = "schema::chosen_run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Model for this turn, instead of the session's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Thinking level for this turn, instead of the agent's level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Maximum running time; the default of the agent or the settings if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<RunTimeout>,
    /// Budget of the run and its descendants; only the configured budgets apply if unset.
    #[serde(default, deserialize_with = "super::budget::checked")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Environment variables for the run's programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Env>,
    /// Idempotency key; a repeat with the same key returns the first answer.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Client data, returned unchanged; at most 4 KiB of JSON.
    #[serde(default, deserialize_with = "input::meta")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}

/// Result of `agent.run`: the run is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnAccepted {
    /// Always `accepted`.
    pub status: String,
    /// Id of the run.
    pub run_id: RunId,
    /// Key of its session.
    pub session_key: SessionKey,
    /// True if this call created the session.
    pub created: bool,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

text_enum! {
    /// Condition of a wait for several runs.
    WaitMode {
        /// Until all runs have ended.
        All = "all",
        /// Until any run has ended.
        Any = "any",
    }
}

/// Maximum number of runs in one wait.
pub const WAIT_RUNS: usize = 256;

/// Parameters of `agent.wait`. Exactly one of `runId` and `runIds` is required.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    /// The run to wait for.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The runs to wait for; 1 to 256.
    #[serde(default, deserialize_with = "input::maybe_ids")]
    #[schemars(length(min = 1, max = WAIT_RUNS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ids: Option<Vec<RunId>>,
    /// Condition for several runs; `all` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<WaitMode>,
    /// Timeout of this call; 30 s if unset.
    #[serde(default)]
    pub wait_timeout: WaitTimeout,
}

/// Result of `agent.wait`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// One entry per id, in the order of the request.
    pub runs: Vec<WaitedRun>,
    /// True if the condition of the wait is met.
    pub done: bool,
    /// Why the call returned: `ended`, `window` (the timeout passed) or `draining`.
    pub cause: Cow<'static, str>,
}

/// One run in the result of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WaitedRun {
    /// The run exists.
    Known {
        /// `ok`, `error`, `timeout`, `cancelled` or `interrupted` if it ended, otherwise `pending`.
        status: Cow<'static, str>,
        /// The run in its present state.
        #[serde(flatten)]
        run: Box<Run>,
    },
    /// No run with that id exists.
    #[serde(rename_all = "camelCase")]
    Unknown {
        /// `not_found`, or `expired` if retention deleted the run.
        status: Cow<'static, str>,
        /// Id from the request.
        run_id: RunId,
    },
}

/// Parameters of `runs.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetRun {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
}

text_enum! {
    /// Run state to filter by.
    #[schemars(rename = "RunState")]
    State {
        /// Waiting for a slot.
        Queued = "queued",
        /// Holding a slot.
        Running = "running",
        /// Paused, without a slot.
        Paused = "paused",
        /// The turn has ended; runs it requested are still open.
        Settling = "settling",
        /// Ended with a final text.
        Ok = "ok",
        /// Failed.
        Error = "error",
        /// Ended because its own timeout passed.
        Timeout = "timeout",
        /// Ended by a cancel request.
        Cancelled = "cancelled",
        /// Could not be resumed after a crash.
        Interrupted = "interrupted",
    }
}

impl State {
    /// States of runs that have not ended.
    pub const OPEN: [State; 4] = [
        State::Queued,
        State::Running,
        State::Paused,
        State::Settling,
    ];
    /// States of runs that have ended.
    pub const ENDED: [State; 5] = [
        State::Ok,
        State::Error,
        State::Timeout,
        State::Cancelled,
        State::Interrupted,
    ];
}

/// Parameters of `runs.list`. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRuns {
    /// Only runs that work in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Only runs requested by this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Only runs in these states; any state if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Only runs of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only runs with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only this run and its descendants.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<RunId>,
    /// Only runs whose announce is not delivered or not acknowledged.
    #[serde(default)]
    pub undelivered: bool,
    /// Only runs paused until a user decides whether a call happened.
    #[serde(default)]
    pub needs_review: bool,
    /// Only runs whose `meta` has all of these fields with these values: strings, integers or
    /// booleans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<BTreeMap<String, MetaValue>>,
    /// Only runs accepted after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    /// Only runs accepted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// Include the total number of matching runs.
    #[serde(default)]
    pub total: bool,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Value of a `meta` field to filter by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a string, an integer or a boolean is expected")]
pub enum MetaValue {
    /// A boolean.
    Flag(bool),
    /// An integer.
    Number(i64),
    /// A string.
    Text(String),
}

/// Result of `runs.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// One page of runs, newest first; results are truncated to a preview.
    pub runs: Vec<Run>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of matching runs on all pages; absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// Parameters of `runs.steps`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSteps {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Parameters of `runs.output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetOutput {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Id that the model gave the tool call.
    pub tool_call_id: String,
    /// First byte to return; 0 if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}

/// Result of `runs.output`: a part of a tool's output, as it was before it was truncated for the
/// transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Id of the run.
    pub run_id: RunId,
    /// Id that the model gave the tool call.
    pub tool_call_id: String,
    /// Byte offset of this part: the requested one, or that of the next whole character.
    pub offset: u64,
    /// The part, at most 256 KiB.
    pub text: String,
    /// Byte offset of the next part; absent if this is the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// Length of the complete output in bytes.
    pub bytes: u64,
    /// Number of bytes of it that are stored.
    pub kept: u64,
}

/// Result of `runs.steps`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Steps {
    /// One page of the journal, oldest first.
    pub steps: Vec<Step>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
