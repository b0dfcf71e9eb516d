//! Passes provider changes to the event log and to waiting runs. Called by the daemon, which owns
//! the model providers.

use crate::command::{GatewayNote, WindowOver};
use crate::contract::commit::PendingWait;
use crate::kernel::fault::Fault;
use crate::kernel::provider_health::HealthReport;
use crate::registry::Registry;
use crate::registry::service::Signal;
use crate::store::tables::waits;

impl Registry {
    /// Queues an event that a provider became unavailable or available again.
    pub fn provider_changed(&self, name: &str, seen: HealthReport) {
        let note = GatewayNote::Provider {
            name: name.to_owned(),
            seen,
        };
        // The loop is gone only while the daemon stops; the event is dropped then.
        let _ = self.inner.signals.send(Signal::Note(note));
    }

    /// Once this returns, every run that waits for a provider retries it now. Called when provider
    /// settings change: the missing key or address may have been added.
    pub async fn providers_configured(&self) -> Result<(), Fault> {
        let store = &self.inner.store;
        for (run, step) in store.read(waits::for_providers).await? {
            let window = PendingWait::Step(run, step);
            store.submit_waiting(WindowOver { window }).await?;
        }
        Ok(())
    }
}
