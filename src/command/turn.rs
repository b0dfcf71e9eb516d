//! Turns: a message to a session's agent, queued behind the session's other turns; and input for a turn
//! under way, which waits in rows until the next model call.

use serde_json::json;

use super::announces::{Budget, deliver_one};
use super::context::Context;
use super::moves::{emit_step, load};
use super::new_run::{accept, new_run, refuse_taken_id, repeated};
use super::{Accepted, NewRun, cancel, removal, session};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{MessageId, RunId, SessionId, SessionKey, StepId};
use crate::kernel::run::limits::check_queued_turns;
use crate::kernel::run::step::{Intent, Why};
use crate::kernel::run::stop::Initiator;
use crate::kernel::run::{Run, RunOrigin, RunState};
use crate::kernel::session::Owner;
use crate::kernel::session::message::{Message, NewMessage};
use crate::kernel::text::storable;
use crate::store::tables::outbox::OutboxEntry;
use crate::store::tables::steers::Steer;
use crate::store::tables::{outbox, runs, sessions, steers, steps};

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
        None => session::session_for_turn(
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
        cancel::lift_hold(context, &session, Initiator::Person)?;
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

/// Once this returns, the text waits for the run's next model call. Repeating a message id changes
/// nothing.
pub fn steer(
    context: &mut Context<'_>,
    org: &str,
    id: RunId,
    message: MessageId,
    text: &str,
) -> Result<(), Fault> {
    let run = load(context, id)?;
    if run.org != org {
        return Err(Fault::not_found("run", id));
    }
    if steers::has(context.tx, id, message)? {
        return Ok(());
    }
    if !takes_steers(context, &run)? {
        return Err(not_in_a_turn(&run));
    }
    let steer = Steer {
        seq: context.take_seq()?,
        message,
        text: storable(text),
        at: context.now.wall,
    };
    steers::insert(context.tx, id, &steer)?;
    Ok(())
}

fn takes_steers(context: &mut Context<'_>, run: &Run) -> Result<bool, Fault> {
    if run.cancel.is_some() {
        return Ok(false);
    }
    Ok(match run.state {
        RunState::Running | RunState::Paused(_) => true,
        // A turn that waits for a slot to continue its steps.
        RunState::Queued => !steps::open(context.tx, run.id)?.is_empty(),
        RunState::Settling | RunState::Ended(_) => false,
    })
}

fn not_in_a_turn(run: &Run) -> Fault {
    let (what, hint) = match (run.state, &run.cancel) {
        (RunState::Ended(_), _) => ("it has ended", "send it in a new turn: agent.run"),
        (_, Some(_)) => ("it is being cancelled", "send it in a new turn: agent.run"),
        (RunState::Queued, _) => (
            "its turn has not begun",
            "steer it once it runs, or send it as a new turn: agent.run",
        ),
        _ => (
            "its turn has ended and it waits for its children",
            "send it as a new turn: agent.run",
        ),
    };
    Fault::new(
        Kind::Conflict,
        format!(
            "run {} has no turn under way: {what}; nothing was sent",
            run.id
        ),
    )
    .hint(hint)
    .with("state", run.state.as_str())
}

/// True if a steer message or announce is waiting to enter the turn of `run`.
pub fn has_steers(context: &mut Context<'_>, run: &Run) -> Result<bool, Fault> {
    Ok(!steers::waiting(context.tx, run.id)?.is_empty()
        || !steering_announces(context, run)?.is_empty())
}

/// Once this returns, the waiting messages and announces are in the run's transcript, in order of
/// arrival; returns the entries.
pub fn enter_steers(context: &mut Context<'_>, run: &Run) -> Result<Vec<Message>, Fault> {
    let texts = steers::waiting(context.tx, run.id)?;
    let announces = steering_announces(context, run)?;
    if texts.is_empty() && announces.is_empty() {
        return Ok(Vec::new());
    }
    let Some(session) = sessions::by_id(context.tx, run.session)? else {
        return Ok(Vec::new());
    };
    let mut budget = Budget::of(context, &session, announces.len())?;
    let mut entered = Vec::with_capacity(texts.len() + announces.len());
    let told: Vec<RunId> = announces.iter().map(|entry| entry.run).collect();
    let mut announces = announces.into_iter().peekable();
    for steer in texts {
        while let Some(entry) = announces.next_if(|entry| entry.seq < steer.seq) {
            entered.extend(deliver_one(context, &session, &entry, &mut budget)?);
        }
        let mut message = NewMessage::user(steer.message, &steer.text);
        message.run = Some(run.id);
        message.metadata = Some(json!({ "steer": true }));
        let said = context.append_of(run, vec![message])?;
        let place = said.first().map_or(0, |message| message.seq);
        steers::mark_delivered(context.tx, run.id, steer.seq, place)?;
        entered.extend(said);
    }
    for entry in announces {
        entered.extend(deliver_one(context, &session, &entry, &mut budget)?);
    }
    for run in told {
        removal::clean_up_after(context, run)?;
    }
    Ok(entered)
}

/// The announces for this turn. Those requested before a reset wait for the turn's end. A called
/// run gets none, because they are for the session's own agent.
fn steering_announces(context: &mut Context<'_>, run: &Run) -> Result<Vec<OutboxEntry>, Fault> {
    if run.is_called() {
        return Ok(Vec::new());
    }
    let waiting = outbox::steering(context.tx, run.session)?;
    Ok(waiting
        .into_iter()
        .filter(|entry| entry.target_generation == run.generation)
        .collect())
}
