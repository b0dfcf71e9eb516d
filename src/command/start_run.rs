//! Starts a queued run: gives it its session's turn.

use super::context::Context;
use super::moves::{intend, load, move_run};
use super::send::received_message;
use super::{RunAfter, called, environment};
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::kernel::run::RunOrigin;
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::Intent;
use crate::kernel::session::message::Message;
use crate::store::tables::{messages, read, runs, sends, steps};

/// Once this returns, the run holds its session's turn, its input is in the transcript, and its
/// first steps are intended. A parked or recovered run continues with the steps that it has.
pub fn start(
    context: &mut Context<'_>,
    id: RunId,
    intents: Vec<Intent>,
    seen: i64,
) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    environment::applied(context, &run)?;
    let run = move_run(context, &run, RunEvent::Started)?;
    let mut appended = Vec::new();
    if let Some(text) = runs::input(context.tx, id)? {
        let mut input = match &run.delegated {
            Some(delegated) if run.is_called() => called::call(context, &run, delegated, &text),
            _ => {
                let send = match run.origin {
                    RunOrigin::Send => sends::get(context.tx, id)?,
                    _ => None,
                };
                let from = send.as_ref().and_then(|send| send.from.as_ref());
                let turn = send.as_ref().map_or(0, |send| send.turn);
                received_message(context, &text, from.map(|(_, key)| key), turn)
            }
        };
        input.run = Some(id);
        appended = context.append_of(&run, vec![input])?;
        runs::clear_input(context.tx, id)?;
    }
    // An announce may have arrived since the caller read the transcript. The first model call is
    // recorded as having seen it, so it must be shown. A called run sees its call in a different
    // form.
    let follows = |first: &Message| first.seq == seen + 1 && !run.is_called();
    let mut messages = match appended.first().is_some_and(follows) {
        true => appended,
        false => messages::window_after(context.tx, &run, seen, read::WINDOW)?,
    };
    let open = match run.steps {
        0 => Vec::new(),
        _ => steps::open(context.tx, id)?,
    };
    let (run, steps) = if open.is_empty() {
        let intended = intend(context, &run, intents)?;
        messages.extend(intended.messages);
        (intended.run, intended.steps)
    } else {
        (run, open)
    };
    Ok(RunAfter {
        run,
        messages,
        steps,
    })
}
