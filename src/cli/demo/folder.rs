//! Chooses the folder that the demo explores: the current one, or a small sample if that is empty.

use std::fs;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;

use crate::cli::common::failure::Failure;

/// Maximum number of files for a demo of a few seconds.
const MOST_FILES: usize = 20_000;

/// The embedded sample: a small program with answers to all questions.
const SAMPLE: &[(&str, &str)] = &[
    ("README.md", include_str!("sample/README.md")),
    ("station.py", include_str!("sample/station.py")),
    ("readings.py", include_str!("sample/readings.py")),
    ("settings.py", include_str!("sample/settings.py")),
    ("harbours.toml", include_str!("sample/harbours.toml")),
];

/// The folder that the demo explores.
#[derive(Debug)]
pub(super) struct Explored {
    /// Absolute path of the folder.
    pub(super) folder: PathBuf,
    /// Number of its files, as a search sees them.
    pub(super) files: usize,
    /// True for the embedded sample.
    pub(super) is_sample: bool,
}

impl Explored {
    /// Chooses the folder for a user in `current`. A sample is written to a folder in `state`.
    pub(super) fn choose(
        current: &Path,
        home: Option<&Path>,
        state: &Path,
    ) -> Result<Explored, Failure> {
        let unusable = |error| Failure::local(current.display(), error);
        let folder = current.canonicalize().map_err(unusable)?;
        let is_home = home.and_then(|home| home.canonicalize().ok()).as_ref() == Some(&folder);
        let is_root = folder.parent().is_none();
        let files = if is_home || is_root {
            0
        } else {
            count(&folder)
        };
        if is_home || is_root || files > MOST_FILES {
            return Err(Failure::usage(format!(
                "the demo does not search a home or root folder, or more than {MOST_FILES} files: {}",
                folder.display()
            ))
            .hint("go into a folder with source code, or into an empty one for a sample"));
        }
        let is_sample = files == 0;
        Ok(Explored {
            folder: if is_sample {
                write_sample(state)?
            } else {
                folder
            },
            files: if is_sample { SAMPLE.len() } else { files },
            is_sample,
        })
    }
}

/// Once this returns, the sample is in a folder in `state`.
fn write_sample(state: &Path) -> Result<PathBuf, Failure> {
    let folder = state.join("sample");
    let write = || {
        fs::create_dir_all(&folder)?;
        for (name, text) in SAMPLE {
            fs::write(folder.join(name), text)?;
        }
        folder.canonicalize()
    };
    write().map_err(|error| Failure::local(folder.display(), error))
}

/// Number of files that a search would read, at most one more than the limit.
fn count(folder: &Path) -> usize {
    WalkBuilder::new(folder)
        .build()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()))
        .take(MOST_FILES + 1)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_folder_gets_the_sample() {
        let home = tempfile::tempdir().unwrap();
        let current = home.path().join("empty");
        let state = home.path().join("state");
        fs::create_dir(&current).unwrap();
        let place = Explored::choose(&current, Some(home.path()), &state).unwrap();
        assert!(place.is_sample);
        assert_eq!(count(&place.folder), SAMPLE.len());
    }

    #[test]
    fn a_folder_with_a_file_is_explored_itself() {
        let current = tempfile::tempdir().unwrap();
        fs::write(current.path().join("a.txt"), "a").unwrap();
        let place = Explored::choose(current.path(), None, Path::new("nowhere")).unwrap();
        assert_eq!(place.folder, current.path().canonicalize().unwrap());
        assert_eq!((place.files, place.is_sample), (1, false));
    }

    #[test]
    fn the_root_and_the_home_folder_are_refused() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("a.txt"), "a").unwrap();
        for refused in [Path::new("/"), home.path()] {
            let state = Path::new("nowhere");
            let failure = Explored::choose(refused, Some(home.path()), state).unwrap_err();
            assert_eq!(failure.code, 2, "{failure}");
        }
    }
}
