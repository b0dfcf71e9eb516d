//! Turns: a message to a session's agent, queued behind the session's other turns.

use super::Accepted;
use super::context::Context;
use super::moves::{emit_step, load};
use super::new_run::{accept, new_run, refuse_taken_id, repeated};
use super::{NewRun, create_session, stop};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionId, SessionKey, StepId};
use crate::kernel::run::RunOrigin;
use crate::kernel::run::limits::check_queued_turns;
use crate::kernel::run::step::{Intent, Why};
use crate::kernel::run::stop::Initiator;
use crate::kernel::session::Owner;
use crate::kernel::text::storable;
use crate::store::tables::{runs, sessions, steps};

/// A turn in a session.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTurn {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: NewRun,
    /// The session; created if it does not exist.
    pub session: SessionKey,
    /// The id for a session that must be created.
    pub new_session: SessionId,
    /// The message, or the other purpose of the turn.
    pub asks: Asks,
    /// True if the caller chose the model for this turn.
    pub model_named: bool,
    /// True if the caller chose the thinking level for this turn.
    pub thinking_named: bool,
}

/// The purpose of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Asks {
    /// The agent answers this message.
    Message(String),
    /// The session is compacted, by a step with this id. The step is intended immediately, because
    /// the run has no other task.
    Compaction(StepId),
}

/// Once this returns, the queued run and its session are stored. The message is stored with the run
/// and enters the transcript when the turn begins, so that it never comes in the middle of another
/// turn.
pub fn run_turn(context: &mut Context<'_>, turn: RunTurn) -> Result<Accepted, Fault> {
    if let Some(accepted) = repeated(context, turn.run.key.as_ref())? {
        return Ok(accepted);
    }
    refuse_taken_id(context, turn.run.id)?;
    let found = sessions::by_key(context.tx, &turn.org, &turn.session)?;
    let created = found.is_none();
    let session = match found {
        Some(session) => session,
        None => create_session::for_turn(
            context,
            &turn.org,
            turn.new_session,
            &turn.session,
            &turn.run.agent.id,
        )?,
    };
    if session.owner == Owner::Client {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "session {} is owned by a client: no agent runs in it",
                session.key
            ),
        )
        .hint("spawn a run with this session as parent (sessions.spawn)"));
    }
    if session.agent != turn.run.agent.id {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "session {} belongs to agent {}, not {}",
                session.key, session.agent, turn.run.agent.id
            ),
        )
        .hint("omit the agent, or use another session"));
    }
    let waiting = runs::count_waiting_turns(context.tx, session.id)?;
    check_queued_turns(&context.settings.limits, waiting)?;
    if let Asks::Message(_) = &turn.asks {
        stop::begin(context, &session, Initiator::Person)?;
    }

    let mut row = new_run(context, &turn.org, turn.run, &session, RunOrigin::Turn);
    if !turn.model_named
        && let Some(model) = session.model
    {
        row.run.model = model;
    }
    if !turn.thinking_named && session.thinking.is_some() {
        row.run.thinking = session.thinking;
    }
    let accepted = match turn.asks {
        Asks::Message(message) => accept(context, row, Some(&storable(&message)), created)?,
        Asks::Compaction(step) => {
            row.run.steps = 1;
            let run = row.run.id;
            let accepted = accept(context, row, None, created)?;
            compaction(context, run, step)?;
            accepted
        }
    };
    Ok(accepted)
}

/// Stores the first and only step of a run that compacts its session.
fn compaction(context: &mut Context<'_>, run: RunId, id: StepId) -> Result<(), Fault> {
    let intent = Intent::compaction(id, Why::Asked);
    let step = intent.into_step(run, 1, None, context.now.wall);
    steps::insert(context.tx, &step)?;
    let run = load(context, run)?;
    emit_step(context, &run, &step)
}
