//! P10 and P11: the cost of a long history. Takes the same figures in one round with an empty store
//! and with growing numbers of finished runs, and lists with the longest history.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::announces;
use crate::calls::{self, Asked, InFlight, MANY, ONE, empty, warm_up};
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::floor::{self, Floor};
use crate::history::History;
use crate::measure::{Round, Samples, TASK, spawn_params};
use crate::sample::Sample;
use crate::starts;

/// Stores and floors of every size, smallest first.
pub struct Grown {
    sizes: Vec<Size>,
}

struct Size {
    runs: u64,
    history: History,
    floor: PathBuf,
}

impl Grown {
    /// Creates missing histories; `with_floors` also creates those of the floors.
    pub fn of(binary: &Path, histories: &[u64], with_floors: bool) -> Result<Self> {
        let sizes = histories.iter().map(|&runs| {
            Ok(Size {
                runs,
                history: History::of(binary, runs)?,
                floor: match with_floors {
                    true => floor::grown(runs, TASK)?,
                    false => PathBuf::new(),
                },
            })
        });
        Ok(Grown {
            sizes: sizes.collect::<Result<_>>()?,
        })
    }

    /// P11: the same figures at every size.
    pub fn compare(&self, round: &Round<'_>) -> Result<Samples> {
        let mut sizes: Vec<Option<&Size>> = vec![None];
        sizes.extend(self.sizes.iter().map(Some));
        if !round.floor_first {
            sizes.reverse();
        }
        let mut samples = Vec::new();
        for size in sizes {
            if round.floor_first {
                samples.extend(at_floor(round, size)?);
                samples.extend(at_daemon(round, size)?);
            } else {
                samples.extend(at_daemon(round, size)?);
                samples.extend(at_floor(round, size)?);
            }
        }
        let rate = |figure| {
            let found = samples.iter().find(|(other, _)| *other == figure);
            found.map(|(_, sample): &(Figure, Sample)| sample.rate)
        };
        let mut kept = Vec::new();
        for size in &self.sizes {
            for (figure, with, without) in [
                (
                    Figure::FloorKeeps(size.runs),
                    rate(Figure::FloorInsert64At(size.runs)),
                    rate(Figure::FloorInsert64At(0)),
                ),
                (
                    Figure::SpawnKeeps(size.runs),
                    rate(Figure::Spawn64At(size.runs)),
                    rate(Figure::Spawn64At(0)),
                ),
            ] {
                if let (Some(with), Some(without)) = (with, without) {
                    kept.push((figure, Sample::of_amounts(&[with / without])));
                }
            }
        }
        samples.extend(kept);
        Ok(samples)
    }

    /// P10: lists with the longest history.
    pub fn lists(&self, round: &Round<'_>) -> Result<Samples> {
        let Some(Size { history, .. }) = self.sizes.last() else {
            return Ok(Vec::new());
        };
        let daemon = Daemon::start(round.binary, &history.folder, Setting::LanesClosed)?;
        let made = &history.made;
        let [trees, talks] = [&made.trees, &made.talks];
        // Every second call reads the first page, the others read random positions.
        let sessions = |n: u64| match n % 2 {
            0 => r#"{"limit":50}"#.to_owned(),
            _ => format!(r#"{{"limit":50,"cursor":"{}"}}"#, pick(&made.places, n / 2)),
        };
        let tree = |n: u64| format!(r#"{{"limit":50,"tree":"{}"}}"#, pick(trees, n));
        let history_page = |n: u64| format!(r#"{{"limit":100,"sessionKey":"{}"}}"#, pick(talks, n));
        let mut samples = Vec::new();
        let asked: [(Figure, &str, Params<'_>); 4] = [
            (Figure::GrownPing, "gateway.ping", &empty),
            (Figure::SessionsList, "sessions.list", &sessions),
            (Figure::RunsTree, "runs.list", &tree),
            (Figure::HistoryPage, "sessions.history", &history_page),
        ];
        for (figure, method, params) in asked {
            warm_up(round, daemon.door(), method, params)?;
            samples.push((figure, load(round, &daemon, figure, method, params, ONE)?));
        }
        daemon.stop()?;
        Ok(samples)
    }

    /// Starts with the longest history.
    pub fn starts(&self, round: &Round<'_>) -> Result<Samples> {
        let Some(Size { runs, history, .. }) = self.sizes.last() else {
            return Ok(Vec::new());
        };
        let mut times = Vec::new();
        for _ in 0..round.plan.starts {
            let daemon = Daemon::start(round.binary, &history.folder, Setting::LanesClosed)?;
            times.push(daemon.ready_after);
            daemon.stop()?;
        }
        Ok(vec![(Figure::StartGrown(*runs), starts::of(times))])
    }
}

/// The parameters of call `n`.
type Params<'a> = &'a dyn Fn(u64) -> String;

fn pick<T>(from: &[T], n: u64) -> &T {
    // Consecutive picks are far apart, so that no page is near the previous one.
    &from[(n as usize * 89) % from.len()]
}

/// The floor with as many rows; `None` means an empty floor.
fn at_floor(round: &Round<'_>, size: Option<&Size>) -> Result<Samples> {
    let runs = size.map_or(0, |size| size.runs);
    let fresh = round.folder.join("grown-floor");
    let folder = size.map_or(&fresh, |size| &size.floor);
    let floor = Floor::start(folder)?;
    warm_up(round, floor.door(), "insert", &spawn_params)?;
    let mut samples = Vec::new();
    for (figure, in_flight) in [
        (Figure::FloorInsert1At(runs), ONE),
        (Figure::FloorInsert64At(runs), MANY),
    ] {
        let asked = Asked {
            figure,
            door: floor.door(),
            pid: floor.pid(),
            method: "insert",
            params: &spawn_params,
        };
        samples.push((figure, calls::load(round, &asked, in_flight)?));
    }
    drop(floor);
    if let Some(size) = size {
        floor::trim(&size.floor, runs)?;
    }
    Ok(samples)
}

/// P1, P2 and P6 with this history; `None` means an empty store.
fn at_daemon(round: &Round<'_>, size: Option<&Size>) -> Result<Samples> {
    let runs = size.map_or(0, |size| size.runs);
    let fresh = |what: &str| round.folder.join(format!("grown-{what}"));
    let folder = |what: &str| size.map_or(fresh(what), |size| size.history.folder.clone());
    let trim = || size.map_or(Ok(()), |size| size.history.trim());
    let mut samples = Vec::new();

    let daemon = Daemon::start(round.binary, &folder("calls"), Setting::LanesClosed)?;
    warm_up(round, daemon.door(), "sessions.spawn", &spawn_params)?;
    for (figure, in_flight) in [
        (Figure::Spawn1At(runs), ONE),
        (Figure::Spawn64At(runs), MANY),
    ] {
        let method = "sessions.spawn";
        let sample = load(round, &daemon, figure, method, &spawn_params, in_flight)?;
        samples.push((figure, sample));
    }
    daemon.stop()?;
    trim()?;

    let daemon = Daemon::start(round.binary, &folder("announces"), Setting::Scripted)?;
    announces::one_by_one(daemon.door(), round.plan.lasts / 4)?;
    let announced = announces::one_by_one(daemon.door(), round.plan.lasts)?;
    samples.push((Figure::AnnouncedAt(runs), announced));
    daemon.stop()?;
    trim()?;
    Ok(samples)
}

fn load(
    round: &Round<'_>,
    daemon: &Daemon,
    figure: Figure,
    method: &str,
    params: &dyn Fn(u64) -> String,
    in_flight: InFlight,
) -> Result<Sample> {
    let asked = Asked {
        figure,
        door: daemon.door(),
        pid: daemon.pid(),
        method,
        params,
    };
    calls::load(round, &asked, in_flight)
}
