//! Thread pools for file operations that may never return, and opening files without blocking. The
//! pools are bounded, so an unresponsive mount or a pipe without a writer blocks nothing else. Used
//! wherever the daemon reads files that a workspace, an agent or a user has put there.

pub(crate) mod open_folder;
pub mod writers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use tokio::sync::{Notify, oneshot};

use crate::clock::Clock;
use crate::failpoint::reach;

/// Once this returns, the entries of the folder survive a loss of power.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The pool for tool calls: 32 threads, up to 64 stuck ones on top.
pub static TOOLS: LazyLock<Pool> = LazyLock::new(|| Pool {
    point: "file_work.calls",
    ..Pool::new("tool calls", (32, 64), TIMES)
});
/// The pool for files of agents, skills and values, read on a request or after a change: 16
/// threads, up to 32 stuck ones on top.
pub static DEFINITIONS: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("agent and skill files", (16, 32), TIMES));

const TIMES: Times = Times {
    wait: Duration::from_secs(10),
    grace: Duration::from_secs(2),
};

#[derive(Clone, Copy)]
struct Times {
    /// How long work waits for a free thread before it fails with [`Busy`].
    wait: Duration,
    /// How long work may continue once its result is unwanted; then its thread is written off.
    grace: Duration,
}

/// Tells running work whether its result is still wanted. A thread cannot be stopped from outside,
/// so long work checks this once for each file.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Fails once the result is no longer wanted.
    pub fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        Ok(())
    }
}

/// A bounded pool of threads for blocking file operations.
pub struct Pool {
    about: &'static str,
    /// The failpoint that each thread passes before its work.
    point: &'static str,
    /// The maximum number of threads at work.
    seats: usize,
    /// The maximum number of written-off threads; beyond it, stuck threads occupy seats.
    spare: usize,
    times: Times,
    shared: Arc<PoolState>,
    clock: Clock,
}

#[derive(Default)]
struct PoolState {
    jobs: Mutex<Jobs>,
    freed: Notify,
}

#[derive(Default)]
struct Jobs {
    last: u64,
    open: BTreeMap<u64, RunningJob>,
}

/// One running job, which occupies one thread.
#[derive(Default)]
struct RunningJob {
    /// Since when its result is unwanted; `None` while the caller waits for it.
    unwanted_since: Option<Duration>,
    /// Its thread is stuck and no longer counts towards the limit of the pool.
    written_off: bool,
}

/// Why the pool did not run the work; the text is an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy(String);

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl PoolState {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // The map is consistent at every point, so a poisoned lock is usable.
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn new(about: &'static str, (seats, spare): (usize, usize), times: Times) -> Self {
        Pool {
            about,
            point: "file_work.begun",
            seats,
            spare,
            times,
            shared: Arc::default(),
            clock: Clock::system(),
        }
    }

    /// Runs `work` on a thread of the pool. Dropping the future sets `Stop`; work that never checks
    /// it keeps its thread until the thread is written off.
    pub async fn run<T, F>(&self, work: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(&StopFlag) -> T + Send + 'static,
    {
        let id = self.seat().await?;
        let stop = StopFlag::default();
        // From here on every path frees the seat.
        let wanted = Waiter {
            pool: self,
            id,
            stop: stop.clone(),
        };
        let seat = ThreadSeat {
            shared: Arc::clone(&self.shared),
            id,
        };
        let (done, result) = oneshot::channel();
        let (point, runtime) = (self.point, tokio::runtime::Handle::current());
        let started = std::thread::Builder::new()
            .name("abide-files".to_owned())
            .spawn(move || {
                let _seat = seat;
                let _runtime = runtime.enter();
                reach(point);
                let result = catch_unwind(AssertUnwindSafe(|| work(&stop)));
                // The receiver is gone if the result is unwanted; the result is dropped.
                let _ = done.send(result);
            });
        started.map_err(|fault| Busy(format!("busy: no thread could be started ({fault})")))?;
        let result = result.await;
        drop(wanted);
        match result {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(Busy("busy: the work was dropped".to_owned())),
        }
    }

    /// Reserves a seat; waits for one at most `times.wait`.
    async fn seat(&self) -> Result<u64, Busy> {
        let since = self.clock.monotonic();
        loop {
            let freed = self.shared.freed.notified();
            if let Some(id) = self.take_seat() {
                return Ok(id);
            }
            let waited = self.clock.monotonic().saturating_sub(since);
            if waited >= self.times.wait {
                return Err(Busy(format!(
                    "busy: all {} threads for {} are waiting for unresponsive file systems; \
                     nothing was done. Try again later, or see abide doctor",
                    self.seats, self.about
                )));
            }
            // Writing off a stuck thread sends no notification, so poll.
            let _ = tokio::time::timeout(self.times.grace / 4, freed).await;
        }
    }

    fn take_seat(&self) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut jobs = self.shared.jobs();
        if jobs.at_work() >= self.seats {
            jobs.write_off(now, self.times.grace, self.spare);
        }
        if jobs.at_work() >= self.seats {
            return None;
        }
        jobs.last += 1;
        let id = jobs.last;
        jobs.open.insert(id, RunningJob::default());
        Some(id)
    }

    /// The number of threads still running after their results were unwanted for the grace period.
    pub fn stuck(&self) -> usize {
        let now = self.clock.monotonic();
        let jobs = self.shared.jobs();
        let stuck = jobs
            .open
            .values()
            .filter(|job| job.is_stuck(now, self.times.grace));
        stuck.count()
    }

    /// A notice for the operator about stuck threads; `None` if there are none.
    pub fn notice(&self) -> Option<String> {
        let stuck = self.stuck();
        (stuck > 0).then(|| {
            format!(
                "{stuck} threads for {} are stuck in the file system: a mount may not \
                 respond. Other work is not affected; from {} stuck threads on, such work is refused as busy",
                self.about,
                self.seats + self.spare
            )
        })
    }
}

/// The notices of both pools.
pub fn notices() -> Vec<String> {
    let pools = [&*TOOLS, &*DEFINITIONS];
    pools.into_iter().filter_map(Pool::notice).collect()
}

impl Jobs {
    fn at_work(&self) -> usize {
        let counted = self.open.values().filter(|job| !job.written_off);
        counted.count()
    }

    /// Writes off stuck threads, until `spare` of them are written off.
    fn write_off(&mut self, now: Duration, grace: Duration, spare: usize) {
        let mut written_off = self.open.values().filter(|job| job.written_off).count();
        for job in self.open.values_mut() {
            if written_off < spare && !job.written_off && job.is_stuck(now, grace) {
                job.written_off = true;
                written_off += 1;
            }
        }
    }
}

impl RunningJob {
    fn is_stuck(&self, now: Duration, grace: Duration) -> bool {
        self.unwanted_since
            .is_some_and(|since| now.saturating_sub(since) >= grace)
    }
}

/// Held by the caller while it waits; its drop marks the result as unwanted.
struct Waiter<'a> {
    pool: &'a Pool,
    id: u64,
    stop: StopFlag,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        let now = self.pool.clock.monotonic();
        if let Some(job) = self.pool.shared.jobs().open.get_mut(&self.id) {
            job.unwanted_since = Some(now);
        }
    }
}

/// Held by the thread; its drop frees the seat in the pool.
struct ThreadSeat {
    shared: Arc<PoolState>,
    id: u64,
}

impl Drop for ThreadSeat {
    fn drop(&mut self) {
        self.shared.jobs().open.remove(&self.id);
        self.shared.freed.notify_one();
    }
}

/// Opens a regular file for reading and follows links. A pipe, device or socket is refused without
/// blocking.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Checked before opening: opening some devices has side effects.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    regular(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Converts a descriptor that was opened without blocking; the error is that it is not a regular file.
pub fn regular(opened: OwnedFd) -> io::Result<File> {
    let file = File::from(opened);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file")
}

/// Reads a regular file, at most `limit` + 1 bytes. More than `limit` bytes mean that the file is
/// longer than `limit`.
pub fn read_regular(path: &Path, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    open_regular(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc;

    fn pool(seats: usize, spare: usize) -> &'static Pool {
        let times = Times {
            wait: Duration::ZERO,
            grace: Duration::ZERO,
        };
        Box::leak(Box::new(Pool::new("tests", (seats, spare), times)))
    }

    #[tokio::test]
    async fn dropping_the_call_stops_work_that_asks() {
        let pool = pool(1, 0);
        let (started, wait_started) = oneshot::channel();
        let (ended, wait_ended) = oneshot::channel();
        let call = tokio::spawn(pool.run(move |stop| {
            let _ = started.send(());
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            let _ = ended.send(());
        }));
        wait_started.await.unwrap();
        call.abort();
        wait_ended.await.unwrap();
        while pool.stuck() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.run(|_| 7).await, Ok(7));
    }

    #[tokio::test]
    async fn a_panic_is_not_swallowed() {
        let pool = pool(1, 0);
        let call = tokio::spawn(pool.run(|_| panic!("deliberate")));
        assert!(call.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn threads_that_do_not_come_back_are_counted_replaced_and_bounded() {
        let pool = pool(2, 1);
        let mut held = Vec::new();
        for _ in 0..3 {
            let (hold, holds) = mpsc::channel::<()>();
            let (begun, wait_begun) = oneshot::channel();
            let call = tokio::spawn(pool.run(move |_| {
                let _ = begun.send(());
                let _ = holds.recv();
            }));
            wait_begun.await.unwrap();
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
            held.push(hold);
        }
        // The third has the seat of a written-off thread; no further thread may be written off.
        assert_eq!(pool.shared.jobs().open.len(), 3);
        let refused = pool.run(|_| ()).await.unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("busy: all 2 threads for tests"),
            "{refused}"
        );
        assert_eq!(pool.stuck(), 3);
        assert!(pool.notice().unwrap().contains("3 threads for tests"));
        held.clear();
        while pool.stuck() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(pool.notice(), None);
        assert_eq!(pool.run(|_| 7).await, Ok(7));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link, folder.path(), Path::new("/dev/zero")] {
            assert!(open_regular(path).is_err(), "{}", path.display());
        }
        let file = folder.path().join("file");
        fs::write(&file, "abc").unwrap();
        assert_eq!(read_regular(&file, 3).unwrap(), b"abc");
        assert_eq!(read_regular(&file, 1).unwrap(), b"ab");
    }
}
