//! The model loop (strategy `react`): call the model, carry out its tool calls, call it again,
//! until it answers in text. The next step is decided from the journal alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::delegating::{aborted, pack};
use super::findings;
use super::perform::{node_of_tool, served_effect};
use crate::agent::{AgentDefinition, Strategy};
use crate::clock::Clock;
use crate::config::PriceTable;
use crate::contract::BoxFuture;
use crate::contract::journal::RunView;
use crate::contract::linked;
use crate::contract::pin::Pin;
use crate::contract::preview::{Preview, UnapprovedCall};
use crate::contract::rows::MemoryRows;
use crate::contract::runner::{Admission, Next, Runner, StepOutcome, TextSink};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::RunError;
use crate::kernel::run::step::{
    Cut, EffectClass, FORCED_ANSWER_KEY, Intent, Node, PLAN_PHASE_KEY, Step, StepKind, StepState,
    Why,
};
use crate::kernel::session::Overflow;
use crate::kernel::session::message::{AnswerFinding, Block, Message, plain_text};
use crate::kernel::text;
use crate::provider::Providers;
use crate::tool::{Catalogue, YIELD};

/// The final text of a turn whose model yields without any text.
const WAITING: &str = "Waiting for delegated work to finish.";

/// Maximum number of retries for an empty answer.
const EMPTY_RETRIES: usize = 2;

/// Maximum length of a step's summary in characters.
pub(super) const SUMMARY_LIMIT: usize = 160;

/// Settings of run execution; changed by a reload.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Pause before each step's effect, so that a user can follow.
    pub pace: Duration,
    /// Time limit of one model call.
    pub model_timeout: Duration,
    /// Time limit of one tool call.
    pub tool_timeout: Duration,
    /// Maximum depth of spawned sessions below a root session.
    pub max_spawn_depth: u32,
    /// The fallback models, in order, for agents that name none.
    pub fallback_models: Vec<String>,
    /// Prices by `provider/name`.
    pub prices: BTreeMap<String, PriceTable>,
    /// Maximum number of tokens of a request.
    pub window: u64,
    /// What happens to a transcript that exceeds the window.
    pub overflow: Overflow,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        RunnerOptions {
            pace: Duration::ZERO,
            model_timeout: Duration::from_secs(120),
            tool_timeout: Duration::from_secs(60),
            max_spawn_depth: 1,
            fallback_models: Vec::new(),
            prices: BTreeMap::new(),
            window: 100_000,
            overflow: Overflow::Summarize,
        }
    }
}

/// Executes runs by the model loop. Cheap to clone.
#[derive(Clone)]
pub struct TurnRunner {
    pub(super) options: watch::Receiver<RunnerOptions>,
    pub(super) workspace: Arc<Path>,
    pub(super) providers: Arc<Providers>,
    pub(super) tools: Arc<Catalogue>,
    pub(super) memory: Option<Arc<dyn MemoryRows>>,
    pub(super) clock: Clock,
}

impl TurnRunner {
    /// A runner that follows the current `options`, calls `providers` and `tools`. `workspace` is
    /// the folder of runs that name none, `memory` resolves the memories that steps recall, `clock`
    /// creates step ids.
    pub fn new(
        options: watch::Receiver<RunnerOptions>,
        workspace: PathBuf,
        providers: Arc<Providers>,
        tools: Arc<Catalogue>,
        memory: Option<Arc<dyn MemoryRows>>,
        clock: Clock,
    ) -> Self {
        TurnRunner {
            options,
            workspace: workspace.into(),
            providers,
            tools,
            memory,
            clock,
        }
    }

    /// The next model call; at the run's call limit its end, with the model's texts so far.
    fn ask_model(&self, view: &RunView, definition: &AgentDefinition) -> Next {
        if loops_left(view, definition) == 0 {
            let error = out_of_loops(definition);
            // The results of its tools are in the transcript, but its requester gets only the
            // model's texts.
            return match findings::said(view) {
                Some(found) => Next::Cut {
                    error,
                    findings: found,
                },
                None => Next::Fail(error),
            };
        }
        let shorten = self.shorten_first(view, definition);
        shorten.unwrap_or_else(|| self.model_call(view, None, None))
    }

    /// A model call: for `node` if the strategy is `plan`; the run's last call if `cut` is set.
    pub(super) fn model_call(&self, view: &RunView, node: Option<Node>, cut: Option<Cut>) -> Next {
        let summary = match node {
            Some(node) => format!("{node}: {}", view.run.model),
            None => view.run.model.clone(),
        };
        let input = match (node, cut) {
            (Some(node), Some(cut)) => json!({ PLAN_PHASE_KEY: node, FORCED_ANSWER_KEY: cut }),
            (Some(node), None) => json!({ PLAN_PHASE_KEY: node }),
            (None, _) => Value::Null,
        };
        Next::Steps(vec![Intent {
            id: StepId(self.clock.new_id()),
            kind: StepKind::Model,
            tool: None,
            tool_call: None,
            asked_by: None,
            effect: EffectClass::Read,
            input,
            params_summary: Some(text::preview(&summary, SUMMARY_LIMIT)),
            context: None,
        }])
    }

    pub(super) fn call_tool(
        &self,
        view: &RunView,
        asked_by: &Step,
        (id, name, arguments): (&str, &str, &Value),
    ) -> Intent {
        Intent {
            context: pack(view, name, arguments),
            id: StepId(self.clock.new_id()),
            kind: StepKind::Tool,
            tool: Some(name.to_owned()),
            tool_call: Some(id.to_owned()),
            asked_by: Some(asked_by.id),
            // An unknown tool only returns an error, and an invalid call is not run.
            effect: match self.invalid_reason(
                view,
                answer_of(view, asked_by),
                (id, name, arguments),
            ) {
                Some(_) => EffectClass::Read,
                None => {
                    let own = self.tools.effect(name, node_of_tool(view, name).is_some());
                    let effect = own.or_else(|| served_effect(view, name));
                    effect.unwrap_or(EffectClass::Read)
                }
            },
            input: arguments.clone(),
            params_summary: Some(summary(name, arguments)),
        }
    }
}

impl Runner for TurnRunner {
    fn next(&self, view: &RunView) -> Next {
        if let Some(end) = asked_for(view) {
            return end;
        }
        let definition = match pinned_agent(view) {
            Ok(definition) => definition,
            Err(error) => return Next::Fail(error),
        };
        if definition.strategy == Strategy::Plan {
            return self.next_planned(view, &definition);
        }
        let ask = || self.ask_model(view, &definition);
        let mut steps = view.steps.iter().rev();
        let Some(latest) = steps.find(|step| step.kind == StepKind::Model) else {
            return ask();
        };
        if latest.was_too_long() {
            let next = self.after_too_long(view, &definition);
            return next.unwrap_or_else(ask);
        }
        if latest.state != StepState::Done {
            let why = latest.error.as_deref().unwrap_or("the model call failed");
            return Next::Fail(RunError::new("provider", why));
        }
        let answer = answer_of(view, latest);
        let calls = tool_calls(answer);
        if let Some(error) = self.without_valid_calls(view) {
            return Next::Fail(error);
        }
        let missing: Vec<Intent> = calls
            .iter()
            .filter(|(id, ..)| !has_step(view, latest, id))
            .map(|call| self.call_tool(view, latest, *call))
            .collect();
        if !missing.is_empty() {
            return Next::Steps(missing);
        }
        if let Some(error) = aborted(view, latest) {
            return Next::Fail(error);
        }
        if let Some(said) = yielded(view, latest)
            && !has_unseen_input(view, latest)
        {
            let own = plain_text(answer);
            let text = [own.trim(), said.trim()]
                .into_iter()
                .find(|text| !text.is_empty());
            return Next::EndTurn(Some(text.unwrap_or(WAITING).to_owned()));
        }
        if !calls.is_empty() || has_unseen_input(view, latest) || is_paused(answer) {
            return ask();
        }
        let text = plain_text(answer);
        if !text.trim().is_empty() {
            return Next::EndTurn(Some(text));
        }
        if empty_answers(view) <= EMPTY_RETRIES {
            return ask();
        }
        Next::EndTurn(None)
    }

    fn admit(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, Admission> {
        match self.admit_tool(&view, &step) {
            Ok(admitted) => admitted,
            Err(error) => Box::pin(std::future::ready(Admission::Refused(error.message))),
        }
    }

    fn preview(&self, call: UnapprovedCall) -> BoxFuture<'static, Preview> {
        let root = match &call.cwd {
            Some(cwd) => PathBuf::from(cwd),
            None => self.workspace.to_path_buf(),
        };
        preview_in(&self.tools, root, call)
    }

    fn prepare(&self, view: &RunView, step: &Step) {
        let name = step.tool.as_deref().unwrap_or_default();
        if node_of_tool(view, name).is_none() {
            self.tools.prepare(name, step.run, step.id);
        }
    }

    fn stored(&self, step: StepId) {
        self.tools.stored(step);
    }

    fn ended(&self, run: RunId) -> BoxFuture<'static, Vec<String>> {
        self.tools.release(run)
    }

    fn perform(
        &self,
        view: Arc<RunView>,
        step: Arc<Step>,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, StepOutcome> {
        let runner = self.clone();
        Box::pin(async move {
            let pace = runner.options.borrow().pace;
            if !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
            match step.kind {
                StepKind::Model => {
                    runner.connect(&view);
                    runner.perform_model(&view, &step, sink).await
                }
                StepKind::Tool => {
                    runner.connect(&view);
                    runner.perform_tool(&view, &step).await
                }
                StepKind::Compaction => runner.perform_compaction(&view, &step).await,
                StepKind::Command => {
                    let why = "a run of a model has a step of a program";
                    StepOutcome::failed(RunError::new("pins", why))
                }
            }
        })
    }
}

/// Number of model calls that the run has left.
pub(super) fn loops_left(view: &RunView, definition: &AgentDefinition) -> usize {
    let ended = |step: &&Arc<Step>| step.kind == StepKind::Model && !step.state.is_open();
    let asked = view.steps.iter().filter(ended).count();
    (definition.max_loops as usize).saturating_sub(asked)
}

/// The failure of a run without model calls left.
pub(super) fn out_of_loops(definition: &AgentDefinition) -> RunError {
    let message = format!(
        "agent {} made {} model calls, its max_loops, without finishing; the transcript \
         holds all of them",
        definition.name, definition.max_loops
    );
    RunError::new("max_loops", message)
}

/// The end of a run whose only purpose was to compact its session.
fn asked_for(view: &RunView) -> Option<Next> {
    let [step] = view.steps.as_slice() else {
        return None;
    };
    let asked = step.kind == StepKind::Compaction && step.input["why"] == Why::Asked.as_str();
    asked.then(|| Next::EndTurn(step.result_summary.clone()))
}

/// The agent definition that the run has pinned.
pub(super) fn pinned_agent(view: &RunView) -> Result<Arc<AgentDefinition>, RunError> {
    read_agent(&view.agent)
}

/// Parses a pinned agent definition.
pub(super) fn read_agent(pin: &Pin) -> Result<Arc<AgentDefinition>, RunError> {
    pin.read(|json| {
        serde_json::from_str(json).map_err(|error| {
            let message = format!("the agent that this run pinned cannot be read: {error}");
            RunError::new("pins", message)
        })
    })
}

/// Number of consecutive empty answers at the end of the run's model calls.
pub(super) fn empty_answers(view: &RunView) -> usize {
    view.steps
        .iter()
        .rev()
        // The call in progress has no answer yet.
        .skip_while(|step| step.state.is_open())
        .take_while(|step| {
            step.kind == StepKind::Model
                && step.state == StepState::Done
                && is_empty(answer_of(view, step))
        })
        .count()
}

/// True if the answer has neither text nor tool calls and the provider has not paused it.
pub(super) fn is_empty(content: &[Block]) -> bool {
    tool_calls(content).is_empty() && plain_text(content).trim().is_empty() && !is_paused(content)
}

/// True if the provider paused this answer and continues it when it is sent back.
pub(super) fn is_paused(content: &[Block]) -> bool {
    let paused = |block: &Block| {
        matches!(
            block,
            Block::Note {
                note: AnswerFinding::Paused
            }
        )
    };
    content.iter().any(paused)
}

/// The content of the entry that holds the outcome of `step`; empty if there is none.
pub(super) fn answer_of<'a>(view: &'a RunView, step: &Step) -> &'a [Block] {
    step.message_seq
        .and_then(|seq| at(view, seq))
        .map_or(&[], |message| &message.content)
}

fn at(view: &RunView, seq: i64) -> Option<&Message> {
    let index = view
        .messages
        .binary_search_by_key(&seq, |message| message.seq);
    index.ok().map(|index| view.messages[index].as_ref())
}

pub(super) fn tool_calls(content: &[Block]) -> Vec<(&str, &str, &Value)> {
    content
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall {
                id,
                name,
                arguments,
            } => Some((id.as_str(), name.as_str(), arguments)),
            _ => None,
        })
        .collect()
}

pub(super) fn has_step(view: &RunView, model: &Step, call: &str) -> bool {
    view.steps
        .iter()
        .any(|step| step.asked_by == Some(model.id) && step.tool_call.as_deref() == Some(call))
}

/// The message of a successful yield in this answer; `None` if the model did not yield. A yield
/// ends the turn until something is delivered to the session.
fn yielded<'a>(view: &'a RunView, model: &Step) -> Option<&'a str> {
    let mut steps = view
        .steps
        .iter()
        .filter(|step| step.asked_by == Some(model.id) && step.tool.as_deref() == Some(YIELD));
    let step = steps.find(|step| {
        let result = step.message_seq.and_then(|seq| at(view, seq));
        let blocks = result.map_or(&[][..], |message| &message.content);
        let went_well = |block: &Block| {
            matches!(
                block,
                Block::ToolResult {
                    is_error: false,
                    ..
                }
            )
        };
        blocks.iter().any(went_well)
    })?;
    Some(step.input["message"].as_str().unwrap_or_default())
}

/// What the call would do in this folder.
pub(super) fn preview_in(
    tools: &Catalogue,
    root: PathBuf,
    call: UnapprovedCall,
) -> BoxFuture<'static, Preview> {
    let folder = Some(root.display().to_string());
    let change = tools.preview(root, &call.tool, &call.arguments, call.redactor, call.anew);
    Box::pin(async move {
        Preview {
            folder,
            change: change.await,
        }
    })
}

/// True if input or an announce has arrived since the model's last call.
pub(super) fn has_unseen_input(view: &RunView, latest: &Step) -> bool {
    let seen = latest.seen_up_to.unwrap_or(i64::MAX);
    view.messages
        .iter()
        .rev()
        .take_while(|message| message.seq > seen)
        .any(|message| message.is_input())
}

/// The arguments on one line, for users.
fn summary(tool: &str, arguments: &Value) -> String {
    let said = |name: &str| arguments.get(name).and_then(Value::as_str);
    if tool == linked::TASK
        && let (Some(about), Some(agent)) = (said("description"), said("subagent_type"))
    {
        return text::preview(&format!("{about} (@{agent})"), SUMMARY_LIMIT);
    }
    // A pattern tells a user little, so a call with a note is shown by its note.
    if let Some(Value::String(note)) = arguments.get("note") {
        return text::preview(note, SUMMARY_LIMIT);
    }
    let shown = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let line = match arguments {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}: {}", shown(value)))
            .collect::<Vec<_>>()
            .join(", "),
        other => shown(other),
    };
    text::preview(&line, SUMMARY_LIMIT)
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
