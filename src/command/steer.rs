//! Input for a turn under way: steer messages, and announces with policy `steer`. They wait in rows
//! of their own and enter the transcript in the transaction of the next model call's intent, so
//! that none comes between a tool call and its result.

use serde_json::json;

use super::cleanup;
use super::context::Context;
use super::deliver::{Budget, deliver_one};
use super::moves::load;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::{Run, RunState};
use crate::kernel::session::message::{Message, NewMessage};
use crate::kernel::text::storable;
use crate::store::tables::outbox::Entry;
use crate::store::tables::steers::Steer;
use crate::store::tables::{outbox, sessions, steers, steps};

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
pub fn waits(context: &mut Context<'_>, run: &Run) -> Result<bool, Fault> {
    Ok(!steers::waiting(context.tx, run.id)?.is_empty() || !announces(context, run)?.is_empty())
}

/// Once this returns, the waiting messages and announces are in the run's transcript, in order of
/// arrival; returns the entries.
pub fn enter(context: &mut Context<'_>, run: &Run) -> Result<Vec<Message>, Fault> {
    let texts = steers::waiting(context.tx, run.id)?;
    let announces = announces(context, run)?;
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
        cleanup::after(context, run)?;
    }
    Ok(entered)
}

/// The announces for this turn. Those requested before a reset wait for the turn's end. A called
/// run gets none, because they are for the session's own agent.
fn announces(context: &mut Context<'_>, run: &Run) -> Result<Vec<Entry>, Fault> {
    if run.is_called() {
        return Ok(Vec::new());
    }
    let waiting = outbox::steering(context.tx, run.session)?;
    Ok(waiting
        .into_iter()
        .filter(|entry| entry.target_generation == run.generation)
        .collect())
}
