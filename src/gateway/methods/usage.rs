//! Handler of `usage.summary`.

use std::sync::Arc;

use super::method::Table;
use crate::gateway::Context;
use crate::kernel::fault::Fault;
use crate::wire::usage as wire;

pub(crate) fn register(table: &mut Table) {
    table.method(summary);
}

async fn summary(context: Arc<Context>, params: wire::Summarize) -> Result<wire::Summary, Fault> {
    context.registry.usage(&context.principal, params).await
}
