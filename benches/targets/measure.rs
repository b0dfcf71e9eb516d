//! The rounds. In each, every floor and every method of the daemon is measured once, the
//! partners of a ratio right after each other; who comes first alternates.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::Result;
use crate::client::{self, Door, Load, Until};
use crate::daemon::{Daemon, Setting};
use crate::fanout;
use crate::floor::{self, Floor};
use crate::machine::{self, Machine, Watch};
use crate::sample::{Sample, Spread};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// 4 KiB and a sync.
    Sync,
    /// The bare server, 1 call in flight.
    FloorPing1,
    /// The bare server, 64 in flight.
    FloorPing64,
    /// The storing server, 1 in flight.
    FloorInsert1,
    /// The storing server, 64 in flight.
    FloorInsert64,
    /// `gateway.ping`, 1 in flight.
    Ping1,
    /// `gateway.ping`, 64 in flight.
    Ping64,
    /// `runs.get`, 1 in flight.
    Get1,
    /// `runs.get`, 64 in flight.
    Get64,
    /// `sessions.spawn`, 1 in flight.
    Spawn1,
    /// `sessions.spawn`, 64 in flight.
    Spawn64,
    /// Start on a folder that is not there yet.
    StartEmpty,
    /// Start with finished runs in the store.
    StartFull,
    /// Memory when ready, on a fresh folder.
    Rss,
    /// About 100 events a second to 100 subscribers.
    FanOut100,
    /// What that takes of a core, percent.
    FanOutCore100,
    /// About 1,000 events a second to 100 subscribers.
    FanOut1000,
    /// What that takes of a core, percent.
    FanOutCore1000,
}

/// How much is measured.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Rounds.
    pub rounds: usize,
    /// How long each load lasts.
    pub lasts: Duration,
    /// Starts of each kind in a round.
    pub starts: usize,
    /// Finished runs in the store of the second kind of start.
    pub finished: u64,
}

impl Plan {
    /// What `docs/performance.md` quotes.
    pub fn full() -> Self {
        Plan {
            rounds: 7,
            lasts: Duration::from_millis(1200),
            starts: 3,
            finished: 10_000,
        }
    }

    /// A look.
    pub fn quick() -> Self {
        Plan {
            rounds: 3,
            lasts: Duration::from_millis(400),
            ..Plan::full()
        }
    }
}

/// Everything that was measured.
pub struct Figures {
    /// Where.
    pub machine: Machine,
    /// How much.
    pub plan: Plan,
    /// The idle share of the machine before each round.
    pub idle: Vec<f64>,
    /// One sample of each figure for each round.
    pub samples: BTreeMap<Figure, Vec<Sample>>,
}

/// So many follow the log at once.
const SUBSCRIBERS: usize = 100;

/// The task of every spawn and of every floor's insert.
const TASK: &str = "Look through this source tree and say where a finished run is announced \
     to the session that asked for it, which rows are written in that transaction, and which \
     test shows that a kill at that point neither loses nor doubles the announce. Quote each \
     place as file:line and say in one sentence why it is the place.";

/// Measures everything.
pub fn all(binary: &Path, plan: &Plan) -> Result<Figures> {
    // Floors and daemon share a file system: the one that is built on.
    let home = TempDir::with_prefix_in("targets-", env!("CARGO_TARGET_TMPDIR"))?;
    let mut figures = Figures {
        machine: Machine::this(home.path()),
        plan: plan.clone(),
        idle: Vec::new(),
        samples: BTreeMap::new(),
    };
    let full = home.path().join("full");
    eprintln!("making {} finished runs", plan.finished);
    fill(binary, &full, plan.finished)?;
    for number in 0..plan.rounds {
        let folder = home.path().join(format!("round-{number}"));
        let round = Round {
            binary,
            folder: &folder,
            full: &full,
            floor_first: number % 2 == 0,
            plan,
        };
        let idle = machine::idle_share(Duration::from_millis(500));
        figures.idle.extend(idle);
        eprintln!(
            "round {} of {}{}",
            number + 1,
            plan.rounds,
            idle.map_or(String::new(), |idle| {
                format!(", the machine was {:.0} % idle before it", idle * 100.0)
            })
        );
        for (figure, sample) in round.measure()? {
            figures.samples.entry(figure).or_default().push(sample);
        }
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(figures)
}

/// Puts finished runs into a store, through the daemon itself: spawned, run to their end with
/// a scripted answer, and stopped in order.
fn fill(binary: &Path, folder: &Path, runs: u64) -> Result<()> {
    let daemon = Daemon::start(binary, folder, Setting::InstantAnswers)?;
    client::run(&Load {
        door: daemon.door(),
        connections: 16,
        each: 4,
        until: Until::Calls(runs),
        method: "sessions.spawn",
        params: &|n| spawn_params(n),
    })?;
    let begun = Instant::now();
    loop {
        let status = client::once(daemon.door(), "gateway.status", "{}")?;
        let open: u64 = ["queued", "running", "paused", "settling"]
            .iter()
            .filter_map(|state| status["counts"][state].as_u64())
            .sum();
        if open == 0 {
            break;
        }
        if begun.elapsed() > Duration::from_secs(120) {
            return Err(format!("{open} runs do not come to their end").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    daemon.stop()
}

struct Round<'a> {
    binary: &'a Path,
    folder: &'a Path,
    full: &'a Path,
    floor_first: bool,
    plan: &'a Plan,
}

/// A server under load, and what it is asked.
struct Asked<'a> {
    figure: Figure,
    door: Door<'a>,
    pid: u32,
    method: &'a str,
    params: &'a dyn Fn(u64) -> String,
}

impl Round<'_> {
    fn measure(&self) -> Result<Vec<(Figure, Sample)>> {
        let mut samples = self.starts()?;
        let floor = Floor::start(&self.folder.join("floor"))?;
        let daemon = Daemon::start(
            self.binary,
            &self.folder.join("daemon"),
            Setting::LanesClosed,
        )?;
        let sync = floor::sync_loop(self.folder, self.plan.lasts / 2)?;
        samples.push((Figure::Sync, sync));

        let runs = self.warm_up(&floor, &daemon)?;
        let at_floor = |figure, method, params| Asked {
            figure,
            door: floor.door(),
            pid: floor.pid(),
            method,
            params,
        };
        let at_daemon = |figure, method, params| Asked {
            figure,
            door: daemon.door(),
            pid: daemon.pid(),
            method,
            params,
        };
        let empty = |_| "{}".to_owned();
        let task = |n| insert_params(n);
        let spawn = |n| spawn_params(n);
        let run = |n: u64| format!(r#"{{"runId":"{}"}}"#, runs[n as usize % runs.len()]);
        for (connections, each, figures) in [
            (
                1,
                1,
                [
                    Figure::FloorPing1,
                    Figure::Ping1,
                    Figure::Get1,
                    Figure::FloorInsert1,
                    Figure::Spawn1,
                ],
            ),
            (
                16,
                4,
                [
                    Figure::FloorPing64,
                    Figure::Ping64,
                    Figure::Get64,
                    Figure::FloorInsert64,
                    Figure::Spawn64,
                ],
            ),
        ] {
            let mut reads = vec![
                at_floor(figures[0], "ping", &empty),
                at_daemon(figures[1], "gateway.ping", &empty),
                at_daemon(figures[2], "runs.get", &run),
            ];
            let mut writes = vec![
                at_floor(figures[3], "insert", &task),
                at_daemon(figures[4], "sessions.spawn", &spawn),
            ];
            if !self.floor_first {
                reads.reverse();
                writes.reverse();
            }
            for asked in reads.into_iter().chain(writes) {
                let figure = asked.figure;
                samples.push((figure, self.load(&asked, connections, each)?));
            }
        }
        drop(floor);
        for (figure, core, rate) in [
            (Figure::FanOut100, Figure::FanOutCore100, 100),
            (Figure::FanOut1000, Figure::FanOutCore1000, 1000),
        ] {
            let lasts = self.plan.lasts * 2;
            let seen = fanout::measure(daemon.door(), daemon.pid(), SUBSCRIBERS, rate, lasts)?;
            samples.push((figure, seen.arrival));
            samples.extend(seen.core.map(|share| (core, value(&[share]))));
        }
        Ok(samples)
    }

    /// Both servers have seen every method before it counts; the runs that were made.
    fn warm_up(&self, floor: &Floor, daemon: &Daemon) -> Result<Vec<String>> {
        let short = |door, method, params: &dyn Fn(u64) -> String| {
            client::run(&Load {
                door,
                connections: 16,
                each: 4,
                until: Until::Time(self.plan.lasts / 4),
                method,
                params,
            })
        };
        let empty = |_| "{}".to_owned();
        short(floor.door(), "ping", &empty)?;
        short(floor.door(), "insert", &|n| insert_params(n))?;
        short(daemon.door(), "gateway.ping", &empty)?;
        let spawned = short(daemon.door(), "sessions.spawn", &|n| spawn_params(n))?;
        let mut runs = Vec::new();
        for result in &spawned.results {
            let result: Value = serde_json::from_str(result.get())?;
            runs.push(result["runId"].as_str().ok_or("no runId")?.to_owned());
        }
        if runs.is_empty() {
            return Err("nothing was spawned".into());
        }
        Ok(runs)
    }

    fn load(&self, asked: &Asked<'_>, connections: usize, each: usize) -> Result<Sample> {
        let watch = Watch::start(asked.pid);
        let answers = client::run(&Load {
            door: asked.door,
            connections,
            each,
            until: Until::Time(self.plan.lasts),
            method: asked.method,
            params: asked.params,
        })?;
        let mut sample = answers.sample;
        if let Some(seen) = watch.stop() {
            sample.server_cpu_us = Some(seen.server.as_secs_f64() * 1e6 / sample.count as f64);
            sample.others = Some(seen.others);
        }
        Ok(sample)
    }

    /// Starts of both kinds, in turn, and the memory of the fresh ones.
    fn starts(&self) -> Result<Vec<(Figure, Sample)>> {
        let (mut empty, mut full, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..self.plan.starts {
            let fresh = self.folder.join(format!("start-{number}"));
            let daemon = Daemon::start(self.binary, &fresh, Setting::Default)?;
            empty.push(daemon.ready_after);
            memory.extend(machine::resident_mib(daemon.pid()));
            daemon.stop()?;
            let daemon = Daemon::start(self.binary, self.full, Setting::Default)?;
            full.push(daemon.ready_after);
            daemon.stop()?;
        }
        let whole = |times: &[Duration]| times.iter().sum();
        let mut samples = vec![
            (Figure::StartEmpty, Sample::of(empty.clone(), whole(&empty))),
            (Figure::StartFull, Sample::of(full.clone(), whole(&full))),
        ];
        if !memory.is_empty() {
            samples.push((Figure::Rss, value(&memory)));
        }
        Ok(samples)
    }
}

/// Values that are no times, as a sample: the middle one and the largest.
fn value(values: &[f64]) -> Sample {
    let spread = Spread::of(values.iter().copied());
    Sample {
        count: values.len(),
        p50: spread.map_or(0.0, |spread| spread.median),
        p99: spread.map_or(0.0, |spread| spread.max),
        rate: 0.0,
        server_cpu_us: None,
        others: None,
    }
}

fn insert_params(n: u64) -> String {
    format!(r#"{{"task":"{n}: {TASK}"}}"#)
}

/// Parentless, and with as much in it as the floor's insert.
fn spawn_params(n: u64) -> String {
    insert_params(n)
}
