//! Runs that carry out a tool call of another run: finds the session that continues, binds the run
//! to its call, and gives the call its outcome.

use serde_json::json;

use super::cancel;
use super::context::Context;
use super::moves::load;
use super::spawn::{Awaits, Spawn};
use super::stop;
use super::waiting;
use crate::contract::commit::{Begun, Effect};
use crate::kernel::delegation::{self, Delegated, DelegationMode};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, RunId, SessionKey};
use crate::kernel::run::Run;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::step::SUMMARY;
use crate::kernel::run::step::{Step, StepKind, Wait, WaitKind};
use crate::kernel::run::stop::Initiator;
use crate::kernel::session::Session;
use crate::kernel::text::preview;
use crate::store::tables::{runs, sessions, steps, waits};

/// Maximum number of characters of a task in an event.
const TASK: usize = 200;

/// The session to continue: an idle child session of this parent with the same agent.
pub fn session(
    context: &mut Context<'_>,
    key: &SessionKey,
    parent: &Session,
    spawn: &Spawn,
) -> Result<Session, Fault> {
    let found = sessions::by_key(context.tx, &spawn.org, key)?;
    let agent = &spawn.run.agent.id;
    let own = found.filter(|session| session.parent == Some(parent.id));
    let Some(session) = own else {
        return Err(Fault::not_found("child session of this session", key)
            .hint("Omit session_id to start a new session."));
    };
    if session.agent != *agent {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "session {key} belongs to agent {}, not to {agent}; nothing was created",
                session.agent
            ),
        )
        .hint("Use that agent, or omit session_id to start a new session."));
    }
    if !runs::live_in(context.tx, session.id)?.is_empty() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("session {key} is busy with another run; nothing was created"),
        )
        .hint("Wait until that run has ended, or omit session_id to start a new session."));
    }
    stop::begin(context, &session, Initiator::Agent)?;
    if sessions::unarchive(context.tx, session.id)? {
        let said = serde_json::json!({ "changed": ["archived"], "archived": false });
        context.emit_session(EventKind::SessionUpdated, &session, said);
    }
    Ok(session)
}

/// Binds the run to this call and limits it to the time that its caller has left.
pub fn bind(
    context: &Context<'_>,
    run: &mut Run,
    (awaits, agent_name): (&Awaits, String),
    (caller, step): (&Run, &Step),
) {
    run.delegated = Some(Delegated {
        mode: awaits.face,
        step: step.seq,
        call: step.tool_call.clone().unwrap_or_default(),
        stream: awaits.stream,
        agent_name,
    });
    run.limit_ms = match (run.limit_ms, caller.remaining_at(context.now.steady)) {
        (Some(own), Some(left)) => Some(own.min(left)),
        (own, left) => own.or(left),
    };
}

/// Emits the effect that logs the start of a delegation.
pub fn begun(
    context: &mut Context<'_>,
    caller: &Run,
    (run, agent): (RunId, &AgentId),
    face: Option<DelegationMode>,
    task: &str,
) {
    context.effect(Effect::DelegationBegun(Box::new(Begun {
        run,
        parent: caller.id,
        trace: caller.trace_id.clone(),
        agent: agent.clone(),
        supervisor: caller.agent.clone(),
        face: face.map_or("spawn", DelegationMode::as_str),
        task: preview(task, SUMMARY),
    })));
}

/// Emits a `delegation.start` event on the planner's stream.
pub fn planned(
    context: &mut Context<'_>,
    (caller, step): (&Run, &Step),
    run: RunId,
    (agent, name): (&AgentId, &str),
) {
    let task = step.input["task"].as_str().unwrap_or_default();
    let data = json!({
        "subAgentId": agent,
        "subAgentName": name,
        "toolCallId": step.tool_call,
        "childRunId": run,
        "task": preview(task, TASK),
    });
    context.emit(EventKind::DelegationStart, caller, data);
}

/// Once this returns, the step of `caller` waits for the end of `run`, which carries out its call.
pub fn wait(context: &mut Context<'_>, caller: &Run, step: &Step, run: RunId) -> Result<(), Fault> {
    let wait = Wait {
        kind: WaitKind::Child,
        until: None,
    };
    waiting::begin(context, caller, step, wait, &[run.0])
}

/// The result for the step of `waiter`, with whether it is an error; `None` unless the awaited run
/// carries out that step's call.
pub fn outcome(
    context: &mut Context<'_>,
    waiter: RunId,
    seq: u32,
    awaited: &[Run],
) -> Result<Option<(String, bool)>, Fault> {
    let [child] = awaited else {
        return Ok(None);
    };
    let Some(delegated) = &child.delegated else {
        return Ok(None);
    };
    if delegated.step != seq || child.parent_run != Some(waiter) {
        return Ok(None);
    }
    let steps = match delegated.mode {
        DelegationMode::Task => steps::latest(context.tx, child)?,
        DelegationMode::Sealed | DelegationMode::Called | DelegationMode::Planned => Vec::new(),
    };
    let host = load(context, waiter)?;
    Ok(Some(delegation::outcome(
        delegated,
        child,
        &host.agent,
        &steps,
    )))
}

/// Shows a step of `child` on the stream of its caller, as far as the delegation mode allows: as
/// progress, or as the event `told` marked with its source.
pub fn show(
    context: &mut Context<'_>,
    child: &Run,
    step: &Step,
    (kind, mut told): (EventKind, serde_json::Value),
) -> Result<(), Fault> {
    let (Some(delegated), Some(parent)) = (&child.delegated, child.parent_run) else {
        return Ok(());
    };
    match delegated.mode {
        DelegationMode::Task => match delegation::progress(&delegated.call, child, step) {
            Some(progress) => emit_to_caller(context, parent, EventKind::ToolProgress, progress),
            None => Ok(()),
        },
        DelegationMode::Planned if step.kind == StepKind::Tool => {
            told["source"] = delegation::source(&child.agent).into();
            emit_to_caller(context, parent, kind, told)
        }
        DelegationMode::Sealed | DelegationMode::Called | DelegationMode::Planned => Ok(()),
    }
}

/// Emits an event of `caller`, unless it has ended: `run.ended` must be the last event of a run,
/// and a called run may still be stopping then.
pub fn emit_to_caller(
    context: &mut Context<'_>,
    caller: RunId,
    kind: EventKind,
    data: serde_json::Value,
) -> Result<(), Fault> {
    let above = runs::get(context.tx, caller)?;
    if let Some(above) = above.filter(|above| !above.state.is_terminal()) {
        context.emit(kind, &above, data);
    }
    Ok(())
}

/// Cascades the end of a step's run to the run that carries out the step's call.
pub fn give_up(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    if step.waits.map(|wait| wait.kind) != Some(WaitKind::Child) {
        return Ok(());
    }
    for awaited in waits::of(context.tx, run.id, step.seq)? {
        let Some(child) = runs::get(context.tx, RunId(awaited))? else {
            continue;
        };
        let bound = child
            .delegated
            .as_ref()
            .is_some_and(|of| of.step == step.seq);
        if bound && child.parent_run == Some(run.id) && !child.state.is_terminal() {
            let request = cancel::parent_ended(context);
            cancel::cascade(context, &child, &request)?;
        }
    }
    Ok(())
}
