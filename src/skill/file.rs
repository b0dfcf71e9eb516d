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

/// The skill in `file`, or why there is none.
pub(super) fn read(file: &Path, limits: Limits) -> Result<Skill, Broken> {
    let unreadable = |fault: std::io::Error| Broken::whole(format!("it cannot be read: {fault}"));
    let bytes = read_regular(file, limits.bytes).map_err(unreadable)?;
    if bytes.len() > limits.bytes {
        return Err(Broken::whole(format!(
            "more bytes than a skill may have, {} at most (setting skills.max_file_bytes)",
            limits.bytes
        )));
    }
    let absolute = std::path::absolute(file).map_err(unreadable)?;
    let folder = absolute.parent().and_then(Path::file_name);
    let folder = folder
        .and_then(|name| name.to_str())
        .ok_or_else(|| Broken::whole("its folder's name is not UTF-8"))?;
    parse(folder, &bytes, limits.bytes)
}
