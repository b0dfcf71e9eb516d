//! Handlers of `agent.*` and `runs.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page::SerializedPage;
use super::{convert, page};
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::registry::{Page, RunDetail, WaitCause};
use crate::wire::environment::ProvideEnv;
use crate::wire::input::PageSize;
use crate::wire::runs as wire;
use crate::wire::shapes::Run;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(turn);
    table.method(wait);
    table.method(get);
    table.method(list);
    table.method(output);
    table.method(provide_env);
    table.method(steps);
}

/// Maximum number of bytes in one `runs.output` result.
const OUTPUT_PART: usize = 256 * 1024;

async fn output(context: Arc<CallContext>, params: wire::GetOutput) -> Result<wire::Output, Fault> {
    let wire::GetOutput {
        run_id,
        tool_call_id,
        offset,
    } = params;
    let registry = &context.registry;
    let who = &context.principal;
    let part = registry
        .output(who, run_id, &tool_call_id, offset.unwrap_or(0), OUTPUT_PART)
        .await?;
    Ok(wire::Output {
        run_id,
        tool_call_id,
        offset: part.offset,
        text: part.text,
        next_offset: part.next,
        bytes: part.bytes,
        kept: part.kept,
    })
}

async fn provide_env(context: Arc<CallContext>, params: ProvideEnv) -> Result<Run, Fault> {
    let (run, env) = (params.run_id, params.env.0);
    let provided = context.registry.provide_env(&context.principal, run, env);
    Ok(convert::run(provided.await?, usize::MAX))
}

async fn turn(context: Arc<CallContext>, params: wire::Turn) -> Result<wire::TurnAccepted, Fault> {
    let registry = &context.registry;
    let accepted = registry.run_turn(&context.principal, params).await?;
    Ok(wire::TurnAccepted {
        status: "accepted".into(),
        run_id: accepted.run,
        session_key: accepted.session,
        created: accepted.created,
        warnings: accepted.warnings,
    })
}

async fn wait(context: Arc<CallContext>, params: wire::Wait) -> Result<wire::Waited, Fault> {
    let ids = match (params.run_id, params.run_ids) {
        (Some(id), None) => vec![id],
        (None, Some(ids)) => ids,
        _ => return Err(Fault::params("runId", "give either runId or runIds")),
    };
    if !(1..=wire::WAIT_RUNS).contains(&ids.len()) {
        let message = format!(
            "{} ids given; one wait accepts 1 to {} ids",
            ids.len(),
            wire::WAIT_RUNS
        );
        return Err(Fault::params("runIds", message));
    }
    let all = params.mode != Some(wire::WaitMode::Any);
    let window = params.wait_timeout.0;
    let answer = context
        .registry
        .wait(&context.principal, ids, all, window)
        .await?;
    Ok(wire::Waited {
        runs: convert::waited(answer.runs),
        done: answer.done,
        cause: match answer.cause {
            WaitCause::Ended => "ended",
            WaitCause::TimedOut => "window",
            WaitCause::Draining => "draining",
        }
        .into(),
    })
}

async fn get(context: Arc<CallContext>, params: wire::GetRun) -> Result<Run, Fault> {
    let detail = context
        .registry
        .run(&context.principal, params.run_id)
        .await?;
    Ok(convert::run(detail, usize::MAX))
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListRuns,
) -> Result<SerializedPage<wire::Runs>, Fault> {
    let fetch = async |limit| {
        let filter = wire::ListRuns {
            limit: PageSize(limit),
            ..params.clone()
        };
        let show = |page: Page<RunDetail>, total| {
            let runs = page.items.into_iter();
            page::write::<wire::Runs>(&wire::Runs {
                runs: runs
                    .map(|run| convert::run(run, convert::RESULT_PREVIEW))
                    .collect(),
                next_cursor: page.next,
                total,
            })
        };
        let registry = &context.registry;
        registry.runs(&context.principal, filter, show).await
    };
    page::fit(params.limit.0, fetch).await
}

async fn steps(
    context: Arc<CallContext>,
    params: wire::ListSteps,
) -> Result<SerializedPage<wire::Steps>, Fault> {
    let fetch = async |limit| {
        let (registry, cursor) = (&context.registry, params.cursor.clone());
        let page = registry
            .steps(&context.principal, params.run_id, limit, cursor)
            .await?;
        Ok(wire::Steps {
            steps: page.items.into_iter().map(convert::step).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}
