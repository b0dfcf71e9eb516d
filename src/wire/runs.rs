//! `agent.*` and `runs.*`: start turns, wait for runs, look at them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::Budget;
use super::decode::Params;
use super::environment::Env;
use super::input::{self, PageSize, RunTimeout, ThinkingLevel, WaitTimeout, choice};
use super::schema;
use super::shapes::{Run, Step};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::time::Timestamp;

/// `agent.run`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Turn {
    /// The session; made if there is none.
    pub session_key: SessionKey,
    /// What is said.
    #[serde(deserialize_with = "input::text")]
    #[schemars(regex(pattern = r"\S"))]
    pub message: String,
    /// The agent of a session that must be made first.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// An id chosen by the client, a UUID of version 7.
    #[serde(default, deserialize_with = "input::chosen_run")]
    #[schemars(schema_with = "schema::chosen_run")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// In place of the session's model, for this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much the model thinks, in place of the agent's level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<ThinkingLevel>,
    /// How long it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout: Option<RunTimeout>,
    /// What it may use.
    #[serde(default, deserialize_with = "super::budget::checked")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What its programs have in their environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Env>,
    /// For a safe repeat.
    #[serde(default, deserialize_with = "input::key")]
    #[schemars(length(min = 1, max = input::KEY_LIMIT))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// Comes back unchanged.
    #[serde(default, deserialize_with = "input::meta")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<Value>,
}
impl Params for Turn {
    const LATER: &'static [&'static str] = &["attachments"];

    fn object(&self) -> Option<String> {
        Some(self.session_key.to_string())
    }
}

/// What `agent.run` answers: the run is in the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnAccepted {
    /// `accepted`.
    pub status: String,
    /// The run.
    pub run_id: RunId,
    /// Its session.
    pub session_key: SessionKey,
    /// The session was made by this call.
    pub created: bool,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

choice! {
    /// What a wait for several runs waits for.
    WaitMode {
        /// Until every one has ended.
        All = "all",
        /// Until one has ended.
        Any = "any",
    }
}

/// The most runs of one wait.
pub const WAIT_RUNS: usize = 256;

/// `agent.wait`: one of `runId` and `runIds`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    /// The run.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The runs.
    #[serde(default, deserialize_with = "input::maybe_ids")]
    #[schemars(length(min = 1, max = WAIT_RUNS))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ids: Option<Vec<RunId>>,
    /// For several runs; `all` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<WaitMode>,
    /// How long this call waits; 30 s if unset.
    #[serde(default)]
    pub wait_timeout: WaitTimeout,
}
impl Params for Wait {}

/// What `agent.wait` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Waited {
    /// One entry for each id, in the order in which they were given.
    pub runs: Vec<WaitedRun>,
    /// What was waited for has ended.
    pub done: bool,
    /// Why it answers: `ended`, `window` or `draining`.
    pub cause: Cow<'static, str>,
}

/// One run of a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum WaitedRun {
    /// It is there.
    Known {
        /// `ok`, `error`, `timeout`, `cancelled`, `interrupted`, or `pending`.
        status: Cow<'static, str>,
        /// The run as it is now.
        #[serde(flatten)]
        run: Box<Run>,
    },
    /// No run has that id.
    #[serde(rename_all = "camelCase")]
    Unknown {
        /// `not_found`, or `expired` where retention has removed it.
        status: Cow<'static, str>,
        /// The id.
        run_id: RunId,
    },
}

/// `runs.get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetRun {
    /// Which.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
}
impl Params for GetRun {}

choice! {
    /// A state by which runs can be listed.
    State {
        /// Wants a slot.
        Queued = "queued",
        /// Holds a slot.
        Running = "running",
        /// Holds still.
        Paused = "paused",
        /// Waits for what it asked others for.
        Settling = "settling",
        /// Ended with a final text.
        Ok = "ok",
        /// Failed.
        Error = "error",
        /// Its own limit passed.
        Timeout = "timeout",
        /// Somebody asked for it.
        Cancelled = "cancelled",
        /// Could not be carried on after a crash.
        Interrupted = "interrupted",
    }
}

impl State {
    /// Of runs that have not ended.
    pub const OPEN: [State; 4] = [
        State::Queued,
        State::Running,
        State::Paused,
        State::Settling,
    ];
    /// Of runs that have.
    pub const ENDED: [State; 5] = [
        State::Ok,
        State::Error,
        State::Timeout,
        State::Cancelled,
        State::Interrupted,
    ];
}

/// `runs.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListRuns {
    /// Only those working in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Only those asked for by this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<SessionKey>,
    /// Only those in these states; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<State>,
    /// Only those of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only those with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Only those under this run, itself included.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<RunId>,
    /// Only those whose announce is not delivered or not acknowledged.
    #[serde(default)]
    pub undelivered: bool,
    /// Only those that hold still until a person has said whether a call has happened.
    #[serde(default)]
    pub needs_review: bool,
    /// Only those whose `meta` has all of these fields with these values: texts, whole numbers,
    /// true or false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<BTreeMap<String, MetaValue>>,
    /// Only those accepted after this point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Timestamp>,
    /// Only those accepted before this point.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Timestamp>,
    /// With the number of them on all pages.
    #[serde(default)]
    pub total: bool,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListRuns {}

/// A value of a field of `meta` by which runs can be found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a text, a whole number, true or false is expected"
)]
pub enum MetaValue {
    /// True or false.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

/// What `runs.list` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// A page of them; their results are cut to a preview.
    pub runs: Vec<Run>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// How many there are on all pages, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// `runs.steps`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSteps {
    /// Of which run.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListSteps {}

/// `runs.output`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetOutput {
    /// Of which run.
    #[serde(deserialize_with = "input::id")]
    pub run_id: RunId,
    /// Of which of its calls, by the model's name for it.
    pub tool_call_id: String,
    /// The first byte to give; 0 if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
}
impl Params for GetOutput {}

/// What `runs.output` answers: a part of what a tool has answered, as it was before it was cut
/// for the transcript.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub tool_call_id: String,
    /// Where the part begins: at the byte that was asked for, or at the next character.
    pub offset: u64,
    /// The part.
    pub text: String,
    /// Where the next part begins; unset: this was the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// How long the answer was.
    pub bytes: u64,
    /// How much of it is kept.
    pub kept: u64,
}

/// What `runs.steps` answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Steps {
    /// A page of the journal, oldest first.
    pub steps: Vec<Step>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}
