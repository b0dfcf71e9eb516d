//! Runs that carry out a tool call of another run, in a session of their own or called into the session
//! of their caller.

use serde_json::json;

use super::context::Context;
use super::moves::load;
use super::new_run::{accept, new_run};
use super::spawn::{Awaits, Spawn, set_parent};
use super::{Accepted, cancel, run_end, waiting};
use crate::contract::commit::{CommitEffect, DelegationStarted};
use crate::kernel::delegation;
use crate::kernel::delegation::called::AGENT_KEY;
use crate::kernel::delegation::{Delegated, DelegationMode, called_end, planned_end};
use crate::kernel::event::{
    DelegationStart, EventData, SessionUpdated, SubAgentCallStart, SubAgentPartial,
};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, RunId, SessionKey};
use crate::kernel::run::step::{SUMMARY, Step, StepKind, StepWait, WaitKind};
use crate::kernel::run::stop::Initiator;
use crate::kernel::run::{Requester, Run, RunOrigin};
use crate::kernel::session::Session;
use crate::kernel::session::message::{Block, MessageKind, NewMessage, Origin, Role};
use crate::kernel::text::{preview, storable};
use crate::store::tables::{messages, runs, sessions, steps, waits};

/// Maximum number of characters of a task in an event.
const TASK: usize = 200;

/// The session to continue: an idle child session of this parent with the same agent.
pub fn continued_session(
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
    cancel::lift_hold(context, &session, Initiator::Agent)?;
    if sessions::unarchive(context.tx, session.id)? {
        context.emit_session(&session, SessionUpdated::archived(false));
    }
    Ok(session)
}

/// A tool call that waits for the run that carries it out.
#[derive(Clone, Copy)]
pub struct PendingCall<'a> {
    /// The run that makes the call.
    pub caller: &'a Run,
    /// The step of the call.
    pub step: &'a Step,
    /// How the step waits.
    pub awaits: &'a Awaits,
    /// Display name of the called agent.
    pub agent_name: &'a str,
}

/// Binds the run to this call and limits it to the time that its caller has left.
pub fn bind_run(context: &Context<'_>, run: &mut Run, call: PendingCall<'_>) {
    let PendingCall { step, awaits, .. } = call;
    run.delegated = Some(Delegated {
        mode: awaits.mode,
        step: step.seq,
        call: step.tool_call.clone().unwrap_or_default(),
        stream: awaits.stream,
        agent_name: call.agent_name.to_owned(),
    });
    let left = call.caller.remaining_at(context.now.steady);
    run.limit_ms = match (run.limit_ms, left) {
        (Some(own), Some(left)) => Some(own.min(left)),
        (own, left) => own.or(left),
    };
}

/// Emits the effect that logs the start of a delegation.
pub fn log_begun(
    context: &mut Context<'_>,
    caller: &Run,
    (run, agent): (RunId, &AgentId),
    mode: Option<DelegationMode>,
    task: &str,
) {
    context.effect(CommitEffect::DelegationBegun(Box::new(DelegationStarted {
        run,
        parent: caller.id,
        trace: caller.trace_id.clone(),
        agent: agent.clone(),
        supervisor: caller.agent.clone(),
        mode: mode.map_or("spawn", DelegationMode::as_str),
        task: preview(task, SUMMARY),
    })));
}

/// Emits a `delegation.start` event on the planner's stream.
pub fn show_planned(context: &mut Context<'_>, call: PendingCall<'_>, run: RunId, agent: &AgentId) {
    let task = call.step.input["task"].as_str().unwrap_or_default();
    let data = DelegationStart {
        sub_agent_id: agent.clone(),
        sub_agent_name: call.agent_name.to_owned(),
        tool_call_id: call.step.tool_call.clone(),
        child_run_id: run,
        task: preview(task, TASK),
    };
    context.emit(call.caller, data);
}

/// Once this returns, the call's step waits for the end of `run`, which carries out the call.
pub fn wait_for_child(
    context: &mut Context<'_>,
    call: PendingCall<'_>,
    run: RunId,
) -> Result<(), Fault> {
    let wait = StepWait {
        kind: WaitKind::Child,
        until: None,
    };
    waiting::begin(context, call.caller, call.step, wait, &[run.0])
}

/// The result for the step of `waiter`, with whether it is an error; `None` unless the awaited run
/// carries out that step's call.
pub fn outcome_of_call(
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
/// progress, or as an event of a step marked with its source.
pub fn show_state(context: &mut Context<'_>, child: &Run, step: &Step) -> Result<(), Fault> {
    let (Some(delegated), Some(parent)) = (&child.delegated, child.parent_run) else {
        return Ok(());
    };
    match delegated.mode {
        DelegationMode::Task => match delegation::progress(&delegated.call, child, step) {
            Some(progress) => emit_to_caller(context, parent, progress),
            None => Ok(()),
        },
        DelegationMode::Planned if step.kind == StepKind::Tool => {
            let source = delegation::source(&child.agent);
            emit_to_caller(context, parent, EventData::of_step(step, Some(source)))
        }
        DelegationMode::Sealed | DelegationMode::Called | DelegationMode::Planned => Ok(()),
    }
}

/// Emits an event of `caller`, unless it has ended: `run.ended` must be the last event of a run,
/// and a called run may still be stopping then.
pub fn emit_to_caller(
    context: &mut Context<'_>,
    caller: RunId,
    data: impl Into<EventData>,
) -> Result<(), Fault> {
    let above = runs::get(context.tx, caller)?;
    if let Some(above) = above.filter(|above| !above.state.is_terminal()) {
        context.emit(&above, data);
    }
    Ok(())
}

/// Cascades the end of a step's run to the run that carries out the step's call.
pub fn give_up_calls(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
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

/// Maximum number of characters of the call's message in an event.
const ARGUMENTS: usize = 200;

/// Once this returns, the called run is queued in its caller's session, with its message stored on
/// the run, and the caller's step waits for its end. The session's row is unchanged.
pub fn spawn_called(
    context: &mut Context<'_>,
    spawn: Spawn,
    call: PendingCall<'_>,
    session: &Session,
) -> Result<Accepted, Fault> {
    let caller = call.caller;
    let mut row = new_run(context, &spawn.org, spawn.run, session, RunOrigin::Spawn);
    row.run.requester = Some(Requester {
        session: session.id,
        key: session.key.clone(),
        generation: session.generation,
    });
    set_parent(&mut row.run, caller);
    // It uses its caller's turn, and so its caller's lane.
    row.run.lane = caller.lane;
    row.run.depth = caller.depth + 1;
    row.run.cwd.clone_from(&caller.cwd);
    bind_run(context, &mut row.run, call);
    let run = row.run.clone();
    let message = storable(&spawn.task);
    let accepted = accept(context, row, Some(&message), false)?;
    if let Some(bundle) = &spawn.bundle {
        runs::set_bundle(context.tx, run.id, bundle)?;
    }
    let data = SubAgentCallStart {
        agent: run.agent.clone(),
        agent_name: call.agent_name.to_owned(),
        tool_call_id: call.step.tool_call.clone(),
        child_run_id: run.id,
        args_summary: preview(&message, ARGUMENTS),
    };
    context.emit(caller, data);
    let child = (run.id, &run.agent);
    log_begun(context, caller, child, Some(call.awaits.mode), &message);
    wait_for_child(context, call, run.id)?;
    Ok(accepted)
}

/// The message to the called agent as it is stored in the transcript.
pub fn call_entry(
    context: &Context<'_>,
    run: &Run,
    delegated: &Delegated,
    text: &str,
) -> NewMessage {
    let block = Block::Text {
        text: text.to_owned(),
    };
    let id = context.message_id();
    let mut message = NewMessage::new(
        id,
        Role::User,
        MessageKind::SubAgentUser,
        Origin::Agent,
        block,
    );
    message.tool_call = Some(delegated.call.clone());
    message.metadata = Some(json!({ AGENT_KEY: run.agent }));
    message
}

/// Marks this answer as the one to the run's call.
pub fn mark_as_answer(run: &Run, message: &mut NewMessage) {
    let Some(delegated) = run.delegated.as_ref() else {
        return;
    };
    message.kind = MessageKind::SubAgentAi;
    message.tool_call = Some(delegated.call.clone());
    *message = message.clone().with_metadata(AGENT_KEY, json!(run.agent));
}

/// Once this returns, the run's answer is in the transcript, even if its last text was not stored
/// as an answer.
pub fn append_answer(context: &mut Context<'_>, run: &Run, text: &str) -> Result<(), Fault> {
    let stands = messages::has_answer(context.tx, run.id)?;
    if stands || text.trim().is_empty() {
        return Ok(());
    }
    let text = text.to_owned();
    let id = context.message_id();
    let mut message = NewMessage::answer(id, run.id, vec![Block::Text { text }]);
    mark_as_answer(run, &mut message);
    context.append_of(run, vec![message]).map(|_| ())
}

/// Handles the end of a delegated run: emits its events on the caller's stream and updates the
/// circuit breaker.
pub fn called_run_ended(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let (Some(delegated), Some(caller)) = (&run.delegated, run.parent_run) else {
        return Ok(());
    };
    if run.is_called() {
        let steps = steps::latest(context.tx, run)?;
        emit_to_caller(context, caller, called_end(delegated, run, &steps))?;
    }
    if delegated.mode == DelegationMode::Planned {
        emit_to_caller(context, caller, planned_end(delegated, run))?;
    }
    run_end::update_breaker(context, run, caller, &delegated.agent_name)
}

/// Once this returns, the caller's stream has this piece of the called run's text, unless the step
/// has ended or restarted.
pub fn note_partial(
    context: &mut Context<'_>,
    id: RunId,
    (step, attempt): (u32, u32),
    offset: usize,
    text: &str,
) -> Result<(), Fault> {
    let run = load(context, id)?;
    let found = steps::get(context.tx, id, step)?;
    let comes = found.is_some_and(|step| step.state.is_open() && step.attempts == attempt);
    if let (Some(delegated), Some(caller), true) = (&run.delegated, run.parent_run, comes) {
        // The provider's count for earlier answers plus an estimate for this one.
        let about = (offset + text.len()).div_ceil(4) as u64;
        let data = SubAgentPartial {
            agent: run.agent.clone(),
            agent_name: delegated.agent_name.clone(),
            tool_call_id: delegated.call.clone(),
            child_run_id: id,
            offset,
            text: text.to_owned(),
            at: context.now.wall,
            tokens_so_far: run.usage.output_tokens + about,
        };
        emit_to_caller(context, caller, data)?;
    }
    Ok(())
}
