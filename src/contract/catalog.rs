//! Which agents there are, and what a run pins of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::allow::AllowList;
use super::skills::SkillPin;
use crate::kernel::fault::Fault;
use crate::kernel::ids::AgentId;
use crate::kernel::overlay::{OfAgent, Overlay};
use crate::kernel::run::OnUncertain;
use crate::kernel::thinking::Thinking;
use crate::kernel::time::Timestamp;

/// What an agent may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentMode {
    /// Turns of root sessions.
    Primary,
    /// Spawned work.
    Subagent,
    /// Both.
    All,
}

impl AgentMode {
    /// The text in files and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            AgentMode::Primary => "primary",
            AgentMode::Subagent => "subagent",
            AgentMode::All => "all",
        }
    }

    /// May it hold a root session's turn?
    pub fn is_primary(self) -> bool {
        matches!(self, AgentMode::Primary | AgentMode::All)
    }
}

/// Whose agents are asked for, and where the work is: both decide which definitions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The tenant.
    pub org: &'a str,
    /// The folder of the run or session, absolute; the default workspace if unset. Never the
    /// daemon's own working folder.
    pub cwd: Option<&'a str>,
}

/// A definition of the same name that does not count, or a file that is no definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Its layer, as in [`AgentSummary::source`].
    pub source: String,
    /// Its file, if it comes from one.
    pub file: Option<String>,
    /// The line that is at fault, counted from 1.
    pub line: Option<usize>,
    /// Why it does not count.
    pub reason: String,
}

/// An agent as lists show it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSummary {
    /// Its name.
    pub id: AgentId,
    /// A heading for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: String,
    /// What it may be used for.
    pub mode: AgentMode,
    /// May it be used at all?
    pub active: bool,
    /// Its model, `provider/name`; `command` where a program does its work.
    pub model: String,
    /// That program, with its arguments.
    pub program: Option<Vec<String>>,
    /// Its thinking level, if it names one.
    pub thinking: Option<Thinking>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Names and patterns of the skills that it may use; `None` = all.
    pub skills: Option<Vec<String>>,
    /// Left out of lists for people.
    pub hidden: bool,
    /// Where its definition comes from: `preset`, `stored`, `config` or `project`.
    pub source: String,
    /// The file of its definition, if it comes from one.
    pub file: Option<String>,
    /// How often a stored definition was written.
    pub revision: Option<i64>,
    /// The most model calls of one run.
    pub max_loops: u32,
    /// How long its runs may take if the request says nothing, milliseconds.
    pub run_timeout_ms: Option<u64>,
    /// Whom it may delegate to.
    pub allow: AllowList,
    /// The agents that it is linked with.
    pub linked: Vec<AgentId>,
    /// Levels of spawning below its root sessions, if it has its own limit.
    pub max_spawn_depth: Option<u32>,
    /// The base of every model call.
    pub system_prompt: String,
    /// What its definition asks for and does not get.
    pub warnings: Vec<String>,
    /// Why it cannot be used as things stand; empty if it can.
    pub problems: Vec<String>,
    /// What its definition counts on and what is not there: tools, skills, servers.
    pub lacks: Vec<String>,
    /// When it was stored, or its file was written.
    pub made_at: Timestamp,
    /// Definitions of the same name in lower layers.
    pub shadowed: Vec<Aside>,
}

impl AgentSummary {
    /// An active agent for everything, with nothing else set: a base for others.
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
            lacks: Vec::new(),
            made_at: Timestamp::default(),
            shadowed: Vec::new(),
        }
    }

    /// Names and patterns of the skills that its runs may use; `None` = all. Without the tool
    /// that loads them it has none.
    pub fn usable_skills(&self) -> Option<Vec<String>> {
        usable_skills(&self.tools, self.skills.as_deref())
    }
}

/// The tool that loads skills.
pub const SKILL_TOOL: &str = "skill";

/// What an agent with these tools may use of the skills that it names.
pub fn usable_skills(tools: &[String], skills: Option<&[String]>) -> Option<Vec<String>> {
    match tools.iter().any(|tool| tool == SKILL_TOOL) {
        true => skills.map(<[String]>::to_vec),
        false => Some(Vec::new()),
    }
}

/// The agents of one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing {
    /// Every agent, hidden ones too, by name.
    pub agents: Vec<AgentSummary>,
    /// Definitions that could not be taken.
    pub rejected: Vec<Aside>,
}

/// Text that is stored by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pinned {
    /// BLAKE3 of the body, hexadecimal.
    pub hash: String,
    /// The body; shared, since every run of an agent pins the same.
    pub body: Arc<str>,
}

impl Pinned {
    /// This text.
    pub fn of(body: Arc<str>) -> Self {
        Pinned {
            hash: blake3::hash(body.as_bytes()).to_hex().to_string(),
            body,
        }
    }
}

/// What a caller may set for one run in place of the agent's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides<'a> {
    /// The model, `provider/name`.
    pub model: Option<&'a str>,
    /// The thinking level.
    pub thinking: Option<Thinking>,
    /// Names that the caller gives to the run's environment.
    pub given: &'a [String],
}

/// An agent as one run pins it.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// Its name.
    pub id: AgentId,
    /// What people call it, if that is not its id.
    pub title: Option<String>,
    /// What it may be used for.
    pub mode: AgentMode,
    /// The model in force, `provider/name`.
    pub model: String,
    /// The thinking level in force; `None` = the model's own habit.
    pub thinking: Option<Thinking>,
    /// How long its runs may take if the request says nothing, milliseconds; `None` = the
    /// default.
    pub run_timeout_ms: Option<u64>,
    /// What becomes of an effect of its runs that may have happened.
    pub on_uncertain: OnUncertain,
    /// Its definition as JSON.
    pub definition: Pinned,
    /// Its tools' schemas as JSON.
    pub tools: Pinned,
    /// Names and patterns of the skills that it may use; `None` = all.
    pub skill_names: Option<Vec<String>>,
    /// Those of them that are there; the registry fills it in.
    pub skills: Option<SkillPin>,
    /// What it says of its runs' environment.
    pub env: OfAgent,
    /// The environment above the base; the registry fills it in.
    pub overlay: Overlay,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

impl Resolved {
    /// What people call it.
    pub fn name(&self) -> &str {
        self.title.as_deref().unwrap_or(self.id.as_str())
    }
}

/// A tool or a server of tools that an agent does not have, though it might.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// The exact tools of an agent, as a spawn at this moment would pin them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSet {
    /// The agent.
    pub agent: AgentId,
    /// Their schemas as JSON.
    pub tools: Pinned,
    /// What is not among them.
    pub left_out: Vec<LeftOut>,
}

/// A definition as a client gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The agent's name, unless the text gives another.
    pub name: Option<String>,
    /// How it is written: `markdown`, `toml` or `json`.
    pub format: String,
    /// What a file would hold.
    pub text: String,
}

/// The agents of each tenant: by name the hash of the definition that counts.
pub type Sets = BTreeMap<String, BTreeMap<String, String>>;

/// What trust in a project covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Covers {
    /// The project's folder, without links.
    pub folder: String,
    /// Of the names and contents of `files`.
    pub hash: String,
    /// Each file that states what needs trust, and what it states.
    pub files: Vec<(String, Vec<String>)>,
}

/// Which agents there are. A boundary: the registry asks, the agent room answers.
pub trait Catalog: Send + Sync + 'static {
    /// The agent called `name` as it counts at `place`, with `overrides` in place of its own.
    /// The fault is `not_found` with the known names, `forbidden` for an agent that may not be
    /// used, or `invalid_params` for a model nobody offers.
    fn resolve(
        &self,
        place: Place<'_>,
        name: &str,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault>;

    /// The agent used where none is named.
    fn default_agent(&self) -> AgentId;

    /// The agents of a place, and what could not be taken there.
    fn list(&self, place: Place<'_>) -> Listing;

    /// One agent as lists show it.
    fn get(&self, place: Place<'_>, name: &str) -> Result<AgentSummary, Fault>;

    /// The exact tools of an agent.
    fn tools(&self, place: Place<'_>, name: &str) -> Result<ToolSet, Fault>;

    /// Can it answer for `place` without touching a disk? If not, ask it where waiting is
    /// allowed.
    fn is_ready(&self, place: Place<'_>) -> bool;

    /// The name of an agent that may be stored with this definition; the fault says what is
    /// wrong with it and where.
    fn check(&self, org: &str, definition: &Definition) -> Result<AgentId, Fault>;

    /// Refuses a change over RPC of an agent that is no stored one; the fault names its file.
    /// An unknown name is no fault.
    fn stored_only(&self, org: &str, name: &str) -> Result<(), Fault>;

    /// Once this returns, files and rows as they are now count. Touches the disk.
    fn reload(&self) -> Result<(), Fault>;

    /// Has one of the user's files changed since they were read? Earlier looks at projects count no
    /// more after this. Touches the disk, and is cheap beside a reading.
    fn is_outdated(&self) -> bool;

    /// Which of this user's files could not be read at the last reading, and why: what was known
    /// of them counts, and another reading is due.
    fn unread(&self) -> Vec<String>;

    /// What counts outside projects.
    fn sets(&self) -> Sets;

    /// What would count if nothing but the built-in agents were there: by name its hash.
    fn built_in(&self) -> BTreeMap<String, String>;

    /// What trust in the project at `folder` would cover. Touches the disk.
    fn covers(&self, folder: &str) -> Result<Covers, Fault>;
}
