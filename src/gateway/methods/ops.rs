//! Handlers of `gateway.audit`, `gateway.config` and `gateway.reload`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page;
use super::page::SerializedPage;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::wire::audit::{Audit, AuditEntry, ListAudit};
use crate::wire::config as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(audit);
    table.method(config);
    table.method(reload);
}

async fn audit(
    context: Arc<CallContext>,
    params: ListAudit,
) -> Result<SerializedPage<Audit>, Fault> {
    let fetch = async |limit| {
        let (method, cursor) = (params.method.clone(), params.cursor.clone());
        let page = context
            .registry
            .audit(&context.principal, method, limit, cursor)
            .await?;
        let entries = page.items.into_iter().map(|row| AuditEntry {
            seq: row.seq,
            at: row.at,
            principal: row.principal,
            method: row.method,
            object: row.object,
            client: row.client,
            outcome: row.outcome,
        });
        Ok(Audit {
            entries: entries.collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn config(context: Arc<CallContext>, _: wire::GetConfig) -> Result<wire::Config, Fault> {
    Ok(context.control.settings())
}

async fn reload(context: Arc<CallContext>, _: wire::ReloadConfig) -> Result<wire::Reloaded, Fault> {
    context.control.reload().await
}
