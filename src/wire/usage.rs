//! `usage.*`: what was done, and what it took and cost.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{self, PageSize, choice};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::time::Timestamp;

choice! {
    /// By what use is summed.
    By {
        /// All of it.
        Org = "org",
        /// The user of the root run.
        User = "user",
        /// Who did it.
        Agent = "agent",
        /// With which model.
        Model = "model",
        /// In which session.
        Session = "session",
        /// Below which root run.
        Tree = "tree",
    }
}

/// `usage.summary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summarize {
    /// By what; by agent if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// From this point; a day before `until` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Up to this point; now if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Only of this root run and of what is below it.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<RunId>,
    /// So many rows at most, the largest.
    #[serde(default)]
    pub limit: PageSize,
}
impl Params for Summarize {}

/// What `usage.summary` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// From this point.
    pub since: Timestamp,
    /// Up to this one.
    pub until: Timestamp,
    /// The sums, what cost most first.
    pub rows: Vec<Row>,
    /// All of them together, those that are left out too. It has no name.
    pub total: Row,
    /// How many rows are left out.
    pub omitted: usize,
}

/// One sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The agent, user, model, tenant, session key or root run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Runs that ended.
    pub calls: u64,
    /// Those of them with a result.
    pub ok: u64,
    /// Those that failed, ran out of time or could not be carried on.
    pub failed: u64,
    /// Those that somebody has cancelled.
    pub cancelled: u64,
    /// How long the quicker half took at most, from accepted to ended, to a sixteenth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// How long all but the slowest twentieth took at most, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// Calls of models that were answered.
    pub model_calls: u64,
    /// Tokens that they read.
    pub input_tokens: u64,
    /// Tokens that they wrote.
    pub output_tokens: u64,
    /// What that cost, in millionths of the currency of the prices.
    pub cost_micros: u64,
}
