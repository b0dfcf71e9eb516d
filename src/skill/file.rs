//! The file that makes a folder a skill: which one that is, and reading it within its limits.
//! Called by `scan`.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Limits;
use super::parse::{Note, Skill, parse};
use crate::front_matter::Broken;

/// The file that makes a folder a skill.
pub const FILE: &str = "SKILL.md";
/// As some people write it.
const VARIANTS: &[&str] = &["skill.md", "Skill.md", "SKILL.MD"];

/// The file that makes a folder a skill, and whether it is a variant of its name.
pub(super) fn file_in(folder: &Path) -> Option<(PathBuf, bool)> {
    let file = folder.join(FILE);
    if file.is_file() {
        return Some((file, false));
    }
    let variants = VARIANTS.iter().map(|name| folder.join(name));
    variants
        .into_iter()
        .find(|file| file.is_file())
        .map(|file| (file, true))
}

/// It is said of the skill that its file has a variant of the name.
pub(super) fn note_variant(outcome: &mut Result<Skill, Broken>) {
    if let Ok(skill) = outcome {
        skill.notes.push(Note {
            line: None,
            text: format!("the file's name is {FILE}, all capitals"),
        });
    }
}

/// Why there is no skill in a file.
pub(super) enum NoSkill {
    /// The system did not let it be read, which says nothing about what is in it.
    Unread(std::io::Error),
    /// It holds none.
    Broken(Broken),
}

impl NoSkill {
    /// For people.
    pub(super) fn broken(self) -> Broken {
        match self {
            NoSkill::Unread(fault) => Broken::whole(format!("it cannot be read: {fault}")),
            NoSkill::Broken(broken) => broken,
        }
    }
}

/// The skill in `file`, or why there is none.
pub(super) fn read(file: &Path, limits: Limits) -> Result<Skill, NoSkill> {
    let unreadable = |fault: std::io::Error| match fault.kind() {
        std::io::ErrorKind::NotFound => {
            NoSkill::Broken(Broken::whole(format!("it cannot be read: {fault}")))
        }
        _ => NoSkill::Unread(fault),
    };
    let broken = |reason: String| NoSkill::Broken(Broken::whole(reason));
    let state = fs::metadata(file).map_err(unreadable)?;
    // A pipe would be waited for.
    if !state.is_file() {
        return Err(broken("it is no regular file".to_owned()));
    }
    // A file that has grown meanwhile is read on.
    let expected = usize::try_from(state.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::with_capacity(expected.min(limits.bytes) + 1);
    File::open(file)
        // One byte more, so that a longer file is seen to be one.
        .and_then(|file| file.take(limits.bytes as u64 + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > limits.bytes {
        return Err(broken(format!(
            "{} bytes; a skill has {} at most (setting skills.max_file_bytes)",
            state.len(),
            limits.bytes
        )));
    }
    let absolute = std::path::absolute(file).map_err(unreadable)?;
    let folder = absolute.parent().and_then(Path::file_name);
    let folder = folder
        .and_then(|name| name.to_str())
        .ok_or_else(|| broken("its folder's name is not UTF-8".to_owned()))?;
    parse(folder, &bytes, limits.bytes).map_err(NoSkill::Broken)
}
