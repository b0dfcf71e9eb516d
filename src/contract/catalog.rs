//! The catalog of agents, and what a run pins of its agent. Implemented by the `agent` module,
//! called by the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::allow::AllowList;
use super::servers::ServedTool;
use super::skills::SkillPin;
use crate::kernel::fault::Fault;
use crate::kernel::ids::AgentId;
use crate::kernel::policy::overlay::{AgentEnv, Overlay};
use crate::kernel::run::OnUncertain;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::time::Timestamp;

/// The roles that an agent may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// Turns of root sessions.
    Primary,
    /// Spawned work.
    Subagent,
    /// Turns of root sessions and spawned work.
    All,
}

impl AgentMode {
    /// The word in definition files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentMode::Primary => "primary",
            AgentMode::Subagent => "subagent",
            AgentMode::All => "all",
        }
    }

    /// May it run a root session's turn?
    pub fn is_primary(self) -> bool {
        matches!(self, AgentMode::Primary | AgentMode::All)
    }
}

/// The tenant and folder of a lookup; both decide which definitions are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogScope<'a> {
    /// The tenant.
    pub org: &'a str,
    /// The absolute folder of the run or session; the default workspace if unset. Never the
    /// daemon's working directory.
    pub cwd: Option<&'a str>,
}

/// A definition that is not in effect: rejected, or shadowed by another of the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InactiveDefinition {
    /// Where the definition comes from: `preset`, `stored`, `config` or `project` for agents.
    pub source: String,
    /// Path of its file; absent if it does not come from a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line of the error, counted from 1; absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Why the definition is not in effect.
    pub reason: String,
}

/// A built-in outside agent whose program is not installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OffPreset {
    /// The name that the agent has once its program is found.
    pub name: String,
    /// The program, looked for in the daemon's `PATH`.
    pub program: String,
    /// How the program is installed, and what it needs to work.
    pub needs: String,
}

/// An agent as shown in lists.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSummary {
    /// Its unique name.
    pub id: AgentId,
    /// Display name for users.
    pub title: Option<String>,
    /// Its purpose, shown to users and to delegating models.
    pub description: String,
    /// The roles that it may take.
    pub mode: AgentMode,
    /// Whether it may be used at all.
    pub active: bool,
    /// Its model, `provider/name`; `command` if a program does its work.
    pub model: String,
    /// The program that does its work, with its arguments.
    pub program: Option<Vec<String>>,
    /// Its thinking level, if its definition sets one.
    pub thinking: Option<Thinking>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Names and patterns of the skills that it may use; `None` = all.
    pub skills: Option<Vec<String>>,
    /// Whether it is omitted from lists for users.
    pub hidden: bool,
    /// The source of its definition: `preset`, `stored`, `config` or `project`.
    pub source: String,
    /// Path of its definition file, if it comes from one.
    pub file: Option<String>,
    /// Number of writes of a stored definition.
    pub revision: Option<i64>,
    /// Maximum number of model calls of one run.
    pub max_loops: u32,
    /// Time limit of its runs if the request sets none, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// The agents that it may delegate to.
    pub allow: AllowList,
    /// The agents that it is linked with.
    pub linked: Vec<AgentId>,
    /// Maximum depth of spawned sessions below its root sessions, if it sets its own limit.
    pub max_spawn_depth: Option<u32>,
    /// The base of the system prompt of every model call.
    pub system_prompt: String,
    /// Requests of its definition that are not granted.
    pub warnings: Vec<String>,
    /// Why it cannot be used at present; empty if it can.
    pub problems: Vec<String>,
    /// Missing tools, skills and servers that its definition refers to.
    pub missing: Vec<String>,
    /// When it was stored, or its file was modified.
    pub made_at: Timestamp,
    /// Definitions of the same name in lower layers.
    pub shadowed: Vec<InactiveDefinition>,
}

impl AgentSummary {
    /// An active agent with mode [`AgentMode::All`] and nothing else set, as a base for others.
    pub fn named(id: AgentId) -> Self {
        AgentSummary {
            id,
            title: None,
            description: String::new(),
            mode: AgentMode::All,
            active: true,
            model: String::new(),
            program: None,
            thinking: None,
            tools: Vec::new(),
            skills: None,
            hidden: false,
            source: "preset".to_owned(),
            file: None,
            revision: None,
            max_loops: 0,
            run_timeout_ms: None,
            allow: AllowList::Unset,
            linked: Vec::new(),
            max_spawn_depth: None,
            system_prompt: String::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
            missing: Vec::new(),
            made_at: Timestamp::default(),
            shadowed: Vec::new(),
        }
    }

    /// Names and patterns of the skills that its runs may use; `None` = all. Empty without the tool
    /// that loads skills.
    pub fn usable_skills(&self) -> Option<Vec<String>> {
        usable_skills(&self.tools, self.skills.as_deref())
    }
}

/// The name of the tool that loads skills.
pub const SKILL_TOOL: &str = "skill";

/// The skills of an agent with these tools and this skill list; see
/// [`AgentSummary::usable_skills`].
pub fn usable_skills(tools: &[String], skills: Option<&[String]>) -> Option<Vec<String>> {
    match tools.iter().any(|tool| tool == SKILL_TOOL) {
        true => skills.map(<[String]>::to_vec),
        false => Some(Vec::new()),
    }
}

/// The agents of one [`Place`].
#[derive(Clone, Debug, PartialEq)]
pub struct AgentListing {
    /// Every agent, hidden ones too, by name.
    pub agents: Vec<AgentSummary>,
    /// Invalid definitions.
    pub rejected: Vec<InactiveDefinition>,
    /// Built-in outside agents whose programs are not installed.
    pub off: Vec<OffPreset>,
}

/// Text that is stored by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// BLAKE3 hash of the body, hexadecimal.
    pub hash: String,
    /// The body; shared, since every run of an agent pins the same one.
    pub body: Arc<str>,
}

impl Pinned {
    /// Hashes this text.
    pub fn of(body: Arc<str>) -> Self {
        Pinned {
            hash: blake3::hash(body.as_bytes()).to_hex().to_string(),
            body,
        }
    }
}

/// Values that a caller sets for one run instead of the agent's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides<'a> {
    /// The model, `provider/name`.
    pub model: Option<&'a str>,
    /// The thinking level.
    pub thinking: Option<Thinking>,
    /// Names of variables that the caller adds to the run's environment.
    pub given: &'a [String],
    /// Tools of the servers that belong to the run's session.
    pub served: &'a [ServedTool],
}

/// An agent as one run pins it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Its unique name.
    pub id: AgentId,
    /// Its display name, if that differs from its id.
    pub title: Option<String>,
    /// The roles that it may take.
    pub mode: AgentMode,
    /// The model in force, `provider/name`.
    pub model: String,
    /// The thinking level in force; `None` = the model's default.
    pub thinking: Option<Thinking>,
    /// Time limit of its runs if the request sets none, milliseconds; `None` = the default.
    pub run_timeout_ms: Option<u64>,
    /// How its runs treat an effect that may have happened.
    pub on_uncertain: OnUncertain,
    /// Its definition as JSON.
    pub definition: Pinned,
    /// The schemas of its tools as JSON.
    pub tools: Pinned,
    /// Names and patterns of the skills that it may use; `None` = all.
    pub skill_names: Option<Vec<String>>,
    /// The pinned skills among these; filled in by the registry.
    pub skills: Option<SkillPin>,
    /// The environment that its definition sets.
    pub env: AgentEnv,
    /// The environment on top of the base; filled in by the registry.
    pub overlay: Overlay,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
}

impl Resolved {
    /// The display name, or the id if there is none.
    pub fn name(&self) -> &str {
        self.title.as_deref().unwrap_or(self.id.as_str())
    }
}

/// A tool or tool server that an agent could have but does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Omitted {
    /// The name of the tool or server.
    pub name: String,
    /// Why it is omitted.
    pub reason: String,
}

/// The exact tools of an agent, as a spawn would pin them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSet {
    /// The agent.
    pub agent: AgentId,
    /// The tools' schemas as JSON.
    pub tools: Pinned,
    /// Tools and servers that are not included.
    pub left_out: Vec<Omitted>,
}

/// A definition as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The agent's name, unless the text sets another.
    pub name: Option<String>,
    /// The format of the text: `markdown`, `toml` or `json`.
    pub format: String,
    /// The content that a definition file would have.
    pub text: String,
}

/// For each tenant, agent name to the hash of the definition in force.
pub type Sets = BTreeMap<String, BTreeMap<String, String>>;

/// What trust in a project covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covers {
    /// The project's folder, with links resolved.
    pub folder: String,
    /// Hash of the names and contents of `files`.
    pub hash: String,
    /// Each file with settings that need trust, and those settings.
    pub files: Vec<(String, Vec<String>)>,
}

/// The catalog of agents. Implemented by the `agent` module, called by the registry.
pub trait Catalog: Send + Sync + 'static {
    /// The agent called `name` as it is in force at `place`, with `overrides` applied. The fault is
    /// `not_found` with the known names, `forbidden` for an agent that may not be used, or
    /// `invalid_params` for a model that no provider offers.
    fn resolve(
        &self,
        place: CatalogScope<'_>,
        name: &str,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault>;

    /// The agent used when none is named.
    fn default_agent(&self) -> AgentId;

    /// The agents of a place, and its invalid definitions.
    fn list(&self, place: CatalogScope<'_>) -> AgentListing;

    /// One agent as shown in lists.
    fn get(&self, place: CatalogScope<'_>, name: &str) -> Result<AgentSummary, Fault>;

    /// The exact tools of an agent in a session whose servers have these tools.
    fn tools(
        &self,
        place: CatalogScope<'_>,
        name: &str,
        served: &[ServedTool],
    ) -> Result<ToolSet, Fault>;

    /// Can it answer for `place` without disk access? If not, call it where blocking is allowed.
    fn is_ready(&self, place: CatalogScope<'_>) -> bool;

    /// The name under which this definition may be stored; the fault says what is wrong with it and
    /// where.
    fn check(&self, org: &str, definition: &Definition) -> Result<AgentId, Fault>;

    /// Refuses a change over RPC of an agent that is not a stored one; the fault names its file. An
    /// unknown name is no fault.
    fn stored_only(&self, org: &str, name: &str) -> Result<(), Fault>;

    /// Once this returns, the current files and rows are in force. Reads the disk.
    fn reload(&self) -> Result<(), Fault>;

    /// Has one of the user's files changed since they were read? Invalidates cached lookups of
    /// projects. Reads the disk, but is much cheaper than a reload.
    fn is_outdated(&self) -> bool;

    /// Files of this user that could not be read at the last reload, each with the reason. Their
    /// last known contents stay in force, and another reload is due.
    fn unread(&self) -> Vec<String>;

    /// The definitions in force outside projects.
    fn sets(&self) -> Sets;

    /// Agent name to the hash of its built-in definition.
    fn built_in(&self) -> BTreeMap<String, String>;

    /// What trust in the project at `folder` would cover. Reads the disk.
    fn covers(&self, folder: &str) -> Result<Covers, Fault>;
}
