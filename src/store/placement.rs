//! Detects that files of an open store were removed or replaced. The process can still use its
//! open files then, but their content is lost when it ends. The writer checks before it answers,
//! the checkpoint thread while nothing is written; the writer then saves what it can still read.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::files;
use super::sqlite::Sqlite;
use super::tx::DbError;
use crate::clock::Clock;
use crate::kernel::fault::{Fault, Kind};

/// The identity of the files of an open store at the time it was opened.
pub struct Placement {
    database: PathBuf,
    files: Vec<(PathBuf, FileIdentity)>,
    is_lost: AtomicBool,
}

/// Device and inode number of a file.
type FileIdentity = (u64, u64);

/// What happened to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// A description for the operator.
    pub what: String,
    /// True if another file is at the path of the database.
    pub is_replaced: bool,
}

fn identity(path: &Path) -> Option<FileIdentity> {
    fs::metadata(path)
        .ok()
        .map(|about| (about.dev(), about.ino()))
}

impl Placement {
    /// Records the current files of an open store.
    pub fn of(database: &Path) -> Placement {
        let files = files::all(database).into_iter();
        Placement {
            database: database.to_owned(),
            files: files
                .filter_map(|path| identity(&path).map(|found| (path, found)))
                .collect(),
            is_lost: AtomicBool::new(false),
        }
    }

    /// The first file that is not where it was; `None` if all are in place.
    pub fn look(&self) -> Option<Moved> {
        let (path, own) = self
            .files
            .iter()
            .find(|(path, own)| identity(path) != Some(*own))?;
        let is_there = identity(path).is_some_and(|found| found != *own);
        let how = if is_there { "replaced" } else { "removed" };
        Some(Moved {
            what: format!("{} was {how} while the daemon was running", path.display()),
            is_replaced: is_there && *path == self.database,
        })
    }

    /// Refuses new work while the files are gone and their content is not saved.
    pub fn check(&self) -> Result<(), Fault> {
        match self.is_lost.load(Ordering::Relaxed) {
            true => Err(self.lost()),
            false => Ok(()),
        }
    }

    /// The fault for a command whose durability is not certain.
    pub fn lost(&self) -> Fault {
        Fault::new(
            Kind::Unavailable,
            format!(
                "{} was removed or replaced, and its content could not be saved yet; whether this is kept \
                 is uncertain",
                self.database.display()
            ),
        )
        .hint("find the cause with abide doctor; the daemon tries again by itself")
        .with("retryAfterMs", 5000)
    }

    /// True if saving the content of lost files has failed so far.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Once this returns, the whole content of the store is in a durable file; returns its path,
    /// which is the database's own unless a different file is there.
    pub fn save(&self, db: &mut Sqlite, moved: &Moved, clock: &Clock) -> Result<PathBuf, DbError> {
        let saved = self.write(db, moved, clock);
        self.is_lost.store(saved.is_err(), Ordering::Relaxed);
        saved
    }

    fn write(&self, db: &mut Sqlite, moved: &Moved, clock: &Clock) -> Result<PathBuf, DbError> {
        let saved = files::saved(&self.database);
        if let Some(folder) = self.database.parent() {
            files::private_folder(folder)?;
        }
        files::discard(&saved)?;
        files::private(&saved)?;
        db.copy_to(&saved)?;
        files::sync(&saved)?;
        if !moved.is_replaced {
            let aside = files::aside(&self.database, "before-rescue", clock.now());
            files::switch(&self.database, &aside)?;
            return Ok(self.database.clone());
        }
        // The file at the path may be there on purpose, so the content is saved beside it.
        let rescued = files::aside(&self.database, "rescued", clock.now());
        fs::rename(&saved, &rescued)?;
        self.remove_own_beside()?;
        files::sync_parent(&rescued)?;
        Ok(rescued)
    }

    /// The WAL of the lost database is removed, so that it is not applied to another database.
    fn remove_own_beside(&self) -> io::Result<()> {
        for (path, own) in &self.files {
            if *path != self.database && identity(path) == Some(*own) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::Use;
    use crate::store::tx::{Tx, number};

    fn open(folder: &Path) -> (PathBuf, Sqlite) {
        let path = folder.join(files::DATABASE);
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        db.batch("CREATE TABLE t (n INTEGER PRIMARY KEY)").unwrap();
        (path, db)
    }

    fn rows(path: &Path) -> i64 {
        let mut db = Sqlite::open(path, Use::Examine).unwrap();
        assert_eq!(db.check(None, 1), Ok(Vec::new()));
        number(&mut db, "SELECT count(*) FROM t", &[]).unwrap()
    }

    #[test]
    fn whatever_is_removed_all_rows_are_in_the_databases_place() {
        let clock = Clock::system();
        for gone in [&[""][..], &["-wal"], &["-shm"], &["", "-wal", "-shm"]] {
            let folder = tempfile::tempdir().unwrap();
            let (path, mut db) = open(folder.path());
            let placement = Placement::of(&path);
            assert_eq!(placement.look(), None);
            db.execute("INSERT INTO t VALUES (1), (2), (3)", &[])
                .unwrap();
            for ending in gone {
                fs::remove_file(files::beside(&path, ending)).unwrap();
            }
            let moved = placement.look().unwrap();
            assert!(moved.what.contains("removed"), "{moved:?}");
            assert_eq!(placement.save(&mut db, &moved, &clock).unwrap(), path);
            assert!(placement.check().is_ok());
            // As when the process ends: nothing is closed properly.
            std::mem::forget(db);
            assert_eq!(rows(&path), 3, "{gone:?}");
        }
    }

    #[test]
    fn a_file_that_took_the_databases_place_stays_and_all_rows_lie_beside_it() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let (path, mut db) = open(folder.path());
        let placement = Placement::of(&path);
        db.execute("INSERT INTO t VALUES (1), (2)", &[]).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        let moved = placement.look().unwrap();
        assert!(moved.what.contains("replaced"), "{moved:?}");
        let rescued = placement.save(&mut db, &moved, &clock).unwrap();
        assert_ne!(rescued, path);
        std::mem::forget(db);
        assert_eq!(rows(&rescued), 2);
        assert_eq!(fs::read_to_string(&path).unwrap(), "another");
        assert!(
            !files::log(&path).exists(),
            "it would be read with the other file"
        );
    }

    #[test]
    fn what_could_not_be_saved_is_no_ground_for_new_work() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("state");
        fs::create_dir(&inner).unwrap();
        let (_, mut db) = open(&inner);
        let placement = Placement::of(&inner.join(files::DATABASE));
        fs::remove_dir_all(&inner).unwrap();
        // A folder cannot be created where a file is.
        fs::write(&inner, "").unwrap();
        let moved = placement.look().unwrap();
        assert!(placement.save(&mut db, &moved, &Clock::system()).is_err());
        assert_eq!(placement.check().unwrap_err().kind, Kind::Unavailable);
        fs::remove_file(&inner).unwrap();
        placement.save(&mut db, &moved, &Clock::system()).unwrap();
        assert!(placement.check().is_ok());
    }
}
