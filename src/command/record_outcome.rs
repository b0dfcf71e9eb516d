//! Stores the outcome of a step and what follows it.

use super::context::Context;
use super::moves::{emit_step, end_turn, goes_on, intend, load, move_run};
use super::{RunAfter, TurnEnd, called, remember, usage};
use crate::kernel::delegation::announce::NO_REPLY;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::SUMMARY;
use crate::kernel::run::step::{Intent, PLAN_PHASE_KEY, Step, StepState, TOO_LONG, Used};
use crate::kernel::run::{Run, RunError, RunOrigin};
use crate::kernel::session::message::{Block, Compacted, NewMessage, OpenRun, plain_text};
use crate::kernel::text::{preview, storable};
use crate::store::tables::environment::StoredValue;
use crate::store::tables::{environment, runs, sessions, steps};

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
        used: Option<Used>,
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
    /// The outcome of a compaction, which may have found nothing to compact.
    Shortened {
        /// The summary and the entries that it replaces for the model.
        summary: Option<Box<(String, Compacted)>>,
        /// One-line description of the result.
        told: String,
        /// Facts to save in long-term memory.
        remember: Vec<String>,
        /// Model and token usage; `None` if no model was called.
        used: Option<Used>,
    },
    /// The request exceeded the provider's limit: the step failed, and the run continues.
    TooLong(RunError),
    /// The step failed, and the run with it.
    Failed {
        /// The error.
        error: RunError,
        /// Model and token usage of an answer that could not be used.
        used: Option<Used>,
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
                Some(match step.input.get(PLAN_PHASE_KEY) {
                    Some(node) => message.with_metadata(PLAN_PHASE_KEY, node.clone()),
                    None => message,
                })
            }
            Recorded::ToolResult { text, is_error } => {
                let call = step.tool_call.as_deref().unwrap_or_default();
                Some(NewMessage::tool_result(id, step.run, call, text, *is_error))
            }
            Recorded::Shortened { summary, .. } => {
                let (text, compacted) = summary.as_deref()?;
                Some(NewMessage::compaction(id, step.run, text, compacted))
            }
            Recorded::TooLong(_) | Recorded::Failed { .. } => None,
        }
    }

    /// Model and token usage, if a model was called.
    pub fn used(&self) -> Option<&Used> {
        match self {
            Recorded::Answer { used, .. }
            | Recorded::Shortened { used, .. }
            | Recorded::Failed { used, .. } => used.as_ref(),
            Recorded::ToolResult { .. } | Recorded::TooLong(_) => None,
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
pub fn record(
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
    let error = outcome.error();
    let mut warnings = Vec::new();
    if let Recorded::Shortened {
        summary: Some(summary),
        ..
    } = &mut outcome
    {
        summary.1.open = open_runs(context, &run)?;
    }
    let mut message = outcome.message(&step, context.message_id());
    match outcome {
        Recorded::Answer {
            blocks,
            warnings: about,
            sealed,
            ..
        } => {
            if let Some(sealed) = sealed {
                keep_arguments(context, &step, sealed)?;
            }
            let text = plain_text(&blocks);
            // Names the model that answered if it is not the one that was requested.
            let other = step.used.as_ref().map(|used| &used.model);
            let told = match other.filter(|other| **other != run.model) {
                Some(other) => format!("[{other}] {text}"),
                None => text.clone(),
            };
            step.result_summary = Some(preview(&told, SUMMARY));
            warnings = about;
            if let Some(message) = &mut message {
                // Only a wake run may be silent, because no client or user waits for its answer.
                message.silent = run.origin == RunOrigin::Wake && text.trim() == NO_REPLY;
                if let Then::EndTurn(end) = &then
                    && run.is_called()
                    && run.cancel.is_none()
                    && end
                        .text
                        .as_deref()
                        .is_some_and(|text| !text.trim().is_empty())
                    && !goes_on(context, &run, end)?
                {
                    called::is_answer(&run, message);
                }
            }
        }
        Recorded::ToolResult { text, is_error } => {
            step.result_summary = Some(preview(&text, SUMMARY));
            if is_error {
                step.state = StepState::Failed;
                step.error = Some(preview(&text, SUMMARY));
            }
        }
        Recorded::Shortened { told, remember, .. } => {
            let (kept, full) = remember::extracted(context, &run, &remember)?;
            warnings.extend(full);
            let told = match kept {
                0 => told,
                kept => format!("{told}; {kept} saved to memory"),
            };
            step.result_summary = Some(preview(&told, SUMMARY));
        }
        Recorded::TooLong(_) | Recorded::Failed { .. } => {
            step.state = StepState::Failed;
            step.error = error;
        }
    }
    let mut messages = context.append_of(&run, message.into_iter().collect())?;
    step.message_seq = messages.first().map(|message| message.seq);
    steps::update(context.tx, &step)?;
    emit_step(context, &run, &step)?;
    super::wake::supersede(context, &run, &step)?;
    if let Some(Used { model, usage }) = &step.used {
        sessions::add_usage(context.tx, run.session, *usage)?;
        runs::spend(context.tx, &run, (*usage).into())?;
        usage::used(context, &run, model, *usage)?;
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
    let mut run = move_run(context, &run, ended)?;

    let mut changed = vec![step];
    if run.cancel.is_none() {
        match then {
            // The other steps may wait for outside outcomes, or have got them.
            Then::Wait => run = super::waiting::regroup(context, &run)?,
            Then::Steps(intents) => {
                let intended = intend(context, &run, intents)?;
                run = intended.run;
                changed.extend(intended.steps);
                messages.extend(intended.messages);
            }
            Then::EndTurn(end) => {
                let ended = end_turn(context, &run, end)?;
                run = ended.run;
                changed.extend(ended.steps);
                messages.extend(ended.messages);
            }
            Then::Fail(error) => run = move_run(context, &run, RunEvent::Failed(error))?,
            Then::Cut { error, found } => {
                let found = storable(&found);
                run = move_run(context, &run, RunEvent::FailedWithPartial { error, found })?;
            }
        }
    }
    Ok(RunAfter {
        run,
        messages,
        steps: changed,
    })
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
