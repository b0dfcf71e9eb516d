//! What lies in one folder of skills: the folders and links in it, and the states of the files
//! that would make them skills. The system is asked by names below the open folder, which takes
//! it half as long as whole paths do, and on all processors. Called by `scan`.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, statat};
use rustix::io::Errno;

use super::file::FILE;
use super::spread::spread;

/// So many states are worth a thread.
const ASK_BY_ONE: usize = 256;

/// A file's state: while it is the same, so is its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    place: (u64, u64),
    length: u64,
    times: [i64; 4],
}

impl State {
    /// Of a file that was asked for by its path.
    pub(super) fn of(file: &Metadata) -> Self {
        State {
            place: (file.dev(), file.ino()),
            length: file.len(),
            times: [
                file.mtime(),
                file.mtime_nsec(),
                file.ctime(),
                file.ctime_nsec(),
            ],
        }
    }

    /// When it was changed last, milliseconds since 1970.
    pub(super) fn changed_ms(&self) -> i64 {
        let [mtime, mtime_ns, ctime, ctime_ns] = self.times;
        let ms =
            |seconds: i64, ns: i64| seconds.saturating_mul(1000).saturating_add(ns / 1_000_000);
        // A copied file keeps the time at which its text was written.
        ms(mtime, mtime_ns).max(ms(ctime, ctime_ns))
    }

    fn of_stat(file: &Stat) -> Self {
        State {
            place: (number(file.st_dev), number(file.st_ino)),
            length: number(file.st_size),
            times: [
                number(file.st_mtime),
                number(file.st_mtime_nsec),
                number(file.st_ctime),
                number(file.st_ctime_nsec),
            ],
        }
    }
}

/// Systems have different types for these. What does not fit is nought.
fn number<From: TryInto<To>, To: Default>(from: From) -> To {
    from.try_into().unwrap_or_default()
}

/// A folder or a link in a folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its name.
    pub name: OsString,
    /// A link, wherever it leads.
    pub is_link: bool,
    /// Its own number on its file system.
    pub number: u64,
    /// The state of the [`FILE`] in it, if there is one.
    pub file: Option<State>,
    /// Why the system does not say whether there is one: the number of its error.
    pub fault: Option<i32>,
}

/// What lies in a folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listing {
    /// The folder's own number on its file system.
    number: u64,
    /// By name, but for those whose name begins with a dot.
    pub entries: Vec<Entry>,
}

/// The folders and links in `folder`.
pub(super) fn list(folder: &Path) -> io::Result<Listing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = Dir::new(open(folder, flags, Mode::empty())?)?;
    let mut entries = Vec::new();
    while let Some(entry) = dir.read() {
        // A listing that breaks off does not say what is there.
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system says it along with the name.
            FileType::Unknown => {
                let state = statat(dir.fd()?, name, AtFlags::SYMLINK_NOFOLLOW);
                state.map_or(FileType::Unknown, |state| {
                    FileType::from_raw_mode(state.st_mode)
                })
            }
            known => known,
        };
        if matches!(kind, FileType::Directory | FileType::Symlink) {
            entries.push(Entry {
                name: OsString::from_vec(name.to_bytes().to_vec()),
                is_link: kind == FileType::Symlink,
                number: entry.ino(),
                file: None,
                fault: None,
            });
        }
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let at = dir.fd()?;
    spread(&mut entries, ASK_BY_ONE, |entries| {
        let mut path = Vec::new();
        for entry in entries {
            path.clear();
            path.extend_from_slice(entry.name.as_bytes());
            path.push(b'/');
            path.extend_from_slice(FILE.as_bytes());
            let state = statat(at, path.as_slice(), AtFlags::empty());
            match state {
                Ok(state) => entry.file = Some(State::of_stat(&state)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(fault) => entry.fault = Some(fault.raw_os_error()),
            }
        }
    });
    Ok(Listing {
        number: number(fstat(at)?.st_ino),
        entries,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{ASK_BY_ONE, State, list};
    use crate::skill::FILE;

    #[test]
    fn both_ways_of_asking_give_one_state() {
        let folder = tempfile::tempdir().unwrap();
        let count = ASK_BY_ONE * 3 + 1;
        for number in 0..count {
            let skill = folder.path().join(format!("skill-{number:04}"));
            fs::create_dir(&skill).unwrap();
            fs::write(skill.join(FILE), "x".repeat(number)).unwrap();
        }
        fs::create_dir(folder.path().join(".hidden")).unwrap();
        fs::create_dir(folder.path().join("empty")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        symlink("skill-0007", folder.path().join("link")).unwrap();

        let found = list(folder.path()).unwrap().entries;

        assert_eq!(found.len(), count + 2);
        assert!(found.is_sorted_by_key(|entry| &entry.name));
        for entry in found {
            let name = entry.name.to_str().unwrap();
            assert_eq!(entry.is_link, name == "link");
            let file = folder.path().join(name).join(FILE);
            let state = fs::metadata(file).ok().map(|file| State::of(&file));
            assert_eq!(entry.file, state, "{name}");
            assert_eq!(entry.file.is_none(), name == "empty");
        }
    }
}
