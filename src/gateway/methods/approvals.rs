//! Handlers of `approvals.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page;
use super::page::SerializedPage;
use crate::contract::preview::{ChangeEffect, FileChange};
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::kernel::policy::approval::{Remember, Remembered};
use crate::registry::ApprovalView;
use crate::wire::approvals as wire;
use crate::wire::input::PageSize;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(resolve);
    table.method(remembered);
    table.method(forget);
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListApprovals,
) -> Result<SerializedPage<wire::Approvals>, Fault> {
    let fetch = async |limit| {
        let filter = wire::ListApprovals {
            limit: PageSize(limit),
            ..params.clone()
        };
        let registry = &context.registry;
        let page = registry.approvals(&context.principal, filter).await?;
        Ok(wire::Approvals {
            approvals: page.items.into_iter().map(approval).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn resolve(
    context: Arc<CallContext>,
    params: wire::ResolveApproval,
) -> Result<wire::Approval, Fault> {
    let registry = &context.registry;
    let resolved = registry
        .resolve_approval(&context.principal, params)
        .await?;
    Ok(approval(resolved))
}

async fn remembered(
    context: Arc<CallContext>,
    params: wire::ListRemembered,
) -> Result<SerializedPage<wire::RememberedPage>, Fault> {
    let fetch = async |limit| {
        let registry = &context.registry;
        let page = registry
            .remembered(&context.principal, limit, params.cursor.clone())
            .await?;
        Ok(wire::RememberedPage {
            remembered: page.items.into_iter().map(remembered_one).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn forget(
    context: Arc<CallContext>,
    params: wire::ForgetApproval,
) -> Result<wire::Forgotten, Fault> {
    let registry = &context.registry;
    let forgotten = registry
        .forget_approval(&context.principal, params.id)
        .await?;
    Ok(wire::Forgotten { forgotten })
}

fn approval(view: ApprovalView) -> wire::Approval {
    let ApprovalView {
        approval,
        origin,
        root,
        tool_call,
        env,
        preview,
    } = view;
    wire::Approval {
        id: approval.id,
        run_id: approval.run,
        session_key: origin.session,
        root_session_key: root,
        agent: origin.agent,
        label: origin.label,
        title: origin.title,
        depth: origin.depth,
        tool: approval.tool,
        tool_call_id: tool_call,
        arguments: approval.arguments,
        why: approval.consent.why,
        covers: Some(approval.consent.covers).filter(|covers| !covers.is_empty()),
        folder: preview.folder,
        env,
        change: preview.change.map(change),
        asked_at: approval.asked_at,
        expires_at: approval.expires_at,
        state: approval.state.as_str().into(),
        resolved_by: approval.resolved_by,
        remember: approval.remember.map(|scope| scope.as_str().into()),
        ended_at: approval.ended_at,
    }
}

fn change(change: FileChange) -> wire::Change {
    let (effect, diff, reason) = match change.effect {
        ChangeEffect::Creates(diff) => ("creates", Some(diff), None),
        ChangeEffect::Changes(diff) => ("changes", Some(diff), None),
        ChangeEffect::Nothing => ("nothing", None, None),
        ChangeEffect::Fails(why) => ("fails", None, Some(why)),
        ChangeEffect::NotShown(why) => ("not_shown", None, Some(why)),
    };
    wire::Change {
        path: change.path,
        effect: effect.into(),
        diff,
        reason,
        digest: change.digest,
    }
}

fn remembered_one(one: Remembered) -> wire::Remembered {
    wire::Remembered {
        id: one.id,
        scope: one.scope.as_str().into(),
        agent: one.agent,
        session_id: (one.scope == Remember::Session).then_some(one.session),
        tool: one.tool,
        covers: Some(one.covers).filter(|covers| !covers.is_empty()),
        decision: one.choice.as_str().into(),
        by: one.by,
        at: one.at,
    }
}
