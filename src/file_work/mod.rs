//! File work that may never return: threads of its own, few and counted, so that a mount that no
//! longer answers or a pipe without a writer takes nothing else with it; and opening files without
//! waiting for one. Used wherever files are read that a workspace, an agent or a person has put
//! there.

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

/// For calls of tools.
pub static TOOLS: LazyLock<Pool> = LazyLock::new(|| Pool {
    point: "file_work.calls",
    ..Pool::new("calls of tools", (32, 64), TIMES)
});
/// For the files of agents, skills and values, at a request or after a change.
pub static DEFINITIONS: LazyLock<Pool> =
    LazyLock::new(|| Pool::new("files of agents and skills", (16, 32), TIMES));

const TIMES: Times = Times {
    wait: Duration::from_secs(10),
    grace: Duration::from_secs(2),
};

#[derive(Clone, Copy)]
struct Times {
    /// Work that finds every thread taken waits so long for one.
    wait: Duration,
    /// Work that is no longer wanted has so long to notice; then its thread is written off.
    grace: Duration,
}

/// Says whether work is still wanted. A thread cannot be stopped from outside, so long work asks
/// this once for each file.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Fails once the result is no longer wanted.
    pub fn check(&self) -> Result<(), String> {
        if self.0.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
        Ok(())
    }
}

/// A bounded number of threads.
pub struct Pool {
    about: &'static str,
    /// The failpoint that each of its threads passes.
    point: &'static str,
    /// So many threads may be at work.
    seats: usize,
    /// So many more may be written off before the pool stays full.
    spare: usize,
    times: Times,
    shared: Arc<Shared>,
    clock: Clock,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    freed: Notify,
}

#[derive(Default)]
struct Jobs {
    last: u64,
    open: BTreeMap<u64, Job>,
}

/// Work on a thread.
#[derive(Default)]
struct Job {
    /// Since then its result is no longer wanted.
    unwanted_since: Option<Duration>,
    /// Its thread no longer counts as one of the pool's.
    written_off: bool,
}

/// Why work was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy(String);

impl std::fmt::Display for Busy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        // Whole at every moment, also where a thread panicked.
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

    /// Runs `work` on a thread of the pool. Dropping the future stops the work if it asks, and
    /// gives its thread up if it does not.
    pub async fn run<T, F>(&self, work: F) -> Result<T, Busy>
    where
        T: Send + 'static,
        F: FnOnce(&Stop) -> T + Send + 'static,
    {
        let id = self.seat().await?;
        let stop = Stop::default();
        // From here on whatever happens gives the seat back.
        let wanted = Wanted {
            pool: self,
            id,
            stop: stop.clone(),
        };
        let seat = Seat {
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
                // Where it is not wanted any more, it is dropped.
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

    /// Takes a seat, or waits for one.
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
                    "busy: all {} threads for {} wait for file systems that do not answer; \
                     nothing was done. Try again later, or see abide doctor",
                    self.seats, self.about
                )));
            }
            // What is written off meanwhile wakes nobody.
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
        jobs.open.insert(id, Job::default());
        Some(id)
    }

    /// How many threads do not come back although their results are no longer wanted.
    pub fn stuck(&self) -> usize {
        let now = self.clock.monotonic();
        let jobs = self.shared.jobs();
        let stuck = jobs
            .open
            .values()
            .filter(|job| job.is_stuck(now, self.times.grace));
        stuck.count()
    }

    /// What people should know of the pool, if anything.
    pub fn notice(&self) -> Option<String> {
        let stuck = self.stuck();
        (stuck > 0).then(|| {
            format!(
                "{stuck} threads for {} do not come back from the file system: a mount may not \
                 answer. They hold up nothing else; at {} of them such work is refused as busy",
                self.about,
                self.seats + self.spare
            )
        })
    }
}

/// What both pools have to say.
pub fn notices() -> Vec<String> {
    let pools = [&*TOOLS, &*DEFINITIONS];
    pools.into_iter().filter_map(Pool::notice).collect()
}

impl Jobs {
    fn at_work(&self) -> usize {
        let counted = self.open.values().filter(|job| !job.written_off);
        counted.count()
    }

    /// Gives up threads that do not come back, as far as there may be more.
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

impl Job {
    fn is_stuck(&self, now: Duration, grace: Duration) -> bool {
        self.unwanted_since
            .is_some_and(|since| now.saturating_sub(since) >= grace)
    }
}

/// Somebody waits for the result of a job.
struct Wanted<'a> {
    pool: &'a Pool,
    id: u64,
    stop: Stop,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Relaxed);
        let now = self.pool.clock.monotonic();
        if let Some(job) = self.pool.shared.jobs().open.get_mut(&self.id) {
            job.unwanted_since = Some(now);
        }
    }
}

/// A thread's place in the pool.
struct Seat {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.jobs().open.remove(&self.id);
        self.shared.freed.notify_one();
    }
}

/// Opens a regular file for reading; links are followed. A pipe, device or socket is refused and
/// not waited for.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Looked at first: to open some devices does something.
    if !std::fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    regular(rustix::fs::open(path, flags, Mode::empty())?)
}

/// What was opened without waiting, if it is a regular file.
pub fn regular(opened: OwnedFd) -> io::Result<File> {
    let file = File::from(opened);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_regular()),
    }
}

fn not_regular() -> io::Error {
    io::Error::other("it is no regular file")
}

/// A regular file's bytes, up to one more than `limit`, which tells a longer file from one that
/// just fits.
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
        // The third has the seat of one that was written off; no more may be.
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
