//! `GET /metrics`: the daemon's metrics.

use std::sync::Arc;

use crate::contract::BoxFuture;
use crate::kernel::fault::Fault;
use crate::registry::Registry;
use crate::telemetry::metrics::metrics;

/// Renders the metrics as text.
pub(crate) type Scrape = Box<dyn Fn() -> BoxFuture<'static, Result<String, Fault>> + Send + Sync>;

/// A renderer for the metrics of the daemon with this registry.
pub(crate) fn of(registry: Registry) -> Scrape {
    let registry = Arc::new(registry);
    Box::new(move || {
        let registry = Arc::clone(&registry);
        Box::pin(async move {
            let live = registry.live().await?;
            metrics().text(&live).map_err(Fault::internal)
        })
    })
}
