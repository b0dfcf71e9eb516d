//! The project around a run's folder: its root, the definitions in it, and which of them take
//! effect only once the user trusts it.

use std::path::{Path, PathBuf};

use super::folder::{self, AgentFile, Dialect};
use super::merge;
use super::raw::FILE_LIMIT;
use super::set::shown;
use crate::file_work::read_regular;

/// The folders of a project that define agents; later ones win.
const FOLDERS: [(&str, Dialect); 2] = [
    (".claude/agents", Dialect::Claude),
    (".abide/agents", Dialect::Own),
];

/// The nearest folder at or above `cwd` that is a project, i.e. contains `.abide` or `.git`.
pub fn find(cwd: &Path) -> Option<PathBuf> {
    let is_project = |folder: &&Path| {
        [".abide", ".git"]
            .iter()
            .any(|mark| folder.join(mark).exists())
    };
    let found = cwd.ancestors().find(is_project)?;
    // Canonical, so that a project has one name whichever link leads to it.
    found.canonicalize().ok()
}

/// The definitions of a project.
#[derive(Clone)]
pub(super) struct ProjectDefinitions {
    /// The root folder, canonical.
    pub folder: PathBuf,
    /// Its definitions, by layer.
    pub layers: Vec<(Dialect, Vec<AgentFile>)>,
    /// The scope of trust in it.
    pub covered: Covered,
}

/// The scope of trust in a project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    /// A hash of the names and contents of `files`, and of the rights in all other definitions.
    pub hash: String,
    /// Each file with fields that need trust, and these fields.
    pub files: Vec<(String, Vec<&'static str>)>,
}

/// The definition folders of the project in `folder`. `personal` never belongs to a project, even
/// if the home folder is one.
pub(super) fn folders(folder: &Path, personal: Option<&Path>) -> Vec<(PathBuf, Dialect)> {
    FOLDERS
        .iter()
        .map(|(inside, dialect)| (folder.join(inside), *dialect))
        .filter(|(inside, _)| Some(inside.as_path()) != personal)
        .collect()
}

/// Reads all definitions of a project.
pub(super) fn read(folder: PathBuf, personal: Option<&Path>) -> ProjectDefinitions {
    let layers: Vec<(Dialect, Vec<AgentFile>)> = folders(&folder, personal)
        .into_iter()
        .map(|(inside, dialect)| (dialect, folder::read(&inside, dialect, Some(&folder))))
        .collect();
    ProjectDefinitions {
        covered: covered(&folder, &layers),
        layers,
        folder,
    }
}

/// Trust covers files with fields that need it completely, and only the rights of the other files:
/// a changed prompt keeps the trust, an added command or agent revokes it.
fn covered(folder: &Path, layers: &[(Dialect, Vec<AgentFile>)]) -> Covered {
    let mut hasher = blake3::Hasher::new();
    let mut files = Vec::new();
    for found in layers.iter().flat_map(|(_, found)| found) {
        let Ok(draft) = &found.outcome else { continue };
        if draft.needs_trust.is_empty() {
            let rights = merge::rights(draft);
            hasher.update(&(rights.len() as u64).to_le_bytes());
            hasher.update(rights.as_bytes());
            continue;
        }
        let name = found.file.strip_prefix(folder).unwrap_or(&found.file);
        let name = shown(name);
        // Read again, because a draft keeps only the parsed part of its file. A file that is gone
        // or grew meanwhile changes the hash, and trust is checked again.
        let body = read_regular(&found.file, FILE_LIMIT).unwrap_or_default();
        for part in [name.as_bytes(), &body] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        files.push((name, draft.needs_trust.clone()));
    }
    Covered {
        hash: hasher.finalize().to_hex().to_string(),
        files,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_project_is_the_nearest_folder_with_a_mark() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let deep = root.join("outer/inner/src/deep");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(root.join("outer/.git")).unwrap();
        assert_eq!(find(&deep), Some(root.join("outer")));
        fs::create_dir_all(root.join("outer/inner/.abide")).unwrap();
        assert_eq!(find(&deep), Some(root.join("outer/inner")));
        assert_eq!(
            find(&root.join("outer/inner")),
            Some(root.join("outer/inner"))
        );
        // The `.git` of a worktree is a file.
        fs::write(root.join("outer/inner/src/.git"), "gitdir: x").unwrap();
        assert_eq!(find(&deep), Some(root.join("outer/inner/src")));
    }

    #[test]
    fn trust_covers_the_files_that_state_something_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let agents = dir.path().join(".abide/agents");
        fs::create_dir_all(&agents).unwrap();
        let hash = || read(dir.path().to_owned(), None).covered.hash;
        let plain = "---\ndescription: d\n---\nLook.\n";
        let loud = "---\ndescription: d\nenv: {A: b}\n---\nLook.\n";
        fs::write(agents.join("plain.md"), plain).unwrap();
        let nothing = hash();
        fs::write(agents.join("plain.md"), plain.replace("Look", "See")).unwrap();
        assert_eq!(hash(), nothing);
        fs::write(agents.join("loud.md"), loud).unwrap();
        let one = hash();
        assert_ne!(one, nothing);
        fs::write(agents.join("loud.md"), loud.replace("A: b", "A: c")).unwrap();
        assert_ne!(hash(), one);
        let covered = read(dir.path().to_owned(), None).covered;
        assert_eq!(
            covered.files,
            [(".abide/agents/loud.md".to_owned(), vec!["env"])]
        );
    }
}
