//! The files of a store in its folder, and how one file is put in the place of another so that
//! a kill at any moment leaves either the old or the new one, and never none.
//!
//! The new file is made whole as `abide.db.saved`. Then `abide.db.switch` is written, which
//! says where the old one goes; from then on every start finishes the switch.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use crate::failpoint::reach;
use crate::kernel::time::Timestamp;

/// The database.
pub const DATABASE: &str = "abide.db";
/// What lies beside a database: the write-ahead file holds data, the other can be made anew.
const LOG: &str = "-wal";
const INDEX: &str = "-shm";

/// A file beside the database whose name goes on like this.
pub fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// The database's write-ahead file.
pub fn log(path: &Path) -> PathBuf {
    beside(path, LOG)
}

/// The database and the files beside it, there or not.
pub fn all(path: &Path) -> Vec<PathBuf> {
    ["", LOG, INDEX].map(|ending| beside(path, ending)).into()
}

/// Can a file of the database not grow any more because the process may not write larger ones?
pub fn is_at_size_limit(path: &Path) -> bool {
    room_in_files(path).is_some_and(|room| room < 2 * PAGE as u64)
}

/// By how much the largest file of the database may grow; `None`: the process has no limit.
pub fn room_in_files(path: &Path) -> Option<u64> {
    let limit = getrlimit(Resource::Fsize).current?;
    let sizes = all(path)
        .into_iter()
        .filter_map(|path| fs::metadata(path).ok());
    let largest = sizes.map(|about| about.len()).max().unwrap_or(0);
    Some(limit.saturating_sub(largest))
}

/// The folder is there, made for its owner alone if it was not.
pub fn private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Where the next file is made.
pub fn saved(path: &Path) -> PathBuf {
    beside(path, ".saved")
}

fn order(path: &Path) -> PathBuf {
    beside(path, ".switch")
}

/// The name under which a file is set aside: a word that says why, and the time.
pub fn aside(path: &Path, why: &str, now: Timestamp) -> PathBuf {
    // Colons are not liked by every file system.
    let time = now.to_string().replace(':', "-");
    let mut name = beside(path, &format!(".{why}-{time}"));
    let mut again = 1;
    while name.exists() {
        again += 1;
        name = beside(path, &format!(".{why}-{time}-{again}"));
    }
    name
}

/// Which other processes hold locks on a database, as far as the system tells; those that write
/// before those that read.
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

/// Removes a database file that is only half made, and what lies beside it.
pub fn discard(path: &Path) -> io::Result<()> {
    for ending in ["", LOG, INDEX, "-journal"] {
        remove(&beside(path, ending))?;
    }
    Ok(())
}

/// Removes what a kill has left of work on the database at `path`, which is there.
pub fn clear_leftovers(path: &Path) -> io::Result<()> {
    for ending in [".saved", ".redone", ".patched"] {
        discard(&beside(path, ending))?;
    }
    for ending in [".outline.new", ".switch.new"] {
        remove(&beside(path, ending))?;
    }
    Ok(())
}

/// Removes what lies beside a whole database file that nobody has open.
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

/// The file is there, empty or as it was, and readable by its owner alone; the engine gives
/// the files beside it the same mode.
pub fn private(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map(drop)
}

/// Once this returns, [`saved`] is the database at `path`, and the old one, with the files beside
/// it, lies at `aside`. The new file must be whole: nothing beside it.
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
    sync_folder(path)?;
    reach("store.switch.ordered");
    finish(path)
}

/// Finishes a switch that was cut off, if there was one.
pub fn finish(path: &Path) -> io::Result<()> {
    let Ok(name) = fs::read_to_string(order(path)) else {
        return Ok(());
    };
    let aside = path.with_file_name(name.trim());
    if saved(path).exists() {
        // The log first: it must never lie beside a database that it does not belong to.
        for ending in [LOG, INDEX, ""] {
            let (from, to) = (beside(path, ending), beside(&aside, ending));
            if from.exists() && !to.exists() {
                fs::rename(from, to)?;
                reach("store.switch.moved");
            }
        }
        discard_beside(path)?;
        // It is of the old one.
        remove(&outline(path))?;
        sync_folder(path)?;
        fs::rename(saved(path), path)?;
        sync_folder(path)?;
        reach("store.switch.placed");
    }
    remove(&order(path))?;
    sync_folder(path)
}

/// What is in the file survives a power cut.
pub fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// The folder's entries survive a power cut.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => sync(folder),
        None => Ok(()),
    }
}

/// Which half backup is being made.
pub fn copying(path: &Path) -> PathBuf {
    beside(path, ".copying")
}

/// What is kept of the database's schema; see `outline.rs`.
pub fn outline(path: &Path) -> PathBuf {
    beside(path, ".outline")
}

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The mark of a file that damage was seen in while it was in use: the next start looks at all
/// of it.
pub fn suspect(path: &Path) -> PathBuf {
    beside(path, ".suspect")
}

/// Leaves the mark. Where even that cannot be written, the damage is met again.
pub fn mark_suspect(path: &Path, why: &str) {
    if let Err(fault) = private(&suspect(path)).and_then(|()| fs::write(suspect(path), why)) {
        tracing::error!(%fault, "the mark of a damaged store could not be left");
    }
}

/// Takes the mark away.
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
