//! Handlers of `gateway.audit`, `gateway.config` and `gateway.reload`.

use std::sync::Arc;

use super::method::Table;
use super::page;
use super::page::SerializedPage;
use crate::contract::control::Settings;
use crate::gateway::Context;
use crate::kernel::fault::Fault;
use crate::wire::audit::{Audit, AuditEntry, ListAudit};
use crate::wire::config as wire;

pub(crate) fn register(table: &mut Table) {
    table.method(audit);
    table.method(config);
    table.method(reload);
}

async fn audit(context: Arc<Context>, params: ListAudit) -> Result<SerializedPage<Audit>, Fault> {
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
            outcome: row.outcome,
        });
        Ok(Audit {
            entries: entries.collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn config(context: Arc<Context>, _: wire::GetConfig) -> Result<wire::Config, Fault> {
    let Settings {
        file,
        settings,
        warnings,
    } = context.control.settings();
    let settings = settings.into_iter().map(|setting| wire::Setting {
        key: setting.key,
        value: setting.value,
        source: setting.source.into(),
        from: setting.from,
        live: setting.live,
        pending: setting.pending,
    });
    Ok(wire::Config {
        file,
        settings: settings.collect(),
        warnings,
    })
}

async fn reload(context: Arc<Context>, _: wire::ReloadConfig) -> Result<wire::Reloaded, Fault> {
    let reloaded = context.control.reload().await?;
    let changes = |list: Vec<crate::contract::control::Change>| {
        let changes = list.into_iter().map(|change| wire::Change {
            key: change.key,
            before: change.before,
            after: change.after,
        });
        changes.collect()
    };
    Ok(wire::Reloaded {
        applied: changes(reloaded.applied),
        needs_restart: changes(reloaded.needs_restart),
        unchanged: reloaded.unchanged,
        warnings: reloaded.warnings,
    })
}
