//! Skills: folders with a `SKILL.md` that tell agents how to do a kind of work. [`sources`] names
//! the folders to search, [`scan`] finds the files, [`parse`] reads them, [`set`] selects one skill
//! per name and decides whether it is usable, and [`library`] caches the result for the registry,
//! which pins it to runs.

mod bundled;
mod entries;
mod file;
mod install;
mod library;
mod parse;
mod published;
mod requires;
mod scan;
mod set;
mod sources;
mod spread;
mod yaml;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod library_tests;
#[cfg(test)]
mod look_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

pub use file::FILE;
pub use library::{Library, LibraryOptions};
pub use parse::{Note, Skill};
pub use requires::{Host, MissingPrograms, RemoteHost, SkillRequirements};
pub use scan::{ScanLimits, SkillFile, check};
pub use set::PromptLimits;
pub use sources::SkillSource;

/// The environment variables that the settings give to runs with a skill, without their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenNames {
    /// Names of the variables.
    pub names: BTreeSet<String>,
    /// The settings also give a key, as the value of the skill's `primaryEnv`.
    pub key: bool,
}

/// Settings and environment that determine which skills are found and usable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkillSettings {
    /// Folders of skills beside the usual ones.
    pub extra_dirs: Vec<PathBuf>,
    /// Include the built-in skills.
    pub bundled: bool,
    /// The daemon's own folder of skills.
    pub managed: Option<PathBuf>,
    /// The user's home folder.
    pub home: Option<PathBuf>,
    /// The user's configuration folder.
    pub config: Option<PathBuf>,
    /// Also search the folders of Claude Code (`.claude/skills`).
    pub claude_dirs: bool,
    /// Folders outside a root that its links may point to.
    pub link_targets: Vec<PathBuf>,
    /// Skills that are switched off, by name or key.
    pub disabled: BTreeSet<String>,
    /// Variables that the settings give to skills, by skill name or key.
    pub given: BTreeMap<String, GivenNames>,
    /// How long a file must be unchanged before it replaces a valid version, or missing before that
    /// version is dropped.
    pub settle: Duration,
    /// Limits of a scan.
    pub limits: ScanLimits,
    /// Limits of the skill list in the prompt.
    pub prompt: PromptLimits,
    /// What skills can rely on.
    pub host: Host,
}
