//! The file that makes a folder a skill: which one that is, and reading it within its limits.
//! Called by `scan`.

use std::path::{Path, PathBuf};

use super::Limits;
use super::parse::{Note, Skill, parse};
use crate::file_work::read_regular;
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
    let broken = |reason: String| NoSkill::Broken(Broken::whole(reason));
    let unreadable = |fault: std::io::Error| match fault.kind() {
        std::io::ErrorKind::NotFound => broken(format!("it cannot be read: {fault}")),
        // What is there is no file, whatever it holds.
        std::io::ErrorKind::Other => broken(fault.to_string()),
        _ => NoSkill::Unread(fault),
    };
    let bytes = read_regular(file, limits.bytes).map_err(unreadable)?;
    if bytes.len() > limits.bytes {
        return Err(broken(format!(
            "more bytes than a skill may have, {} at most (setting skills.max_file_bytes)",
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
