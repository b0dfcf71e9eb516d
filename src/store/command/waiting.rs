//! Steps whose outcome comes from elsewhere: how they begin to wait, and how the end of what
//! they wait for, or of their window, writes their outcome and lets their run go on, all in
//! one transaction.

use serde_json::json;
use uuid::Uuid;

use super::context::{Context, Effect, Window};
use super::moves::{emit_step, load, move_run};
use super::record_outcome::{SUMMARY, open_step, tool_result};
use super::{Reply, approve, ask, delegated, exchange};
use crate::kernel::action::EventKind;
use crate::kernel::approval::ApprovalState;
use crate::kernel::event::RunEvent;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, ApprovalId, MessageId, QuestionId, RunId, SessionId};
use crate::kernel::message::{Block, NewMessage};
use crate::kernel::question::QuestionState;
use crate::kernel::run::{Run, RunState, Usage};
use crate::kernel::step::{Step, StepState, Wait, WaitKind};
use crate::kernel::text::{preview, storable};
use crate::kernel::time::Timestamp;
use crate::kernel::waiting::{self, Stand};
use crate::store::{db_fault, outbox, runs, sends, sessions, steps, waits};

/// The step of a run by which something is done. It must be open and in this try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRef {
    /// The run.
    pub run: RunId,
    /// The step's place in it.
    pub step: u32,
    /// Its try.
    pub attempt: u32,
}

/// A run waits for runs that its session has asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitFor {
    /// The step that waits.
    pub by: StepRef,
    /// For these.
    pub runs: Vec<RunId>,
    /// One is enough.
    pub any: bool,
    /// Until then.
    pub until: Timestamp,
}

/// A model call waits for its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitProvider {
    /// The step that waits.
    pub by: StepRef,
    /// Until then.
    pub until: Timestamp,
    /// What the provider has said.
    pub reason: String,
}

/// The run that acts by this step, if the step is open and may still have an effect.
pub fn acting(context: &mut Context<'_>, by: StepRef) -> Result<(Run, Step), Fault> {
    let run = load(context, by.run)?;
    if run.cancel.is_some() || run.state.is_terminal() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("run {} is ending: nothing begins", run.id),
        ));
    }
    let step = open_step(context, by.run, by.step, by.attempt)?;
    Ok((run, step))
}

/// The step waits for `awaited` from now on, and its run holds still if it has nothing else
/// to do.
pub fn begin(
    context: &mut Context<'_>,
    run: &Run,
    step: &Step,
    wait: Wait,
    awaited: &[Uuid],
) -> Result<(), Fault> {
    steps::set_wait(context.tx, run.id, step.seq, wait).map_err(db_fault)?;
    for id in awaited {
        waits::insert(context.tx, *id, run.id, step.seq).map_err(db_fault)?;
    }
    if let Some(until) = wait.until {
        context.effect(Effect::Window(Window::Step(run.id, step.seq), until));
    }
    regroup(context, run).map(|_| ())
}

/// The run stands as its open steps let it: at work, holding still, or wanting a slot to go
/// on.
pub fn regroup(context: &mut Context<'_>, run: &Run) -> Result<Run, Fault> {
    if run.cancel.is_some() {
        return Ok(run.clone());
    }
    let open = steps::open(context.tx, run.id).map_err(db_fault)?;
    let event = match (run.state, waiting::stand(&open)) {
        // Nobody who holds the run knows of the outcome that came from elsewhere: it is
        // taken up again from its rows.
        (RunState::Running, Stand::Over) => RunEvent::Parked,
        (RunState::Running, Stand::Waits(reason)) => RunEvent::Paused(reason),
        // Of a run that holds still one step may be carried out now.
        (RunState::Paused(_), Stand::Over | Stand::Works) => RunEvent::Resumed,
        (RunState::Paused(before), Stand::Waits(reason)) if before != reason => {
            RunEvent::Paused(reason)
        }
        _ => return Ok(run.clone()),
    };
    move_run(context, run, event)
}

/// The waiting step may be carried out now: its run takes it up, at once where it holds a slot.
pub fn release(context: &mut Context<'_>, id: RunId, seq: u32) -> Result<(), Fault> {
    if waiting_step(context, id, seq)?.is_none() {
        return Ok(());
    }
    waits::remove(context.tx, id, seq).map_err(db_fault)?;
    steps::clear_wait(context.tx, id, seq).map_err(db_fault)?;
    context.effect(Effect::WindowClosed(Window::Step(id, seq)));
    let run = load(context, id)?;
    let run = regroup(context, &run)?;
    if run.state == RunState::Running {
        context.effect(Effect::Released(id));
    }
    Ok(())
}

/// The waiting step has this outcome, and its run goes on if nothing of it is open any more.
/// The place of the outcome in the transcript; `None`: it does not wait any more.
pub fn finish(
    context: &mut Context<'_>,
    id: RunId,
    seq: u32,
    (text, failed): (&str, bool),
) -> Result<Option<i64>, Fault> {
    let Some(mut step) = waiting_step(context, id, seq)? else {
        return Ok(None);
    };
    let run = load(context, id)?;
    waits::remove(context.tx, id, seq).map_err(db_fault)?;
    context.effect(Effect::WindowClosed(Window::Step(id, seq)));
    step.ended_at = Some(context.now.wall);
    step.state = if failed {
        StepState::Failed
    } else {
        StepState::Done
    };
    step.result_summary = Some(preview(text, SUMMARY));
    step.error = failed.then(|| preview(text, SUMMARY));
    let message = match step.kind.answers() {
        true => {
            let text = storable(text);
            let id = MessageId::answer_of(step.id);
            NewMessage::answer(id, run.id, vec![Block::Text { text }])
        }
        false => tool_result(context, &step, text, failed),
    };
    let appended = context.append_of(&run, vec![message])?;
    step.message_seq = appended.first().map(|message| message.seq);
    steps::update(context.tx, &step).map_err(db_fault)?;
    emit_step(context, &run, &step)?;
    let ended = RunEvent::StepEnded {
        kind: step.kind,
        usage: Usage::default(),
        warnings: Vec::new(),
    };
    let run = move_run(context, &run, ended)?;
    regroup(context, &run)?;
    Ok(step.message_seq)
}

fn waiting_step(context: &mut Context<'_>, run: RunId, seq: u32) -> Result<Option<Step>, Fault> {
    let step = steps::get(context.tx, run, seq).map_err(db_fault)?;
    Ok(step.filter(|step| step.state.is_open() && step.waits.is_some()))
}

/// A run has ended: whoever waits for it by a step is told now, and what an answer to another
/// session has to bring about is noted.
pub fn run_ended(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let mut told = false;
    for (waiter, seq) in waits::on(context.tx, run.id.0).map_err(db_fault)? {
        told |= look(context, waiter, seq, false)?;
    }
    exchange::run_ended(context, run, told)
}

/// The step waits for its provider from now on, with the reason as its error so far. The same
/// again changes nothing; a run that is ending waits for nothing.
pub fn await_provider(context: &mut Context<'_>, wait: AwaitProvider) -> Result<Reply, Fault> {
    let run = load(context, wait.by.run)?;
    if run.cancel.is_some() || run.state.is_terminal() {
        return Ok(Reply::Done);
    }
    let mut step = open_step(context, wait.by.run, wait.by.step, wait.by.attempt)?;
    if step.waits.is_some() {
        return Ok(Reply::Done);
    }
    step.error = Some(preview(&wait.reason, SUMMARY));
    steps::update(context.tx, &step).map_err(db_fault)?;
    let until = Wait {
        kind: WaitKind::Provider,
        until: Some(wait.until),
    };
    // What has a row among the waits is found again by the next process.
    begin(context, &run, &step, until, &[step.id.0])?;
    Ok(Reply::Done)
}

/// Gives the waiting step its outcome if what it waits for is there, or if its window is over.
/// Whether it did.
fn look(context: &mut Context<'_>, id: RunId, seq: u32, over: bool) -> Result<bool, Fault> {
    let Some(mut step) = waiting_step(context, id, seq)? else {
        return Ok(false);
    };
    let Some(wait) = step.waits else {
        return Ok(false);
    };
    if wait.kind == WaitKind::Provider {
        if over {
            step.error = None;
            steps::update(context.tx, &step).map_err(db_fault)?;
            release(context, id, seq)?;
        }
        return Ok(over);
    }
    let awaited = waits::of(context.tx, id, seq).map_err(db_fault)?;
    if wait.kind == WaitKind::Answer {
        if over {
            for question in awaited {
                ask::end(context, QuestionId(question), QuestionState::Expired, None)?;
            }
            finish(context, id, seq, (&waiting::unanswered(), false))?;
        }
        return Ok(over);
    }
    if wait.kind == WaitKind::Approval {
        for approval in awaited.iter().filter(|_| over) {
            approve::expire(context, ApprovalId(*approval))?;
        }
        // Its row may be lost; what waits for it waits no longer than its window.
        if over {
            finish(context, id, seq, (&waiting::not_allowed(), true))?;
        }
        return Ok(over);
    }
    let mut ends = Vec::with_capacity(awaited.len());
    for run in awaited {
        // A run whose row was lost is waited for no longer than the window.
        ends.extend(runs::get(context.tx, RunId(run)).map_err(db_fault)?);
    }
    let there = waiting::is_there(wait.kind, &ends);
    if !there && !over {
        return Ok(false);
    }
    let (text, failed) = match (wait.kind, &ends[..]) {
        (WaitKind::Reply, [run]) => waiting::reply(run),
        (WaitKind::Reply, _) => (waiting::lost(), true),
        (_, ends) => delegated::outcome(context, id, seq, ends)?
            .unwrap_or_else(|| (waiting::children(ends, there), false)),
    };
    let Some(message) = finish(context, id, seq, (&text, failed))? else {
        return Ok(false);
    };
    if wait.kind != WaitKind::Reply {
        told_by_tool(context, id, &ends, message)?;
    }
    Ok(there)
}

/// What a tool has told the run of ends, no announce tells it again.
fn told_by_tool(
    context: &mut Context<'_>,
    waiter: RunId,
    ends: &[Run],
    message: i64,
) -> Result<(), Fault> {
    let target = load(context, waiter)?.session;
    let now = context.now.wall;
    for run in ends.iter().filter(|run| run.state.is_terminal()) {
        let told = outbox::mark_told_by_tool(context.tx, run.id, message, now);
        if !told.map_err(db_fault)? {
            continue;
        }
        if let Some(session) = sessions::by_id(context.tx, target).map_err(db_fault)? {
            context.emit_announce(
                EventKind::AnnounceDelivered,
                &session.org,
                run.id,
                session.id,
                json!({
                    "announceId": AnnounceId::of(run.id),
                    "runId": run.id,
                    "seq": message,
                    "via": "tool",
                }),
            );
        }
    }
    Ok(())
}

/// The step waits for the ends of runs that its session has asked for; if they are there
/// already, it has its outcome.
pub fn wait_for(context: &mut Context<'_>, wait: WaitFor) -> Result<Reply, Fault> {
    let (run, step) = acting(context, wait.by)?;
    if step.waits.is_some() {
        return Ok(Reply::Done);
    }
    for id in &wait.runs {
        let found = runs::get(context.tx, *id).map_err(db_fault)?;
        let own = found.is_some_and(|found| is_asked_for_by(&found, run.session));
        if !own {
            return Err(Fault::not_found("run of this session", id)
                .hint("only runs that this session has spawned can be waited for"));
        }
    }
    let kind = if wait.any {
        WaitKind::AnyChild
    } else {
        WaitKind::Child
    };
    let until = Some(wait.until);
    let awaited: Vec<Uuid> = wait.runs.iter().map(|id| id.0).collect();
    begin(context, &run, &step, Wait { kind, until }, &awaited)?;
    look(context, run.id, step.seq, wait.until <= context.now.wall)?;
    Ok(Reply::Done)
}

fn is_asked_for_by(run: &Run, session: SessionId) -> bool {
    run.requester
        .as_ref()
        .is_some_and(|requester| requester.session == session)
}

/// The window is over: the step is told how far things are, a late reply will come by itself.
/// What is over already stays as it is.
pub fn window_over(context: &mut Context<'_>, window: Window) -> Result<Reply, Fault> {
    match window {
        Window::Step(run, seq) => {
            look(context, run, seq, true)?;
        }
        Window::Call(run) => sends::close_window(context.tx, run).map_err(db_fault)?,
    }
    Ok(Reply::Done)
}

/// The run has ended: none of its steps waits any more, and nobody is asked for it.
pub fn give_up(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    match step.waits.map(|wait| wait.kind) {
        Some(WaitKind::Answer) => {
            ask::end(context, QuestionId(step.id.0), QuestionState::Closed, None)?;
        }
        Some(WaitKind::Approval) => {
            approve::end(context, ApprovalId(step.id.0), ApprovalState::Closed)?;
        }
        _ => delegated::give_up(context, run, step)?,
    }
    waits::remove(context.tx, run.id, step.seq).map_err(db_fault)?;
    context.effect(Effect::WindowClosed(Window::Step(run.id, step.seq)));
    Ok(())
}

/// A window's end as far as it may be from `now`.
pub fn until(context: &Context<'_>, window_ms: u64) -> Timestamp {
    context.now.wall.plus_ms(window_ms)
}
