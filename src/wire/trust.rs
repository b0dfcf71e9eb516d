//! `trust.*`: projects whose commands, servers and environment may take effect.

use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input;
use crate::kernel::time::Timestamp;

/// `trust.add` and `trust.revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneProject {
    /// The project's folder, absolute.
    #[serde(deserialize_with = "input::needed_folder")]
    pub folder: String,
}
impl Params for OneProject {}

/// A file whose statements need trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoveredFile {
    /// The file, seen from the project's folder.
    pub file: String,
    /// What it states: `runner: command`, `command`, `env`, `mcp_servers`.
    pub needs: Vec<String>,
}

/// A project that somebody trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Its folder, without links.
    pub folder: String,
    /// `trusted`; `changed`: what the trust covers is not what it was, so it does not count;
    /// `unreadable`.
    pub state: String,
    /// Hash of what the trust covers.
    pub hash: String,
    /// Who trusts it.
    pub user: String,
    /// Since when.
    pub trusted_at: Timestamp,
    /// What the trust covers now.
    pub covers: Vec<CoveredFile>,
    /// Why that cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What `trust.list` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Projects {
    /// By folder.
    pub projects: Vec<Project>,
}

/// What `trust.revoke` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// It was trusted; a repeat finds that it is not.
    pub revoked: bool,
}
