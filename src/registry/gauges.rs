//! What is live, for the daemon's numbers: counted in the rows when somebody asks.

use super::Registry;
use crate::kernel::fault::Fault;
use crate::store::gauges;
use crate::telemetry::metrics::Live;

/// A lane and how full it is; the last of a list is all lanes together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneUse {
    /// Its name; `global` for all together.
    pub name: &'static str,
    /// Runs that hold a slot of it.
    pub running: u64,
    /// Runs that want one.
    pub queued: u64,
    /// How many may hold one at once.
    pub limit: usize,
}

impl Registry {
    /// How full the lanes are.
    pub async fn lanes(&self) -> Result<Vec<LaneUse>, Fault> {
        let found = self.inner.store.read(gauges::lanes).await?;
        let caps = self.inner.options().lanes;
        let mut lanes: Vec<LaneUse> = found
            .into_iter()
            .map(|(lane, running, queued)| LaneUse {
                name: lane.as_str(),
                running,
                queued,
                limit: caps.of(lane),
            })
            .collect();
        lanes.push(LaneUse {
            name: "global",
            running: lanes.iter().map(|lane| lane.running).sum(),
            queued: lanes.iter().map(|lane| lane.queued).sum(),
            limit: caps.global,
        });
        Ok(lanes)
    }

    /// What is live at this moment, over all tenants.
    pub async fn live(&self) -> Result<Live, Fault> {
        let store = &self.inner.store;
        let found = store.read(gauges::read).await?;
        let names = ["queued", "running", "paused", "settling"];
        Ok(Live {
            states: names.into_iter().zip(found.states).collect(),
            queues: found
                .queues
                .into_iter()
                .map(|(lane, count)| (lane.as_str(), count))
                .collect(),
            pending_announces: found.pending_announces,
            log_bytes: store.log_bytes(),
        })
    }
}
