//! The available skills, and what a run pins of them. Implemented by the `skill` module; the
//! registry calls it for every run, and the runner reads what was pinned.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::catalog::{CatalogScope, InactiveDefinition, Pinned};
use crate::kernel::run::PinnedSkills;
use crate::kernel::text::text_enum::text_enum;

/// The sources of skills, in ascending precedence: of two skills of one name, the later source
/// wins.
pub const SOURCES: [&str; 7] = [
    "node",
    "extra",
    "bundled",
    "managed",
    "personal",
    "project",
    "workspace",
];

/// A skill as a run pins it; its body is stored separately under its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedSkill {
    /// Its unique name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// Its source, as in [`ListedSkill::source`].
    pub source: String,
    /// Path of its file; `bundled/NAME/SKILL.md` for one that is built into the program.
    pub path: String,
    /// The folder with its other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Its key in the settings, if that differs from its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The variable that is set to the skill's API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_env: Option<String>,
    /// The environment variables that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_env: Vec<String>,
    /// The node whose programs it needs; `None` if this machine has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// BLAKE3 hash of its body.
    pub hash: String,
}

/// The skills that a run may use. Pinned as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillSet {
    /// The skill list in the model's prompt; empty if there are none.
    pub prompt: String,
    /// The skills, by name.
    pub skills: Vec<PinnedSkill>,
    /// Skills for which the list had no room; they are still usable.
    pub omitted: Vec<String>,
}

/// A prepared skill set: a spawn only copies it.
#[derive(Clone, Debug, PartialEq)]
pub struct PickedSkills {
    /// The set.
    pub set: SkillSet,
    /// The set as stored. Its hash changes with any part of it, bodies included.
    pub pinned: Pinned,
    /// The bodies of the skills.
    pub bodies: Vec<Pinned>,
    /// Names and patterns of the agent's list that match no skill.
    pub unknown: Vec<String>,
}

/// The skills that a run pins.
#[derive(Clone, Debug, PartialEq)]
pub enum SkillPin {
    /// The skills that are present now.
    Now(SkillsNow),
    /// The skills that an earlier run has pinned, which are still present.
    Reused(PinnedSkills, Pinned),
}

/// The skills of a folder as found at the latest scan.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillsNow {
    /// The folder.
    pub workspace: String,
    /// Hash of all usable skills in the folder.
    pub hash: String,
    /// Number of usable skills in the folder.
    pub count: usize,
    /// The subset that the agent may use.
    pub picked: Arc<PickedSkills>,
}

text_enum! {
    /// The installer of a program.
    InstallKind {
        /// Homebrew; a formula.
        Brew = "brew",
        /// APT; a Debian package.
        Apt = "apt",
        /// npm; a package.
        Node = "node",
        /// Go; a module.
        Go = "go",
        /// uv; a Python package.
        Uv = "uv",
        /// Manual download from an address.
        Download = "download",
    }
}

/// How to install programs that a skill needs, as declared by the skill. Shown to users; the daemon
/// never executes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallHint {
    /// The installer.
    pub kind: InstallKind,
    /// The formula, package, module or address.
    pub what: String,
    /// The author's label.
    pub label: Option<String>,
    /// The programs that it installs.
    pub bins: Vec<String>,
    /// The platforms it applies to: `linux`, `macos`, `windows`. Empty = any.
    pub os: Vec<String>,
}

impl InstallHint {
    /// The command that a user would type, or the address to download from.
    pub fn words(&self) -> String {
        let what = &self.what;
        match self.kind {
            InstallKind::Brew => format!("brew install {what}"),
            InstallKind::Apt => format!("apt install {what}"),
            InstallKind::Node => format!("npm install -g {what}"),
            InstallKind::Go if what.contains('@') => format!("go install {what}"),
            InstallKind::Go => format!("go install {what}@latest"),
            InstallKind::Uv => format!("uv tool install {what}"),
            InstallKind::Download => what.clone(),
        }
    }
}

/// A skill as shown in lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSkill {
    /// Its unique name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// `node`, `extra`, `bundled`, `managed`, `personal`, `project` or `workspace`.
    pub source: String,
    /// Path of its file.
    pub path: String,
    /// Why runs cannot use it; `None` if they can.
    pub unusable_reason: Option<String>,
    /// Missing variables: runs that have them in their environment can use the skill despite
    /// `unfit`.
    pub lacks_env: Vec<String>,
    /// Its key in the settings, if that differs from its name.
    pub key: Option<String>,
    /// The license that it declares.
    pub license: Option<String>,
    /// The requirements that it declares, as free text.
    pub compatibility: Option<String>,
    /// Patterns of tools that it was made for.
    pub allowed_tools: Vec<String>,
    /// Users may ask for it by its name.
    pub user_invocable: bool,
    /// The variable that is set to the skill's API key.
    pub primary_env: Option<String>,
    /// The environment variables that it needs.
    pub required_env: Vec<String>,
    /// How to install the programs that it needs.
    pub install: Vec<InstallHint>,
    /// The node whose programs it needs; `None` if this machine has them.
    pub node: Option<String>,
    /// Its body with the body's hash.
    pub body: Pinned,
    /// Parts of the file that were corrected, ignored or deviate from the specification.
    pub warnings: Vec<String>,
    /// Set if this is an earlier version of the skill: why the current file is not in force, as a
    /// clause (`changed on disk, not valid yet (…)`, `it cannot be read: …`).
    pub stale: Option<String>,
    /// Skills of the same name that it shadows.
    pub shadowed: Vec<InactiveDefinition>,
}

/// The skills of one folder.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillListing {
    /// The tenant, whose nodes count.
    pub org: String,
    /// The folder, by which versions are counted.
    pub workspace: String,
    /// Hash of all usable skills: same content, same hash.
    pub hash: String,
    /// All skills, by name.
    pub skills: Vec<ListedSkill>,
    /// Invalid skill files.
    pub rejected: Vec<InactiveDefinition>,
}

impl SkillListing {
    /// Number of skills that runs can use.
    pub fn usable(&self) -> usize {
        let usable = self
            .skills
            .iter()
            .filter(|skill| skill.unusable_reason.is_none());
        usable.count()
    }
}

/// The available skills. Implemented by the `skill` module, called by the registry.
pub trait SkillCatalog: Send + Sync + 'static {
    /// True if [`SkillCatalog::here`] can answer for `place` without disk access.
    fn is_ready(&self, place: CatalogScope<'_>) -> bool;

    /// The skills for work at `place`. Slightly stale results are possible unless `fresh` is set.
    fn here(&self, place: CatalogScope<'_>, fresh: bool) -> Arc<SkillListing>;

    /// The subset that an agent with this list of names and patterns may use; `None` = all. `env`
    /// are the sorted names of variables that its runs have in addition to the base environment.
    fn pick(
        &self,
        here: &SkillListing,
        names: Option<&[String]>,
        env: &[String],
    ) -> Arc<PickedSkills>;

    /// The folders of this tenant that were queried recently.
    fn known(&self, org: &str) -> Vec<String>;

    /// The programs that skills of this tenant's known folders require.
    fn required_programs(&self, org: &str) -> BTreeSet<String>;
}
