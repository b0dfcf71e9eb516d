//! The tool `skill`: loads the pinned text of a skill and the files beside it. It is the only tool
//! that reads folders outside of the workspace, and only those of the run's own skills.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Dir, FileType};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ToolOutput;
use super::arguments::parse;
use super::blocking::{StopFlag, blocking};
use super::built_in::{BuiltIn, ToolAction};
use super::registry_tool::in_words;
use crate::contract::BoxFuture;
use crate::contract::delegate::{Delegate, PinnedText, Site};
use crate::file_work::open_folder::{FOLDER, OpenFolder, folder_in, kind_in};
use crate::kernel::run::step::EffectClass;

/// The maximum size of a file, in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// The maximum number of listed files.
const FILES: usize = 50;
/// The maximum depth of the file list.
const DEPTH: usize = 3;

/// Loads a skill: instructions for a kind of work, and the files that belong to them. Load the one
/// that fits before you begin.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillToolArgs {
    /// The skill. Without it all skills are listed.
    name: Option<String>,
    /// A file of that skill, relative to its folder, instead of its instructions.
    path: Option<String>,
}

/// The tool `skill`.
pub(super) fn tool() -> BuiltIn {
    BuiltIn::new::<SkillToolArgs>("skill", EffectClass::Read, ToolAction::Skill)
}

/// Answers a call.
pub(super) fn call(
    registry: Option<&Arc<dyn Delegate>>,
    site: Site,
    arguments: Value,
) -> BoxFuture<'static, ToolOutput> {
    let registry = registry.cloned();
    Box::pin(async move {
        let Some(registry) = registry else {
            return ToolOutput::error("skill is not available yet: the daemon is starting");
        };
        let given: SkillToolArgs = match parse(arguments) {
            Ok(given) => given,
            Err(text) => return ToolOutput::error(text),
        };
        let Some(name) = given.name.filter(|name| !name.is_empty()) else {
            return match registry.skills(site).await {
                Ok(set) => {
                    let line = |skill: &crate::contract::skills::PinnedSkill| {
                        format!("{}: {}", skill.name, skill.description)
                    };
                    let lines: Vec<String> = set.skills.iter().map(line).collect();
                    ToolOutput::text(lines.join("\n"))
                }
                Err(fault) => ToolOutput::error(in_words(&fault)),
            };
        };
        let pinned = match registry.skill(site, name).await {
            Ok(pinned) => pinned,
            Err(fault) => return ToolOutput::error(in_words(&fault)),
        };
        let path = given.path.filter(|path| !path.is_empty());
        blocking(move |stop| match path {
            Some(path) => file(&pinned, &path),
            None => instructions(&pinned, stop),
        })
        .await
    })
}

/// The text of the skill in a tag, and the list of its files.
fn instructions(pinned: &PinnedText, stop: &StopFlag) -> Result<String, String> {
    let skill = &pinned.skill;
    let Some(folder) = &skill.folder else {
        return Ok(format!(
            "<skill name={:?}>\n{}\n</skill>",
            skill.name, pinned.body
        ));
    };
    let body = pinned.body.replace("{baseDir}", folder);
    let mut text = format!(
        "<skill name={:?} folder={folder:?}>\n{body}\n</skill>",
        skill.name
    );
    let mut files = Vec::new();
    // A missing folder has no files.
    if let Ok(held) = held(folder)
        && let Ok(opened) = held.folder(Path::new(""))
    {
        list(&opened, "", 0, &mut files, stop)?;
    }
    files.sort_unstable();
    if !files.is_empty() {
        let more = files.len() > FILES;
        files.truncate(FILES);
        text.push_str("\nIts files (read one with path): ");
        text.push_str(&files.join(", "));
        if more {
            text.push_str(", …");
        }
    }
    Ok(text)
}

/// Opens the folder of a skill. Its path may contain links; paths within it may not.
fn held(folder: &str) -> std::io::Result<OpenFolder> {
    OpenFolder::open(&Path::new(folder).canonicalize()?)
}

fn list(
    folder: &OwnedFd,
    inside: &str,
    depth: usize,
    files: &mut Vec<String>,
    stop: &StopFlag,
) -> Result<(), String> {
    stop.check()?;
    for entry in Dir::read_from(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_own = depth == 0 && name.eq_ignore_ascii_case("SKILL.md");
        if is_own || name.starts_with('.') || files.len() > FILES {
            continue;
        }
        let path = format!("{inside}{name}");
        match kind_in(folder, Path::new(&name)) {
            Ok(FileType::Directory) if depth < DEPTH => {
                if let Ok(folder) = folder_in(folder, Path::new(&name), FOLDER) {
                    list(&folder, &format!("{path}/"), depth + 1, files, stop)?;
                }
            }
            Ok(FileType::RegularFile) => files.push(path),
            _ => {}
        }
    }
    Ok(())
}

/// Reads a file of the skill; a path or link that leads out of its folder is refused.
fn file(pinned: &PinnedText, path: &str) -> Result<String, String> {
    let name = &pinned.skill.name;
    let folder = pinned
        .skill
        .folder
        .as_ref()
        .ok_or_else(|| format!("skill {name} has no files: it is part of the daemon"))?;
    let unreadable = |fault: std::io::Error| format!("path: {path:?} of skill {name}: {fault}");
    let held = held(folder).map_err(unreadable)?;
    let folder = Path::new(folder).canonicalize().map_err(unreadable)?;
    let whole = folder.join(path).canonicalize().map_err(unreadable)?;
    let Ok(below) = whole.strip_prefix(&folder) else {
        return Err(format!(
            "path: {path:?} is outside the folder of skill {name}; only files within it are \
             available"
        ));
    };
    if whole.is_dir() {
        return Err(format!("path: {path:?} of skill {name} is not a file"));
    }
    // Links were resolved above; a link created since then is not followed.
    let file = held.file(below).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    if length > FILE_LIMIT {
        return Err(format!(
            "path: {path:?} of skill {name} has {length} bytes, {FILE_LIMIT} at most"
        ));
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| format!("path: {path:?} of skill {name} is not text"))
}
