//! Lists one folder of skills: its folders and links, and the states of the skill files in them.
//! Calls to `statat` use names relative to the open folder, which takes half the time of whole
//! paths, and run on all processors. Called by `scan`.

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

/// Minimum number of files to query that is worth a thread.
const ASK_BY_ONE: usize = 256;

/// Identity, size and times of a file; while they are equal, its content is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileStamp {
    place: (u64, u64),
    length: u64,
    times: [i64; 4],
}

impl FileStamp {
    /// The state from metadata that was queried by path.
    pub(super) fn of(file: &Metadata) -> Self {
        FileStamp {
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

    /// Time of the last change, milliseconds since 1970.
    pub(super) fn changed_ms(&self) -> i64 {
        let [mtime, mtime_ns, ctime, ctime_ns] = self.times;
        let ms =
            |seconds: i64, ns: i64| seconds.saturating_mul(1000).saturating_add(ns / 1_000_000);
        // A copied file may keep the original's modification time.
        ms(mtime, mtime_ns).max(ms(ctime, ctime_ns))
    }

    fn of_stat(file: &Stat) -> Self {
        FileStamp {
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

/// Converts between the integer types of different systems; 0 if the value does not fit.
fn number<From: TryInto<To>, To: Default>(from: From) -> To {
    from.try_into().unwrap_or_default()
}

/// A folder or link within a folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderEntry {
    /// The name without its folder.
    pub name: OsString,
    /// It is a symbolic link, whatever its target.
    pub is_link: bool,
    /// Its inode number.
    pub number: u64,
    /// The state of the [`FILE`] in it; `None` if it has none.
    pub file: Option<FileStamp>,
    /// The system error number if the file could not be queried.
    pub fault: Option<i32>,
}

/// The content of a folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderListing {
    /// The folder's inode number.
    number: u64,
    /// Sorted by name, without names that begin with a dot.
    pub entries: Vec<FolderEntry>,
}

/// Lists the folders and links in `folder`.
pub(super) fn list(folder: &Path) -> io::Result<FolderListing> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut dir = Dir::new(open(folder, flags, Mode::empty())?)?;
    let mut entries = Vec::new();
    while let Some(entry) = dir.read() {
        // An incomplete listing would make skills disappear.
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes().starts_with(b".") {
            continue;
        }
        let kind = match entry.file_type() {
            // Not every file system returns the type with the name.
            FileType::Unknown => {
                let state = statat(dir.fd()?, name, AtFlags::SYMLINK_NOFOLLOW);
                state.map_or(FileType::Unknown, |state| {
                    FileType::from_raw_mode(state.st_mode)
                })
            }
            known => known,
        };
        if matches!(kind, FileType::Directory | FileType::Symlink) {
            entries.push(FolderEntry {
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
                Ok(state) => entry.file = Some(FileStamp::of_stat(&state)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(fault) => entry.fault = Some(fault.raw_os_error()),
            }
        }
    });
    Ok(FolderListing {
        number: number(fstat(at)?.st_ino),
        entries,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{ASK_BY_ONE, FileStamp, list};
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
            let state = fs::metadata(file).ok().map(|file| FileStamp::of(&file));
            assert_eq!(entry.file, state, "{name}");
            assert_eq!(entry.file.is_none(), name == "empty");
        }
    }
}
