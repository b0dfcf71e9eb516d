//! Steps of a run: started, begun, and their outcomes with what follows them; tool results that are too
//! long for the transcript.

use super::context::Context;
use super::moves::{emit_step, end_turn, goes_on, intend, load, move_run};
use super::send::received_message;
use super::waiting::acting;
use super::{RunAfter, StepRef, TurnEnd, delegation, remember, run_end, run_environment};
use crate::kernel::delegation::announce::NO_REPLY;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::outside::OUTSIDE;
use crate::kernel::run::step::{
    Intent, ModelUsage, PLAN_PHASE_KEY, SUMMARY, Step, StepKind, StepState, TOO_LONG,
};
use crate::kernel::run::waiting::doubted;
use crate::kernel::run::{Run, RunError, RunOrigin};
use crate::kernel::session::message::{Block, Compacted, Message, NewMessage, OpenRun, plain_text};
use crate::kernel::text::{prefix, preview, storable};
use crate::store::tables::columns::to_int;
use crate::store::tables::environment::StoredValue;
use crate::store::tables::outputs::{KEPT, Output};
use crate::store::tables::{environment, messages, outputs, read, runs, sends, sessions, steps};

/// Once this returns, the run holds its session's turn, its input is in the transcript, and its
/// first steps are intended. A parked or recovered run continues with the steps that it has.
pub fn start_run(
    context: &mut Context<'_>,
    id: RunId,
    intents: Vec<Intent>,
    seen: i64,
) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    run_environment::applied(context, &run)?;
    let run = move_run(context, &run, RunEvent::Started)?;
    let mut appended = Vec::new();
    if let Some(text) = runs::input(context.tx, id)? {
        let mut input = match &run.delegated {
            Some(delegated) if run.is_called() => {
                delegation::call_entry(context, &run, delegated, &text)
            }
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

/// Once this returns, the effect of a step that must not happen twice may begin; a kill from now on
/// leaves it uncertain, or with its keeper.
pub fn begin_effect(
    context: &mut Context<'_>,
    id: RunId,
    seq: u32,
    attempt: u32,
) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    if run.cancel.is_some() {
        return Err(Fault::new(
            Kind::Conflict,
            format!("run {id} is being cancelled; no effect may start"),
        ));
    }
    let mut step = open_step(context, id, seq, attempt)?;
    step.state = StepState::Started;
    steps::update(context.tx, &step)?;
    Ok(RunAfter::with_steps(run, vec![step]))
}

/// Maximum number of open runs that a compaction summary lists.
const MOST_OPEN: usize = 50;

/// The outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// An answer of a model or of an agent that is a program.
    Answer {
        /// Text and tool calls.
        blocks: Vec<Block>,
        /// Model and token usage; `None` if no model was called.
        used: Option<ModelUsage>,
        /// Warnings for the run.
        warnings: Vec<String>,
        /// The encrypted original arguments of tool calls that are masked in `blocks`.
        sealed: Option<Vec<u8>>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The result text.
        text: String,
        /// True if the tool reports a failure.
        is_error: bool,
    },
    /// It is unknown whether the effect of a tool call happened.
    Uncertain {
        /// Why, as a clause.
        why: String,
    },
    /// The outcome of a compaction, which may have found nothing to compact.
    Shortened {
        /// The summary and the entries that it replaces for the model.
        summary: Option<Box<(String, Compacted)>>,
        /// One-line description of the result.
        told: String,
        /// Facts to save in long-term memory.
        remember: Vec<String>,
        /// Model and token usage; `None` if no model was called.
        used: Option<ModelUsage>,
    },
    /// The request exceeded the provider's limit: the step failed, and the run continues.
    TooLong(RunError),
    /// The step failed, and the run with it.
    Failed {
        /// The error.
        error: RunError,
        /// Model and token usage of an answer that could not be used.
        used: Option<ModelUsage>,
    },
}

impl Recorded {
    /// The transcript entry for this outcome of `step`, if it has one. `id` is used unless the
    /// entry's id is derived from the step.
    pub fn message(&self, step: &Step, id: MessageId) -> Option<NewMessage> {
        match self {
            Recorded::Answer { blocks, used, .. } => {
                let id = MessageId::answer_of(step.id);
                let message = NewMessage::answer(id, step.run, blocks.clone());
                let message = match used {
                    Some(used) => message.counted(&used.usage),
                    None => message,
                };
                let kept = [PLAN_PHASE_KEY, OUTSIDE].into_iter();
                let kept = kept.filter_map(|key| Some((key, step.input.get(key)?.clone())));
                Some(kept.fold(message, |message, (key, value)| {
                    message.with_metadata(key, value)
                }))
            }
            // No entry of the transcript asks for the call of an outside agent.
            Recorded::ToolResult { .. } | Recorded::Uncertain { .. } if step.is_outside_call() => {
                None
            }
            Recorded::ToolResult { text, is_error } => {
                let call = step.tool_call.as_deref().unwrap_or_default();
                Some(NewMessage::tool_result(id, step.run, call, text, *is_error))
            }
            // The end of the run reports it.
            Recorded::Uncertain { .. } if step.kind == StepKind::Command => None,
            Recorded::Uncertain { why } => {
                let call = step.tool_call.as_deref().unwrap_or_default();
                let text = doubted(why);
                Some(NewMessage::tool_result(id, step.run, call, &text, true))
            }
            Recorded::Shortened { summary, .. } => {
                let (text, compacted) = summary.as_deref()?;
                Some(NewMessage::compaction(id, step.run, text, compacted))
            }
            Recorded::TooLong(_) | Recorded::Failed { .. } => None,
        }
    }

    /// Model and token usage, if a model was called.
    pub fn used(&self) -> Option<&ModelUsage> {
        match self {
            Recorded::Answer { used, .. }
            | Recorded::Shortened { used, .. }
            | Recorded::Failed { used, .. } => used.as_ref(),
            Recorded::ToolResult { .. } | Recorded::Uncertain { .. } | Recorded::TooLong(_) => None,
        }
    }

    /// The error text if the step failed.
    pub fn error(&self) -> Option<String> {
        match self {
            Recorded::TooLong(error) => {
                let told = format!("{TOO_LONG}: {}", error.message);
                Some(preview(&told, SUMMARY))
            }
            Recorded::Failed { error, .. } => Some(preview(&error.message, SUMMARY)),
            Recorded::Uncertain { why } => Some(preview(&format!("uncertain: {why}"), SUMMARY)),
            _ => None,
        }
    }
}

/// What follows a step's outcome, in the same transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// Other steps are still open.
    Wait,
    /// These steps follow.
    Steps(Vec<Intent>),
    /// The turn ends.
    EndTurn(TurnEnd),
    /// The run fails.
    Fail(RunError),
    /// The run is interrupted: what it did is unknown.
    Interrupt(RunError),
    /// The run fails, and its partial findings are its result.
    Cut {
        /// The error.
        error: RunError,
        /// The partial findings.
        found: String,
    },
}

/// Once this returns, the step's outcome is in journal and transcript, and the next steps are
/// intended or the turn has ended. While a cancel is pending, the outcome is stored and nothing
/// follows.
pub fn record_outcome(
    context: &mut Context<'_>,
    id: RunId,
    seq: u32,
    attempt: u32,
    mut outcome: Recorded,
    then: Then,
) -> Result<RunAfter, Fault> {
    let run = load(context, id)?;
    let mut step = open_step(context, id, seq, attempt)?;
    step.ended_at = Some(context.now.wall);
    step.state = StepState::Done;
    step.used = outcome.used().cloned();
    // Clears the reason that was set while the step waited for its provider.
    step.error = None;
    if let Recorded::Shortened {
        summary: Some(summary),
        ..
    } = &mut outcome
    {
        summary.1.open = open_runs(context, &run)?;
    }
    let mut message = outcome.message(&step, context.message_id());
    let warnings = summarize(context, &run, &mut step, &mut message, outcome, &then)?;
    let messages = context.append_of(&run, message.into_iter().collect())?;
    step.message_seq = messages.first().map(|message| message.seq);
    steps::update(context.tx, &step)?;
    emit_step(context, &run, &step)?;
    super::announces::supersede_wake_run(context, &run, &step)?;
    if let Some(ModelUsage { model, usage }) = &step.used {
        sessions::add_usage(context.tx, run.session, *usage)?;
        runs::spend(context.tx, &run, (*usage).into())?;
        run_end::count_use(context, &run, model, *usage)?;
    }
    let ended = RunEvent::StepEnded {
        kind: step.kind,
        usage: step
            .used
            .as_ref()
            .map(|used| used.usage)
            .unwrap_or_default(),
        warnings,
    };
    let run = move_run(context, &run, ended)?;

    let mut after = RunAfter {
        run,
        messages,
        steps: vec![step],
    };
    if after.run.cancel.is_none() {
        follow(context, &mut after, then)?;
    }
    Ok(after)
}

/// Writes what the outcome says of the step into it, and what of its message only the outcome tells;
/// returns the warnings for the requester.
fn summarize(
    context: &mut Context<'_>,
    run: &Run,
    step: &mut Step,
    message: &mut Option<NewMessage>,
    outcome: Recorded,
    then: &Then,
) -> Result<Vec<String>, Fault> {
    Ok(match outcome {
        Recorded::Answer {
            blocks,
            warnings,
            sealed,
            ..
        } => {
            if let Some(sealed) = sealed {
                keep_arguments(context, step, sealed)?;
            }
            let text = plain_text(&blocks);
            step.result_summary = Some(summary_of_answer(run, step, &text));
            if let Some(message) = message {
                // Only a wake run may be silent, because no client or user waits for its answer.
                message.silent = run.origin == RunOrigin::Wake && text.trim() == NO_REPLY;
                if let Then::EndTurn(end) = then
                    && answers_call(context, run, end)?
                {
                    delegation::mark_as_answer(run, message);
                }
            }
            warnings
        }
        Recorded::ToolResult { text, is_error } => {
            step.result_summary = Some(preview(&text, SUMMARY));
            if is_error {
                step.state = StepState::Failed;
                step.error = Some(preview(&text, SUMMARY));
            }
            Vec::new()
        }
        doubted @ Recorded::Uncertain { .. } => {
            step.state = StepState::Uncertain;
            step.error = doubted.error();
            Vec::new()
        }
        Recorded::Shortened { told, remember, .. } => {
            let (kept, full) = remember::extracted(context, run, &remember)?;
            let told = match kept {
                0 => told,
                kept => format!("{told}; {kept} saved to memory"),
            };
            step.result_summary = Some(preview(&told, SUMMARY));
            Vec::from_iter(full)
        }
        failed @ (Recorded::TooLong(_) | Recorded::Failed { .. }) => {
            step.state = StepState::Failed;
            step.error = failed.error();
            Vec::new()
        }
    })
}

/// Carries out what follows a step's outcome.
fn follow(context: &mut Context<'_>, after: &mut RunAfter, then: Then) -> Result<(), Fault> {
    let run = &after.run;
    let next = match then {
        // The other steps may wait for outside outcomes, or have got them.
        Then::Wait => {
            after.run = super::waiting::regroup(context, run)?;
            return Ok(());
        }
        Then::Fail(error) => {
            after.run = move_run(context, run, RunEvent::Failed(error))?;
            return Ok(());
        }
        Then::Interrupt(error) => {
            after.run = move_run(context, run, RunEvent::Interrupted(error))?;
            return Ok(());
        }
        Then::Cut { error, found } => {
            let found = storable(&found);
            after.run = move_run(context, run, RunEvent::FailedWithPartial { error, found })?;
            return Ok(());
        }
        Then::Steps(intents) => intend(context, run, intents)?,
        Then::EndTurn(end) => end_turn(context, run, end)?,
    };
    after.run = next.run;
    after.steps.extend(next.steps);
    after.messages.extend(next.messages);
    Ok(())
}

/// The summary of an answer. It names the model that answered if that is not the requested one.
fn summary_of_answer(run: &Run, step: &Step, text: &str) -> String {
    let other = step.used.as_ref().map(|used| &used.model);
    match other.filter(|other| **other != run.model) {
        Some(other) => preview(&format!("[{other}] {text}"), SUMMARY),
        None => preview(text, SUMMARY),
    }
}

/// True if this end of the turn answers the call that the run was made for.
fn answers_call(context: &mut Context<'_>, run: &Run, end: &TurnEnd) -> Result<bool, Fault> {
    let text = end.text.as_deref().unwrap_or_default();
    let may_answer = run.is_called() && run.cancel.is_none() && !text.trim().is_empty();
    Ok(may_answer && !goes_on(context, run, end)?)
}

/// Open runs that the session requested, for a model that no longer sees the requests.
fn open_runs(context: &mut Context<'_>, run: &Run) -> Result<Vec<OpenRun>, Fault> {
    let children = runs::live_children(context.tx, run.session)?;
    let open = children.into_iter().take(MOST_OPEN).map(|child| OpenRun {
        run: child.id,
        agent: child.agent,
        about: child.label.unwrap_or(child.title),
    });
    Ok(open.collect())
}

/// Stores the encrypted original arguments of an answer's tool calls until the run ends.
fn keep_arguments(context: &mut Context<'_>, answer: &Step, sealed: Vec<u8>) -> Result<(), Fault> {
    let value = StoredValue {
        name: environment::arguments_of(answer.id),
        secret: true,
        reference: None,
        sealed: Some(sealed),
        missing_reason: None,
    };
    environment::put(context.tx, answer.run, &value).map_err(Fault::from)
}

/// The step, if it is open and in this attempt. A late outcome of an attempt that recovery has
/// replaced is a `conflict` and changes nothing.
pub fn open_step(
    context: &mut Context<'_>,
    run: RunId,
    seq: u32,
    attempt: u32,
) -> Result<Step, Fault> {
    let step = steps::get(context.tx, run, seq)?
        .ok_or_else(|| Fault::not_found("step", format!("{seq} of run {run}")))?;
    if !step.state.is_open() || step.attempts != attempt {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "step {seq} of run {run} is {} in attempt {}: the outcome of attempt {attempt} comes too late",
                step.state, step.attempts
            ),
        ));
    }
    Ok(step)
}

/// The transcript entry for the outcome of a tool call.
pub fn tool_result(context: &Context<'_>, step: &Step, text: &str, is_error: bool) -> NewMessage {
    let call = step.tool_call.as_deref().unwrap_or_default();
    NewMessage::tool_result(context.message_id(), step.run, call, text, is_error)
}

/// A long tool result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepOutput {
    /// The step of the tool call.
    pub by: StepRef,
    /// The complete text; at most `KEPT` bytes are stored.
    pub text: String,
}

/// Once this returns, the result can be fetched, up to the kept length. This comes before the
/// step's outcome, which refers to it.
pub fn keep_output(context: &mut Context<'_>, keep: KeepOutput) -> Result<(), Fault> {
    let (run, step) = acting(context, keep.by)?;
    let text = storable(&keep.text);
    let body = prefix(&text, KEPT);
    let output = Output {
        run: run.id,
        step: step.seq,
        session: run.session,
        tool_call: step.tool_call.unwrap_or_default(),
        bytes: to_int(text.len() as u64),
        kept: to_int(body.len() as u64),
        at: context.now.wall,
    };
    outputs::put(context.tx, &output, body)?;
    Ok(())
}
