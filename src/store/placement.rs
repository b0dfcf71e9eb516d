//! Whether the files of an open store are still what they were. One that was removed or replaced
//! goes on to work for this process alone, and is gone with it; one that another program has
//! changed in place is another store, or none. The writer looks before it answers, the checkpoint
//! thread while nothing is written; the writer then saves what it still can read.
//!
//! Between two checkpoints the database file does not change: commits go to the write-ahead file.
//! Each checkpoint of this process leaves a stamp of the file. A change that no checkpoint
//! explains, of this process or of another program that uses the engine, is one from outside.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::sqlite::{Sqlite, Use};
use super::tx::{DbError, DbErrorKind};
use super::{backup, files};
use crate::clock::Clock;
use crate::kernel::fault::{Fault, Kind};

/// How many pages of the database are compared where its size is what it was.
const SAMPLES: u64 = 16;
/// A change is judged once the file has stayed the same for so long: another program may be in
/// the middle of a checkpoint.
const STILL: Duration = Duration::from_millis(400);
/// How often it is looked at until then, and the longest time that is waited.
const STILL_LOOK: Duration = Duration::from_millis(50);
const STILL_LIMIT: Duration = Duration::from_secs(5);

/// Where the files of an open store were when it was opened, and what the last checkpoint left.
pub struct Placement {
    database: PathBuf,
    files: Vec<(PathBuf, Identity)>,
    is_lost: AtomicBool,
    /// The database, for its samples. It stays open as long as the store: the system drops the
    /// engine's locks when this process closes any descriptor of the file.
    content: Option<File>,
    /// Held during a checkpoint.
    stamp: Mutex<Option<Stamp>>,
    commits: AtomicU64,
}

/// Device and number of a file.
type Identity = (u64, u64);

/// The database file after a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
    sample: Option<blake3::Hash>,
    log: Log,
    /// How often this process had committed.
    commits: u64,
}

/// How far the write-ahead file was copied into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Log {
    /// A number that rises each time that it begins anew; `None`: it is empty.
    round: Option<u32>,
    /// Frames in force.
    frames: i64,
    /// Frames that are copied.
    copied: i64,
}

impl Log {
    fn of(database: &Path, db: &mut Sqlite) -> Option<Log> {
        let (frames, copied) = db.copied().ok()?;
        // The engine has no locks on this file.
        // Its first salt is one higher with each new beginning, whichever program begins.
        let mut salt = [0; 4];
        let round = File::open(files::log(database))
            .and_then(|log| log.read_exact_at(&mut salt, 16))
            .ok()
            .map(|()| u32::from_be_bytes(salt));
        Some(Log {
            round,
            frames,
            copied,
        })
    }

    /// Has another program copied frames since `before`, which a checkpoint of this process left?
    /// The writer begins the file anew once all of it is copied, and never empties it.
    /// `has_committed`: this process has, since then.
    fn was_copied_since(self, before: Log, has_committed: bool) -> bool {
        match (before.round, self.round) {
            (Some(_), None) => true,
            (None, _) => has_committed,
            (Some(before_round), Some(round)) => match round.wrapping_sub(before_round) {
                0 => self.copied > before.copied,
                1 => self.copied > 0 || before.copied < before.frames,
                _ => true,
            },
        }
    }
}

/// What happened to the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// For people.
    pub what: String,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A file is not there any more.
    Removed,
    /// Another file is where the database was.
    Replaced,
    /// Another program has written into the database.
    Changed,
}

/// Where all that the store held is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// In the database's place.
    InPlace(PathBuf),
    /// Beside the file that is in the database's place, and stays there.
    Beside(PathBuf),
    /// Not all of it can be read any more. The files are as they are: the next start copies out
    /// what can be read.
    Damaged(PathBuf),
    /// Not all of it can be read any more, and another store is in its place, which stays. What was
    /// written last is in this write-ahead file.
    Overwritten(PathBuf),
}

impl Saved {
    /// May what was just written be answered as kept?
    pub fn is_whole(&self) -> bool {
        matches!(self, Saved::InPlace(_) | Saved::Beside(_))
    }

    /// What was kept and what to do, for people.
    pub fn advice(&self) -> String {
        match self {
            Saved::InPlace(path) => format!(
                "all that was accepted is in {} now, and the next start goes on with it",
                path.display()
            ),
            Saved::Beside(path) => format!(
                "all that was accepted is in {0} now; the file that is in its place was left as it \
                 is. To go on with what was accepted: abide restore {0} --force. A start without \
                 that goes on with the file that is in its place",
                path.display()
            ),
            Saved::Damaged(database) => format!(
                "not all that was accepted can be read any more. The next start sets the file \
                 aside and copies out what can be read. {}",
                backup::advice(database)
            ),
            Saved::Overwritten(log) => format!(
                "what was accepted before can be read no more. The file that is in its place was \
                 left as it is, and the next start goes on with it; what was written last is in \
                 {}. A newer backup takes its place with: abide restore FILE --force",
                log.display()
            ),
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path)
        .ok()
        .map(|about| (about.dev(), about.ino()))
}

impl Placement {
    /// As the files are now, with the store open on `db`, and no checkpoint under way.
    pub fn of(database: &Path, db: &mut Sqlite) -> Placement {
        let files = files::all(database).into_iter();
        let placement = Placement {
            database: database.to_owned(),
            files: files
                .filter_map(|path| identity(&path).map(|found| (path, found)))
                .collect(),
            is_lost: AtomicBool::new(false),
            content: File::open(database).ok(),
            stamp: Mutex::new(None),
            commits: AtomicU64::new(0),
        };
        *placement.lock() = placement.stamp(db);
        placement
    }

    fn lock(&self) -> MutexGuard<'_, Option<Stamp>> {
        // It is replaced as a whole.
        self.stamp.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The database file as it is now; `None` where that cannot be told.
    fn stamp(&self, db: &mut Sqlite) -> Option<Stamp> {
        let (size, modified) = self.shape()?;
        Some(Stamp {
            size,
            modified,
            sample: self.sample(size),
            log: Log::of(&self.database, db)?,
            commits: self.commits.load(Ordering::Relaxed),
        })
    }

    /// Size and time of the last change.
    fn shape(&self) -> Option<(u64, (i64, i64))> {
        let about = self.content.as_ref()?.metadata().ok()?;
        Some((about.len(), (about.mtime(), about.mtime_nsec())))
    }

    /// A hash of some of its pages, the first among them.
    fn sample(&self, size: u64) -> Option<blake3::Hash> {
        let file = self.content.as_ref()?;
        let page = files::PAGE as u64;
        let pages = size / page;
        let step = (pages / SAMPLES).max(1);
        let mut hasher = blake3::Hasher::new();
        let mut bytes = [0; files::PAGE];
        for number in (0..pages).step_by(usize::try_from(step).unwrap_or(1)) {
            file.read_exact_at(&mut bytes, number * page).ok()?;
            hasher.update(&bytes);
        }
        Some(hasher.finalize())
    }

    /// Carries out a checkpoint on `db` and stamps the file; `None` where the file has changed
    /// since the last one, and the writer must look at it first.
    pub fn checkpoint<T>(
        &self,
        db: &mut Sqlite,
        work: impl FnOnce(&mut Sqlite) -> Result<T, DbError>,
    ) -> Option<Result<T, DbError>> {
        let mut stamp = self.lock();
        if stamp.is_some_and(|stamp| self.shape() != Some((stamp.size, stamp.modified))) {
            return None;
        }
        let done = work(db);
        *stamp = self.stamp(db);
        Some(done)
    }

    /// Which of the files is not where it was.
    pub fn look(&self) -> Option<Moved> {
        let (path, own) = self
            .files
            .iter()
            .find(|(path, own)| identity(path) != Some(*own))?;
        let is_there = identity(path).is_some_and(|found| found != *own);
        let verb = if is_there { "replaced" } else { "removed" };
        Some(Moved {
            what: format!("{} was {verb} while the daemon was at work", path.display()),
            how: match is_there && *path == self.database {
                true => How::Replaced,
                false => How::Removed,
            },
        })
    }

    /// This process has committed.
    pub fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// May the database have changed since the last checkpoint? One under way says nothing.
    pub fn differs(&self) -> bool {
        self.stamp.try_lock().is_ok_and(|stamp| {
            stamp.is_some_and(|stamp| self.shape() != Some((stamp.size, stamp.modified)))
        })
    }

    /// As [`Placement::look`], and whether another program has changed the database in place. Waits
    /// for a checkpoint of another program to end.
    pub fn examine(&self, db: &mut Sqlite, clock: &Clock) -> Option<Moved> {
        let moved = self.look();
        if moved.is_some() || !self.differs() {
            return moved;
        }
        self.wait_until_still(clock);
        let mut kept = self.lock();
        let before = (*kept)?;
        let now = self.stamp(db);
        if let Some(now) = now {
            if now
                .log
                .was_copied_since(before.log, now.commits != before.commits)
            {
                tracing::info!("another program has copied the write-ahead file into the store");
                *kept = Some(now);
                return None;
            }
            if now.size == before.size && now.sample.is_some() && now.sample == before.sample {
                tracing::info!("the store's file has another time of change and the same content");
                *kept = Some(now);
                return None;
            }
        }
        Some(Moved {
            what: format!(
                "{} was changed by another program while the daemon was at work",
                self.database.display()
            ),
            how: How::Changed,
        })
    }

    fn wait_until_still(&self, clock: &Clock) {
        let began = clock.monotonic();
        let mut shape = self.shape();
        let mut since = began;
        loop {
            let now = clock.monotonic();
            if now - since >= STILL || now - began >= STILL_LIMIT {
                return;
            }
            std::thread::sleep(STILL_LOOK);
            let found = self.shape();
            if found != shape {
                (shape, since) = (found, clock.monotonic());
            }
        }
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
                "{} was removed or replaced, or another program has changed it, and it could not be \
                 saved yet; nothing of this is kept for certain",
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

    /// Once this returns, all that the store held, as far as it can be read, is in a file of its
    /// own on the disk: the database's place, unless a file that may be meant to be there is in
    /// it. The process must end after that.
    pub fn save(&self, db: &mut Sqlite, moved: &Moved, clock: &Clock) -> Result<Saved, DbError> {
        let saved = match moved.how {
            How::Changed => self.write_changed(db, clock),
            How::Removed | How::Replaced => self.write(db, moved.how, clock),
        };
        let is_kept = saved.as_ref().is_ok_and(Saved::is_whole);
        self.is_lost.store(!is_kept, Ordering::Relaxed);
        saved
    }

    fn write(&self, db: &mut Sqlite, how: How, clock: &Clock) -> Result<Saved, DbError> {
        let saved = files::saved(&self.database);
        if let Some(folder) = self.database.parent() {
            files::private_folder(folder)?;
        }
        files::discard(&saved)?;
        files::private(&saved)?;
        db.copy_to(&saved)?;
        files::sync(&saved)?;
        // Nobody means an empty file to be the store.
        let is_meant = fs::metadata(&self.database).is_ok_and(|about| about.len() > 0);
        match how == How::Replaced && is_meant {
            true => self.put_beside(&saved, clock),
            false => self.put_in_place(clock),
        }
    }

    fn put_in_place(&self, clock: &Clock) -> Result<Saved, DbError> {
        let aside = files::aside(&self.database, "before-rescue", clock.now());
        files::switch(&self.database, &aside)?;
        Ok(Saved::InPlace(self.database.clone()))
    }

    /// What is in the database's place may be meant to be there; what was there is put beside it.
    fn put_beside(&self, saved: &Path, clock: &Clock) -> Result<Saved, DbError> {
        let rescued = files::aside(&self.database, "rescued", clock.now());
        fs::rename(saved, &rescued)?;
        self.remove_own_beside()?;
        files::sync_folder(&rescued)?;
        Ok(Saved::Beside(rescued))
    }

    /// The engine reads the pages that it does not hold in memory from the changed file: what it
    /// still can read is all of the store only where every check of it passes.
    fn write_changed(&self, db: &mut Sqlite, clock: &Clock) -> Result<Saved, DbError> {
        let is_store = self.is_store_by_itself();
        let saved = files::saved(&self.database);
        files::discard(&saved)?;
        files::private(&saved)?;
        let is_whole = db.check(None, 1).is_ok_and(|found| found.is_empty())
            && db.copy_to(&saved).is_ok()
            && Sqlite::open(&saved, Use::Examine)
                .and_then(|mut copy| copy.check(None, 1))
                .is_ok_and(|found| found.is_empty());
        match (is_whole, is_store) {
            (true, true) => {
                files::sync(&saved)?;
                self.put_beside(&saved, clock)
            }
            (true, false) => self.put_in_place(clock),
            (false, true) => {
                files::discard(&saved)?;
                // It must not be read with a store that it does not belong to.
                let log = files::log(&self.database);
                let aside = files::log(&files::aside(&self.database, "rescued", clock.now()));
                fs::rename(log, &aside)?;
                files::discard_beside(&self.database)?;
                files::sync_folder(&aside)?;
                Ok(Saved::Overwritten(aside))
            }
            (false, false) => {
                files::discard(&saved)?;
                files::mark_suspect(&self.database, "another program has changed it");
                Ok(Saved::Damaged(self.database.clone()))
            }
        }
    }

    /// Is the database file, without its write-ahead file, a whole store?
    fn is_store_by_itself(&self) -> bool {
        let copy = files::beside(&self.database, ".found");
        let looked = || -> Result<bool, DbError> {
            files::discard(&copy)?;
            files::private(&copy)?;
            let mut to = fs::OpenOptions::new().append(true).open(&copy)?;
            let from = self.content.as_ref().ok_or_else(|| DbError {
                kind: DbErrorKind::Io,
                message: "the file is not open".to_owned(),
            })?;
            let mut bytes = vec![0; 1 << 20];
            let mut at = 0;
            loop {
                let count = from.read_at(&mut bytes, at)?;
                if count == 0 {
                    break;
                }
                io::Write::write_all(&mut to, &bytes[..count])?;
                at += count as u64;
            }
            let mut db = Sqlite::open(&copy, Use::Examine)?;
            let is_whole = db.check(None, 1)?.is_empty();
            let tables = super::check::tables(&mut db)?;
            Ok(is_whole
                && ["meta", "runs"]
                    .iter()
                    .all(|name| tables.iter().any(|one| one == name)))
        };
        let found = looked().unwrap_or(false);
        if let Err(fault) = files::discard(&copy) {
            tracing::warn!(%fault, "a copy of the changed store stays behind");
        }
        found
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
            let placement = Placement::of(&path, &mut db);
            assert_eq!(placement.look(), None);
            db.execute("INSERT INTO t VALUES (1), (2), (3)", &[])
                .unwrap();
            for ending in gone {
                fs::remove_file(files::beside(&path, ending)).unwrap();
            }
            let moved = placement.look().unwrap();
            assert!(moved.what.contains("removed"), "{moved:?}");
            let saved = placement.save(&mut db, &moved, &clock).unwrap();
            assert_eq!(saved, Saved::InPlace(path.clone()));
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
        let placement = Placement::of(&path, &mut db);
        db.execute("INSERT INTO t VALUES (1), (2)", &[]).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        let moved = placement.look().unwrap();
        assert!(moved.what.contains("replaced"), "{moved:?}");
        let saved = placement.save(&mut db, &moved, &clock).unwrap();
        let Saved::Beside(rescued) = &saved else {
            panic!("{saved:?}");
        };
        let command = format!("abide restore {} --force", rescued.display());
        assert!(saved.advice().contains(&command), "{}", saved.advice());
        std::mem::forget(db);
        assert_eq!(rows(rescued), 2);
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
        let placement = Placement::of(&inner.join(files::DATABASE), &mut db);
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

    /// A store with some tables of this program's names, all of it checkpointed.
    fn filled(folder: &Path) -> (PathBuf, Sqlite, Placement) {
        let (path, mut db) = open(folder);
        db.batch("CREATE TABLE meta (n); CREATE TABLE runs (n)")
            .unwrap();
        let many = "INSERT INTO t WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c \
                    WHERE i < 5000) SELECT i FROM c";
        db.execute(many, &[]).unwrap();
        let placement = Placement::of(&path, &mut db);
        copied(&placement, &mut db);
        (path, db, placement)
    }

    fn copied(placement: &Placement, db: &mut Sqlite) {
        let done = placement.checkpoint(db, Sqlite::checkpoint_passive);
        let (frames, copied) = done.unwrap().unwrap();
        assert_eq!(frames, copied);
    }

    #[test]
    fn what_this_process_and_the_engine_do_is_no_change_from_outside() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let (path, mut db, placement) = filled(folder.path());
        for number in 0..20 {
            let sql = format!("INSERT INTO runs VALUES ({number})");
            db.execute(&sql, &[]).unwrap();
            placement.committed();
            assert_eq!(placement.examine(&mut db, &clock), None);
            if number % 3 == 0 {
                copied(&placement, &mut db);
            }
            assert_eq!(placement.examine(&mut db, &clock), None);
        }
        // Another program that uses the engine: once with the log going on, once begun anew.
        let mut other = Sqlite::open(&path, Use::Write).unwrap();
        for round in 0..9 {
            for number in 0..round / 3 + 1 {
                let sql = format!("INSERT INTO runs VALUES ({number})");
                db.execute(&sql, &[]).unwrap();
                placement.committed();
                match round % 3 {
                    0 => drop(other.checkpoint_passive().unwrap()),
                    1 => drop(other.checkpoint_restart().unwrap()),
                    _ => assert!(other.checkpoint_truncate().unwrap()),
                }
            }
            assert!(placement.differs());
            assert_eq!(placement.examine(&mut db, &clock), None, "{round}");
            assert!(!placement.differs());
            if round % 2 == 0 {
                db.execute("INSERT INTO runs VALUES (99)", &[]).unwrap();
                placement.committed();
                copied(&placement, &mut db);
            }
        }
        drop(other);
        // The time of its change alone.
        let file = File::options().append(true).open(&path).unwrap();
        let other = std::time::UNIX_EPOCH + Duration::from_secs(1);
        file.set_modified(other).unwrap();
        assert_eq!(placement.examine(&mut db, &clock), None);
        std::mem::forget(file);
    }

    #[test]
    fn an_emptied_file_is_noticed_and_what_can_be_read_is_saved() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let (path, mut db, placement) = filled(folder.path());
        db.execute("INSERT INTO runs VALUES (7)", &[]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_len(0).unwrap();
        std::mem::forget(file);
        assert!(placement.differs());
        // Nothing is copied into a file that is another's.
        assert!(
            placement
                .checkpoint(&mut db, Sqlite::checkpoint_passive)
                .is_none()
        );
        let moved = placement.examine(&mut db, &clock).unwrap();
        assert!(moved.what.contains("was changed"), "{moved:?}");
        let saved = placement.save(&mut db, &moved, &clock).unwrap();
        std::mem::forget(db);
        match saved {
            // The engine held all of it in memory.
            Saved::InPlace(at) => {
                assert_eq!(at, path);
                assert_eq!(rows(&path), 5000);
            }
            Saved::Damaged(at) => {
                assert_eq!(at, path);
                assert!(files::log(&path).exists() && files::suspect(&path).exists());
                assert!(placement.check().is_err());
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_store_that_was_written_over_the_file_stays_without_the_log_of_the_other() {
        let clock = Clock::system();
        let folder = tempfile::tempdir().unwrap();
        let (path, mut db, placement) = filled(folder.path());
        let older = folder.path().join("older");
        db.copy_to(&older).unwrap();
        for number in 0..500 {
            let sql = format!("INSERT INTO runs VALUES ({number})");
            db.execute(&sql, &[]).unwrap();
        }
        copied(&placement, &mut db);
        db.execute("INSERT INTO meta VALUES ('last')", &[]).unwrap();
        let bytes = fs::read(&older).unwrap();
        // As `cp` does it.
        let file = File::options()
            .write(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        file.write_all_at(&bytes, 0).unwrap();
        std::mem::forget(file);
        let moved = placement.examine(&mut db, &clock).unwrap();
        let saved = placement.save(&mut db, &moved, &clock).unwrap();
        std::mem::forget(db);
        assert!(fs::read(&path).unwrap() == bytes);
        assert!(
            !files::log(&path).exists(),
            "it would be read with the other file"
        );
        match &saved {
            Saved::Beside(rescued) => assert_eq!(rows(rescued), 5000),
            Saved::Overwritten(log) => assert!(log.metadata().unwrap().len() > 0),
            other => panic!("{other:?}"),
        }
        assert_eq!(rows(&path), 5000);
    }
}
