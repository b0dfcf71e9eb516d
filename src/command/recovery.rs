//! Recovers open runs that have no executor, and records verdicts of operators on uncertain effects.

use serde_json::json;

use super::RunAfter;
use super::context::Context;
use super::moves::{emit_step, load, move_run, move_run_quietly, run_paused};
use super::outside;
use super::steps::tool_result;
use super::waiting::{finish, release};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::recover::{Loss, StepFate};
use crate::kernel::run::step::{Step, StepKind, StepState, StepWait, WaitKind};
use crate::kernel::run::waiting::{StepProgress, reviewed};
use crate::kernel::run::{Run, RunError, RunState, Usage, recover, waiting};
use crate::kernel::session::message::{Block, MessageKind, NewMessage, Origin, Role};
use crate::kernel::time::Timestamp;
use crate::store::tables::{runs, steps};

/// Once this returns, the open run without an executor is queued, paused, settling or ended, as
/// [`recover::recover`] decides. An ended run is unchanged. `aged_at` is the time for its age
/// limit; with `None` it does not end because of its age.
pub fn recover(
    context: &mut Context<'_>,
    id: RunId,
    loss: Loss,
    aged_at: Option<Timestamp>,
) -> Result<RunAfter, Fault> {
    let mut run = load(context, id)?;
    if run.state.is_terminal() {
        return Ok(RunAfter::with_steps(run, Vec::new()));
    }
    if matches!(loss, Loss::Killed | Loss::Drained) {
        // Monotonic readings of an earlier process are meaningless here, and downtime does not
        // count.
        run.counting_since = run.counting_since.map(|_| context.now.steady);
    }
    let mut open = steps::open(context.tx, id)?;
    if matches!(loss, Loss::Killed | Loss::Drained)
        && run.cancel.is_none()
        && outside::end_lost_calls(context, &run, &open)?
    {
        // Its prompt is carried out again, as every prompt whose program was lost.
        return Ok(RunAfter::with_steps(load(context, id)?, Vec::new()));
    }
    let mut policy = context.settings.recovery;
    let idle = aged_at.map_or(0, |now| now.since(run.last_activity_at));
    let is_old = idle > policy.max_age_ms;
    if !is_old || runs::waits_for_person(context.tx, run.session)? {
        policy.max_age_ms = u64::MAX;
    }
    let now = aged_at.unwrap_or(context.now.wall);
    let plan = recover::recover(&run, &open, loss, policy, now);
    let held = run.state == RunState::Running;
    let mut lost = 0;
    let mut changed = Vec::new();
    let mut event = plan.event.clone();
    // The steps of a parked run have not started and are carried out unchanged.
    if held {
        for (step, fate) in plan.steps {
            if let Some(step) = open.iter().find(|open| open.id == step) {
                changed.push(reopen(context, &run, step.clone(), fate)?);
                lost += u32::from(fate == StepFate::Uncertain);
            }
        }
        for _ in 0..lost {
            // An uncertain effect counts as the outcome of its step.
            let (kind, usage) = (StepKind::Tool, Usage::default());
            run = move_run(
                context,
                &run,
                RunEvent::StepEnded {
                    kind,
                    usage,
                    warnings: Vec::new(),
                },
            )?;
        }
        if matches!(plan.event, RunEvent::Recovered { .. }) && run.cancel.is_none() {
            open = steps::open(context.tx, id)?;
            if let StepProgress::Blocked(reason) = waiting::step_progress(&open) {
                // All its steps wait, for example for an operator's review.
                event = RunEvent::Paused(reason);
            }
            notice(context, &run, loss, matches!(event, RunEvent::Paused(_)))?;
        }
    }
    if let (true, RunEvent::Interrupted(why)) = (plan.is_quiet, &event) {
        closed(context, &run, &why.message)?;
    }
    let run = move_run_quietly(context, &run, event, plan.is_quiet)?;
    if run.state == RunState::Settling {
        context.effect(CommitEffect::Settling(
            id,
            run.remaining_at(context.now.steady),
        ));
    }
    if matches!(run.state, RunState::Paused(_)) {
        run_paused(context, &run);
    }
    Ok(RunAfter::with_steps(run, changed))
}

/// Prepares an open step for its next attempt, a reattach or a review, or ends it as uncertain.
fn reopen(
    context: &mut Context<'_>,
    run: &Run,
    mut step: Step,
    fate: StepFate,
) -> Result<Step, Fault> {
    match fate {
        StepFate::Perform | StepFate::Repeat | StepFate::Continue => {
            step.attempts += 1;
            steps::update(context.tx, &step)?;
        }
        StepFate::Attach => {}
        StepFate::Review => {
            let wait = StepWait {
                kind: WaitKind::Review,
                until: None,
            };
            steps::set_wait(context.tx, run.id, step.seq, wait)?;
            step.waits = Some(wait);
        }
        StepFate::Uncertain => {
            // No entry of the transcript asks for the call of an outside agent.
            let message = (!step.is_outside_call()).then(|| {
                let text = waiting::uncertain(step.tool.as_deref().unwrap_or("the tool"));
                tool_result(context, &step, &text, true)
            });
            let appended = context.append_of(run, message.into_iter().collect())?;
            step.message_seq = appended.first().map(|message| message.seq);
            step.state = StepState::Uncertain;
            step.ended_at = Some(context.now.wall);
            step.error = Some("uncertain: the effect may have happened".to_owned());
            steps::update(context.tx, &step)?;
            emit_step(context, run, &step)?;
        }
    }
    Ok(step)
}

/// Adds a transcript notice for users: the run has ended because of its age.
fn closed(context: &mut Context<'_>, run: &Run, why: &str) -> Result<(), Fault> {
    let text = format!(
        "run {} was closed: {why}. Its work is kept; to continue, send a message or retry \
         it",
        run.id
    );
    tell(context, run, text)
}

/// Adds a transcript notice for users: the turn was interrupted and continues, or is paused until
/// its waiting steps are settled.
fn notice(context: &mut Context<'_>, run: &Run, loss: Loss, is_paused: bool) -> Result<(), Fault> {
    let what = match loss {
        Loss::Killed | Loss::Drained => "the daemon was restarted",
        Loss::Executor => "the task that drove this run was lost",
        Loss::CutOff => "the daemon drained and its timeout passed",
    };
    let then = match is_paused {
        true => "it is paused until its waiting step is settled",
        false => "it continues at its step",
    };
    let text = format!("{what} while run {} was running; {then}", run.id);
    tell(context, run, text)
}

/// Adds a transcript entry that users see and models do not.
fn tell(context: &mut Context<'_>, run: &Run, text: String) -> Result<(), Fault> {
    let mut message = NewMessage::new(
        context.message_id(),
        Role::System,
        MessageKind::RestartNotice,
        Origin::Internal,
        Block::Text { text },
    );
    message.run = Some(run.id);
    message.metadata = Some(json!({ "recoveries": run.recoveries }));
    context.append_of(run, vec![message])?;
    Ok(())
}

/// An operator's verdict on an effect that may have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has happened, with this result if it is known.
    Done(Option<String>),
    /// It has not happened; the step is carried out now.
    NotDone,
    /// The run ends, and the effect stays uncertain.
    Abort,
}

/// A verdict on a step that waits for a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: RunId,
    /// The step.
    pub step: StepId,
    /// The verdict.
    pub verdict: Verdict,
    /// The actor, named in the outcome.
    pub by: String,
}

/// Once this returns, the step has the operator's outcome or is carried out again, and its run
/// continues; or the run has ended.
pub fn resolve(context: &mut Context<'_>, resolve: Resolve) -> Result<RunAfter, Fault> {
    let run = load(context, resolve.run)?;
    if run.org != resolve.org {
        return Err(Fault::not_found("run", resolve.run));
    }
    let found = steps::by_id(context.tx, run.id, resolve.step)?;
    let mut step = found.ok_or_else(|| {
        Fault::not_found("step", resolve.step).hint("runs.get lists the steps that need a review")
    })?;
    check_verdict(&run, &step)?;
    match resolve.verdict {
        Verdict::Done(result) => {
            let told = match result {
                // The output of an agent that is a program is the answer itself.
                Some(result) if step.kind.answers() => result,
                result => reviewed(&resolve.by, result.as_deref()),
            };
            finish(context, run.id, step.seq, (&told, false))?;
        }
        Verdict::NotDone => {
            step.state = StepState::Intended;
            step.error = None;
            step.attempts += 1;
            steps::update(context.tx, &step)?;
            release(context, run.id, step.seq)?;
        }
        Verdict::Abort => {
            let message = format!(
                "{} was interrupted in step {}; {} reviewed it and ended the run: it stays \
                 uncertain whether the effect happened",
                step.tool.as_deref().unwrap_or("its program"),
                step.seq,
                resolve.by
            );
            let error = RunError::new("uncertain", message);
            move_run(context, &run, RunEvent::Interrupted(error))?;
        }
    }
    Ok(RunAfter {
        run: load(context, run.id)?,
        messages: Vec::new(),
        steps: Vec::new(),
    })
}

fn check_verdict(run: &Run, step: &Step) -> Result<(), Fault> {
    let waits = step.waits.is_some_and(|wait| wait.kind == WaitKind::Review);
    if step.state.is_open() && waits {
        return Ok(());
    }
    Err(Fault::new(
        Kind::Conflict,
        format!(
            "step {} of run {} does not wait for a review: the step is {}, the run {}; nothing was changed",
            step.seq,
            run.id,
            step.state,
            run.state.as_str()
        ),
    )
    .hint("runs.get shows its state; runs.list {needsReview: true} lists the runs that wait for a review")
    .with("stepState", step.state.as_str())
    .with("runState", run.state.as_str()))
}
