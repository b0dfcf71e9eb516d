//! The rounds. Each round takes every requested figure once, the two figures of a ratio right after
//! each other; the order alternates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tempfile::TempDir;

use crate::Result;
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::floor::Floor;
use crate::grown::Grown;
use crate::machine::{self, Machine};
use crate::sample::Sample;
use crate::turns::InstantModel;
use crate::{
    announces, calls, doors, fanout, long, nodes, pages, programs, skills, starts, turns, waits,
    webhooks,
};

/// The samples of one part of a round.
pub type Samples = Vec<(Figure, Sample)>;

/// What to measure, and how long.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Number of rounds.
    pub rounds: usize,
    /// Duration of each load.
    pub lasts: Duration,
    /// Starts of each kind per round.
    pub starts: usize,
    /// Finished runs in the store for the second kind of start.
    pub finished: u64,
    /// Sizes of the histories in finished runs, ascending; empty if no target needs one.
    pub histories: Vec<u64>,
    /// The requested targets; empty means the default set.
    pub only: Vec<String>,
    /// Also measure the targets of [`LONG`].
    pub long: bool,
}

/// The targets that there are programs for.
pub const IDS: [&str; 18] = [
    "P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12", "P15", "P16", "P17",
    "P18", "P19", "P20",
];
/// Targets that take minutes; they are skipped unless requested.
pub const LONG: [&str; 4] = ["P10", "P11", "P15", "P17"];

impl Plan {
    /// The plan behind the figures in `docs/performance.md`.
    pub fn full() -> Self {
        Plan {
            rounds: 7,
            lasts: Duration::from_millis(1200),
            starts: 3,
            finished: 10_000,
            histories: Vec::new(),
            only: Vec::new(),
            long: false,
        }
    }

    /// A quick plan for orientation.
    pub fn quick() -> Self {
        Plan {
            rounds: 3,
            lasts: Duration::from_millis(400),
            ..Plan::full()
        }
    }

    fn wants(&self, ids: &[&str]) -> bool {
        self.only.iter().any(|id| ids.contains(&id.as_str()))
    }
}

/// All results of a benchmark run.
pub struct Figures {
    /// The machine that was measured.
    pub machine: Machine,
    /// The plan that was carried out.
    pub plan: Plan,
    /// The idle share of the machine before each round.
    pub idle: Vec<f64>,
    /// One sample of each figure for each round.
    pub samples: BTreeMap<Figure, Vec<Sample>>,
}

/// Number of subscribers that follow the event log at the same time.
const SUBSCRIBERS: usize = 100;

/// The task of every spawn and of every floor's insert.
pub const TASK: &str = "Look through this source tree and say where a finished run is announced \
     to the session that asked for it, which rows are written in that transaction, and which \
     test shows that a kill at that point neither loses nor doubles the announce. Quote each \
     place as file:line and say in one sentence why it is the place.";

/// Spawns without a parent; the size is the same for daemon and floor.
pub fn spawn_params(n: u64) -> String {
    format!(r#"{{"task":"{n}: {TASK}"}}"#)
}

/// Stores that all rounds share and that were created beforehand.
struct Prepared {
    full: Option<PathBuf>,
    open: Option<PathBuf>,
    grown: Option<Grown>,
}

impl Prepared {
    fn of(binary: &Path, plan: &Plan, home: &Path) -> Result<Self> {
        let mut prepared = Prepared {
            full: None,
            open: None,
            grown: None,
        };
        if plan.wants(&["P7", "P8"]) {
            eprintln!("making {} finished runs", plan.finished);
            let full = home.join("full");
            starts::fill(binary, &full, plan.finished)?;
            prepared.full = Some(full);
        }
        if plan.long && plan.wants(&["P7"]) {
            eprintln!("making 10,000 open runs");
            let open = home.join("open");
            starts::open(binary, &open)?;
            prepared.open = Some(open);
        }
        if !plan.histories.is_empty() {
            let grown = Grown::of(binary, &plan.histories, plan.wants(&["P11"]))?;
            prepared.grown = Some(grown);
        }
        Ok(prepared)
    }
}

/// Measures everything in the plan.
pub fn all(binary: &Path, plan: &Plan) -> Result<Figures> {
    // Floors and daemon share a file system: that of the build directory.
    let home = TempDir::with_prefix_in("targets-", env!("CARGO_TARGET_TMPDIR"))?;
    let mut figures = Figures {
        machine: Machine::this(home.path()),
        plan: plan.clone(),
        idle: Vec::new(),
        samples: BTreeMap::new(),
    };
    let prepared = Prepared::of(binary, plan, home.path())?;
    for number in 0..plan.rounds {
        let folder = home.path().join(format!("round-{number}"));
        std::fs::create_dir(&folder)?;
        let round = Round {
            binary,
            folder: &folder,
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
        for (figure, sample) in round.measure(&prepared)? {
            figures.samples.entry(figure).or_default().push(sample);
        }
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(figures)
}

/// The inputs of one round.
pub struct Round<'a> {
    /// Path of the daemon binary.
    pub binary: &'a Path,
    /// Folder for the files of this round; removed with the round.
    pub folder: &'a Path,
    /// True if the floor is measured first.
    pub floor_first: bool,
    /// The plan of the benchmark run.
    pub plan: &'a Plan,
}

impl Round<'_> {
    fn measure(&self, prepared: &Prepared) -> Result<Samples> {
        let mut samples = Vec::new();
        if let Some(full) = &prepared.full {
            samples.extend(starts::measure(self, full)?);
        }
        if let Some(open) = &prepared.open {
            samples.extend(starts::of_open(self, open)?);
        }
        if self.plan.wants(&["P1", "P2", "P3"]) {
            samples.extend(calls::measure(self)?);
        }
        if self.plan.wants(&["P4"]) {
            samples.extend(self.waits()?);
        }
        if self.plan.wants(&["P5"]) {
            samples.extend(self.turns()?);
        }
        if self.plan.wants(&["P6"]) {
            samples.extend(self.announces()?);
        }
        if self.plan.wants(&["P9"]) {
            samples.extend(self.skills()?);
        }
        if self.plan.wants(&["P12"]) {
            samples.extend(self.fan_out()?);
        }
        if self.plan.wants(&["P15"]) {
            samples.extend(long::measure(self)?);
        }
        if self.plan.wants(&["P16"]) {
            samples.extend(pages::measure(self)?);
        }
        if self.plan.wants(&["P18"]) {
            samples.extend(programs::measure(self)?);
        }
        if self.plan.wants(&["P19"]) {
            samples.extend(webhooks::measure(self)?);
        }
        if self.plan.wants(&["P20"]) {
            samples.extend(doors::measure(self)?);
        }
        if self.plan.wants(&["P17"]) {
            samples.extend(nodes::measure(self)?);
        }
        if let Some(grown) = &prepared.grown {
            if self.plan.wants(&["P7"]) {
                samples.extend(grown.starts(self)?);
            }
            if self.plan.wants(&["P10"]) {
                samples.extend(grown.lists(self)?);
            }
            if self.plan.wants(&["P11"]) {
                samples.extend(grown.compare(self)?);
            }
        }
        Ok(samples)
    }

    fn daemon(&self, name: &str, setting: Setting) -> Result<Daemon> {
        Daemon::start(self.binary, &self.folder.join(name), setting)
    }

    fn waits(&self) -> Result<Samples> {
        let daemon = self.daemon("waits", Setting::LanesClosed)?;
        let (door, pid) = (daemon.door(), daemon.pid());
        waits::after_commit(door, self.plan.lasts / 4)?;
        let ping = calls::Asked {
            figure: Figure::WaitPing,
            door,
            pid,
            method: "gateway.ping",
            params: &calls::empty,
        };
        let mut samples = vec![
            (ping.figure, calls::load(self, &ping, calls::ONE)?),
            (
                Figure::WaitAnswer,
                waits::after_commit(door, self.plan.lasts)?,
            ),
        ];
        if let Some(cost) = waits::cost(door, pid)? {
            samples.extend([
                (Figure::WaitsMemory, Sample::of_amounts(&[cost.mib])),
                (Figure::WaitsThreads, Sample::of_amounts(&[cost.threads])),
            ]);
        }
        Ok(samples)
    }

    fn turns(&self) -> Result<Samples> {
        let model = InstantModel::start()?;
        let floor = Floor::start(&self.folder.join("turns-floor"))?;
        let daemon = self.daemon("turns", Setting::Http(model.port()))?;
        let lasts = self.plan.lasts;
        turns::floor(floor.door(), &model, lasts / 4)?;
        turns::one_by_one(daemon.door(), lasts / 4)?;
        let mut pair = [(Figure::FloorTurn, None), (Figure::Turn, None)];
        if !self.floor_first {
            pair.reverse();
        }
        for (figure, sample) in &mut pair {
            *sample = Some(match figure {
                Figure::FloorTurn => turns::floor(floor.door(), &model, lasts)?,
                _ => turns::one_by_one(daemon.door(), lasts)?,
            });
        }
        let pair = pair.into_iter();
        let mut samples: Samples = pair
            .filter_map(|(figure, sample)| Some((figure, sample?)))
            .collect();
        let many = turns::at_once(daemon.door(), daemon.pid(), lasts)?;
        samples.push((Figure::TurnEach, Sample::of_amounts(&[many.each])));
        samples.extend(
            many.cpu
                .map(|cpu| (Figure::TurnCpu, Sample::of_amounts(&[cpu]))),
        );
        Ok(samples)
    }

    fn announces(&self) -> Result<Samples> {
        let daemon = self.daemon("announces", Setting::Scripted)?;
        announces::one_by_one(daemon.door(), self.plan.lasts / 4)?;
        Ok(vec![
            (
                Figure::Announced,
                announces::one_by_one(daemon.door(), self.plan.lasts)?,
            ),
            (Figure::AnnouncedAll, announces::at_once(daemon.door())?),
        ])
    }

    fn skills(&self) -> Result<Samples> {
        let daemon = self.daemon("skills", Setting::LanesClosed)?;
        let folder = self.folder.join("skilled");
        skills::measure(&daemon, &folder, self.plan.lasts)
    }

    fn fan_out(&self) -> Result<Samples> {
        let daemon = self.daemon("fan-out", Setting::LanesClosed)?;
        let mut samples = Vec::new();
        for (figure, core, rate) in [
            (Figure::FanOut100, Figure::FanOutCore100, 100),
            (Figure::FanOut1000, Figure::FanOutCore1000, 1000),
        ] {
            let lasts = self.plan.lasts * 2;
            let seen = fanout::measure(daemon.door(), daemon.pid(), SUBSCRIBERS, rate, lasts)?;
            samples.push((figure, seen.arrival));
            samples.extend(seen.core.map(|share| (core, Sample::of_amounts(&[share]))));
        }
        Ok(samples)
    }
}
