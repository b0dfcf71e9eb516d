//! What this machine is, and the skills that it publishes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::kernel::node::{Machine, NodeSkill, SKILLS_LIMIT};

/// Maximum number of published skills.
const SKILL_LIMIT: usize = 200;

/// What this machine is.
pub(super) fn machine() -> Machine {
    Machine {
        host: host(),
        platform: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// The name of this machine.
pub(super) fn host() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy().into_owned();
    match name.is_empty() {
        true => "node".to_owned(),
        false => name,
    }
}

/// The skills in the folder of the settings, as far as they fit together: `<name>/SKILL.md` each.
pub(super) fn skills(folder: &Path) -> Vec<NodeSkill> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(fault) => {
            tracing::warn!(folder = %folder.display(), %fault, "the skills of the node cannot be read");
            return Vec::new();
        }
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let mut left = SKILLS_LIMIT;
    let mut found = Vec::new();
    for name in names {
        let Some(text) = text_of(&folder.join(&name).join("SKILL.md")) else {
            continue;
        };
        // JSON may make a text longer.
        let size = super::files::encoded(&text) + name.len();
        if size > left || found.len() == SKILL_LIMIT {
            tracing::warn!(
                skill = name,
                "the skill is not published: all together are too large"
            );
            continue;
        }
        left -= size;
        found.push(NodeSkill { folder: name, text });
    }
    found
}

/// The text of a small file; `None` if there is none or it is not text.
fn text_of(file: &Path) -> Option<String> {
    let about = file.metadata().ok()?;
    if !about.is_file() {
        return None;
    }
    let mut text = String::new();
    let limit = SKILLS_LIMIT as u64;
    File::open(file)
        .ok()?
        .take(limit)
        .read_to_string(&mut text)
        .ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_name() {
        assert!(!machine().host.is_empty());
    }

    #[test]
    fn skills_are_published_as_far_as_they_fit() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("SKILL.md"), text).unwrap();
        };
        write("b", "text");
        write("a", &"x".repeat(SKILLS_LIMIT));
        write("c", "more");
        std::fs::create_dir(folder.path().join("empty")).unwrap();
        let found: Vec<String> = skills(folder.path())
            .into_iter()
            .map(|one| one.folder)
            .collect();
        assert_eq!(found, ["b", "c"]);
        assert!(skills(&folder.path().join("gone")).is_empty());
    }
}
