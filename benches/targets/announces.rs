//! Measures announce latency: from `sessions.spawn` to the event that reports the announce in the
//! parent's transcript. The child's model answers at once.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use abide::clock::Clock;
use serde_json::Value;

use crate::Result;
use crate::client::ServerAddress;
use crate::measure::TASK;
use crate::sample::Sample;
use crate::talk::{self, Talk};

/// Parents that spawn at the same time, and the number of children per parent.
const PARENTS: usize = 8;
const CHILDREN: usize = 5;
/// Number of bursts.
const BURSTS: usize = 5;

/// Spawns one after another, each from a new parent. The next spawn starts when the parent turn
/// that the announce triggered has ended.
pub fn one_by_one(door: ServerAddress<'_>, lasts: Duration) -> Result<Sample> {
    talk::run(async {
        let mut family = Family::open(door).await?;
        let mut times = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            let parent = family.parent().await?;
            let asked = Instant::now();
            let run = family.spawn(&parent).await?;
            family.calls.flush().await?;
            loop {
                let event = family.events.event().await?;
                if is_told(&event) && event["data"]["runId"] == run.as_str() {
                    break;
                }
            }
            times.push(asked.elapsed());
            // Waits for the end of the parent's turn about the announce.
            while family.events.event().await?["sessionKey"] != parent.as_str() {}
        }
        Ok(Sample::of(times, begun.elapsed()))
    })
}

/// Many spawns at once; measures the time until all of them are announced.
pub fn at_once(door: ServerAddress<'_>) -> Result<Sample> {
    talk::run(async {
        let mut family = Family::open(door).await?;
        let mut times = Vec::new();
        let begun = Instant::now();
        for _ in 0..BURSTS {
            let mut parents = Vec::new();
            for _ in 0..PARENTS {
                parents.push(family.parent().await?);
            }
            let asked = Instant::now();
            let mut open = HashSet::new();
            for _ in 0..CHILDREN {
                for parent in &parents {
                    open.insert(family.spawn(parent).await?);
                }
            }
            family.calls.flush().await?;
            while !open.is_empty() {
                let event = family.events.event().await?;
                if is_told(&event) {
                    open.remove(event["data"]["runId"].as_str().unwrap_or_default());
                }
            }
            times.push(asked.elapsed());
            family.at_rest().await?;
        }
        Ok(Sample::of(times, begun.elapsed()))
    })
}

fn is_told(event: &Value) -> bool {
    event["kind"] == "announce.delivered"
}

/// Connections of the load: one makes the calls, the other receives the events.
struct Family {
    calls: Talk,
    events: Talk,
    clock: Clock,
}

impl Family {
    async fn open(door: ServerAddress<'_>) -> Result<Self> {
        Ok(Family {
            calls: Talk::open(door).await?,
            events: Talk::listen(door, &["announce.delivered", "run.ended"]).await?,
            clock: Clock::system(),
        })
    }

    /// Creates a session that can receive announces and returns its key.
    async fn parent(&mut self) -> Result<String> {
        let made = self
            .calls
            .call("sessions.create", r#"{"agent":"build"}"#)
            .await?;
        let key = made["session"]["key"].as_str().ok_or("no key")?;
        Ok(key.to_owned())
    }

    /// Sends a spawn without waiting for its answer and returns the id of its run.
    async fn spawn(&mut self, parent: &str) -> Result<String> {
        // The id is chosen here, so that an event that arrives before the answer can be matched.
        let run = self.clock.new_id().to_string();
        let params = format!(r#"{{"task":"{TASK}","parent":"{parent}","runId":"{run}"}}"#);
        self.calls.put("sessions.spawn", &params).await?;
        Ok(run)
    }

    /// Returns once no run is active.
    async fn at_rest(&mut self) -> Result<()> {
        loop {
            let status = self.calls.call("gateway.status", "{}").await?;
            if crate::daemon::open_runs(&status) == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
