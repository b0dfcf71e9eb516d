//! `gateway.backup`, `gateway.doctor`: care for the store and its surroundings.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use crate::contract::finding::{Finding, Health};

/// `gateway.backup`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Backup {
    /// The file to make, an absolute path; if unset one in the state folder's `backups`, with
    /// the time in its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
impl Params for Backup {}

/// What `gateway.backup` answers: a copy that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupMade {
    /// Where it lies.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// The store that it is of.
    pub store_id: String,
    /// The version of its schema.
    pub schema: i64,
    /// Rows by table.
    pub rows: BTreeMap<String, u64>,
    /// How long it took.
    pub took_ms: u64,
}

/// What `gateway.doctor` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Examined {
    /// Nothing has failed.
    pub ok: bool,
    /// What was looked at.
    pub findings: Vec<Finding>,
}

impl Examined {
    /// The answer with these findings.
    pub fn of(findings: Vec<Finding>) -> Self {
        Examined {
            ok: findings.iter().all(|one| one.status != Health::Fail),
            findings,
        }
    }
}
