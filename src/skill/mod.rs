//! What agents know how to do: skills, folders with a `SKILL.md`. The way of a skill: [`sources`]
//! says where to look, [`scan`] finds its file, [`parse`] reads it, [`set`] decides which of a
//! name counts and whether it is of use here, and [`library`] keeps all of that for the registry,
//! which pins it to runs.

mod bundled;
mod entries;
mod file;
mod install;
mod library;
mod parse;
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
pub use library::{Library, Options};
pub use parse::{Note, Skill};
pub use requires::{Host, MissingPrograms, Remote, Requires};
pub use scan::{Found, Limits, check};
pub use set::PromptLimits;
pub use sources::Source;

/// What the settings give to the environment of runs that have a skill, without the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GivenNames {
    /// Names.
    pub names: BTreeSet<String>,
    /// A key for its `primaryEnv`.
    pub key: bool,
}

/// What the settings and the surroundings say of skills.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Folders of skills beside the usual ones.
    pub extra_dirs: Vec<PathBuf>,
    /// Those that are part of the program count.
    pub bundled: bool,
    /// The daemon's own folder of skills.
    pub managed: Option<PathBuf>,
    /// This user's home folder.
    pub home: Option<PathBuf>,
    /// This user's configuration folder.
    pub config: Option<PathBuf>,
    /// Folders made for Claude Code count, too.
    pub claude_dirs: bool,
    /// Folders outside a root to which its links may lead.
    pub link_targets: Vec<PathBuf>,
    /// Skills that are switched off, by name or key.
    pub disabled: BTreeSet<String>,
    /// What the settings give to skills, by name or key.
    pub given: BTreeMap<String, GivenNames>,
    /// So long a file must be still before it is read in place of a good version of it, and gone
    /// before that one is.
    pub settle: Duration,
    /// How much is looked at.
    pub limits: Limits,
    /// How long the list for models may be.
    pub prompt: PromptLimits,
    /// What skills may count on.
    pub host: Host,
}
