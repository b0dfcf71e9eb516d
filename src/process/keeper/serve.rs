//! The keeper process: it starts one program, writes down its output and its end, and enforces its
//! limits alone. It is this binary with another first argument; `main` passes it on before anything
//! else, so it starts in a few milliseconds and stays small.
//!
//! It is in a session of its own, so it outlives the daemon, and adopts all orphans of its program
//! (on Linux), so no descendant leaves its tree. Its environment is the program's. SIGTERM is the
//! order to end the program with all that it has started.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

use super::folder::{KeeperFolder, KeeperRecord, KeptEnd, STDERR, STDOUT, VERSION};
use super::sealed::OutputKey;
use super::streams::KeptStream;
use super::watching::{KeptProgram, Signals, Watch};
use crate::clock::Clock;
use crate::failpoint;
use crate::kernel::ids::{RunId, StepId};
use crate::process::launch::set_soft_limit;
use crate::process::oom;
use crate::process::running::refusal;
use crate::process::table::{self, ProcessIdentity};

/// The first argument that makes this binary a keeper; the folder, run and step follow.
pub(super) const KEEP: &str = "keep-program";
/// What a keeper writes to its standard output once it waits for its program.
pub(super) const READY: &str = "ready";

/// What a keeper gets over its standard input: one line of JSON. Without its end, nothing is
/// started. The environment and working folder of the program are those of its keeper.
#[derive(Serialize, Deserialize)]
pub(super) struct HandOver {
    /// The file of the program.
    pub file: OsString,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The text of its standard input.
    pub input: Option<String>,
    /// Its time limit, milliseconds.
    pub time_ms: Option<u64>,
    /// The maximum number of bytes that it may write.
    pub max_output: u64,
    /// The time between SIGTERM and SIGKILL, milliseconds.
    pub grace_ms: u64,
    /// How long it goes on without a daemon, milliseconds.
    pub orphan_max_ms: u64,
    /// The file that a living daemon has locked.
    pub daemon_lock: OsString,
    /// The state folder of the daemon, which marks what the program starts.
    pub state: OsString,
    /// Processes that it leaves in the background go on after its end.
    pub detach: bool,
    /// Its soft limit of open files, if that differs from the keeper's.
    pub soft_limit: Option<u64>,
    /// The key that its output is sealed with.
    pub key: OutputKey,
    /// The failpoints of the keeper, in builds that have them.
    pub failpoints: failpoint::Inherited,
}

/// Keeps a program if this process was started for it; `None` for any other start. Call it before
/// anything else.
pub fn kept() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != KEEP {
        return None;
    }
    let folder = words.next().map(PathBuf::from);
    let mut id = || words.next()?.to_str()?.parse().ok();
    let (Some(folder), Some(run), Some(step)) = (folder, id(), id()) else {
        return Some(refuse(&format!("{KEEP} is internal to the daemon")));
    };
    let kept = Keeper::begin(&folder, RunId(run), StepId(step)).and_then(Keeper::keep);
    Some(match kept {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => refuse(&format!("{}: {fault}", folder.display())),
    })
}

/// Tells the daemon why there is no keeper, in place of [`READY`].
fn refuse(why: &str) -> ExitCode {
    // The daemon may be gone.
    let _ = writeln!(io::stdout(), "{why}");
    ExitCode::from(2)
}

/// A keeper whose program was not started yet.
struct Keeper {
    folder: KeeperFolder,
    step: StepId,
    given: HandOver,
    /// Its lock is the sign that this process is alive.
    _lock: File,
}

impl Keeper {
    /// Becomes the keeper of this folder, says so, and waits for the program.
    fn begin(path: &Path, run: RunId, step: StepId) -> io::Result<Keeper> {
        let folder = KeeperFolder::at(path.to_owned());
        let pid = std::process::id();
        let lock = folder.enter(&KeeperRecord {
            version: VERSION,
            run,
            step,
            keeper: table::one(pid).map_or(ProcessIdentity { pid, start: 0 }, |row| row.id),
            machine: Clock::system().machine().map(|machine| machine.boot),
            salt: Clock::system().new_id().to_string(),
        })?;
        say_ready()?;
        let mut line = Vec::new();
        // A daemon that is gone before the end of the line starts nothing.
        io::stdin().lock().read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let given = serde_json::from_slice(line).inspect_err(|fault| {
            folder.refuse(&fault.to_string());
        })?;
        Ok(Keeper {
            folder,
            step,
            given,
            _lock: lock,
        })
    }

    /// Starts the program; returns once nothing of it runs any more.
    fn keep(self) -> io::Result<()> {
        failpoint::inherit(&self.given.failpoints);
        let launched = self.launch().inspect_err(|fault| {
            self.folder.refuse(&fault.to_string());
        });
        let (runtime, mut signals) = launched?;
        failpoint::reach("keeper.launched");
        runtime.block_on(async {
            let watch = Watch {
                folder: &self.folder,
                step: self.step,
                given: &self.given,
                clock: Clock::system(),
                seen: Duration::ZERO,
            };
            match self.start() {
                Ok(program) => watch.until_gone(program, &mut signals).await,
                Err(fault) => {
                    let why = refusal(&self.given.file.display().to_string(), &fault);
                    let ending = KeptEnd::NotStarted(why);
                    watch.record(ending, Vec::new(), false, &mut signals).await
                }
            }
        })
    }

    /// Once this returns, all is ready for the program, and it is on disk that it may have begun.
    /// After an error it has not.
    fn launch(&self) -> io::Result<(Runtime, Signals)> {
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        if let Some(soft) = self.given.soft_limit {
            set_soft_limit(soft)?;
        }
        // What it starts inherits its score.
        oom::goes_first(Path::new("/proc/self"), Path::new("/proc/self"));
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let signals = Signals::take()?;
        drop(entered);
        self.folder.launch()?;
        Ok((runtime, signals))
    }

    /// Starts the program in a process group of its own.
    fn start(&self) -> io::Result<KeptProgram> {
        let stdout = self.folder.make_output(STDOUT)?;
        let stderr = self.folder.make_output(STDERR)?;
        let mut child = Command::new(&self.given.file)
            .args(&self.given.arguments)
            .stdin(match self.given.input {
                Some(_) => Stdio::piped(),
                None => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let missing = || io::Error::other("a pipe of the program is missing");
        let out = child.stdout.take().ok_or_else(missing)?;
        let err = child.stderr.take().ok_or_else(missing)?;
        let frames = |stream| {
            let frames = self.given.key.frames(stream);
            frames.ok_or_else(|| io::Error::other("the key of its output cannot be used"))
        };
        Ok(KeptProgram {
            streams: [
                KeptStream::new(out, stdout, frames(0)?)?,
                KeptStream::new(err, stderr, frames(1)?)?,
            ],
            child,
        })
    }
}

/// Says that the keeper waits for its program.
fn say_ready() -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()
}
