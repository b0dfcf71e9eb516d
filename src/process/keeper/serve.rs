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
use std::pin::pin;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::process::{WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::folder::{
    ExitRecord, KeeperFolder, KeeperRecord, KeptEnd, STDERR, STDOUT, VERSION, is_locked,
};
use super::sealed::OutputKey;
use super::streams::KeptStream;
use crate::clock::Clock;
use crate::failpoint;
use crate::kernel::ids::{RunId, StepId};
use crate::process::launch::set_soft_limit;
use crate::process::marks::MarkFilter;
use crate::process::oom;
use crate::process::running::refusal;
use crate::process::table::{self, ProcessIdentity};
use crate::process::tree::{self, ProcessQuery};

/// The first argument that makes this binary a keeper; the folder, run and step follow.
pub(super) const KEEP: &str = "keep-program";
/// What a keeper writes to its standard output once it waits for its program.
pub(super) const READY: &str = "ready";
/// How often a keeper looks for a daemon and for its folder.
const LOOK: Duration = Duration::from_secs(10);
/// How long it waits until it writes to a full disk again.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(500);
/// A pipe counts as empty if nothing arrives for this long after the program has ended.
const QUIET: Duration = Duration::from_millis(50);

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
    /// The end of the pipe over which the daemon hears of changes.
    wake: File,
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
        // Open from now on: a daemon that finds it closed takes the keeper for dead.
        let wake = folder.open_wake()?;
        say_ready()?;
        let mut line = Vec::new();
        // A daemon that is gone before the end of the line starts nothing.
        io::stdin().lock().read_until(b'\n', &mut line)?;
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok(Keeper {
            folder,
            step,
            given: serde_json::from_slice(line)?,
            wake,
            _lock: lock,
        })
    }

    /// Starts the program; returns once nothing of it runs any more.
    fn keep(self) -> io::Result<()> {
        failpoint::inherit(&self.given.failpoints);
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        if let Some(soft) = self.given.soft_limit {
            set_soft_limit(soft)?;
        }
        // What it starts inherits its score.
        oom::goes_first(Path::new("/proc/self"), Path::new("/proc/self"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let mut signals = Signals::take()?;
            self.folder.launch()?;
            failpoint::reach("keeper.launched");
            let watch = Watch::new(&self);
            match self.start() {
                Ok(program) => watch.until_gone(program, &mut signals).await,
                Err(fault) => {
                    let why = refusal(&self.given.file.display().to_string(), &fault);
                    let ending = KeptEnd::NotStarted(why);
                    watch.record(ending, Vec::new(), &mut signals).await
                }
            }
        })
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

/// A program that was started.
struct KeptProgram {
    child: Child,
    streams: [KeptStream; 2],
}

impl KeptProgram {
    /// The bytes that it has written.
    fn written(&self) -> u64 {
        self.streams.iter().map(|stream| stream.total).sum()
    }

    fn is_stalled(&self) -> bool {
        self.streams.iter().any(KeptStream::is_stalled)
    }
}

/// The signals of a keeper.
struct Signals {
    /// A child has ended.
    child: Signal,
    /// The program is to be ended.
    term: Signal,
    /// Ignored, as in every daemon: the terminal of the daemon is gone.
    _hangup: Signal,
}

impl Signals {
    fn take() -> io::Result<Self> {
        Ok(Signals {
            child: signal(SignalKind::child())?,
            term: signal(SignalKind::terminate())?,
            _hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// The children of this process.
#[derive(Debug, PartialEq, Eq)]
struct Reaped {
    /// How the program ended, if it was among those reaped.
    program: Option<KeptEnd>,
    /// There are more children, which are alive.
    more: bool,
}

/// Collects the children that have ended.
fn reap(program: u32) -> Reaped {
    let mut reaped = Reaped {
        program: None,
        more: true,
    };
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if pid.as_raw_nonzero().get().unsigned_abs() == program {
                    reaped.program = Some(end_of(status));
                }
            }
            Ok(None) => return reaped,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => {
                reaped.more = false;
                return reaped;
            }
        }
    }
}

fn end_of(status: WaitStatus) -> KeptEnd {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => KeptEnd::Exited(status),
        (None, signal) => KeptEnd::Signal(signal.unwrap_or_default()),
    }
}

/// Watches over a program until it has ended.
struct Watch<'a> {
    folder: &'a KeeperFolder,
    step: StepId,
    given: &'a HandOver,
    wake: &'a File,
    clock: Clock,
    /// When a daemon was seen last, by `clock`.
    seen: Duration,
}

impl<'a> Watch<'a> {
    fn new(keeper: &'a Keeper) -> Self {
        Watch {
            folder: &keeper.folder,
            step: keeper.step,
            given: &keeper.given,
            wake: &keeper.wake,
            clock: Clock::system(),
            seen: Duration::ZERO,
        }
    }

    /// Tells the daemon that a file has changed. If the pipe is full, it is awake already.
    fn wake(&self) {
        let mut wake = self.wake;
        let _ = wake.write(&[0]);
    }

    /// Returns once the program has ended, its end is recorded, and nothing of it runs any more.
    async fn until_gone(
        mut self,
        mut program: KeptProgram,
        signals: &mut Signals,
    ) -> io::Result<()> {
        let ending = self.until_end(&mut program, signals).await;
        let ended_itself = matches!(ending, KeptEnd::Exited(_) | KeptEnd::Signal(_));
        let pid = program.child.id();
        let is_detached = ended_itself && self.given.detach;
        let remaining = match (is_detached, ended_itself) {
            (true, _) => tree::look(&mut self.tree(pid)).await,
            // Without a child there is no descendant either: they would have become children.
            (false, true) if cfg!(target_os = "linux") && !reap(pid).more => Vec::new(),
            (false, _) => self.end_tree(pid).await,
        };
        self.drain(&mut program).await;
        let is_detached = is_detached && !remaining.is_empty();
        self.record(ending, remaining, signals).await?;
        if is_detached {
            self.until_detached_end(program, signals).await;
        }
        Ok(())
    }

    /// Watches the running program; returns how it ended, or why it is to be ended.
    async fn until_end(&mut self, program: &mut KeptProgram, signals: &mut Signals) -> KeptEnd {
        let pid = program.child.id();
        let feeding = feed(program.child.stdin.take(), self.given.input.clone());
        let mut feeding = pin!(feeding);
        let mut is_fed = false;
        let mut over = pin!(over(self.given.time_ms));
        let mut look = tokio::time::interval(self.look_each());
        // The program may have ended before the signal was waited for.
        if let Some(ending) = reap(pid).program {
            return ending;
        }
        loop {
            let is_stalled = program.is_stalled();
            let [out, err] = &mut program.streams;
            tokio::select! {
                () = out.advance(), if out.is_open() => self.wake(),
                () = err.advance(), if err.is_open() => self.wake(),
                _ = signals.child.recv() => {
                    if let Some(ending) = reap(pid).program {
                        return ending;
                    }
                }
                _ = signals.term.recv() => return KeptEnd::Stopped,
                () = &mut feeding, if !is_fed => is_fed = true,
                () = &mut over => return KeptEnd::TimedOut,
                () = tokio::time::sleep(FULL_DISK_PAUSE), if is_stalled => {
                    out.store();
                    err.store();
                    self.wake();
                }
                _ = look.tick() => if let Some(ending) = self.look() {
                    return ending;
                },
            }
            if program.written() > self.given.max_output {
                return KeptEnd::OutputLimit(self.given.max_output);
            }
        }
    }

    /// Copies what is left in the pipes. What processes that are left write later is discarded.
    async fn drain(&self, program: &mut KeptProgram) {
        for stream in &mut program.streams {
            loop {
                while stream.is_stalled() && self.folder.exists() {
                    tokio::time::sleep(FULL_DISK_PAUSE).await;
                    stream.store();
                }
                let may_write = stream.is_open() && stream.total <= self.given.max_output;
                if !may_write || tokio::time::timeout(QUIET, stream.advance()).await.is_err() {
                    break;
                }
            }
            stream.discard();
        }
    }

    /// Stores how the program ended, and tells the daemon. Waits while the disk is full, unless
    /// SIGTERM ends the waiting or the folder is gone.
    async fn record(
        &self,
        ending: KeptEnd,
        remaining: Vec<ProcessIdentity>,
        signals: &mut Signals,
    ) -> io::Result<()> {
        failpoint::reach("keeper.ended");
        let record = ExitRecord { ending, remaining };
        loop {
            match self.folder.write_exit(&record) {
                Ok(file) => {
                    failpoint::reach("keeper.recorded");
                    self.wake();
                    // The daemon stores the outcome meanwhile.
                    return self.folder.sync(&file);
                }
                Err(fault) if !self.folder.exists() => return Err(fault),
                Err(fault) => {
                    tokio::select! {
                        () = tokio::time::sleep(FULL_DISK_PAUSE) => {}
                        _ = signals.term.recv() => return Err(fault),
                    }
                }
            }
        }
    }

    /// Waits for the end of the processes that a detached program has left in the background.
    async fn until_detached_end(&mut self, mut program: KeptProgram, signals: &mut Signals) {
        let pid = program.child.id();
        let mut look = tokio::time::interval(self.look_each());
        loop {
            let [out, err] = &mut program.streams;
            tokio::select! {
                () = out.advance(), if out.is_open() => {}
                () = err.advance(), if err.is_open() => {}
                _ = signals.child.recv() => if !reap(pid).more {
                    return;
                },
                _ = signals.term.recv() => break,
                _ = look.tick() => {
                    let is_gone = !cfg!(target_os = "linux")
                        && tree::look(&mut self.tree(pid)).await.is_empty();
                    if is_gone || self.look().is_some() {
                        break;
                    }
                }
            }
        }
        self.end_tree(pid).await;
    }

    /// Looks for a daemon and the folder; returns why the program is to be ended.
    fn look(&mut self) -> Option<KeptEnd> {
        if !self.folder.exists() {
            // The state folder is gone, so no daemon will ask for the result.
            return Some(KeptEnd::Stopped);
        }
        let now = self.clock.monotonic();
        let lock = File::open(&self.given.daemon_lock);
        if lock.is_ok_and(|lock| is_locked(&lock).unwrap_or(true)) {
            self.seen = now;
        }
        let orphan_max = Duration::from_millis(self.given.orphan_max_ms);
        let is_orphan = now.saturating_sub(self.seen) >= orphan_max;
        is_orphan.then_some(KeptEnd::Orphaned(self.given.orphan_max_ms))
    }

    fn look_each(&self) -> Duration {
        let orphan_max = Duration::from_millis(self.given.orphan_max_ms);
        (orphan_max / 4).clamp(Duration::from_millis(20), LOOK)
    }

    /// The program with all that it has started.
    fn tree(&self, program: u32) -> ProcessQuery {
        let mut tree = ProcessQuery::marked(MarkFilter::Step(self.step));
        tree.own_children = true;
        // Where orphans are not adopted, the group of the program leads to them.
        if !cfg!(target_os = "linux") {
            tree.session = Some(program);
        }
        tree
    }

    /// Ends the program with all that it has started; returns what could not be ended.
    async fn end_tree(&self, program: u32) -> Vec<ProcessIdentity> {
        let grace = Duration::from_millis(self.given.grace_ms);
        tree::end(self.tree(program), grace, &self.clock).await
    }
}

/// Writes the whole input and closes the pipe. Errors are ignored: a program need not read its
/// input.
async fn feed(pipe: Option<std::process::ChildStdin>, input: Option<String>) {
    use tokio::io::AsyncWriteExt;
    if let (Some(pipe), Some(text)) = (pipe, input)
        && let Ok(mut pipe) = tokio::process::ChildStdin::from_std(pipe)
    {
        let _ = pipe.write_all(text.as_bytes()).await;
        let _ = pipe.shutdown().await;
    }
}

async fn over(time_ms: Option<u64>) {
    match time_ms {
        Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        None => std::future::pending().await,
    }
}
