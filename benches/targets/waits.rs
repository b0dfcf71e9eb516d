//! Measures the latency from a run's end to the answer of its `agent.wait`, and the cost of ten
//! thousand open waits.

use std::time::{Duration, Instant};

use futures_util::future::{try_join, try_join_all};

use crate::Result;
use crate::client::{self, Load, ServerAddress, Until};
use crate::machine;
use crate::measure::spawn_params;
use crate::sample::Sample;
use crate::talk::{self, Talk};

/// Open waits and the connections that carry them: one connection may have 1,024 of them.
const WAITS: usize = 10_000;
const CONNECTIONS: usize = 10;

/// Latency from the answer of the cancel that ends a run, in whose transaction the run ends, to the
/// answer of its wait, milliseconds. Each of the two has its own connection; the value is negative
/// if the wait is answered first.
pub fn after_commit(door: ServerAddress<'_>, lasts: Duration) -> Result<Sample> {
    talk::run(async {
        let (mut waiting, mut ending) = (Talk::open(door).await?, Talk::open(door).await?);
        let mut times = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            let spawned = ending.call("sessions.spawn", &spawn_params(0)).await?;
            let run = spawned["runId"].as_str().ok_or("no runId")?;
            let wait = waiting.say("agent.wait", &wait_params(run)).await?;
            // Calls of one connection are accepted in order: once this ping is answered, the wait
            // is open.
            let ping = waiting.say("gateway.ping", "{}").await?;
            waiting.answer(ping).await?;
            let cancel = ending.say("runs.cancel", &run_params(run)).await?;
            let ((answer, told), (_, ended)) =
                try_join(waiting.answer(wait), ending.answer(cancel)).await?;
            if answer["runs"][0]["status"] != "cancelled" {
                return Err(format!("unexpected answer of a wait: {answer}").into());
            }
            times.push(match told.checked_duration_since(ended) {
                Some(after) => after.as_secs_f64() * 1000.0,
                None => -(ended - told).as_secs_f64() * 1000.0,
            });
        }
        Ok(Sample::of_values(times, begun.elapsed()))
    })
}

/// What the open waits add to the daemon.
pub struct Cost {
    /// Memory of the daemon, MiB, including its connections.
    pub mib: f64,
    /// Number of threads of the daemon.
    pub threads: f64,
}

/// Opens 10,000 waits, each for a separate queued run. `None` where `/proc` cannot be read.
pub fn cost(door: ServerAddress<'_>, pid: u32) -> Result<Option<Cost>> {
    let runs = queued(door)?;
    let now = || machine::resident_mib(pid).zip(machine::threads(pid));
    let before = now();
    talk::run(async {
        let mut talks = Vec::new();
        for part in runs.chunks(WAITS / CONNECTIONS) {
            let mut talk = Talk::open(door).await?;
            let mut waits = Vec::new();
            for run in part {
                waits.push(talk.put("agent.wait", &wait_params(run)).await?);
            }
            talk.call("gateway.ping", "{}").await?;
            talks.push((talk, waits[0], &part[0]));
        }
        let after = now();
        // Checks that the waits are open: the first wait of each connection is answered when its
        // run ends.
        let mut ending = Talk::open(door).await?;
        for (_, _, run) in &talks {
            ending.call("runs.cancel", &run_params(run)).await?;
        }
        let told = talks.iter_mut().map(|(talk, wait, _)| talk.answer(*wait));
        try_join_all(told).await?;
        Ok(before.zip(after).map(|(before, after)| Cost {
            mib: after.0 - before.0,
            threads: after.1 - before.1,
        }))
    })
}

/// Creates [`WAITS`] runs that no lane starts and returns their ids.
fn queued(door: ServerAddress<'_>) -> Result<Vec<String>> {
    let made = client::run(&Load {
        door,
        connections: 16,
        each: 4,
        until: Until::Calls(WAITS as u64),
        method: "sessions.spawn",
        params: &spawn_params,
        kept: WAITS,
    })?;
    let runs = made.results.iter().map(|result| {
        let result: serde_json::Value = serde_json::from_str(result.get())?;
        Ok(result["runId"].as_str().ok_or("no runId")?.to_owned())
    });
    runs.collect()
}

fn wait_params(run: &str) -> String {
    format!(r#"{{"runId":"{run}","waitTimeout":"10m"}}"#)
}

fn run_params(run: &str) -> String {
    format!(r#"{{"runId":"{run}"}}"#)
}
