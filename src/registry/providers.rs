//! What runs and the event log are told of the providers of models. Called by the daemon, which
//! has the providers.

use super::Registry;
use super::service::Signal;
use crate::kernel::fault::Fault;
use crate::kernel::provider_health::Seen;
use crate::store::command::GatewayNote;
use crate::store::{Command, Window, waits};

impl Registry {
    /// A provider takes no requests, or does again: the event log says so.
    pub fn provider_changed(&self, name: &str, seen: Seen) {
        let note = GatewayNote::Provider {
            name: name.to_owned(),
            seen,
        };
        // Without the loop nothing is written any more.
        let _ = self.inner.signals.send(Signal::Note(note));
    }

    /// Every run that waits for a provider asks it now. Called when providers have other settings:
    /// another key or address may be what was missing.
    pub async fn providers_configured(&self) -> Result<(), Fault> {
        let store = &self.inner.store;
        for (run, step) in store.read(waits::for_providers).await? {
            let window = Window::Step(run, step);
            store
                .submit_patiently(Command::WindowOver { window })
                .await?;
        }
        Ok(())
    }
}
