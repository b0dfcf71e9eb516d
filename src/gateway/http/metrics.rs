//! `GET /metrics`: the daemon's metrics.

use std::sync::Arc;

use crate::contract::BoxFuture;
use crate::contract::control::Control;
use crate::kernel::fault::Fault;
use crate::registry::Registry;
use crate::telemetry::metrics::{LiveGauges, metrics};

/// Renders the metrics as text.
pub(crate) type Scrape = Box<dyn Fn() -> BoxFuture<'static, Result<String, Fault>> + Send + Sync>;

/// A renderer for the metrics of the daemon with this registry.
pub(crate) fn of(registry: Registry, control: Arc<dyn Control>) -> Scrape {
    let registry = Arc::new(registry);
    Box::new(move || {
        let (registry, control) = (Arc::clone(&registry), Arc::clone(&control));
        Box::pin(async move {
            let live = registry.live().await?;
            // It reads files: about the disk and about this process.
            let rendered = tokio::task::spawn_blocking(move || {
                let surroundings = control.gauges();
                metrics().text(&LiveGauges {
                    free_bytes: surroundings.free_bytes,
                    polling_watchers: surroundings.polling_watchers,
                    ..live
                })
            });
            let text = rendered.await.map_err(Fault::internal)?;
            text.map_err(Fault::internal)
        })
    })
}
