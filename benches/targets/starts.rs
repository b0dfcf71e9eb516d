//! P7 and P8: time until ready, and memory when ready. Also creates finished and open runs for such
//! starts, through the daemon.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::Result;
use crate::client::{self, Load, ServerAddress, Until};
use crate::daemon::{self, ASK, Daemon, Setting};
use crate::figure::Figure;
use crate::machine;
use crate::measure::{Round, Samples, spawn_params};
use crate::sample::Sample;

/// Open runs for the last kind of start: half are paused, sixteen run, the others are queued.
const OPEN: u64 = 10_000;

/// Alternates starts on a fresh folder and on one with finished runs; measures the memory of the
/// fresh ones.
pub fn measure(round: &Round<'_>, full: &Path) -> Result<Samples> {
    let (mut empty, mut filled, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..round.plan.starts {
        let fresh = round.folder.join(format!("start-{number}"));
        let daemon = Daemon::start(round.binary, &fresh, Setting::Default)?;
        empty.push(daemon.ready_after);
        memory.extend(machine::resident_mib(daemon.pid()));
        daemon.stop()?;
        let daemon = Daemon::start(round.binary, full, Setting::Default)?;
        filled.push(daemon.ready_after);
        daemon.stop()?;
    }
    let mut samples = vec![
        (Figure::StartEmpty, of(empty)),
        (Figure::StartFull, of(filled)),
    ];
    if !memory.is_empty() {
        samples.push((Figure::Rss, Sample::of_amounts(&memory)));
    }
    Ok(samples)
}

/// Starts on copies of a folder with open runs whose daemon was killed; measures the time until the
/// first answer.
pub fn of_open(round: &Round<'_>, open: &Path) -> Result<Samples> {
    let mut times = Vec::new();
    for number in 0..round.plan.starts {
        let copy = round.folder.join(format!("open-{number}"));
        copy_folder(open, &copy)?;
        let daemon = Daemon::start(round.binary, &copy, Setting::Held)?;
        let since = Instant::now();
        client::once(daemon.door(), "runs.list", r#"{"limit":1}"#)?;
        times.push(daemon.ready_after + since.elapsed());
    }
    Ok(vec![(Figure::StartOpen, of(times))])
}

/// Combines the durations of starts into a sample.
pub fn of(times: Vec<Duration>) -> Sample {
    let whole = times.iter().sum();
    Sample::of(times, whole)
}

/// Adds finished runs to a store through the daemon itself: spawned, finished with a scripted
/// answer, and shut down cleanly.
pub fn fill(binary: &Path, folder: &Path, runs: u64) -> Result<()> {
    let daemon = Daemon::start(binary, folder, Setting::InstantAnswers)?;
    spawn(daemon.door(), runs, &spawn_params)?;
    until(daemon.door(), |status| daemon::open_runs(status) == 0)?;
    daemon.stop()
}

/// Adds 10,000 open runs to a store and kills its daemon.
pub fn open(binary: &Path, folder: &Path) -> Result<()> {
    let daemon = Daemon::start(binary, folder, Setting::Held)?;
    let counts = |status: &serde_json::Value, state: &str| status["counts"][state].as_u64();
    spawn(daemon.door(), OPEN / 2, &|n| {
        format!(r#"{{"task":"{ASK} number {n}"}}"#)
    })?;
    until(daemon.door(), |status| {
        counts(status, "paused") == Some(OPEN / 2)
    })?;
    spawn(daemon.door(), OPEN / 2, &spawn_params)?;
    until(daemon.door(), |status| {
        counts(status, "running") == Some(16)
    })
    // The daemon is dropped here, which kills it.
}

fn spawn(door: ServerAddress<'_>, runs: u64, params: &dyn Fn(u64) -> String) -> Result<()> {
    client::run(&Load {
        door,
        connections: 16,
        each: 4,
        until: Until::Calls(runs),
        method: "sessions.spawn",
        params,
        kept: 0,
    })
    .map(|_| ())
}

/// Polls `gateway.status` until `is_so` holds.
fn until(door: ServerAddress<'_>, is_so: impl Fn(&serde_json::Value) -> bool) -> Result<()> {
    let begun = Instant::now();
    loop {
        let status = client::once(door, "gateway.status", "{}")?;
        if is_so(&status) {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(600) {
            return Err(format!(
                "the runs do not reach the expected states: {}",
                status["counts"]
            )
            .into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
