//! The files of a store in its folder, and how one file replaces another so that a kill at any
//! moment leaves either the old or the new one, and never none.
//!
//! The new file is completed as `abide.db.saved`. Then `abide.db.switch` is written, which says
//! where the old one goes; from then on every start completes the switch.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::failpoint::reach;
use crate::file_work::sync_folder;
use crate::kernel::time::Timestamp;

/// Name of the database file.
pub const DATABASE: &str = "abide.db";
/// Suffixes of the files beside a database: the WAL contains data, the index can be rebuilt.
const LOG: &str = "-wal";
const INDEX: &str = "-shm";

/// The path of the file beside the database with this suffix.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The path of the database's WAL.
pub fn log(path: &Path) -> PathBuf {
    beside(path, LOG)
}

/// The paths of the database and the files beside it, whether they exist or not.
pub fn all(path: &Path) -> Vec<PathBuf> {
    ["", LOG, INDEX].map(|ending| beside(path, ending)).into()
}

/// True if a file of the database cannot grow because of the process's file size limit.
pub fn is_at_size_limit(path: &Path) -> bool {
    room_in_files(path).is_some_and(|room| room < 2 * PAGE as u64)
}

/// How many bytes the largest file of the database may still grow; `None`: no limit is set.
pub fn room_in_files(path: &Path) -> Option<u64> {
    let limit = getrlimit(Resource::Fsize).current?;
    let sizes = all(path)
        .into_iter()
        .filter_map(|path| fs::metadata(path).ok());
    let largest = sizes.map(|about| about.len()).max().unwrap_or(0);
    Some(limit.saturating_sub(largest))
}

/// The folder exists; if it was created, only its owner can use it.
pub fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// The path under which a replacement for the database is built.
pub fn saved(path: &Path) -> PathBuf {
    beside(path, ".saved")
}

fn order(path: &Path) -> PathBuf {
    beside(path, ".switch")
}

/// The name under which a file is set aside: a word for the reason, and the time.
pub fn aside(path: &Path, why: &str, now: Timestamp) -> PathBuf {
    // Some file systems do not allow colons.
    let time = now.to_string().replace(':', "-");
    let mut name = beside(path, &format!(".{why}-{time}"));
    let mut again = 1;
    while name.exists() {
        again += 1;
        name = beside(path, &format!(".{why}-{time}-{again}"));
    }
    name
}

/// The other processes that hold locks on a database, as far as the system reports them; only
/// writers if there are any.
pub fn locked_by(path: &Path) -> String {
    let own = std::process::id();
    let numbers: Vec<u64> = all(path)
        .iter()
        .filter_map(|path| Some(fs::metadata(path).ok()?.ino()))
        .collect();
    // `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF`
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut holders: Vec<(bool, u32)> = locks
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words
                .iter()
                .position(|word| matches!(*word, "READ" | "WRITE"))?;
            let pid: u32 = words.get(at + 1)?.parse().ok()?;
            let number: u64 = words.get(at + 2)?.rsplit(':').next()?.parse().ok()?;
            (pid != own && numbers.contains(&number)).then_some((words[at] == "READ", pid))
        })
        .collect();
    holders.sort_unstable();
    if let Some((reads, _)) = holders.first().copied() {
        holders.retain(|holder| holder.0 == reads);
    }
    holders.dedup();
    let names: Vec<String> = holders
        .into_iter()
        .map(|(_, pid)| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            match name.trim() {
                "" => format!("process {pid}"),
                name => format!("process {pid} ({name})"),
            }
        })
        .collect();
    match names.is_empty() {
        true => "another process (fuser or lsof shows which)".to_owned(),
        false => names.join(", "),
    }
}

/// The partial database file and the files beside it are removed.
pub fn discard(path: &Path) -> io::Result<()> {
    for ending in ["", LOG, INDEX, "-journal"] {
        remove(&beside(path, ending))?;
    }
    Ok(())
}

/// Files that a kill left behind are removed; the database at `path` exists.
pub fn clear_leftovers(path: &Path) -> io::Result<()> {
    for ending in [".saved", ".redone", ".patched"] {
        discard(&beside(path, ending))?;
    }
    for ending in [".outline.new", ".switch.new"] {
        remove(&beside(path, ending))?;
    }
    Ok(())
}

/// The files beside an intact database that no process has open are removed.
pub fn discard_beside(path: &Path) -> io::Result<()> {
    for ending in [LOG, INDEX] {
        remove(&beside(path, ending))?;
    }
    Ok(())
}

/// Once this returns, there is no file at `path`.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(fault) if fault.kind() != io::ErrorKind::NotFound => Err(fault),
        _ => Ok(()),
    }
}

/// The file exists, empty or unchanged; if it was created, only its owner can read it. SQLite
/// gives the files beside it the same mode.
pub fn private(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map(drop)
}

/// Once this returns, the file at [`saved`] is the database at `path`, and the old one, with the
/// files beside it, is at `aside`. The new file must be complete, without a WAL.
pub fn switch(path: &Path, aside: &Path) -> io::Result<()> {
    sync(&saved(path))?;
    let half = beside(path, ".switch.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&half)?;
    let name = aside.file_name().unwrap_or_default();
    file.write_all(name.as_encoded_bytes())?;
    file.sync_all()?;
    fs::rename(&half, order(path))?;
    sync_parent(path)?;
    reach("store.switch.ordered");
    finish(path)
}

/// An interrupted switch, if there was one, is completed.
pub fn finish(path: &Path) -> io::Result<()> {
    let Ok(name) = fs::read_to_string(order(path)) else {
        return Ok(());
    };
    let aside = path.with_file_name(name.trim());
    if saved(path).exists() {
        // The WAL first: it must never be beside a database that it does not belong to.
        for ending in [LOG, INDEX, ""] {
            let (from, to) = (beside(path, ending), beside(&aside, ending));
            if from.exists() && !to.exists() {
                fs::rename(from, to)?;
                reach("store.switch.moved");
            }
        }
        discard_beside(path)?;
        // The outline belongs to the old database.
        remove(&outline(path))?;
        sync_parent(path)?;
        fs::rename(saved(path), path)?;
        sync_parent(path)?;
        reach("store.switch.placed");
    }
    remove(&order(path))?;
    sync_parent(path)
}

/// The content of the file survives a power loss.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The entries of the folder that contains `path` survive a power loss.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), sync_folder)
}

/// The file that names the backup in progress.
pub fn copying(path: &Path) -> PathBuf {
    beside(path, ".copying")
}

/// The file with a copy of the database's schema; see `outline.rs`.
pub fn outline(path: &Path) -> PathBuf {
    beside(path, ".outline")
}

/// Bytes of a database page.
pub const PAGE: usize = 4096;

/// The marker of a file in which damage was found while in use: the next start checks all of it.
pub fn suspect(path: &Path) -> PathBuf {
    beside(path, ".suspect")
}

/// The marker is written. If that fails, the damage will be found again.
pub fn mark_suspect(path: &Path, why: &str) {
    if let Err(fault) = private(&suspect(path)).and_then(|()| fs::write(suspect(path), why)) {
        tracing::error!(%fault, "the marker of a damaged store could not be written");
    }
}

/// The marker is removed.
pub fn clear_suspect(path: &Path) -> io::Result<()> {
    remove(&suspect(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Option<String> {
        fs::read_to_string(path).ok()
    }

    #[test]
    fn a_switch_that_was_cut_off_anywhere_is_finished() {
        for cut in 0..5 {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(DATABASE);
            let old = aside(&path, "damaged", Timestamp(0));
            fs::write(&path, "old").unwrap();
            fs::write(log(&path), "old log").unwrap();
            fs::write(beside(&path, INDEX), "index").unwrap();
            fs::write(saved(&path), "new").unwrap();
            fs::write(order(&path), old.file_name().unwrap().as_encoded_bytes()).unwrap();
            if cut > 0 {
                fs::rename(log(&path), beside(&old, LOG)).unwrap();
            }
            if cut > 1 {
                fs::rename(&path, &old).unwrap();
            }
            if cut > 2 {
                fs::rename(beside(&path, INDEX), beside(&old, INDEX)).unwrap();
            }
            if cut > 3 {
                fs::rename(saved(&path), &path).unwrap();
            }
            for _ in 0..2 {
                finish(&path).unwrap();
                assert_eq!(read(&path).as_deref(), Some("new"), "{cut}");
                assert_eq!(read(&old).as_deref(), Some("old"), "{cut}");
                assert_eq!(read(&beside(&old, LOG)).as_deref(), Some("old log"));
                assert_eq!(read(&beside(&old, INDEX)).as_deref(), Some("index"));
                assert!(!log(&path).exists() && !order(&path).exists());
                assert!(!beside(&path, INDEX).exists());
            }
        }
    }
}
