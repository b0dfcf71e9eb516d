//! Counts of live work for the metrics and status methods, read from the rows on request.

use crate::kernel::fault::Fault;
use crate::kernel::run::Lane;
use crate::registry::Registry;
use crate::store::tables::gauges;
use crate::telemetry::metrics::{LaneGauges, LiveGauges};
use crate::wire::gateway::LaneUse;

impl Registry {
    /// The use of each lane, then the total.
    pub async fn lanes(&self) -> Result<Vec<LaneUse>, Fault> {
        let found = self.inner.store.read(gauges::lanes).await?;
        let lanes = self.lane_gauges(found).into_iter().map(|lane| LaneUse {
            name: lane.name.into(),
            running: lane.running,
            queued: lane.queued,
            limit: lane.limit,
        });
        Ok(lanes.collect())
    }

    /// The lanes with these running and queued runs, then the total under the name `global`.
    fn lane_gauges(&self, found: Vec<(Lane, u64, u64)>) -> Vec<LaneGauges> {
        let caps = self.inner.options().lanes;
        let lanes = found.into_iter();
        let mut lanes: Vec<LaneGauges> = lanes
            .map(|(lane, running, queued)| LaneGauges {
                name: lane.as_str(),
                running,
                queued,
                limit: caps.of(lane) as u64,
            })
            .collect();
        lanes.push(LaneGauges {
            name: "global",
            running: lanes.iter().map(|lane| lane.running).sum(),
            queued: lanes.iter().map(|lane| lane.queued).sum(),
            limit: caps.global as u64,
        });
        lanes
    }

    /// Counts of live work over all tenants.
    pub async fn live(&self) -> Result<LiveGauges, Fault> {
        let store = &self.inner.store;
        let found = store.read(gauges::read).await?;
        let now = self.inner.clock.now();
        let paused = found.paused.into_iter();
        let registry = self.clone();
        let files = tokio::task::spawn_blocking(move || registry.file_gauges());
        let files = files.await.map_err(Fault::internal)?;
        let names = ["queued", "running", "paused", "settling"];
        Ok(LiveGauges {
            states: names.into_iter().zip(found.states).collect(),
            paused: paused
                .map(|(reason, count)| (reason.as_str(), count))
                .collect(),
            lanes: self.lane_gauges(found.lanes),
            pending_announces: found.pending_announces,
            oldest_announce_ms: found.oldest_announce.map_or(0, |oldest| now.since(oldest)),
            undelivered_announces: found.undelivered_announces,
            webhook_lag_ms: found
                .oldest_webhook_event
                .map_or(0, |oldest| now.since(oldest)),
            dead_letters: found.dead_letters,
            ..files
        })
    }

    /// What is read from files.
    fn file_gauges(&self) -> LiveGauges {
        let store = &self.inner.store;
        let backup = self.newest_backup().map(|newest| newest.made_at.0);
        LiveGauges {
            store_bytes: store.bytes(),
            log_bytes: store.log_bytes(),
            newest_backup_ms: backup.map_or(0, |at| u64::try_from(at).unwrap_or(0)),
            keepers: self.programs().iter().filter(|kept| kept.is_alive).count() as u64,
            ..LiveGauges::default()
        }
    }
}
