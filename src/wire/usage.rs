//! `usage.*`: runs, their durations, tokens and cost, aggregated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{self, PageSize};
use crate::kernel::ids::{RunId, SessionKey};
use crate::kernel::run::usage::UsageBy;
use crate::kernel::time::Timestamp;

/// Parameters of `usage.summary`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summarize {
    /// Aggregation key; `agent` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<UsageBy>,
    /// Start of the period; a day before `until` if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// End of the period; now if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only runs of this user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Only runs of this agent.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only calls of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only runs in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Only this root run and its descendants.
    #[serde(default, deserialize_with = "input::maybe_id")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<RunId>,
    /// Maximum number of rows, those with the highest cost; 1 to 500, 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
}

/// Result of `usage.summary`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Start of the period.
    pub since: Timestamp,
    /// End of the period.
    pub until: Timestamp,
    /// Sums, highest cost first.
    pub rows: Vec<Row>,
    /// Sum over everything, including omitted rows; without a name.
    pub total: Row,
    /// Number of omitted rows.
    pub omitted: usize,
}

/// Sum for one aggregation key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The agent, user, model, tenant, session key or root run id; absent in `total`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of runs that ended.
    pub calls: u64,
    /// Runs that ended `ok`.
    pub ok: u64,
    /// Runs that failed, timed out or were interrupted.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
    /// Median time from accepted to ended in milliseconds, exact to 1/16; absent without runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    /// 95th percentile of the same time in milliseconds, exact to 1/16; absent without runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    /// Number of model calls that were answered.
    pub model_calls: u64,
    /// Number of input tokens.
    pub input_tokens: u64,
    /// Number of output tokens.
    pub output_tokens: u64,
    /// Cost in millionths of the currency of the prices.
    pub cost_micros: u64,
}
