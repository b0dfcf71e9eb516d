//! Runs that are called into their caller's session: creates them there, stores both sides of the
//! call in its transcript, and emits events on the caller's stream.

use super::Accepted;
use serde_json::json;

use super::breaker;
use super::context::Context;
use super::delegated::{self, emit_to_caller};
use super::moves::load;
use super::new_run::{accept, new_run};
use super::spawn::{Awaits, Spawn, set_parent};
use crate::kernel::delegation::called::AGENT_KEY;
use crate::kernel::delegation::{Delegated, DelegationMode, called_end, planned_end};
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::step::Step;
use crate::kernel::run::{Requester, Run, RunOrigin};
use crate::kernel::session::Session;
use crate::kernel::session::message::{Block, MessageKind, NewMessage, Origin, Role};
use crate::kernel::text::{preview, storable};
use crate::store::tables::{messages, runs, steps};

/// Maximum number of characters of the call's message in an event.
const ARGUMENTS: usize = 200;

/// Once this returns, the called run is queued in its caller's session, with its message stored on
/// the run, and the caller's step waits for its end. The session's row is unchanged.
pub fn spawn(
    context: &mut Context<'_>,
    spawn: Spawn,
    (awaits, agent_name): (&Awaits, String),
    (caller, step): (&Run, &Step),
    session: &Session,
) -> Result<Accepted, Fault> {
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
    let name = agent_name.clone();
    delegated::bind(context, &mut row.run, (awaits, name), (caller, step));
    let run = row.run.clone();
    let message = storable(&spawn.task);
    let accepted = accept(context, row, Some(&message), false)?;
    if let Some(bundle) = &spawn.bundle {
        runs::set_bundle(context.tx, run.id, bundle)?;
    }
    let data = json!({
        "agent": run.agent,
        "agentName": agent_name,
        "toolCallId": step.tool_call,
        "childRunId": run.id,
        "argsSummary": preview(&message, ARGUMENTS),
    });
    context.emit(EventKind::SubAgentCallStart, caller, data);
    let child = (run.id, &run.agent);
    delegated::begun(context, caller, child, Some(awaits.face), &message);
    delegated::wait(context, caller, step, run.id)?;
    Ok(accepted)
}

/// The message to the called agent as it is stored in the transcript.
pub fn call(context: &Context<'_>, run: &Run, delegated: &Delegated, text: &str) -> NewMessage {
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
pub fn is_answer(run: &Run, message: &mut NewMessage) {
    let Some(delegated) = run.delegated.as_ref() else {
        return;
    };
    message.kind = MessageKind::SubAgentAi;
    message.tool_call = Some(delegated.call.clone());
    *message = message.clone().with_metadata(AGENT_KEY, json!(run.agent));
}

/// Once this returns, the run's answer is in the transcript, even if its last text was not stored
/// as an answer.
pub fn answer(context: &mut Context<'_>, run: &Run, text: &str) -> Result<(), Fault> {
    let stands = messages::has_answer(context.tx, run.id)?;
    if stands || text.trim().is_empty() {
        return Ok(());
    }
    let text = text.to_owned();
    let id = context.message_id();
    let mut message = NewMessage::answer(id, run.id, vec![Block::Text { text }]);
    is_answer(run, &mut message);
    context.append_of(run, vec![message]).map(|_| ())
}

/// Handles the end of a delegated run: emits its events on the caller's stream and updates the
/// circuit breaker.
pub fn ended(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let (Some(delegated), Some(caller)) = (&run.delegated, run.parent_run) else {
        return Ok(());
    };
    if run.is_called() {
        let steps = steps::latest(context.tx, run)?;
        let (well, data) = called_end(delegated, run, &steps);
        let kind = match well {
            true => EventKind::SubAgentComplete,
            false => EventKind::SubAgentError,
        };
        emit_to_caller(context, caller, kind, data)?;
    }
    if delegated.mode == DelegationMode::Planned {
        let data = planned_end(delegated, run);
        emit_to_caller(context, caller, EventKind::DelegationComplete, data)?;
    }
    breaker::ended(context, run, caller)
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
        let data = json!({
            "agent": run.agent,
            "agentName": delegated.agent_name,
            "toolCallId": delegated.call,
            "childRunId": id,
            "offset": offset,
            "text": text,
            "at": context.now.wall,
            "tokensSoFar": run.usage.output_tokens + about,
        });
        emit_to_caller(context, caller, EventKind::SubAgentPartial, data)?;
    }
    Ok(())
}
