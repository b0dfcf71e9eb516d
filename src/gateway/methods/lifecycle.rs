//! Handlers that cancel, steer, resolve and retry runs and change existing sessions.

use std::sync::Arc;

use super::convert;
use super::method::MethodsBuilder;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::registry::{CancelTarget, Verdict};
use crate::wire::lifecycle as wire;
use crate::wire::session_servers::{ServersSet, SetServers};
use crate::wire::shapes::{Run, Session};

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(cancel_run);
    table.method(steer);
    table.method(resolve);
    table.method(retry);
    table.method(retry_announce);
    table.method(dismiss_announce);
    table.method(cancel_session);
    table.method(cancel_all_runs);
    table.method(patch);
    table.method(set_servers);
    table.method(reset);
    table.method(delete);
    table.method(compact);
}

async fn cancel_run(
    context: Arc<CallContext>,
    params: wire::CancelRun,
) -> Result<wire::Cancelled, Fault> {
    cancel(&context, CancelTarget::Run(params.run_id), params.reason).await
}

async fn cancel_session(
    context: Arc<CallContext>,
    params: wire::CancelSession,
) -> Result<wire::Cancelled, Fault> {
    let target = match params.all {
        true => CancelTarget::Conversation(params.session_key),
        false => CancelTarget::Session(params.session_key),
    };
    cancel(&context, target, params.reason).await
}

async fn cancel_all_runs(
    context: Arc<CallContext>,
    params: wire::CancelAllRuns,
) -> Result<wire::CancelledRuns, Fault> {
    context
        .registry
        .cancel_all(&context.principal, params.run_ids, params.reason)
        .await
}

async fn cancel(
    context: &CallContext,
    target: CancelTarget,
    reason: Option<String>,
) -> Result<wire::Cancelled, Fault> {
    context
        .registry
        .cancel(&context.principal, target, reason)
        .await
}

async fn resolve(context: Arc<CallContext>, params: wire::ResolveRun) -> Result<Run, Fault> {
    let verdict = match (params.decision, params.result) {
        (wire::Decision::Done, result) => Verdict::Done(result),
        (_, Some(_)) => {
            return Err(Fault::params(
                "result",
                "a result is only allowed with decision done; leave it out",
            ));
        }
        (wire::Decision::NotDone, None) => Verdict::NotDone,
        (wire::Decision::Abort, None) => Verdict::Abort,
    };
    let (run, step) = (params.run_id, params.step_id);
    let registry = &context.registry;
    let detail = registry
        .resolve(&context.principal, run, step, verdict)
        .await?;
    Ok(convert::run(detail, usize::MAX))
}

async fn steer(context: Arc<CallContext>, params: wire::Steer) -> Result<wire::Steered, Fault> {
    let message_id = context
        .registry
        .steer(
            &context.principal,
            params.run_id,
            params.message_id,
            params.message,
        )
        .await?;
    Ok(wire::Steered {
        run_id: params.run_id,
        message_id,
    })
}

async fn retry(context: Arc<CallContext>, params: wire::RetryRun) -> Result<wire::Retried, Fault> {
    let retry_of = params.run_id;
    let accepted = context.registry.retry(&context.principal, params).await?;
    Ok(wire::Retried {
        status: "accepted".into(),
        run_id: accepted.run,
        retry_of,
        session_key: accepted.session,
        agent: accepted.agent,
        model: accepted.model,
        warnings: accepted.warnings,
    })
}

async fn retry_announce(
    context: Arc<CallContext>,
    params: wire::RetryAnnounce,
) -> Result<wire::AnnounceDecided, Fault> {
    let wake_run_id = context
        .registry
        .retry_announce(&context.principal, params.run_id)
        .await?;
    Ok(wire::AnnounceDecided {
        run_id: params.run_id,
        wake_run_id,
    })
}

async fn dismiss_announce(
    context: Arc<CallContext>,
    params: wire::DismissAnnounce,
) -> Result<wire::AnnounceDecided, Fault> {
    context
        .registry
        .dismiss_announce(&context.principal, params.run_id)
        .await?;
    Ok(wire::AnnounceDecided {
        run_id: params.run_id,
        wake_run_id: None,
    })
}

async fn patch(context: Arc<CallContext>, params: wire::PatchSession) -> Result<Session, Fault> {
    let registry = &context.registry;
    let session = registry.patch_session(&context.principal, params).await?;
    Ok(convert::session(session))
}

async fn set_servers(context: Arc<CallContext>, params: SetServers) -> Result<ServersSet, Fault> {
    let registry = &context.registry;
    registry.set_servers(&context.principal, params).await
}

async fn reset(context: Arc<CallContext>, params: wire::ResetSession) -> Result<Session, Fault> {
    let session = context
        .registry
        .reset_session(
            &context.principal,
            &params.session_key,
            params.force,
            params.if_generation,
        )
        .await?;
    Ok(convert::session(session))
}

async fn delete(
    context: Arc<CallContext>,
    params: wire::DeleteSession,
) -> Result<wire::Deleted, Fault> {
    context
        .registry
        .delete_session(&context.principal, &params.session_key, params.force)
        .await?;
    Ok(wire::Deleted {
        session_key: params.session_key,
        deleted: true,
    })
}

async fn compact(
    context: Arc<CallContext>,
    params: wire::CompactSession,
) -> Result<wire::Compacting, Fault> {
    let registry = &context.registry;
    let accepted = registry.compact_session(&context.principal, params).await?;
    Ok(wire::Compacting {
        status: "accepted".into(),
        run_id: accepted.run,
        session_key: accepted.session,
    })
}
