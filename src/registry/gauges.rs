//! What is live, for the daemon's numbers: counted in the rows when somebody asks.

use super::Registry;
use crate::kernel::fault::Fault;
use crate::store::gauges;
use crate::telemetry::metrics::Live;

impl Registry {
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
