//! `skills.*`: which skills there are, and what runs have of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::Aside;
use super::decode::Params;
use super::input::{self, PageSize};
use crate::kernel::ids::SessionKey;

/// `skills.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListSkills {
    /// The folder of the work, absolute; the default one if unset.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Only this one, with its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many at most.
    #[serde(default)]
    pub limit: PageSize,
    /// Where to go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Params for ListSkills {}

/// What `skills.list` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skills {
    /// The folder.
    pub workspace: String,
    /// Rises with each change of what can be used there.
    pub version: i64,
    /// A page of them, by name.
    pub skills: Vec<Skill>,
    /// Where the next page begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Files that could not be taken, at most 500.
    pub rejected: Vec<Aside>,
}

/// A skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// `extra`, `bundled`, `managed`, `personal`, `project` or `workspace`.
    pub source: String,
    /// Its file; `bundled/NAME/SKILL.md` for one that is part of the program.
    pub path: String,
    /// Do runs have it?
    pub eligible: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The license that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    /// What it says that it needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<String>,
    /// Patterns of tools that it was made for.
    pub allowed_tools: Vec<String>,
    /// The name whose value its key is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_env: Option<String>,
    /// The names in the environment that it needs.
    pub required_env: Vec<String>,
    /// How the programs that it needs can be installed, as it says; nothing carries it out.
    pub install: Vec<Install>,
    /// BLAKE3 of its text.
    pub hash: String,
    /// What was put right, left aside or departs from the specification.
    pub warnings: Vec<String>,
    /// Skills of the same name that it hides.
    pub shadowed: Vec<Aside>,
    /// Its text, where one skill was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// How programs can be installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Install {
    /// `brew`, `node`, `go`, `uv` or `download`.
    pub kind: String,
    /// The formula, package, module or address.
    pub what: String,
    /// What the skill's author calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The programs that are there then.
    pub bins: Vec<String>,
    /// `linux`, `macos`, `windows`; none = any.
    pub os: Vec<String>,
    /// What a person would type, or where they would look.
    pub hint: String,
}

/// `skills.snapshot`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshot {
    /// As this agent's runs would have them; all if unset.
    #[serde(default, deserialize_with = "input::agent")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// As in [`ListSkills`].
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}
impl Params for TakeSnapshot {}

/// What a run that began now would have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The folder.
    pub workspace: String,
    /// Rises with each change of what can be used there; never falls, also over restarts.
    pub version: i64,
    /// Of all that follows up to `omitted`, texts included: the same content has the same hash.
    pub hash: String,
    /// The list for models.
    pub prompt: String,
    /// All that can be used, by name.
    pub skills: Vec<InSnapshot>,
    /// Those for which the list had no room; they can be loaded all the same.
    pub omitted: Vec<String>,
    /// Skills that another one of their name hides.
    pub shadowed: Vec<Aside>,
    /// Files that could not be taken.
    pub rejected: Vec<Aside>,
}

/// A skill in a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InSnapshot {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// As in [`Skill::source`].
    pub source: String,
    /// As in [`Skill::path`].
    pub path: String,
    /// The name whose value its key is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary_env: Option<String>,
    /// The names in the environment that it needs.
    pub required_env: Vec<String>,
    /// BLAKE3 of its text.
    pub hash: String,
}

/// `skills.refresh`. Every known folder if neither is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshSkills {
    /// The folder of this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_key: Option<SessionKey>,
    /// This folder, absolute.
    #[serde(default, deserialize_with = "input::folder")]
    #[schemars(regex(pattern = "^/"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}
impl Params for RefreshSkills {
    fn object(&self) -> Option<String> {
        let session = self.session_key.as_ref().map(ToString::to_string);
        session.or_else(|| self.workspace.clone())
    }
}

/// What `skills.refresh` answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Refreshed {
    /// The version before, of the folder that was named or of the default one; unset: nobody had
    /// asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// Its version now.
    pub after: i64,
    /// `manual`.
    pub reason: String,
    /// Every folder that was looked at.
    pub folders: Vec<RefreshedFolder>,
}

/// A folder that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefreshedFolder {
    /// The folder.
    pub workspace: String,
    /// As in [`Refreshed::before`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<i64>,
    /// Its version now.
    pub after: i64,
}
