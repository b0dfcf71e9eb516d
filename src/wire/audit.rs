//! `gateway.audit`: the audit log of changing calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::PageSize;
use crate::kernel::time::Timestamp;

/// Parameters of `gateway.audit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAudit {
    /// Only calls of this method.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `gateway.audit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Audit {
    /// One page of entries, newest first.
    pub entries: Vec<AuditEntry>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A call of a changing method, successful or refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Position in the audit log: strictly increasing, with gaps.
    pub seq: i64,
    /// When the call was made.
    pub at: Timestamp,
    /// Principal that made the call.
    pub principal: String,
    /// Name of the method.
    pub method: String,
    /// Id or key of the run, session or other object of the call; absent if it names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// `ok`, or the error kind of the refusal.
    pub outcome: String,
    /// Address of the client that called over TCP, behind trusted proxies that of their client;
    /// absent for calls over the socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}
