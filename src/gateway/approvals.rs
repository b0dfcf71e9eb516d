//! `approvals.*`.

use std::sync::Arc;

use super::method::Table;
use super::page::Written;
use super::{Context, convert, page};
use crate::kernel::approval::{ApprovalState, Choice, Remember};
use crate::kernel::fault::Fault;
use crate::registry::ApprovalFilter;
use crate::wire::approvals as wire;

pub(super) fn register(table: &mut Table) {
    table.method("approvals.list", list);
    table.method("approvals.resolve", resolve);
    table.method("approvals.remembered", remembered);
    table.method("approvals.forget", forget);
}

async fn list(
    context: Arc<Context>,
    params: wire::ListApprovals,
) -> Result<Written<wire::Approvals>, Fault> {
    let filter = ApprovalFilter {
        session: params.session_key,
        tree: params.tree.unwrap_or(true),
        state: params
            .state
            .and_then(|state| ApprovalState::parse(state.as_str())),
    };
    let fetch = async |limit| {
        let registry = &context.registry;
        let (filter, cursor) = (filter.clone(), params.cursor.clone());
        let page = registry
            .approvals(&context.principal, filter, limit, cursor)
            .await?;
        Ok(wire::Approvals {
            approvals: page.items.into_iter().map(convert::approval).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn resolve(
    context: Arc<Context>,
    params: wire::ResolveApproval,
) -> Result<wire::Approval, Fault> {
    let choice = match params.decision {
        wire::Decision::Allow => Choice::Allow,
        wire::Decision::Deny => Choice::Deny,
    };
    let remember = params.remember.map(|scope| match scope {
        wire::Scope::Session => Remember::Session,
        wire::Scope::Agent => Remember::Agent,
    });
    let registry = &context.registry;
    let resolved = registry
        .resolve_approval(&context.principal, params.id, choice, remember)
        .await?;
    Ok(convert::approval(resolved))
}

async fn remembered(
    context: Arc<Context>,
    params: wire::ListRemembered,
) -> Result<Written<wire::RememberedPage>, Fault> {
    let fetch = async |limit| {
        let registry = &context.registry;
        let page = registry
            .remembered(&context.principal, limit, params.cursor.clone())
            .await?;
        Ok(wire::RememberedPage {
            remembered: page.items.into_iter().map(convert::remembered).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn forget(
    context: Arc<Context>,
    params: wire::ForgetApproval,
) -> Result<wire::Forgotten, Fault> {
    let registry = &context.registry;
    let forgotten = registry
        .forget_approval(&context.principal, params.id)
        .await?;
    Ok(wire::Forgotten { forgotten })
}
