//! The folder of one kept program, `keepers/STEP` in the state folder: made by the daemon, filled by
//! the keeper, read by each daemon process, and removed once the outcome of the step is stored. A
//! step that has begun and has no folder was lost, as after the restore of a backup.
//!
//! | File | Content |
//! |---|---|
//! | `run` | the run of the step. The daemon makes it before it stores that the step begins |
//! | `keeper` | who keeps it: [`KeeperRecord`]. Its keeper holds a lock on it for life |
//! | `launched` | on disk before the program is started: without it, the program has not begun |
//! | `refused` | why the keeper ended before it started the program |
//! | `stdout`, `stderr` | what the program has written, from its first byte, sealed; see `sealed` |
//! | `exit` | how it ended: [`ExitRecord`]. Written once, after the last byte of output |
//!
//! All of them are regular files, so that the folder can be copied. No file has arguments,
//! environment or input of the program: its keeper gets them over a pipe.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::failpoint;
use crate::file_work::sync_folder;
use crate::kernel::ids::{RunId, StepId};
use crate::process::table::ProcessIdentity;

/// The version of the files that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;

const RUN: &str = "run";
const KEEPER: &str = "keeper";
const LAUNCHED: &str = "launched";
const REFUSED: &str = "refused";
const EXIT: &str = "exit";
const NEW_EXIT: &str = "exit.new";
/// Standard output of the program.
pub(super) const STDOUT: &str = "stdout";
/// Standard error of the program.
pub(super) const STDERR: &str = "stderr";

/// Which process keeps which program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeeperRecord {
    /// The version of all files in the folder.
    pub version: u32,
    /// The run of the program.
    pub run: RunId,
    /// The step of the program.
    pub step: StepId,
    /// The keeper, which is also the leader of its session.
    pub keeper: ProcessIdentity,
    /// The boot of the machine in which the keeper runs; `None` if the system has no id for it.
    pub machine: Option<String>,
    /// Makes the key of the output unique to this keeper.
    pub salt: String,
}

/// How a kept program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeptEnd {
    /// It exited by itself with this status.
    Exited(i32),
    /// A signal that its keeper did not send ended it.
    Signal(i32),
    /// Its time limit passed.
    TimedOut,
    /// It wrote more than this many bytes.
    OutputLimit(u64),
    /// Its keeper received SIGTERM.
    Stopped,
    /// No daemon was there for this many milliseconds.
    Orphaned(u64),
    /// The system did not start it, for this reason.
    NotStarted(String),
}

/// The content of the file `exit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExitRecord {
    /// How the program ended.
    pub ending: KeptEnd,
    /// The processes that are left: those of a detached program, or those that could not be ended.
    pub remaining: Vec<ProcessIdentity>,
}

/// A folder of a kept program, which may not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeeperFolder(PathBuf);

/// What a record says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stored<T> {
    /// There is no record, or only a part of one.
    Nothing,
    /// The record.
    Record(T),
    /// A newer program wrote it, with this version.
    Newer(u32),
}

impl KeeperFolder {
    /// The folder at this path.
    pub(super) fn at(path: PathBuf) -> Self {
        KeeperFolder(path)
    }

    /// The path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// True if there is such a folder.
    pub(super) fn exists(&self) -> io::Result<bool> {
        self.0.try_exists()
    }

    /// Makes the folder, which must not exist, for a step of this run. After an error there is none.
    pub(super) fn make(&self, run: RunId) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.0)?;
        let named = private_file(&self.0.join(RUN)).and_then(|mut file| writeln!(file, "{run}"));
        if named.is_err() {
            // A folder without a run is removed by the next start.
            let _ = fs::remove_dir_all(&self.0);
        }
        named
    }

    /// The run for whose step the folder was made; `None` if that was not written to its end.
    pub(super) fn run(&self) -> io::Result<Option<RunId>> {
        let text = match fs::read(self.0.join(RUN)) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let text = text.strip_suffix(b"\n").map(str::from_utf8);
        Ok(text.and_then(|text| text.ok()?.parse().ok()))
    }

    /// The process `record.keeper`, which calls this, becomes the keeper; there must be none. It
    /// lives as long as the returned file is open. After an error there is no record.
    pub(super) fn enter(&self, record: &KeeperRecord) -> io::Result<File> {
        let path = self.0.join(KEEPER);
        let mut file = private_file(&path).map_err(|fault| match self.holder() {
            Ok(Some(pid)) => io::Error::other(format!("process {pid} keeps the program already")),
            _ => fault,
        })?;
        let locked = fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive);
        let entered = locked
            .map_err(io::Error::from)
            .and_then(|()| write_line(&mut file, record));
        match entered {
            Ok(()) => Ok(file),
            Err(fault) => {
                // An empty record of a program that was not launched is none.
                let _ = fs::remove_file(&path);
                Err(fault)
            }
        }
    }

    /// Makes a file for output.
    pub(super) fn make_output(&self, name: &str) -> io::Result<File> {
        private_file(&self.0.join(name))
    }

    /// The path of an output file.
    pub(super) fn output(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Who keeps the program.
    pub(super) fn keeper(&self) -> io::Result<Stored<KeeperRecord>> {
        read(&self.0.join(KEEPER))
    }

    /// The pid of the keeper, if it is alive: of the process that holds the lock, 0 if that is in
    /// another pid namespace. It does not depend on the version of the files.
    pub(super) fn holder(&self) -> io::Result<Option<u32>> {
        let file = match File::open(self.0.join(KEEPER)) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        holder_of(&file)
    }

    /// True if the keeper is the process with this pid.
    pub(super) fn is_held_by(&self, pid: u32) -> io::Result<bool> {
        let holder = self.holder()?;
        Ok(holder.is_some_and(|holder| holder == 0 || holder == pid))
    }

    /// True if the keeper is alive, whatever it does. Nothing is locked for the question.
    pub(super) fn is_alive(&self) -> io::Result<bool> {
        Ok(self.holder()?.is_some())
    }

    /// Once this returns, it is on disk that the program may have begun. After an error it has not.
    pub(super) fn launch(&self) -> io::Result<()> {
        let path = self.0.join(LAUNCHED);
        let mut file = private_file(&path)?;
        let stored = write_line(&mut file, &VersionLine { version: VERSION })
            // The name is the mark, so its content need not be on disk. Nor need the folder itself:
            // a step that has begun and has no folder is lost, and not begun again. An older folder of
            // the step cannot come back in its place: `Keepers::prepare` has synced its removal.
            .and_then(|()| sync_folder(&self.0))
            .and_then(|()| failpoint::refused("keeper.launching"));
        if stored.is_err() {
            fs::remove_file(&path)?;
        }
        stored
    }

    /// Leaves the reason why the keeper ends before it has started the program.
    pub(super) fn refuse(&self, why: &str) {
        // A folder that takes no file is the likely reason; the end of the keeper is seen anyway.
        let file = private_file(&self.0.join(REFUSED));
        let _ = file.and_then(|mut file| file.write_all(why.as_bytes()));
    }

    /// Why a keeper has ended before it started the program; `None` if it has left no reason.
    pub(super) fn refusal(&self) -> Option<String> {
        let why = fs::read_to_string(self.0.join(REFUSED)).ok()?;
        (!why.is_empty()).then_some(why)
    }

    /// True if the program may have begun.
    pub(super) fn is_launched(&self) -> io::Result<bool> {
        self.0.join(LAUNCHED).try_exists()
    }

    /// Once this returns, readers see how the program ended. The record is durable after
    /// [`KeeperFolder::sync`].
    pub(super) fn write_exit(&self, record: &ExitRecord) -> io::Result<File> {
        let new = self.0.join(NEW_EXIT);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)?;
        write_line(&mut file, record)?;
        failpoint::reach("keeper.renaming");
        fs::rename(new, self.0.join(EXIT))?;
        Ok(file)
    }

    /// Makes the record of the exit durable.
    pub(super) fn sync(&self, exit: &File) -> io::Result<()> {
        exit.sync_all()?;
        sync_folder(&self.0)
    }

    /// How the program ended; `None` if that is not known yet.
    pub(super) fn exit(&self) -> io::Result<Option<ExitRecord>> {
        match read(&self.0.join(EXIT))? {
            Stored::Record(record) => Ok(Some(record)),
            Stored::Nothing | Stored::Newer(_) => Ok(None),
        }
    }
}

/// The version that each record has, or that of its folder.
#[derive(Serialize, Deserialize)]
struct VersionLine {
    #[serde(default = "first_version")]
    version: u32,
}

fn first_version() -> u32 {
    1
}

fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn write_line(file: &mut File, record: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// Reads a record. What was not written to its end is none.
fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Stored<T>> {
    let text = match fs::read(path) {
        Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(Stored::Nothing),
        text => text?,
    };
    let Some(line) = text.strip_suffix(b"\n") else {
        return Ok(Stored::Nothing);
    };
    // A newer record may have other fields, so its version is read first.
    match serde_json::from_slice::<VersionLine>(line) {
        Ok(VersionLine { version }) if version > VERSION => return Ok(Stored::Newer(version)),
        Ok(_) => {}
        Err(_) => return Ok(Stored::Nothing),
    }
    Ok(serde_json::from_slice(line).map_or(Stored::Nothing, Stored::Record))
}

/// The pid of another process that holds a lock on `file`, 0 if it is in another pid namespace.
pub(super) fn holder_of(file: &File) -> io::Result<Option<u32>> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?;
    Ok(lock.map(|lock| {
        let pid = lock.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
        u32::try_from(pid).unwrap_or_default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn record() -> KeeperRecord {
        KeeperRecord {
            version: VERSION,
            run: RunId(Uuid::from_u128(1)),
            step: StepId(Uuid::from_u128(2)),
            keeper: ProcessIdentity { pid: 7, start: 8 },
            machine: None,
            salt: "a".to_owned(),
        }
    }

    #[test]
    fn a_folder_is_made_once_and_tells_how_far_its_program_is() {
        let state = tempfile::tempdir().unwrap();
        let folder = KeeperFolder::at(state.path().join("a"));
        assert!(!folder.exists().unwrap() && !folder.is_alive().unwrap());
        assert_eq!(folder.keeper().unwrap(), Stored::Nothing);
        folder.make(record().run).unwrap();
        assert_eq!(folder.run().unwrap(), Some(record().run));
        assert!(folder.make(record().run).is_err());
        let held = folder.enter(&record()).unwrap();
        assert!(folder.enter(&record()).is_err(), "it has a keeper");
        assert_eq!(folder.keeper().unwrap(), Stored::Record(record()));
        assert!(!folder.is_launched().unwrap());
        folder.launch().unwrap();
        assert!(folder.is_launched().unwrap() && folder.launch().is_err());
        assert_eq!(folder.exit().unwrap(), None);
        let exit = ExitRecord {
            ending: KeptEnd::Exited(3),
            remaining: vec![],
        };
        let file = folder.write_exit(&exit).unwrap();
        folder.sync(&file).unwrap();
        assert_eq!(folder.exit().unwrap(), Some(exit));
        drop(held);
        assert!(!folder.is_alive().unwrap());
    }

    #[test]
    fn a_record_that_is_cut_is_none_and_a_newer_one_is_recognized() {
        let state = tempfile::tempdir().unwrap();
        let folder = KeeperFolder::at(state.path().to_owned());
        let write = |name: &str, text: &str| fs::write(state.path().join(name), text).unwrap();
        write(EXIT, r#"{"ending":{"exited":3},"remaining":[]}"#);
        assert_eq!(folder.exit().unwrap(), None);
        write(EXIT, "");
        assert_eq!(folder.exit().unwrap(), None);
        write(KEEPER, "{\"version\":2,\"program\":{}}\n");
        assert_eq!(folder.keeper().unwrap(), Stored::Newer(2));
    }
}
