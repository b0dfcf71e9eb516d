//! What ends, changes, repeats and removes runs and sessions.

use std::sync::Arc;

use jsonrpsee::core::RegisterMethodError;

use super::Context;
use super::method::Table;
use crate::kernel::fault::Fault;
use crate::registry::{CancelAnswer, CancelTarget};
use crate::wire::lifecycle as wire;

pub(super) fn register(table: &mut Table) -> Result<(), RegisterMethodError> {
    table.method("runs.cancel", cancel_run)?;
    table.method("runs.steer", steer)?;
    table.method("sessions.cancel", cancel_session)
}

async fn cancel_run(
    context: Arc<Context>,
    params: wire::CancelRun,
) -> Result<wire::Cancelled, Fault> {
    cancel(&context, CancelTarget::Run(params.run_id), params.reason).await
}

async fn cancel_session(
    context: Arc<Context>,
    params: wire::CancelSession,
) -> Result<wire::Cancelled, Fault> {
    let target = CancelTarget::Session(params.session_key);
    cancel(&context, target, params.reason).await
}

async fn cancel(
    context: &Context,
    target: CancelTarget,
    reason: Option<String>,
) -> Result<wire::Cancelled, Fault> {
    let CancelAnswer {
        cancelled,
        already_ended,
        not_ended,
    } = context
        .registry
        .cancel(&context.principal, target, reason)
        .await?;
    Ok(wire::Cancelled {
        cancelled,
        already_ended,
        not_ended,
    })
}

async fn steer(context: Arc<Context>, params: wire::Steer) -> Result<wire::Steered, Fault> {
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
