//! `skills.*`: list, snapshot and refresh skills.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{self, PageSize};
use crate::contract::catalog::InactiveDefinition;
use crate::kernel::ids::SessionKey;

/// Parameters of `skills.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSkills {
    /// Absolute path of the workspace; the default workspace if unset.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Only the skill with this name, including its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Page size: 1 to 500; 50 if unset.
    #[serde(default)]
    pub limit: PageSize,
    /// `nextCursor` of the previous page; the first page if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of `skills.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skills {
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Version of the skills available there, raised by each change.
    pub version: i64,
    /// One page of skills, sorted by name.
    pub skills: Vec<Skill>,
    /// Cursor of the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Skill files that could not be loaded; at most 500.
    pub rejected: Vec<InactiveDefinition>,
}

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skill {
    /// Name of the skill.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// `extra`, `bundled`, `managed`, `personal`, `project` or `workspace`.
    pub source: String,
    /// Path of its file; `bundled/NAME/SKILL.md` for a skill built into the program.
    pub path: String,
    /// True if runs can use it.
    pub eligible: bool,
    /// Why it is not eligible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// License it states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// Requirements it states.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// Patterns of the tools it was written for.
    pub allowed_tools: Vec<String>,
    /// True if users may ask for it by its name, as a command of an editor.
    #[serde(default = "invocable")]
    pub user_invocable: bool,
    /// Environment variable that receives the skill's configured API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_env: Option<String>,
    /// Environment variables it requires.
    pub required_env: Vec<String>,
    /// How to install the programs it requires, for display only; nothing is installed
    /// automatically.
    pub install: Vec<Install>,
    /// The node whose programs it needs; absent if the gateway's machine has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// BLAKE3 hash of its body.
    pub hash: String,
    /// What was corrected, ignored or deviates from the specification.
    pub warnings: Vec<String>,
    /// Skills of the same name that it shadows.
    pub shadowed: Vec<InactiveDefinition>,
    /// Its body; only if the skill was requested by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// What a daemon that does not say so means.
fn invocable() -> bool {
    true
}

/// An installation hint for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Install {
    /// `brew`, `node`, `go`, `uv` or `download`.
    pub kind: String,
    /// The formula, package, module or URL.
    pub what: String,
    /// Label from the skill's author.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Names of the programs it installs.
    pub bins: Vec<String>,
    /// `linux`, `macos`, `windows`; empty means any.
    pub os: Vec<String>,
    /// Command a user would run, or where to look.
    pub hint: String,
}

/// Parameters of `skills.snapshot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshot {
    /// Only skills that runs of this agent can use; all if unset.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Absolute path of the workspace; the default workspace if unset.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// The skills that a run starting now would pin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "SkillSnapshot")]
pub struct Snapshot {
    /// Absolute path of the workspace.
    pub workspace: String,
    /// Version of the skills available there, raised by each change; it never decreases, also
    /// across restarts.
    pub version: i64,
    /// Hash of the fields up to `omitted`, including skill bodies; equal content has an equal hash.
    pub hash: String,
    /// Skill index for the system prompt.
    pub prompt: String,
    /// All available skills, sorted by name.
    pub skills: Vec<SnapshotSkill>,
    /// Skills that did not fit into `prompt`; they can still be loaded.
    pub omitted: Vec<String>,
    /// Skills shadowed by another of the same name.
    pub shadowed: Vec<InactiveDefinition>,
    /// Skill files that could not be loaded.
    pub rejected: Vec<InactiveDefinition>,
}

/// A skill in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotSkill {
    /// Name of the skill.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// As in [`Skill::source`].
    pub source: String,
    /// As in [`Skill::path`].
    pub path: String,
    /// Environment variable that receives the skill's configured API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_env: Option<String>,
    /// Environment variables it requires.
    pub required_env: Vec<String>,
    /// The node whose programs it needs; absent if the gateway's machine has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// BLAKE3 hash of its body.
    pub hash: String,
}

/// Parameters of `skills.refresh`. At most one of the fields may be given; all known workspaces are
/// refreshed if both are unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshSkills {
    /// Session whose workspace is refreshed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// Absolute path of the workspace to refresh.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// Result of `skills.refresh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refreshed {
    /// Previous version of the named or default workspace; absent if it was not in use before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// Its version now.
    pub after: i64,
    /// Always `manual`.
    pub reason: String,
    /// Every refreshed workspace.
    pub folders: Vec<RefreshedFolder>,
}

/// A refreshed workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefreshedFolder {
    /// Absolute path of the workspace.
    pub workspace: String,
    /// As in [`Refreshed::before`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// Its version now.
    pub after: i64,
}
