//! `gateway.audit`: who changed what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::PageSize;
use crate::kernel::time::Timestamp;

/// `gateway.audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAudit {
    /// Only calls of this method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListAudit {}

/// What `gateway.audit` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// A page of them, newest first.
    pub entries: Vec<AuditEntry>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One call that changed something, or was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Its place: rising, with gaps.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// Who called.
    pub principal: String,
    /// What was called.
    pub method: String,
    /// The run, session or other thing that it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// `ok`, or the kind of the refusal.
    pub outcome: String,
}
