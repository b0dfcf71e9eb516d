//! Handler of `usage.summary`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::wire::usage as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(summary);
}

async fn summary(
    context: Arc<CallContext>,
    params: wire::Summarize,
) -> Result<wire::Summary, Fault> {
    context.registry.usage(&context.principal, params).await
}
