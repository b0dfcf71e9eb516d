//! Counts of live work for the metrics and status methods, read from the rows on request.

use crate::kernel::fault::Fault;
use crate::registry::Registry;
use crate::store::tables::gauges;
use crate::telemetry::metrics::{LaneGauges, LiveGauges};
use crate::wire::gateway::LaneUse;

impl Registry {
    /// The use of each lane, then the total.
    pub async fn lanes(&self) -> Result<Vec<LaneUse>, Fault> {
        let found = self.inner.store.read(gauges::lanes).await?;
        let caps = self.inner.options().lanes;
        let mut lanes: Vec<LaneUse> = found
            .into_iter()
            .map(|(lane, running, queued)| LaneUse {
                name: lane.as_str().into(),
                running,
                queued,
                limit: caps.of(lane) as u64,
            })
            .collect();
        lanes.push(LaneUse {
            name: "global".into(),
            running: lanes.iter().map(|lane| lane.running).sum(),
            queued: lanes.iter().map(|lane| lane.queued).sum(),
            limit: caps.global as u64,
        });
        Ok(lanes)
    }

    /// Counts of live work over all tenants.
    pub async fn live(&self) -> Result<LiveGauges, Fault> {
        let store = &self.inner.store;
        let found = store.read(gauges::read).await?;
        let now = self.inner.clock.now();
        let caps = self.inner.options().lanes;
        let lanes = found
            .lanes
            .into_iter()
            .map(|(lane, running, queued)| LaneGauges {
                name: lane.as_str(),
                running,
                queued,
                limit: caps.of(lane) as u64,
            });
        let paused = found.paused.into_iter();
        let backup = self.newest_backup().map(|newest| newest.made_at.0);
        let names = ["queued", "running", "paused", "settling"];
        Ok(LiveGauges {
            states: names.into_iter().zip(found.states).collect(),
            paused: paused
                .map(|(reason, count)| (reason.as_str(), count))
                .collect(),
            lanes: lanes.collect(),
            pending_announces: found.pending_announces,
            oldest_announce_ms: found.oldest_announce.map_or(0, |oldest| now.since(oldest)),
            undelivered_announces: found.undelivered_announces,
            store_bytes: store.bytes(),
            log_bytes: store.log_bytes(),
            newest_backup_ms: backup.map_or(0, |at| u64::try_from(at).unwrap_or(0)),
            keepers: self.programs().iter().filter(|kept| kept.is_alive).count() as u64,
            ..LiveGauges::default()
        })
    }
}
