//! Load of the machine during a measurement, and processor time and memory of a process, from
//! `/proc`. Without `/proc`, these columns stay empty.

use std::fs::read_to_string;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// Linux reports processor time to user space in hundredths of a second, on every platform.
const TICKS_A_SECOND: f64 = 100.0;

/// The facts about the machine that the report shows.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Number of processors.
    pub processors: usize,
    /// Model name of the processors.
    pub model: Option<String>,
    /// Memory, GiB.
    pub memory_gib: Option<f64>,
    /// Kernel version.
    pub kernel: Option<String>,
    /// File system of the state folders.
    pub file_system: Option<String>,
}

impl Machine {
    /// Describes this machine; state folders are in `folder`.
    pub fn this(folder: &Path) -> Self {
        Machine {
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            model: field("/proc/cpuinfo", "model name"),
            memory_gib: field("/proc/meminfo", "MemTotal")
                .and_then(|text| kib(&text))
                .map(|kib| kib / 1024.0 / 1024.0),
            kernel: read_to_string("/proc/sys/kernel/osrelease")
                .ok()
                .map(|text| text.trim().to_owned()),
            file_system: file_system(folder),
        }
    }
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn kib(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

/// The file system type of the innermost mount that contains `folder`.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = read_to_string("/proc/mounts").ok()?;
    let above = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (point, kind) = (words.next()?, words.next()?);
        folder
            .starts_with(point)
            .then(|| (point.len(), kind.to_owned()))
    });
    above.max_by_key(|(length, _)| *length).map(|found| found.1)
}

/// Resident memory of a process, MiB.
pub fn resident_mib(pid: u32) -> Option<f64> {
    let text = field(&format!("/proc/{pid}/status"), "VmRSS")?;
    Some(kib(&text)? / 1024.0)
}

/// Number of threads of a process.
pub fn threads(pid: u32) -> Option<f64> {
    field(&format!("/proc/{pid}/status"), "Threads")?
        .parse()
        .ok()
}

/// Processor time of the current threads of a process, in nanoseconds, for cases where ticks are
/// too coarse.
pub fn processor_time(pid: u32) -> Option<Duration> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let file = thread.ok()?.path().join("schedstat");
        // A thread may end between listing and reading.
        let text = read_to_string(file).unwrap_or_default();
        nanoseconds += text
            .split_whitespace()
            .next()
            .map_or(Some(0), |word| word.parse().ok())?;
    }
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

/// Processor time, in ticks.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    all: u64,
    busy: u64,
    ours: u64,
    server: u64,
}

impl Ticks {
    fn now(server: u32) -> Option<Self> {
        let text = read_to_string("/proc/stat").ok()?;
        let counts: Vec<u64> = text
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            // The fields after the eighth are already included in the first two.
            .take(8)
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        let idle: u64 = counts.get(3..5)?.iter().sum();
        let all: u64 = counts.iter().sum();
        Some(Ticks {
            all,
            busy: all - idle,
            ours: of_process(std::process::id())?,
            server: of_process(server)?,
        })
    }
}

fn of_process(pid: u32) -> Option<u64> {
    let text = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name before it may contain anything, including blanks and parentheses.
    let mut words = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(user + system)
}

/// Observes the processors from its creation until [`Watch::stop`].
pub struct Watch {
    server: u32,
    before: Option<Ticks>,
}

/// The result of a watch.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Processor time of the server process.
    pub server: Duration,
    /// The share of the machine's processors that other processes used.
    pub others: f64,
}

impl Watch {
    /// Starts to observe the machine and the process `server`.
    pub fn start(server: u32) -> Self {
        let before = Ticks::now(server);
        Watch { server, before }
    }

    /// The usage since the start; `None` where `/proc` cannot be read.
    pub fn stop(self) -> Option<Seen> {
        let (before, after) = (self.before?, Ticks::now(self.server)?);
        let server = after.server - before.server;
        let ours = server + after.ours - before.ours;
        let all = (after.all - before.all).max(1);
        let others = (after.busy - before.busy).saturating_sub(ours);
        Some(Seen {
            server: Duration::from_secs_f64(server as f64 / TICKS_A_SECOND),
            others: others as f64 / all as f64,
        })
    }
}

/// The idle share of the machine while this program is idle.
pub fn idle_share(during: Duration) -> Option<f64> {
    let own = std::process::id();
    let before = Ticks::now(own)?;
    std::thread::sleep(during);
    let after = Ticks::now(own)?;
    let all = (after.all - before.all).max(1);
    Some(1.0 - (after.busy - before.busy) as f64 / all as f64)
}
