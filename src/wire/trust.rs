//! `trust.*`: projects whose commands, servers and environment may take effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::Params;
use super::input::{self, PageSize};
use crate::kernel::time::Timestamp;

/// `trust.add` and `trust.revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneProject {
    /// The project's folder, absolute.
    #[serde(deserialize_with = "input::needed_folder")]
    #[schemars(regex(pattern = "^/"))]
    pub folder: String,
}
impl Params for OneProject {
    fn object(&self) -> Option<String> {
        Some(self.folder.clone())
    }
}

/// `trust.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListProjects {
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListProjects {}

/// A file whose statements need trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoveredFile {
    /// The file, seen from the project's folder.
    pub file: String,
    /// What it states: `runner: command`, `command`, `env`, `mcp_servers`.
    pub needs: Vec<String>,
}

/// A project that somebody trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What `trust.list` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Projects {
    /// A page of them, by folder.
    pub projects: Vec<Project>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// What `trust.revoke` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// It was trusted; a repeat finds that it is not.
    pub revoked: bool,
}
