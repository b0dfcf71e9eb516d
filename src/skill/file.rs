//! Finds the file that makes a folder a skill and reads it within the limits. Called by `scan`.

use std::path::{Path, PathBuf};

use super::ScanLimits;
use super::parse::{Note, Skill, parse};
use crate::file_work::read_regular;
use crate::front_matter::LoadError;

/// Name of the file that makes a folder a skill.
pub const FILE: &str = "SKILL.md";
/// Misspelled names that are accepted with a note.
const VARIANTS: &[&str] = &["skill.md", "Skill.md", "SKILL.MD"];

/// The skill file in `folder`, and whether its name is a variant of [`FILE`]; `None` if there is
/// none.
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

/// Adds a note to the skill that its file's name is a variant.
pub(super) fn note_variant(outcome: &mut Result<Skill, LoadError>) {
    if let Ok(skill) = outcome {
        skill.notes.push(Note {
            line: None,
            text: format!("the file's name should be {FILE}, in capitals"),
        });
    }
}

/// Why a file gave no skill.
pub(super) enum NoSkill {
    /// The system could not read the file; its content is unknown.
    Unread(std::io::Error),
    /// The content is not a valid skill.
    Broken(LoadError),
}

impl NoSkill {
    /// The reason as it is shown to users.
    pub(super) fn broken(self) -> LoadError {
        match self {
            NoSkill::Unread(fault) => LoadError::whole(format!("it cannot be read: {fault}")),
            NoSkill::Broken(broken) => broken,
        }
    }
}

/// Reads the skill in `file`.
pub(super) fn read(file: &Path, limits: ScanLimits) -> Result<Skill, NoSkill> {
    let broken = |reason: String| NoSkill::Broken(LoadError::whole(reason));
    let unreadable = |fault: std::io::Error| match fault.kind() {
        std::io::ErrorKind::NotFound => broken(format!("it cannot be read: {fault}")),
        // `read_regular` reports this for anything but a regular file.
        std::io::ErrorKind::Other => broken(fault.to_string()),
        _ => NoSkill::Unread(fault),
    };
    let bytes = read_regular(file, limits.bytes).map_err(unreadable)?;
    if bytes.len() > limits.bytes {
        return Err(broken(format!(
            "larger than the limit of {} bytes (setting skills.max_file_bytes)",
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
