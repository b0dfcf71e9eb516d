//! The folder of one kept program, `keepers/STEP` in the state folder: made by the daemon, filled by
//! the keeper, read by each daemon process, and removed once the outcome of the step is stored. A
//! step that has begun and has no folder was lost, as after the restore of a backup.
//!
//! | File | Content |
//! |---|---|
//! | `run` | the run of the step. The daemon makes it before it stores that the step begins |
//! | `keeper` | who keeps it: [`KeeperRecord`]. Its keeper holds a lock on it for life |
//! | `wake` | a pipe: the keeper writes a byte after each change; its end is the end of the keeper |
//! | `launched` | on disk before the program is started: without it, the program has not begun |
//! | `stdout`, `stderr` | what the program has written, from its first byte, sealed; see `sealed` |
//! | `exit` | how it ended: [`ExitRecord`]. Written once, after the last byte of output |
//!
//! No file has arguments, environment or input of the program: its keeper gets them over a pipe.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::process::{Flock, FlockType, fcntl_getlk};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::kernel::ids::{RunId, StepId};
use crate::process::table::ProcessIdentity;

/// The version of the files that this program writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;

const RUN: &str = "run";
const KEEPER: &str = "keeper";
const WAKE: &str = "wake";
const LAUNCHED: &str = "launched";
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

    /// The path of the pipe that tells of changes.
    pub(super) fn wake(&self) -> PathBuf {
        self.0.join(WAKE)
    }

    /// True if there is such a folder.
    pub(super) fn exists(&self) -> bool {
        self.0.is_dir()
    }

    /// Makes the folder, which must not exist, for a step of this run.
    pub(super) fn make(&self, run: RunId) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.0)?;
        writeln!(private_file(&self.0.join(RUN))?, "{run}")
    }

    /// The run for whose step the folder was made.
    pub(super) fn run(&self) -> Option<RunId> {
        let text = fs::read_to_string(self.0.join(RUN)).ok()?;
        text.strip_suffix('\n')?.parse().ok()
    }

    /// The process `record.keeper`, which calls this, becomes the keeper; there must be none. It
    /// lives as long as the returned file is open.
    pub(super) fn enter(&self, record: &KeeperRecord) -> io::Result<File> {
        let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        nix::unistd::mkfifo(&self.wake(), mode)?;
        let mut file = private_file(&self.0.join(KEEPER))?;
        fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive)?;
        write_line(&mut file, record)?;
        Ok(file)
    }

    /// Opens the end of the pipe from which changes are told. It never blocks.
    pub(super) fn open_wake(&self) -> io::Result<File> {
        // Open for reading, too, a pipe without a reader accepts bytes.
        let mut options = OpenOptions::new();
        let flags = OFlags::NONBLOCK.bits();
        options.read(true).write(true);
        options.custom_flags(i32::try_from(flags).unwrap_or_default());
        options.open(self.wake())
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

    /// True if the keeper is alive, whatever it does. Nothing is locked for the question.
    pub(super) fn is_alive(&self) -> io::Result<bool> {
        let file = match File::open(self.0.join(KEEPER)) {
            Err(fault) if fault.kind() == ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        is_locked(&file)
    }

    /// Once this returns, it is on disk that the program may have begun.
    pub(super) fn launch(&self) -> io::Result<()> {
        let mut file = private_file(&self.0.join(LAUNCHED))?;
        write_line(&mut file, &VersionLine { version: VERSION })?;
        file.sync_all()?;
        sync_folder(&self.0)?;
        self.0.parent().map_or(Ok(()), sync_folder)
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
        crate::failpoint::reach("keeper.renaming");
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

/// True if another process holds a lock on `file`.
pub(super) fn is_locked(file: &File) -> io::Result<bool> {
    let lock = fcntl_getlk(file, &Flock::from(FlockType::WriteLock))?;
    Ok(lock.is_some())
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
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
        assert!(!folder.exists() && !folder.is_alive().unwrap());
        assert_eq!(folder.keeper().unwrap(), Stored::Nothing);
        folder.make(record().run).unwrap();
        assert_eq!(folder.run(), Some(record().run));
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
