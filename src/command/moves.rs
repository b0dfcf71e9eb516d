//! How a command changes a run's state: the kernel decides from the present row, the row is
//! written, and the consequences are written in the same transaction.

use super::context::Context;
use super::{
    TurnEnd, cancel, delegation, removal, run_end, run_environment, session, turn, waiting,
};
use crate::contract::commit::{CommitEffect, Delegation};
use crate::kernel::event::{AnnounceQueued, EventData, RunEnded, RunMoved, RunPaused};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AnnounceId, RunId, SessionId};
use crate::kernel::run::action::{Action, Milestone};
use crate::kernel::run::event::{Pending, RunEvent};
use crate::kernel::run::step::{Intent, Step, StepState, WaitKind};
use crate::kernel::run::{AnnouncePolicy, PauseReason, Run, RunState, machine};
use crate::kernel::session::message::Message;
use crate::kernel::text::storable;
use crate::store::tables::{messages, outbox, runs, sends, sessions, steers, steps};

/// The run, or a `not_found` fault.
pub fn load(context: &mut Context<'_>, id: RunId) -> Result<Run, Fault> {
    runs::get(context.tx, id)?.ok_or_else(|| Fault::not_found("run", id))
}

/// Moves `run` by `event`. Once this returns, the row and all consequences are written.
pub fn move_run(context: &mut Context<'_>, run: &Run, event: RunEvent) -> Result<Run, Fault> {
    move_with(context, run, event, MoveOptions::default())
}

/// As [`move_run`]; with `quietly`, an end is announced as `inbox`, which wakes no agent.
pub fn move_run_quietly(
    context: &mut Context<'_>,
    run: &Run,
    event: RunEvent,
    quietly: bool,
) -> Result<Run, Fault> {
    let manner = MoveOptions {
        quietly,
        ..MoveOptions::default()
    };
    move_with(context, run, event, manner)
}

/// As [`move_run`], for a run whose whole subtree the caller ends: it does not cascade again.
pub fn move_in_cascade(
    context: &mut Context<'_>,
    run: &Run,
    event: RunEvent,
) -> Result<Run, Fault> {
    let manner = MoveOptions {
        in_cascade: true,
        ..MoveOptions::default()
    };
    move_with(context, run, event, manner)
}

/// Options of a move.
#[derive(Clone, Copy, Default)]
struct MoveOptions {
    /// An end is announced as `inbox`.
    quietly: bool,
    /// The caller ends the descendants, so the move does not cascade.
    in_cascade: bool,
}

fn move_with(
    context: &mut Context<'_>,
    run: &Run,
    event: RunEvent,
    manner: MoveOptions,
) -> Result<Run, Fault> {
    let applied = machine::apply(run, event, context.now)
        .map_err(|edge| Fault::new(Kind::Conflict, format!("run {}: {edge}", run.id)))?;
    let mut next = applied.run;
    next.ver = runs::update(context.tx, run, &next)?
        .ok_or_else(|| Fault::new(Kind::Conflict, format!("run {} changed meanwhile", run.id)))?;
    if next.state == RunState::Settling && run.state != RunState::Settling {
        context.effect(CommitEffect::Settling(
            next.id,
            next.remaining_at(context.now.steady),
        ));
    }
    if next.state != run.state && matches!(next.state, RunState::Paused(_)) {
        run_paused(context, &next);
    }
    if next.state.is_terminal() {
        follow_end(context, &next, applied.actions, manner)?;
    } else {
        for action in applied.actions {
            perform(context, &next, action, manner)?;
        }
    }
    Ok(next)
}

/// Everything that follows the end of a run, in this order and in the transaction of its end.
fn follow_end(
    context: &mut Context<'_>,
    run: &Run,
    actions: Vec<Action>,
    manner: MoveOptions,
) -> Result<(), Fault> {
    // Its sealed values are deleted, its open steps closed, its usage counted.
    run_environment::run_ended(context, run)?;
    close_steps(context, run)?;
    run_end::count_run(context, run)?;
    // The event and the announce are written, and descendants are cancelled.
    for action in actions {
        perform(context, run, action, manner)?;
    }
    // If an announce is due, its session is cleaned up after the delivery.
    if !run.owes_announce() {
        removal::clean_up_after_run(context, run)?;
    }
    // Its caller's transcript has the call, and steps that waited for it have their outcome.
    delegation::called_run_ended(context, run)?;
    waiting::run_ended(context, run)?;
    // Resets and deletions that waited for the last open run are carried out.
    session::carry_out_clearings(context)
}

/// A paused run keeps its session's turn, and its limit is watched while its time counts.
pub fn run_paused(context: &mut Context<'_>, run: &Run) {
    context.effect(CommitEffect::Paused(run.id, run.session, run.depth));
    if run.counting_since.is_some() {
        context.effect(CommitEffect::Settling(
            run.id,
            run.remaining_at(context.now.steady),
        ));
    }
}

/// Gives an outcome to the steps that were open when their run ended.
fn close_steps(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    for mut step in steps::open(context.tx, run.id)? {
        let began = step.effect.is_once() && step.state == StepState::Started;
        (step.state, step.error) = if began {
            let why =
                "the run ended while the step was being carried out; its effect may have happened";
            (StepState::Uncertain, Some(why.to_owned()))
        } else {
            let held = step
                .waits
                .is_some_and(|wait| wait.kind == WaitKind::Provider);
            let why = match step.error.take().filter(|_| held) {
                Some(reason) => {
                    format!("the run ended while the step waited for its provider: {reason}")
                }
                None => "the run ended before the step had an outcome".to_owned(),
            };
            (StepState::Failed, Some(why))
        };
        step.ended_at = Some(context.now.wall);
        steps::update(context.tx, &step)?;
        emit_step(context, run, &step)?;
        if step.waits.is_some() {
            waiting::give_up(context, run, &step)?;
        }
    }
    Ok(())
}

fn perform(
    context: &mut Context<'_>,
    run: &Run,
    action: Action,
    manner: MoveOptions,
) -> Result<(), Fault> {
    match action {
        Action::Announce => announce(context, run, manner.quietly),
        Action::CancelDescendants if manner.in_cascade => Ok(()),
        Action::CancelDescendants => cancel_below(context, run),
        Action::SettleRequester => settle_requester(context, run),
        Action::Emit(reached) => emit(context, run, reached),
        Action::Enqueue => context.enqueue(run),
        Action::Release => {
            // Announces that waited for the end of this turn can be delivered now.
            if outbox::has_pending(context.tx, run.session)? {
                context.effect(CommitEffect::Deliverable(run.session));
            }
            Ok(())
        }
        Action::StopExecutor => {
            context.effect(CommitEffect::StopExecutor(run.id));
            Ok(())
        }
        Action::WakeWaiters => {
            context.effect(CommitEffect::Ended(run.id));
            if let RunState::Ended(outcome) = run.state {
                let lived = context.now.wall.since(run.created_at);
                context.effect(CommitEffect::Outcome(run.id, outcome, lived));
                if let Some(over) = Delegation::of(run) {
                    context.effect(CommitEffect::DelegationOver(Box::new(over)));
                }
            }
            Ok(())
        }
    }
}

fn emit(context: &mut Context<'_>, run: &Run, reached: Milestone) -> Result<(), Fault> {
    let state = run.state.as_str().into();
    let data = match reached {
        Milestone::Started => EventData::RunStarted(RunMoved { state }),
        Milestone::Resumed => EventData::RunResumed(RunMoved { state }),
        Milestone::Settling => EventData::RunSettling(RunMoved { state }),
        Milestone::Paused => EventData::RunPaused(paused(context, run)?),
        Milestone::Ended => EventData::RunEnded(RunEnded {
            state,
            error: run.error.clone(),
            cancel: run.cancel.clone(),
            tool_calls: run.tool_calls,
            loops: run.loops,
            usage: run.usage,
            meta: run.meta.clone(),
            steers_dropped: steers::give_up(context.tx, run.id)?,
        }),
    };
    context.emit(run, data);
    Ok(())
}

/// The data of a pause event: its reason, and for a provider its deadline and message.
fn paused(context: &mut Context<'_>, run: &Run) -> Result<RunPaused, Fault> {
    let mut data = RunPaused {
        pause: run.state.pause().map(|reason| reason.as_str().into()),
        ..RunPaused::default()
    };
    if run.state == RunState::Paused(PauseReason::Provider) {
        let open = steps::open(context.tx, run.id)?;
        let waits = |step: &Step| Some((step.waits?, step.error.clone()));
        if let Some((wait, reason)) = open.iter().find_map(waits) {
            data.until = wait.until;
            data.reason = reason;
        }
    }
    Ok(data)
}

/// Writes the outbox row of an ended run.
fn announce(context: &mut Context<'_>, run: &Run, quietly: bool) -> Result<(), Fault> {
    let Some(requester) = &run.requester else {
        return Ok(());
    };
    // A run that a cascade ended must not wake the session that requested it.
    let fell_along = run.cancel.as_ref().is_some_and(|cancel| cancel.inherited);
    let policy = if quietly || fell_along {
        AnnouncePolicy::Inbox
    } else {
        run.announce
    };
    let target = requester.session;
    let policy = cancel::announce_policy(context, target, policy)?;
    let seq = context.take_seq()?;
    let now = context.now.wall;
    outbox::insert(context.tx, seq, run, policy, now)?;
    context.knows_key(target, &requester.key);
    context.emit_announce(
        &run.org,
        run.id,
        target,
        AnnounceQueued {
            announce_id: AnnounceId::of(run.id),
            policy: policy.as_str().into(),
        },
    );
    context.effect(CommitEffect::Deliverable(target));
    Ok(())
}

/// Cancels every open descendant of `run`, which has ended.
fn cancel_below(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let own = run.cancel.clone();
    let request = own.unwrap_or_else(|| cancel::parent_ended(context));
    cancel::cascade(context, run, &request).map(|_| ())
}

/// Notifies the requester's settling run that one of its children has ended.
fn settle_requester(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    match &run.requester {
        Some(requester) => look_at_settling(context, requester.session),
        None => Ok(()),
    }
}

/// Checks again what settling runs of this session still wait for.
pub fn look_at_settling(context: &mut Context<'_>, session: SessionId) -> Result<(), Fault> {
    for above in runs::live_in(context.tx, session)? {
        if above.state == RunState::Settling {
            let owed = owed(context, &above)?;
            move_run(context, &above, RunEvent::OwedChanged { owed })?;
        }
    }
    Ok(())
}

/// What a run must still wait for after its turn. A called run waits for nothing: its caller's
/// session does that.
pub fn owed(context: &mut Context<'_>, run: &Run) -> Result<Pending, Fault> {
    if run.is_called() {
        return Ok(Pending::default());
    }
    let tx = &mut *context.tx;
    let children = runs::count_live_children(tx, run.session)?;
    let waiting = outbox::has_waking(tx, run.session)?;
    let seen = steps::seen_up_to(tx, run.id)?;
    let unseen = messages::count_announces_after(tx, run.session, seen)?;
    let replies = sends::is_unfinished(tx, run.session)?;
    Ok(Pending {
        open_children: children > 0 || replies,
        unseen_announces: waiting || unseen > 0,
    })
}

/// Ends the turn of `run`, unless a steer message or announce is waiting to enter it; then it
/// continues with the steps for that case. If its transcript has announces that it has not seen, it
/// is queued again immediately.
pub fn end_turn(context: &mut Context<'_>, run: &Run, end: TurnEnd) -> Result<Intended, Fault> {
    if goes_on(context, run, &end)? {
        return intend(context, run, end.more);
    }
    let owed = owed(context, run)?;
    let text = end.text.map(|text| storable(&text));
    if let Some(text) = text.as_deref().filter(|_| run.is_called()) {
        delegation::append_answer(context, run, text)?;
    }
    let mut next = move_run(context, run, RunEvent::TurnEnded { text, owed })?;
    if next.state == RunState::Settling {
        let seen = steps::seen_up_to(context.tx, run.id)?;
        if messages::count_announces_after(context.tx, run.session, seen)? > 0 {
            next = move_run(context, &next, RunEvent::AnnouncesDelivered)?;
        }
    }
    Ok(Intended::nothing(next))
}

/// True if the turn continues because something is waiting to enter it.
pub fn goes_on(context: &mut Context<'_>, run: &Run, end: &TurnEnd) -> Result<bool, Fault> {
    Ok(!end.more.is_empty() && turn::has_steers(context, run)?)
}

/// A run with its newly intended steps, and the messages that entered its transcript with them.
pub struct Intended {
    /// The run.
    pub run: Run,
    /// Its new steps.
    pub steps: Vec<Step>,
    /// The new transcript entries.
    pub messages: Vec<Message>,
}

impl Intended {
    fn nothing(run: Run) -> Self {
        Intended {
            run,
            steps: Vec::new(),
            messages: Vec::new(),
        }
    }
}

/// Writes the intents of the next steps. Steer messages and announces enter a turn only with the
/// intent of a model call. If the budget is used up before a model call, the run ends.
pub fn intend(
    context: &mut Context<'_>,
    run: &Run,
    intents: Vec<Intent>,
) -> Result<Intended, Fault> {
    if intents.is_empty() {
        return Ok(Intended::nothing(run.clone()));
    }
    if intents.iter().any(|intent| intent.kind.asks_a_model())
        && let Some(used_up) = runs::used_up(context.tx, run)?
    {
        let error = used_up.ends(run.id, run.usage.model_calls);
        let ended = move_run(context, run, RunEvent::Failed(error))?;
        return Ok(Intended::nothing(ended));
    }
    let count = intents.len() as u32;
    let next = move_run(context, run, RunEvent::StepsIntended { count })?;
    let asks = intents.iter().any(|intent| intent.kind.answers());
    let messages = if asks {
        turn::enter_steers(context, &next)?
    } else {
        Vec::new()
    };
    let transcript = sessions::messages_of(context.tx, run.session)?;
    let mut made = Vec::with_capacity(intents.len());
    for (seq, intent) in (run.steps + 1..).zip(intents) {
        let seen_up_to = intent.kind.answers().then_some(transcript);
        let pack = intent.context.clone();
        let step = intent.into_step(run.id, seq, seen_up_to, context.now.wall);
        if let (Some(pack), Some(call)) = (&pack, &step.tool_call) {
            let (session, generation) = (run.session, run.generation);
            messages::store_delegation_context(context.tx, session, generation, call, pack)?;
        }
        steps::insert(context.tx, &step)?;
        emit_step(context, &next, &step)?;
        made.push(step);
    }
    Ok(Intended {
        run: next,
        steps: made,
        messages,
    })
}

/// Emits an event about the state of a step.
pub fn emit_step(context: &mut Context<'_>, run: &Run, step: &Step) -> Result<(), Fault> {
    context.emit(run, EventData::of_step(step, None));
    delegation::show_state(context, run, step)
}
