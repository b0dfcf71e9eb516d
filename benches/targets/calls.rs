//! P1, P2 and P3: single calls, each measured right after its floor; the order alternates.

use serde_json::Value;

use crate::Result;
use crate::client::{self, Load, ServerAddress, Until};
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::floor::{self, Floor};
use crate::machine::Watch;
use crate::measure::{Round, Samples, spawn_params};
use crate::sample::Sample;

/// A server under load and the call to send.
pub struct Asked<'a> {
    /// The figure that this load measures.
    pub figure: Figure,
    /// Address and token of the server.
    pub door: ServerAddress<'a>,
    /// Process id of the server.
    pub pid: u32,
    /// The method to call.
    pub method: &'a str,
    /// The parameters of call `n`.
    pub params: &'a dyn Fn(u64) -> String,
}

/// The number of calls in flight, and of connections that carry them.
#[derive(Clone, Copy)]
pub struct InFlight {
    connections: usize,
    each: usize,
}

/// One call in flight.
pub const ONE: InFlight = InFlight {
    connections: 1,
    each: 1,
};
/// 64 calls in flight over 16 connections.
pub const MANY: InFlight = InFlight {
    connections: 16,
    each: 4,
};

/// Measures floors and daemon, both on fresh folders.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let mut samples = Vec::new();
    let floor = Floor::start(&round.folder.join("floor"))?;
    let folder = round.folder.join("daemon");
    let daemon = Daemon::start(round.binary, &folder, Setting::LanesClosed)?;
    let sync = floor::sync_loop(round.folder, round.plan.lasts / 2)?;
    samples.push((Figure::Sync, sync));

    warm_up(round, floor.door(), "ping", &empty)?;
    warm_up(round, floor.door(), "insert", &spawn_params)?;
    warm_up(round, daemon.door(), "gateway.ping", &empty)?;
    let runs = warm_up(round, daemon.door(), "sessions.spawn", &spawn_params)?;
    let mut ids = Vec::new();
    for result in &runs {
        ids.push(result["runId"].as_str().ok_or("no runId")?);
    }
    if ids.is_empty() {
        return Err("nothing was spawned".into());
    }
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
    let run = |n: u64| format!(r#"{{"runId":"{}"}}"#, ids[n as usize % ids.len()]);
    for (in_flight, figures) in [
        (
            ONE,
            [
                Figure::FloorPing1,
                Figure::Ping1,
                Figure::Get1,
                Figure::FloorInsert1,
                Figure::Spawn1,
            ],
        ),
        (
            MANY,
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
            at_floor(figures[3], "insert", &spawn_params),
            at_daemon(figures[4], "sessions.spawn", &spawn_params),
        ];
        if !round.floor_first {
            reads.reverse();
            writes.reverse();
        }
        for asked in reads.into_iter().chain(writes) {
            samples.push((asked.figure, load(round, &asked, in_flight)?));
        }
    }
    Ok(samples)
}

/// Empty parameters.
pub fn empty(_: u64) -> String {
    "{}".to_owned()
}

/// Calls a method until the server has warmed up, unmeasured; returns the first results.
pub fn warm_up(
    round: &Round<'_>,
    door: ServerAddress<'_>,
    method: &str,
    params: &dyn Fn(u64) -> String,
) -> Result<Vec<Value>> {
    let answers = client::run(&Load {
        door,
        connections: MANY.connections,
        each: MANY.each,
        until: Until::Time(round.plan.lasts / 4),
        method,
        params,
        kept: 256,
    })?;
    let results = answers.results.iter();
    Ok(results
        .map(|result| serde_json::from_str(result.get()))
        .collect::<serde_json::Result<_>>()?)
}

/// Sends one kind of call for the duration of one figure.
pub fn load(round: &Round<'_>, asked: &Asked<'_>, in_flight: InFlight) -> Result<Sample> {
    let watch = Watch::start(asked.pid);
    let answers = client::run(&Load {
        door: asked.door,
        connections: in_flight.connections,
        each: in_flight.each,
        until: Until::Time(round.plan.lasts),
        method: asked.method,
        params: asked.params,
        kept: 0,
    })?;
    let mut sample = answers.sample;
    if let Some(seen) = watch.stop() {
        sample.server_cpu_us = Some(seen.server.as_secs_f64() * 1e6 / sample.count as f64);
        sample.others = Some(seen.others);
    }
    Ok(sample)
}
