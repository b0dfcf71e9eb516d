//! The backups that the daemon makes by itself: which exist, whether one is due, and which are
//! removed. Only files with the name of such a backup are ever removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::backup::CheckedBackup;
use super::handle::Store;
use super::sqlite::{Sqlite, Use};
use super::tx::{DbError, Tx, number};
use super::{backup, files};
use crate::failpoint::reach;
use crate::kernel::fault::Fault;
use crate::kernel::time::Timestamp;
use crate::store::tables::boots;

/// Prefix of the names of these backups.
const PREFIX: &str = "auto-";

/// When the daemon makes backups, and how many it keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPolicy {
    /// Time between two backups; `None`: none are made.
    pub every: Option<Duration>,
    /// Their folder; `None`: `backups` beside the database.
    pub folder: Option<PathBuf>,
    /// How many are kept; at least one.
    pub keep: usize,
}

/// A backup file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// The file.
    pub path: PathBuf,
    /// When it was made.
    pub made_at: Timestamp,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The newest backup in the folder, made by request or not; `None` if there is none.
pub fn newest_in(folder: &Path) -> Option<BackupFile> {
    list(folder).ok()?.pop()
}

/// The backups in the folder that the daemon made by itself, newest first.
fn own(folder: &Path) -> io::Result<Vec<BackupFile>> {
    let mut own = list(folder)?;
    own.retain(|one| {
        let name = one.path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(PREFIX)
    });
    own.reverse();
    Ok(own)
}

/// The backups in the folder, however they were made, oldest first.
pub(super) fn list(folder: &Path) -> io::Result<Vec<BackupFile>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(fault) => return Err(fault),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "db") {
            continue;
        }
        let about = match fs::metadata(&path) {
            Ok(about) if about.is_file() => about,
            _ => continue,
        };
        found.push(BackupFile {
            path,
            made_at: about.modified().map_or(Timestamp(0), Timestamp::from),
            bytes: about.len(),
        });
    }
    found.sort_by(|one, other| (one.made_at, &one.path).cmp(&(other.made_at, &other.path)));
    Ok(found)
}

impl Store {
    /// The folder of the daemon's own backups.
    pub fn backup_folder(&self, policy: &BackupPolicy) -> PathBuf {
        let own = || backup::folder(&self.inner.readers.path);
        policy.folder.clone().unwrap_or_else(own)
    }

    /// Makes a backup if one is due at `now` and the store has changed since the last one, and then
    /// removes the oldest of the daemon's own. Returns the backup that was made.
    pub async fn back_up_if_due(
        &self,
        policy: &BackupPolicy,
        now: Timestamp,
    ) -> Result<Option<CheckedBackup>, Fault> {
        let Some(every) = policy.every else {
            return Ok(None);
        };
        let folder = self.backup_folder(policy);
        let io = |fault: io::Error| unusable(&folder, &fault);
        let made = own(&folder).map_err(io)?;
        let every = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
        // A backup of a later time is from before the clock was set back: it says nothing.
        let last = made.iter().find(|one| one.made_at <= now);
        let since = match last {
            Some(last) => Some(last.made_at),
            None => self.read(boots::first_start).await?,
        };
        if since.is_none_or(|since| now.since(since) < every) {
            return Ok(None);
        }
        let head = self.read(last_change).await?;
        if last.is_some_and(|last| head_of(&last.path) == Some(head)) {
            return Ok(None);
        }
        files::private_folder(&folder).map_err(io)?;
        let time = now.to_string().replace(':', "-");
        let path = folder.join(format!("{PREFIX}{time}.db"));
        let backup = self.backup(Some(path)).await?;
        reach("store.backup.kept");
        let made = own(&folder).map_err(io)?;
        for old in made
            .iter()
            .filter(|one| one.path != backup.path)
            .skip(policy.keep.max(1) - 1)
        {
            files::remove(&old.path).map_err(io)?;
            tracing::info!(path = %old.path.display(), "an old backup was removed");
        }
        Ok(Some(backup))
    }
}

impl Store {
    /// The newest backup in the folder, and whether the store has not changed since.
    pub async fn newest_backup(
        &self,
        policy: &BackupPolicy,
    ) -> Result<Option<(BackupFile, bool)>, Fault> {
        let Some(newest) = newest_in(&self.backup_folder(policy)) else {
            return Ok(None);
        };
        let head = self.read(last_change).await?;
        let is_current = head_of(&newest.path) == Some(head);
        Ok(Some((newest, is_current)))
    }
}

/// The positions of the last event and of the last audited call: every change has one of them.
pub(super) fn last_change(tx: &mut dyn Tx) -> Result<(i64, i64), DbError> {
    let event = "SELECT coalesce(max(cursor), 0) FROM events";
    let audited = "SELECT coalesce(max(seq), 0) FROM audit";
    Ok((number(tx, event, &[])?, number(tx, audited, &[])?))
}

/// The last change of the store in this file; `None` if it cannot be read.
pub(super) fn head_of(path: &Path) -> Option<(i64, i64)> {
    let mut db = Sqlite::open(path, Use::Examine).ok()?;
    last_change(&mut db).ok()
}

fn unusable(folder: &Path, fault: &io::Error) -> Fault {
    Fault::internal(format!(
        "the backup folder {} cannot be used: {fault}; no backup was made",
        folder.display()
    ))
    .hint("see storage.backup_dir")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_the_daemons_own_backups_count_and_the_newest_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let made = [
            ("auto-a.db", 30),
            ("auto-b.db", 10),
            ("abide-c.db", 40),
            ("auto-d.txt", 50),
        ];
        for (name, seconds) in made {
            let file = fs::File::create(folder.path().join(name)).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
        }
        let names = |files: Vec<BackupFile>| -> Vec<String> {
            let names = files.iter().map(|one| one.path.file_name().unwrap());
            names
                .map(|name| name.to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(
            names(own(folder.path()).unwrap()),
            ["auto-a.db", "auto-b.db"]
        );
        let newest = newest_in(folder.path()).unwrap();
        assert_eq!(newest.made_at, Timestamp(40_000));
        assert!(newest.path.ends_with("abide-c.db"));
        assert_eq!(own(&folder.path().join("none")).unwrap(), []);
    }
}
