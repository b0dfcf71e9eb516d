//! Writes what came out of a step, and what follows it.

use super::context::Context;
use super::moves::{emit_step, end_turn, goes_on, intend, load, move_run};
use super::{Reply, RunAfter, TurnEnd, called, remember, usage};
use crate::kernel::announce::NO_REPLY;
use crate::kernel::event::RunEvent;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::message::{Block, Compacted, NewMessage, OpenRun, plain_text};
use crate::kernel::run::{Run, RunError, RunOrigin};
use crate::kernel::step::{Intent, NODE, Step, StepState, TOO_LONG, Used};
use crate::kernel::text::{preview, storable};
use crate::store::environment::{self, StoredValue};
use crate::store::{db_fault, runs, sessions, steps};

/// So many open runs are named in a transcript that was shortened.
const MOST_OPEN: usize = 50;
/// The most characters of a summary.
pub const SUMMARY: usize = 200;

/// What is the outcome of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Recorded {
    /// An answer, of a model or of the agent's program.
    Answer {
        /// Text and tool calls.
        blocks: Vec<Block>,
        /// What it cost; `None`: no model was asked.
        used: Option<Used>,
        /// What the caller should know of it.
        warnings: Vec<String>,
        /// The arguments of its calls that `blocks` has masked, sealed.
        sealed: Option<Vec<u8>>,
    },
    /// A tool's answer.
    ToolResult {
        /// What it says.
        text: String,
        /// It says that it failed.
        is_error: bool,
    },
    /// The transcript is shorter for the model, or needs not be.
    Shortened {
        /// What stands for the entries that it names.
        summary: Option<Box<(String, Compacted)>>,
        /// What has come of it, on one line.
        told: String,
        /// What of it goes into the long-term memory.
        remember: Vec<String>,
        /// What it cost; `None`: no model was asked.
        used: Option<Used>,
    },
    /// The request was too long for the provider: the step failed, and the run goes on.
    TooLong(RunError),
    /// The step failed, and the run with it.
    Failed {
        /// Why.
        error: RunError,
        /// What an answer cost that was of no use.
        used: Option<Used>,
    },
}

impl Recorded {
    /// The transcript's entry for this outcome of `step`, if it has one; `id` is for one whose
    /// id does not follow from its step.
    pub fn message(&self, step: &Step, id: MessageId) -> Option<NewMessage> {
        match self {
            Recorded::Answer { blocks, used, .. } => {
                let id = MessageId::answer_of(step.id);
                let message = NewMessage::answer(id, step.run, blocks.clone());
                let message = match used {
                    Some(used) => message.counted(&used.usage),
                    None => message,
                };
                Some(match step.input.get(NODE) {
                    Some(node) => message.noted(NODE, node.clone()),
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

    /// What it used of a model.
    pub fn used(&self) -> Option<&Used> {
        match self {
            Recorded::Answer { used, .. }
            | Recorded::Shortened { used, .. }
            | Recorded::Failed { used, .. } => used.as_ref(),
            Recorded::ToolResult { .. } | Recorded::TooLong(_) => None,
        }
    }

    /// The step has failed with this error.
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
    /// These steps.
    Steps(Vec<Intent>),
    /// The turn is over.
    EndTurn(TurnEnd),
    /// The run cannot go on.
    Fail(RunError),
    /// The run cannot go on, and what it has found so far is its result.
    Cut {
        /// Why.
        error: RunError,
        /// What it has found.
        found: String,
    },
}

/// The step's outcome stands in journal and transcript, and what follows it is intended or
/// ended. While a cancel is open the outcome is kept and nothing follows.
pub fn record(
    context: &mut Context<'_>,
    id: RunId,
    seq: u32,
    attempt: u32,
    mut outcome: Recorded,
    then: Then,
) -> Result<Reply, Fault> {
    let run = load(context, id)?;
    let mut step = open_step(context, id, seq, attempt)?;
    step.ended_at = Some(context.now.wall);
    step.state = StepState::Done;
    step.used = outcome.used().cloned();
    // While it waited for its provider the reason was there.
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
            // Who answered is part of what came out, where it was not the one that was asked.
            let other = step.used.as_ref().map(|used| &used.model);
            let told = match other.filter(|other| **other != run.model) {
                Some(other) => format!("[{other}] {text}"),
                None => text.clone(),
            };
            step.result_summary = Some(preview(&told, SUMMARY));
            warnings = about;
            if let Some(message) = &mut message {
                // Only a wake run may be silent: nobody asked it anything.
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
                kept => format!("{told}; {kept} kept in memory"),
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
    steps::update(context.tx, &step).map_err(db_fault)?;
    emit_step(context, &run, &step)?;
    super::wake::supersede(context, &run, &step)?;
    if let Some(Used { model, usage }) = &step.used {
        sessions::add_usage(context.tx, run.session, *usage).map_err(db_fault)?;
        runs::spend(context.tx, &run, (*usage).into()).map_err(db_fault)?;
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
            // The others may wait for what comes from elsewhere, or have got it.
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
                run = move_run(context, &run, RunEvent::Cut { error, found })?;
            }
        }
    }
    Ok(Reply::Run(Box::new(RunAfter {
        run,
        messages,
        steps: changed,
    })))
}

/// What the run's session has asked for and is not over, for a model that is no longer shown that.
fn open_runs(context: &mut Context<'_>, run: &Run) -> Result<Vec<OpenRun>, Fault> {
    let children = runs::live_children(context.tx, run.session).map_err(db_fault)?;
    let open = children.into_iter().take(MOST_OPEN).map(|child| OpenRun {
        run: child.id,
        agent: child.agent,
        about: child.label.unwrap_or(child.title),
    });
    Ok(open.collect())
}

/// The arguments that an answer's calls have beside what is masked of them are kept until the run
/// ends.
fn keep_arguments(context: &mut Context<'_>, answer: &Step, sealed: Vec<u8>) -> Result<(), Fault> {
    let value = StoredValue {
        name: environment::arguments_of(answer.id),
        secret: true,
        reference: None,
        sealed: Some(sealed),
        lacking: None,
    };
    environment::put(context.tx, answer.run, &value).map_err(db_fault)
}

/// The step, if it is open and this is its current try. A late outcome of a try that a
/// recovery has replaced is refused: it changes nothing.
pub fn open_step(
    context: &mut Context<'_>,
    run: RunId,
    seq: u32,
    attempt: u32,
) -> Result<Step, Fault> {
    let step = steps::get(context.tx, run, seq)
        .map_err(db_fault)?
        .ok_or_else(|| Fault::not_found("step", format!("{seq} of run {run}")))?;
    if !step.state.is_open() || step.attempts != attempt {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "step {seq} of run {run} is {} in try {}: an outcome of try {attempt} comes too late",
                step.state, step.attempts
            ),
        ));
    }
    Ok(step)
}

/// The transcript's entry for the outcome of a tool call.
pub fn tool_result(context: &Context<'_>, step: &Step, text: &str, is_error: bool) -> NewMessage {
    let call = step.tool_call.as_deref().unwrap_or_default();
    NewMessage::tool_result(context.message_id(), step.run, call, text, is_error)
}
