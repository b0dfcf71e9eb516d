//! `gateway.backup` and `gateway.doctor`: maintenance of the store and its environment.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::method::no_params;
use crate::contract::finding::{Finding, Health};

no_params! {
    /// Parameters of `gateway.doctor`.
    Examine
}

/// Parameters of `gateway.backup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// Absolute path of the backup file; if unset, a timestamped file in `backups` of the state
    /// folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Result of `gateway.backup`: a backup whose integrity was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupMade {
    /// Path of the backup file.
    pub path: String,
    /// Size of the backup file in bytes.
    pub bytes: u64,
    /// Id of the store that was copied.
    pub store_id: String,
    /// Schema version of the store.
    pub schema: i64,
    /// Row counts by table.
    pub rows: BTreeMap<String, u64>,
    /// Duration of the backup in milliseconds.
    pub took_ms: u64,
}

/// Result of `gateway.doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Examined {
    /// True if no finding has status `fail`.
    pub ok: bool,
    /// One finding per check.
    pub findings: Vec<Finding>,
}

impl Examined {
    /// Builds the result; `ok` is false if a finding failed.
    pub fn of(findings: Vec<Finding>) -> Self {
        Examined {
            ok: findings.iter().all(|one| one.status != Health::Fail),
            findings,
        }
    }
}
