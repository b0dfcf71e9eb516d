//! Whether the files of an open store are still where others look for them. One that was removed
//! or replaced goes on to work for this process alone, and is gone with it. The writer looks
//! before it answers, the checkpoint thread while nothing is written; the writer then saves what
//! it still can read.

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

/// Where the files of an open store were when it was opened.
pub struct Placement {
    database: PathBuf,
    files: Vec<(PathBuf, Identity)>,
    is_lost: AtomicBool,
}

/// Device and number of a file.
type Identity = (u64, u64);

/// What happened to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// For people.
    pub what: String,
    /// Another file is where the database was.
    pub is_replaced: bool,
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path)
        .ok()
        .map(|about| (about.dev(), about.ino()))
}

impl Placement {
    /// As the files are now, with the store open.
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

    /// Which of the files is not where it was.
    pub fn look(&self) -> Option<Moved> {
        let (path, own) = self
            .files
            .iter()
            .find(|(path, own)| identity(path) != Some(*own))?;
        let is_there = identity(path).is_some_and(|found| found != *own);
        let how = if is_there { "replaced" } else { "removed" };
        Some(Moved {
            what: format!("{} was {how} while the daemon was at work", path.display()),
            is_replaced: is_there && *path == self.database,
        })
    }

    /// Refuses new work while the files are gone and what they held is not saved.
    pub fn check(&self) -> Result<(), Fault> {
        match self.is_lost.load(Ordering::Relaxed) {
            true => Err(self.lost()),
            false => Ok(()),
        }
    }

    /// The answer to what is not kept for certain.
    pub fn lost(&self) -> Fault {
        Fault::new(
            Kind::Unavailable,
            format!(
                "{} was removed or replaced, and could not be saved yet; nothing of this is kept \
                 for certain",
                self.database.display()
            ),
        )
        .hint("see what is in the way: abide doctor; the daemon tries again by itself")
        .with("retryAfterMs", 5000)
    }

    /// Was it tried in vain to save what the files held?
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Once this returns, all that the store held is in a file of its own on the disk: the
    /// database's place, unless another file is there; where it is.
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
        // What is there may be meant to be there; what was here lies beside it.
        let rescued = files::aside(&self.database, "rescued", clock.now());
        fs::rename(&saved, &rescued)?;
        self.remove_own_beside()?;
        files::sync_folder(&rescued)?;
        Ok(rescued)
    }

    /// The write-ahead file of the database that is gone must not be taken for that of another.
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
            // As the process ends: nothing is closed in order.
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
        // No folder can be made where a file is.
        fs::write(&inner, "").unwrap();
        let moved = placement.look().unwrap();
        assert!(placement.save(&mut db, &moved, &Clock::system()).is_err());
        assert_eq!(placement.check().unwrap_err().kind, Kind::Unavailable);
        fs::remove_file(&inner).unwrap();
        placement.save(&mut db, &moved, &Clock::system()).unwrap();
        assert!(placement.check().is_ok());
    }
}
