//! Which skills there are, and what a run pins of them. The skill room answers; the registry
//! asks at every run, and the runner reads what was pinned.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::catalog::{Aside, Pinned};
use crate::kernel::run::PinnedSkills;
use crate::kernel::text_enum::text_enum;

/// The sources of skills; of two skills of one name the later source's counts.
pub const SOURCES: [&str; 6] = [
    "extra",
    "bundled",
    "managed",
    "personal",
    "project",
    "workspace",
];

/// A skill as a run pins it; its body stands beside it under its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PinnedSkill {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// Whose it is, as in [`ListedSkill::source`].
    pub source: String,
    /// Its file; `bundled/NAME/SKILL.md` for one that is part of the program.
    pub path: String,
    /// Its folder, where its other files lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// Under this name it stands in the settings, where that is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name whose value its key is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_env: Option<String>,
    /// The names in the environment that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_env: Vec<String>,
    /// BLAKE3 of its body.
    pub hash: String,
}

/// The skills that a run may use. Pinned as JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillSet {
    /// The list for models; empty if there are none.
    pub prompt: String,
    /// By name.
    pub skills: Vec<PinnedSkill>,
    /// Those for which the list had no room; they can be used all the same.
    pub omitted: Vec<String>,
}

/// A set made ready: a spawn only copies it.
#[derive(Clone, Debug, PartialEq)]
pub struct PickedSkills {
    /// The set.
    pub set: SkillSet,
    /// It as it is stored. Its hash changes with whatever of it changes, bodies included.
    pub pinned: Pinned,
    /// The bodies.
    pub bodies: Vec<Pinned>,
    /// Names and patterns of the agent's list that fit no skill.
    pub unknown: Vec<String>,
}

/// What a run pins of its skills.
#[derive(Clone, Debug, PartialEq)]
pub enum SkillPin {
    /// What is there now.
    Now(SkillsNow),
    /// What a run before it has pinned, which is still there.
    AsBefore(PinnedSkills, Pinned),
}

/// The skills of a folder as they were found a moment ago.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillsNow {
    /// The folder whose skills they are.
    pub workspace: String,
    /// Of everything that can be used in that folder.
    pub hash: String,
    /// How many skills that are.
    pub count: usize,
    /// The part of it that the agent may use.
    pub picked: Arc<PickedSkills>,
}

text_enum! {
    /// By what a program is installed.
    InstallKind {
        /// Homebrew, a formula.
        Brew = "brew",
        /// Debian's, a package.
        Apt = "apt",
        /// npm, a package.
        Node = "node",
        /// Go, a module.
        Go = "go",
        /// uv, a Python package.
        Uv = "uv",
        /// By hand, from an address.
        Download = "download",
    }
}

/// How programs that a skill needs can be installed, as the skill says. It is shown to people;
/// nothing carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallHint {
    /// By what.
    pub kind: InstallKind,
    /// The formula, package, module or address.
    pub what: String,
    /// What its author calls it.
    pub label: Option<String>,
    /// The programs that are there then.
    pub bins: Vec<String>,
    /// The platforms for which it is meant: `linux`, `macos`, `windows`. Empty = any.
    pub os: Vec<String>,
}

impl InstallHint {
    /// What a person would type, or where they would look.
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

/// A skill as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSkill {
    /// Its name.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// `extra`, `bundled`, `managed`, `personal`, `project` or `workspace`.
    pub source: String,
    /// Its file.
    pub path: String,
    /// Why runs do not have it; `None`: they do.
    pub unfit: Option<String>,
    /// Runs that have these names in their environment have it all the same.
    pub lacks_env: Vec<String>,
    /// Under this name it stands in the settings, where that is not its own.
    pub key: Option<String>,
    /// The license that it names.
    pub license: Option<String>,
    /// What it says that it needs.
    pub compatibility: Option<String>,
    /// Patterns of tools that it was made for.
    pub allowed_tools: Vec<String>,
    /// The name whose value its key is.
    pub primary_env: Option<String>,
    /// The names in the environment that it needs.
    pub required_env: Vec<String>,
    /// How the programs that it needs can be installed.
    pub install: Vec<InstallHint>,
    /// Its body and the body's hash.
    pub body: Pinned,
    /// What was put right, left aside or departs from the specification.
    pub warnings: Vec<String>,
    /// Where this is what it said before: why its file does not count now, as a clause
    /// (`changed on disk, not valid yet (…)`, `it cannot be read: …`).
    pub stale: Option<String>,
    /// Skills of the same name that it hides.
    pub shadowed: Vec<Aside>,
}

/// The skills of one place.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillsHere {
    /// The folder, by which its versions are counted.
    pub workspace: String,
    /// Of everything that can be used here: same content, same hash.
    pub hash: String,
    /// Every skill, by name.
    pub skills: Vec<ListedSkill>,
    /// Files that could not be taken.
    pub rejected: Vec<Aside>,
}

impl SkillsHere {
    /// How many skills runs have here.
    pub fn usable(&self) -> usize {
        let usable = self.skills.iter().filter(|skill| skill.unfit.is_none());
        usable.count()
    }
}

/// Which skills there are. A boundary: the registry asks, the skill room answers.
pub trait Skills: Send + Sync + 'static {
    /// Can [`Skills::here`] answer for work in `cwd` without touching a disk?
    fn is_ready(&self, cwd: Option<&str>) -> bool;

    /// The skills of work in `cwd` (the default workspace if unset) as their files are now, to a
    /// moment; with `fresh` at this moment.
    fn here(&self, cwd: Option<&str>, fresh: bool) -> Arc<SkillsHere>;

    /// What an agent with this list of names and patterns may use of them; `None` = all. `env`
    /// are names that its runs have in their environment beside what every run has, in order.
    fn pick(
        &self,
        here: &SkillsHere,
        names: Option<&[String]>,
        env: &[String],
    ) -> Arc<PickedSkills>;

    /// The folders that were asked for of late.
    fn known(&self) -> Vec<String>;
}
