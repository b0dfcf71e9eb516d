//! Steps whose outcome comes from elsewhere: how they begin to wait, and how the awaited event or
//! the deadline stores their outcome and resumes their run, in one transaction.

use uuid::Uuid;

use super::context::Context;
use super::moves::{emit_step, load, move_run};
use super::steps::{open_step, tool_result};
use super::{RunAfter, delegation, exchange, user_requests};
use crate::contract::commit::{CommitEffect, PendingWait};
use crate::kernel::event::AnnounceDelivered;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, ApprovalId, MessageId, QuestionId, RunId, SessionId};
use crate::kernel::policy::approval::ApprovalState;
use crate::kernel::question::QuestionState;
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::{SUMMARY, Step, StepState, StepWait, WaitKind};
use crate::kernel::run::waiting::StepProgress;
use crate::kernel::run::{Run, RunState, Usage, waiting};
use crate::kernel::session::message::{Block, NewMessage};
use crate::kernel::text::{preview, storable};
use crate::kernel::time::Timestamp;
use crate::store::tables::{outbox, runs, sends, sessions, steps, waits};

/// The step through which a run acts. It must be open and in this attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepRef {
    /// The run.
    pub run: RunId,
    /// The step's sequence number in the run.
    pub step: u32,
    /// The attempt of the step.
    pub attempt: u32,
}

/// A run waits for runs that its session requested.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitFor {
    /// The step that waits.
    pub by: StepRef,
    /// The awaited runs.
    pub runs: Vec<RunId>,
    /// True if the end of one run is enough.
    pub any: bool,
    /// The deadline.
    pub until: Timestamp,
}

/// A model call waits for its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitProvider {
    /// The step that waits.
    pub by: StepRef,
    /// The time of the next attempt.
    pub until: Timestamp,
    /// The provider's message.
    pub reason: String,
}

/// The effect of a step may have happened, and nothing more is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtEffect {
    /// The step.
    pub by: StepRef,
    /// Why it is unknown, as a clause.
    pub why: String,
    /// Whether a person decides on it; otherwise it is carried out again.
    pub is_reviewed: bool,
    /// Nothing keeps the effect any more: carried out again, it begins anew.
    pub is_lost: bool,
}

/// The run and step that act, if the step is open and may still have an effect.
pub fn acting(context: &mut Context<'_>, by: StepRef) -> Result<(Run, Step), Fault> {
    let run = load(context, by.run)?;
    if run.cancel.is_some() || run.state.is_terminal() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("run {} is ending; no step may act", run.id),
        ));
    }
    let step = open_step(context, by.run, by.step, by.attempt)?;
    Ok((run, step))
}

/// Once this returns, the step waits for `awaited`, and its run is paused if no other step is
/// active.
pub fn begin(
    context: &mut Context<'_>,
    run: &Run,
    step: &Step,
    wait: StepWait,
    awaited: &[Uuid],
) -> Result<(), Fault> {
    steps::set_wait(context.tx, run.id, step.seq, wait)?;
    for id in awaited {
        waits::insert(context.tx, *id, run.id, step.seq)?;
    }
    if let Some(until) = wait.until {
        context.effect(CommitEffect::Window(
            PendingWait::Step(run.id, step.seq),
            until,
        ));
    }
    regroup(context, run).map(|_| ())
}

/// Sets the run's state according to its open steps: running, paused, or queued to continue.
pub fn regroup(context: &mut Context<'_>, run: &Run) -> Result<Run, Fault> {
    if run.cancel.is_some() {
        return Ok(run.clone());
    }
    let open = steps::open(context.tx, run.id)?;
    let event = match (run.state, waiting::step_progress(&open)) {
        // No executor has seen the outside outcome, so the run is started again from its rows.
        (RunState::Running, StepProgress::NoneOpen) => RunEvent::Parked,
        (RunState::Running, StepProgress::Blocked(reason)) => RunEvent::Paused(reason),
        // One step of the paused run may be carried out now.
        (RunState::Paused(_), StepProgress::NoneOpen | StepProgress::Runnable) => RunEvent::Resumed,
        (RunState::Paused(before), StepProgress::Blocked(reason)) if before != reason => {
            RunEvent::Paused(reason)
        }
        _ => return Ok(run.clone()),
    };
    move_run(context, run, event)
}

/// Once this returns, the waiting step may be carried out: immediately if its run holds a slot.
pub fn release(context: &mut Context<'_>, id: RunId, seq: u32) -> Result<(), Fault> {
    if waiting_step(context, id, seq)?.is_none() {
        return Ok(());
    }
    waits::remove(context.tx, id, seq)?;
    steps::clear_wait(context.tx, id, seq)?;
    context.effect(CommitEffect::WindowClosed(PendingWait::Step(id, seq)));
    let run = load(context, id)?;
    let run = regroup(context, &run)?;
    if run.state == RunState::Running {
        context.effect(CommitEffect::Released(id));
    }
    Ok(())
}

/// Once this returns, the waiting step has this outcome, and its run continues if no other step is
/// open. Returns the outcome's position in the transcript; `None` if the step no longer waits.
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
    waits::remove(context.tx, id, seq)?;
    context.effect(CommitEffect::WindowClosed(PendingWait::Step(id, seq)));
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
            Some(NewMessage::answer(id, run.id, vec![Block::Text { text }]))
        }
        false if step.is_outside_call() => None,
        false => Some(tool_result(context, &step, text, failed)),
    };
    let appended = context.append_of(&run, message.into_iter().collect())?;
    step.message_seq = appended.first().map(|message| message.seq);
    steps::update(context.tx, &step)?;
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
    let step = steps::get(context.tx, run, seq)?;
    Ok(step.filter(|step| step.state.is_open() && step.waits.is_some()))
}

/// Handles the end of a run: steps that wait for it get their outcome, and the follow-up of an
/// answer to another session is recorded.
pub fn run_ended(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let mut told = false;
    for (waiter, seq) in waits::on(context.tx, run.id.0)? {
        told |= look(context, waiter, seq, false)?;
    }
    exchange::run_ended(context, run, told)
}

/// Once this returns, the step waits for its provider, with the reason as its error so far. A
/// repeat changes nothing; a run that is ending does not wait.
pub fn await_provider(context: &mut Context<'_>, wait: AwaitProvider) -> Result<(), Fault> {
    let run = load(context, wait.by.run)?;
    if run.cancel.is_some() || run.state.is_terminal() {
        return Ok(());
    }
    let mut step = open_step(context, wait.by.run, wait.by.step, wait.by.attempt)?;
    if step.waits.is_some() {
        return Ok(());
    }
    step.error = Some(preview(&wait.reason, SUMMARY));
    steps::update(context.tx, &step)?;
    let until = StepWait {
        kind: WaitKind::Provider,
        until: Some(wait.until),
    };
    // The row in the table of waits lets the next process find the wait.
    begin(context, &run, &step, until, &[step.id.0])?;
    Ok(())
}

/// Once this returns, the step waits for a person's review, or is to be carried out again. A run that
/// is ending is unchanged.
pub fn doubt_effect(context: &mut Context<'_>, doubt: DoubtEffect) -> Result<RunAfter, Fault> {
    let StepRef { run, step, attempt } = doubt.by;
    let run = load(context, run)?;
    if run.cancel.is_some() || run.state.is_terminal() {
        return Ok(RunAfter::with_steps(run, Vec::new()));
    }
    let mut step = open_step(context, run.id, step, attempt)?;
    step.error = Some(preview(&doubt.why, SUMMARY));
    step.attempts += u32::from(!doubt.is_reviewed);
    if doubt.is_lost && !doubt.is_reviewed {
        step.state = StepState::Intended;
    }
    steps::update(context.tx, &step)?;
    if doubt.is_reviewed {
        let wait = StepWait {
            kind: WaitKind::Review,
            until: None,
        };
        begin(context, &run, &step, wait, &[])?;
        step.waits = Some(wait);
    }
    Ok(RunAfter::with_steps(load(context, run.id)?, vec![step]))
}

/// Gives the waiting step its outcome if the awaited event has happened or, with `over`, the
/// deadline has passed. Returns whether it did.
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
            steps::update(context.tx, &step)?;
            release(context, id, seq)?;
        }
        return Ok(over);
    }
    let awaited = waits::of(context.tx, id, seq)?;
    if wait.kind == WaitKind::Answer {
        if over {
            for question in awaited {
                user_requests::end_question(
                    context,
                    QuestionId(question),
                    QuestionState::Expired,
                    None,
                )?;
            }
            finish(context, id, seq, (&waiting::unanswered(), false))?;
        }
        return Ok(over);
    }
    if wait.kind == WaitKind::Approval {
        for approval in awaited.iter().filter(|_| over) {
            user_requests::expire_approval(context, ApprovalId(*approval))?;
        }
        // The approval's row may be lost; its step still waits no longer than the deadline.
        if over {
            finish(context, id, seq, (&waiting::not_allowed(), true))?;
        }
        return Ok(over);
    }
    let mut ends = Vec::with_capacity(awaited.len());
    for run in awaited {
        // For a run whose row was lost, the step waits no longer than the deadline.
        ends.extend(runs::get(context.tx, RunId(run))?);
    }
    let there = waiting::has_arrived(wait.kind, &ends);
    if !there && !over {
        return Ok(false);
    }
    let (text, failed) = match (wait.kind, &ends[..]) {
        (WaitKind::Reply, [run]) => waiting::reply(run),
        (WaitKind::Reply, _) => (waiting::lost(), true),
        (_, ends) => delegation::outcome_of_call(context, id, seq, ends)?
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

/// Marks ends that a tool result has reported as delivered, so that no announce repeats them.
fn told_by_tool(
    context: &mut Context<'_>,
    waiter: RunId,
    ends: &[Run],
    message: i64,
) -> Result<(), Fault> {
    let target = load(context, waiter)?.session;
    let now = context.now.wall;
    for run in ends.iter().filter(|run| run.state.is_terminal()) {
        let told = outbox::mark_delivered_by_tool(context.tx, run.id, message, now);
        if !told? {
            continue;
        }
        if let Some(session) = sessions::by_id(context.tx, target)? {
            context.emit_announce(
                &session.org,
                run.id,
                session.id,
                AnnounceDelivered {
                    announce_id: AnnounceId::of(run.id),
                    run_id: run.id,
                    seq: message,
                    via: Some("tool".into()),
                },
            );
        }
    }
    Ok(())
}

/// Once this returns, the step waits for the ends of runs that its session requested, or has its
/// outcome if they have ended.
pub fn wait_for(context: &mut Context<'_>, wait: WaitFor) -> Result<(), Fault> {
    let (run, step) = acting(context, wait.by)?;
    if step.waits.is_some() {
        return Ok(());
    }
    for id in &wait.runs {
        let found = runs::get(context.tx, *id)?;
        let own = found.is_some_and(|found| is_asked_for_by(&found, run.session));
        if !own {
            return Err(Fault::not_found("run spawned by this session", id)
                .hint("Wait only for runs that this session has spawned."));
        }
    }
    let kind = if wait.any {
        WaitKind::AnyChild
    } else {
        WaitKind::Child
    };
    let until = Some(wait.until);
    let awaited: Vec<Uuid> = wait.runs.iter().map(|id| id.0).collect();
    begin(context, &run, &step, StepWait { kind, until }, &awaited)?;
    look(context, run.id, step.seq, wait.until <= context.now.wall)?;
    Ok(())
}

fn is_asked_for_by(run: &Run, session: SessionId) -> bool {
    run.requester
        .as_ref()
        .is_some_and(|requester| requester.session == session)
}

/// Ends a wait whose deadline has passed: the step gets the present state as its outcome, and a
/// late reply is announced later. A wait that is over is unchanged.
pub fn window_over(context: &mut Context<'_>, window: PendingWait) -> Result<(), Fault> {
    match window {
        PendingWait::Step(run, seq) => {
            look(context, run, seq, true)?;
        }
        PendingWait::Call(run) => sends::clear_wait_deadline(context.tx, run)?,
    }
    Ok(())
}

/// Ends the wait of a step whose run has ended, and closes its question or approval.
pub fn give_up(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    match step.waits.map(|wait| wait.kind) {
        Some(WaitKind::Answer) => {
            user_requests::end_question(
                context,
                QuestionId(step.id.0),
                QuestionState::Closed,
                None,
            )?;
        }
        Some(WaitKind::Approval) => {
            user_requests::end_approval(context, ApprovalId(step.id.0), ApprovalState::Closed)?;
        }
        _ => delegation::give_up_calls(context, run, step)?,
    }
    waits::remove(context.tx, run.id, step.seq)?;
    context.effect(CommitEffect::WindowClosed(PendingWait::Step(
        run.id, step.seq,
    )));
    Ok(())
}

/// The deadline that is `window_ms` from now.
pub fn until(context: &Context<'_>, window_ms: u64) -> Timestamp {
    context.now.wall.plus_ms(window_ms)
}
