//! Handler of `usage.summary`.

use std::sync::Arc;

use super::method::Table;
use crate::gateway::Context;
use crate::kernel::fault::Fault;
use crate::kernel::run::usage::{Tally, UsageBy};
use crate::registry::UsageQuery;
use crate::wire::usage as wire;

pub(crate) fn register(table: &mut Table) {
    table.method(summary);
}

async fn summary(context: Arc<Context>, params: wire::Summarize) -> Result<wire::Summary, Fault> {
    let query = UsageQuery {
        by: match params.by {
            None | Some(wire::By::Agent) => UsageBy::Agent,
            Some(wire::By::Org) => UsageBy::Org,
            Some(wire::By::User) => UsageBy::User,
            Some(wire::By::Model) => UsageBy::Model,
            Some(wire::By::Session) => UsageBy::Session,
            Some(wire::By::Tree) => UsageBy::Tree,
        },
        since: params.since,
        until: params.until,
        user: params.user,
        agent: params.agent,
        model: params.model,
        session: params.session_key,
        tree: params.tree,
        limit: params.limit.0,
    };
    let view = context.registry.usage(&context.principal, query).await?;
    Ok(wire::Summary {
        since: view.since,
        until: view.until,
        rows: view
            .rows
            .iter()
            .map(|(name, tally)| row(Some(name.clone()), tally))
            .collect(),
        total: row(None, &view.total),
        omitted: view.omitted,
    })
}

fn row(name: Option<String>, tally: &Tally) -> wire::Row {
    wire::Row {
        name,
        calls: tally.calls(),
        ok: tally.ok,
        failed: tally.failed,
        cancelled: tally.cancelled,
        p50_ms: tally.percentile(50),
        p95_ms: tally.percentile(95),
        model_calls: tally.used.model_calls,
        input_tokens: tally.used.input_tokens,
        output_tokens: tally.used.output_tokens,
        cost_micros: tally.used.cost_micros,
    }
}
