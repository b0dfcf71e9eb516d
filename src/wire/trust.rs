//! `trust.*`: projects whose commands, MCP servers and environment are allowed to take effect.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{self, PageSize};
use crate::kernel::time::Timestamp;

/// Parameters of `trust.add`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustProject {
    /// Absolute path of the project.
    #[serde(deserialize_with = "input::required_folder")]
    #[schemars(regex(pattern = "^/"))]
    pub folder: String,
}

/// Parameters of `trust.revoke`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeTrust {
    /// Absolute path of the project.
    #[serde(deserialize_with = "input::required_folder")]
    #[schemars(regex(pattern = "^/"))]
    pub folder: String,
}

/// Parameters of `trust.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListProjects {
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A project file with settings that need trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoveredFile {
    /// Path of the file, relative to the project.
    pub file: String,
    /// Its settings that need trust: `runner: command`, `command`, `env`, `mcp_servers`.
    pub needs: Vec<String>,
}

/// A trusted project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    /// Path of the project, with symbolic links resolved.
    pub folder: String,
    /// `trusted`; `changed`: the covered settings differ from those trusted, so the trust has no
    /// effect; `unreadable`: they could not be read.
    pub state: String,
    /// Hash of the covered settings when they were trusted.
    pub hash: String,
    /// User that trusted the project.
    pub user: String,
    /// When it was trusted.
    pub trusted_at: Timestamp,
    /// Files the trust covers now; empty if `unreadable`.
    pub covers: Vec<CoveredFile>,
    /// With `unreadable`: the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of `trust.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Projects {
    /// One page of projects, sorted by path.
    pub projects: Vec<Project>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// Result of `trust.revoke`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revoked {
    /// True if this call revoked the trust; false if the project was not trusted, as on a repeat.
    pub revoked: bool,
}
