//! What a keeper does while its program runs: copies its output, feeds its input, enforces its
//! limits, and records its end. The keeper process (`serve`) calls it once.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::process::Child;
use std::time::Duration;

use rustix::process::{WaitOptions, WaitStatus};
use tokio::process::ChildStdin;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::folder::{ExitRecord, KeeperFolder, KeptEnd, holder_of};
use super::serve::HandOver;
use super::streams::KeptStream;
use crate::clock::Clock;
use crate::failpoint;
use crate::kernel::ids::StepId;
use crate::process::marks::MarkFilter;
use crate::process::stream::{AFTER_END, QUIET, feed, over};
use crate::process::table::ProcessIdentity;
use crate::process::tree::{self, ProcessQuery};

/// How often a keeper looks for a daemon and for its folder.
const LOOK: Duration = Duration::from_secs(10);
/// How long it waits until it writes to a full disk again.
const FULL_DISK_PAUSE: Duration = Duration::from_millis(500);
/// How long output is read after the program has ended. Its own output is in the pipes by then; a
/// process that it has left in the background may write without end.
const DRAIN: Duration = Duration::from_secs(2);

/// A program that was started.
pub(super) struct KeptProgram {
    /// Its process.
    pub child: Child,
    /// Its standard output and error.
    pub streams: [KeptStream; 2],
}

impl KeptProgram {
    /// The bytes that it has written.
    fn written(&self) -> u64 {
        self.streams.iter().map(|stream| stream.total).sum()
    }

    fn is_stalled(&self) -> bool {
        self.streams.iter().any(KeptStream::is_stalled)
    }

    /// Reads until the pipes are empty, the disk is full, or the program has written `most` bytes.
    async fn read_rest(&mut self, most: u64) {
        while self.written() <= most && self.streams.iter().any(KeptStream::is_open) {
            let [out, err] = &mut self.streams;
            tokio::select! {
                () = out.advance(), if out.is_open() => {}
                () = err.advance(), if err.is_open() => {}
                () = tokio::time::sleep(QUIET) => return,
            }
        }
    }
}

/// The signals of a keeper.
pub(super) struct Signals {
    /// A child has ended.
    child: Signal,
    /// The program is to be ended.
    term: Signal,
    /// Ignored, as in every daemon: the terminal of the daemon is gone.
    _hangup: Signal,
}

impl Signals {
    /// From now on the signals are handled; call it before the program is started.
    pub(super) fn take() -> io::Result<Self> {
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
pub(super) struct Watch<'a> {
    /// The folder of the program.
    pub folder: &'a KeeperFolder,
    /// The step of the program.
    pub step: StepId,
    /// What the daemon has handed over.
    pub given: &'a HandOver,
    /// The time of this process.
    pub clock: Clock,
    /// When a daemon was seen last, by `clock`.
    pub seen: Duration,
}

impl Watch<'_> {
    /// Returns once the program has ended, its end is recorded, and nothing of it runs any more.
    pub(super) async fn until_gone(
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
        let was_stopped = ending == KeptEnd::Stopped;
        let is_stopped = self.drain(&mut program, was_stopped, signals).await || was_stopped;
        let is_detached = is_detached && !remaining.is_empty();
        let recorded = self.record(ending, remaining, is_stopped, signals).await;
        if is_detached {
            match recorded.is_ok() && !is_stopped {
                true => self.until_detached_end(program, signals).await,
                false => drop(self.end_tree(pid).await),
            }
        }
        recorded
    }

    /// Watches the running program; returns how it ended, or why it is to be ended.
    async fn until_end(&mut self, program: &mut KeptProgram, signals: &mut Signals) -> KeptEnd {
        let pid = program.child.id();
        let stdin = program.child.stdin.take();
        let stdin = stdin.and_then(|pipe| ChildStdin::from_std(pipe).ok());
        let mut feeding = pin!(feed(stdin, self.given.input.clone()));
        let mut is_fed = false;
        let mut over = pin!(over(self.given.time_ms.map(Duration::from_millis)));
        let mut retry = tokio::time::interval(FULL_DISK_PAUSE);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(self.look_each());
        // The program may have ended before the signal was waited for.
        if let Some(ending) = reap(pid).program {
            return ending;
        }
        loop {
            let is_stalled = program.is_stalled();
            let [out, err] = &mut program.streams;
            tokio::select! {
                () = out.advance(), if out.is_open() => {}
                () = err.advance(), if err.is_open() => {}
                _ = signals.child.recv() => {
                    if let Some(ending) = reap(pid).program {
                        return ending;
                    }
                }
                _ = signals.term.recv() => return KeptEnd::Stopped,
                () = &mut feeding, if !is_fed => is_fed = true,
                () = &mut over => return KeptEnd::TimedOut,
                _ = retry.tick(), if is_stalled => {
                    out.store();
                    err.store();
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

    /// Copies what is left in the pipes, and discards what processes that are left write later. Waits
    /// while the disk is full, unless SIGTERM was received before. True if it is received now, which
    /// ends the waiting.
    async fn drain(
        &self,
        program: &mut KeptProgram,
        was_stopped: bool,
        signals: &mut Signals,
    ) -> bool {
        let most = program.written().saturating_add(AFTER_END);
        let most = most.min(self.given.max_output);
        let rest = async {
            loop {
                // Each wait for the disk is followed by a look at the pipes.
                let _ = tokio::time::timeout(DRAIN, program.read_rest(most)).await;
                let is_useless = was_stopped || !self.folder.exists().unwrap_or(true);
                if is_useless || !program.is_stalled() {
                    return;
                }
                tokio::time::sleep(FULL_DISK_PAUSE).await;
                program.streams.iter_mut().for_each(KeptStream::store);
            }
        };
        let is_stopped = tokio::select! {
            () = rest => false,
            _ = signals.term.recv() => true,
        };
        program.streams.iter_mut().for_each(KeptStream::discard);
        is_stopped
    }

    /// Stores how the program ended. Waits while the disk is full, until SIGTERM is received or the
    /// folder is gone. If SIGTERM was received before (`is_stopped`), there is one attempt: it does
    /// not come again.
    pub(super) async fn record(
        &self,
        ending: KeptEnd,
        remaining: Vec<ProcessIdentity>,
        is_stopped: bool,
        signals: &mut Signals,
    ) -> io::Result<()> {
        failpoint::reach("keeper.ended");
        let record = ExitRecord { ending, remaining };
        loop {
            match self.folder.write_exit(&record) {
                Ok(file) => {
                    failpoint::reach("keeper.recorded");
                    // The daemon stores the outcome meanwhile. If the record does not reach the disk,
                    // a loss of power before that leaves the outcome uncertain.
                    let _ = self.folder.sync(&file);
                    return Ok(());
                }
                Err(fault) if is_stopped || !self.folder.exists().unwrap_or(true) => {
                    return Err(fault);
                }
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
        if !self.folder.exists().unwrap_or(true) {
            // The state folder is gone, so no daemon will ask for the result.
            return Some(KeptEnd::Stopped);
        }
        let now = self.clock.monotonic();
        let lock = File::open(&self.given.daemon_lock);
        let is_free = |lock: File| matches!(holder_of(&lock), Ok(None));
        if lock.is_ok_and(|lock| !is_free(lock)) {
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
        let mut tree = ProcessQuery::marked(MarkFilter::Step(
            self.step,
            PathBuf::from(&self.given.state),
        ));
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
