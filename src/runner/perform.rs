//! Carries out one step: a model call or a tool call, each with its time limit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::command::program_step;
use super::compact::too_long;
use super::memory;
use super::plan::{cut_of, node_of};
use super::prompt::{conversation, system, to_be_answered};
use super::rights::rights;
use super::turn::{TurnRunner, answer_of, empty_answers, pinned_agent};
use super::window::tokens;
use crate::agent::{AgentDefinition, Strategy};
use crate::contract::BoxFuture;
use crate::contract::catalog::SKILL_TOOL;
use crate::contract::delegate::Site;
use crate::contract::journal::RunView;
use crate::contract::linked::{self, PlanCandidate};
use crate::contract::runner::{Admission, StepOutcome, TextSink};
use crate::contract::servers::Served;
use crate::kernel::run::RunError;
use crate::kernel::run::step::{EffectClass, Node, Step, StepState};
use crate::kernel::text::{in_quotes, preview};
use crate::provider::{ModelRequest, ToolSchema};
use crate::tool::{Call, Called, NodeContext};

impl TurnRunner {
    pub(super) async fn perform_model(
        &self,
        view: &RunView,
        step: &Step,
        sink: Arc<dyn TextSink>,
    ) -> StepOutcome {
        let definition = match pinned_agent(view) {
            Ok(definition) => definition,
            Err(error) => return StepOutcome::failed(error),
        };
        let request = match self.request(view, step, &definition) {
            Ok(request) => request,
            Err(error) => return StepOutcome::failed(error),
        };
        let Some(node) = node_of(step) else {
            let messages = to_be_answered(request.messages);
            let request = ModelRequest {
                messages,
                ..request
            };
            return too_long(self.ask(view, &definition, request, sink).await);
        };
        let request = self.node_request(view, &definition, step, node, request);
        let outcome = too_long(self.ask(view, &definition, request, sink).await);
        if let Some(cut) = cut_of(step) {
            return self.cut(view, &definition, cut, outcome);
        }
        match node {
            Node::Plan => self.planned(view, &definition, step, outcome),
            Node::Reflect | Node::Respond => outcome,
        }
    }

    /// The request without its model, which is the same for all models.
    fn request(
        &self,
        view: &RunView,
        step: &Step,
        definition: &AgentDefinition,
    ) -> Result<ModelRequest, RunError> {
        Ok(ModelRequest {
            model: String::new(),
            system: system(
                definition,
                view,
                self.workspace(view),
                &*pinned_tools(view)?,
                self.levels_left(definition, view),
            )?,
            messages: memory::recalled(
                conversation(view, step.seen_up_to),
                view,
                step,
                self.memory.as_deref(),
            )?,
            tools: self.offered_tools(definition, view)?,
            empty_answers: u32::try_from(empty_answers(view)).unwrap_or(u32::MAX),
            thinking: view.run.thinking,
            temperature: definition.temperature,
            options: definition.provider.clone(),
            max_tokens: definition.max_tokens,
            limit: self.options.borrow().model_timeout,
            window: self.options.borrow().window,
            is_fallback: false,
        })
    }

    /// The tools offered to the model: those of the agent, without the ones that would always be
    /// refused.
    pub(super) fn offered_tools(
        &self,
        definition: &AgentDefinition,
        view: &RunView,
    ) -> Result<Vec<Arc<ToolSchema>>, RunError> {
        let rights = rights(definition, view)?;
        let pinned = pinned_tools(view)?;
        let tools = pinned.tools.iter().map(|tool| Arc::clone(&tool.schema));
        let mut tools: Vec<Arc<ToolSchema>> = tools.collect();
        tools.retain(|tool| !rights.closes(&tool.name));
        // Only plans can call it.
        if definition.strategy != Strategy::Plan {
            tools.retain(|tool| tool.name != linked::DELEGATE);
        }
        if view.skills.is_none() {
            tools.retain(|tool| tool.name != SKILL_TOOL);
        }
        if self.levels_left(definition, view) == 0 {
            tools.retain(|tool| !linked::delegates(&tool.name) && tool.name != "agents_list");
        }
        Ok(tools)
    }

    /// Number of spawning levels left below this run.
    fn levels_left(&self, definition: &AgentDefinition, view: &RunView) -> u32 {
        let most = definition.max_spawn_depth;
        let most = most.unwrap_or(self.options.borrow().max_spawn_depth);
        most.saturating_sub(view.run.depth)
    }

    fn workspace<'a>(&'a self, view: &'a RunView) -> &'a Path {
        match &view.run.cwd {
            Some(cwd) => Path::new(cwd),
            None => &self.workspace,
        }
    }

    /// Whether the call may be made, by the rules that the run has pinned.
    pub(super) fn admit_tool(
        &self,
        view: &RunView,
        step: &Step,
    ) -> Result<BoxFuture<'static, Admission>, RunError> {
        // No approval for a call that is not carried out; its result says why.
        if self.unfit_step(view, step).is_some() {
            return Ok(Box::pin(std::future::ready(Admission::Allowed)));
        }
        let definition = pinned_agent(view)?;
        let rights = rights(&definition, view)?;
        let name = step.tool.as_deref().unwrap_or_default();
        let pinned = pinned_tools(view)?;
        let pinned = pinned.find(name);
        let admitted = self.tools.admit(Call {
            site: site_of(step),
            id: step.tool_call.as_deref().unwrap_or_default(),
            name,
            root: self.workspace(view),
            served: pinned.and_then(|tool| tool.served.as_ref()),
            rights: &rights,
            environment: &view.environment,
            arguments: &step.input,
            links: &definition.linked_agents,
            nodes: node_context(view, step, pinned),
            program: program_step(view, step, self.clock.moment().steady),
        });
        let is_there = pinned.is_some();
        let (name, limit) = (name.to_owned(), self.options.borrow().tool_timeout);
        Ok(Box::pin(async move {
            let admitted = tokio::time::timeout(limit, admitted).await;
            match admitted.unwrap_or_else(|_| Admission::Refused(unanswered(&name, limit))) {
                // No approval for a tool that does not exist; the result says so.
                Admission::NeedsApproval(_) if !is_there => Admission::Allowed,
                decided => decided,
            }
        }))
    }

    /// Why the call of `step` is not carried out; `None` if it is.
    fn unfit_step(&self, view: &RunView, step: &Step) -> Option<String> {
        let mut models = view.steps.iter();
        let model = models.find(|model| Some(model.id) == step.asked_by);
        let answer = model.map_or(&[][..], |model| answer_of(view, model));
        let name = step.tool.as_deref().unwrap_or_default();
        let id = step.tool_call.as_deref().unwrap_or_default();
        self.invalid_reason(view, answer, (id, name, &step.input))
    }

    pub(super) async fn perform_tool(&self, view: &RunView, step: &Step) -> StepOutcome {
        let pinned = pinned_tools(view).and_then(|tools| {
            let definition = pinned_agent(view)?;
            let rights = rights(&definition, view)?;
            Ok((tools, definition, rights))
        });
        let (tools, definition, rights) = match pinned {
            Ok(pinned) => pinned,
            Err(error) => return StepOutcome::failed(error),
        };
        let name = step.tool.as_deref().unwrap_or_default();
        if let Some(why) = self.unfit_step(view, step) {
            return StepOutcome::ToolResult {
                text: format!("{} was not run: {why}", preview(name, 64)),
                is_error: true,
            };
        }
        let Some(tool) = tools.find(name) else {
            let names: Vec<&str> = tools
                .tools
                .iter()
                .map(|tool| tool.schema.name.as_str())
                .collect();
            let shown = in_quotes(name, 64);
            return StepOutcome::ToolResult {
                text: format!(
                    "no tool {shown}; this agent's tools are {}",
                    names.join(", ")
                ),
                is_error: true,
            };
        };
        let limit = match tool.served.is_some() || self.tools.keeps_time(name) {
            true => Duration::MAX,
            false => self.options.borrow().tool_timeout,
        };
        let call = Call {
            site: site_of(step),
            id: step.tool_call.as_deref().unwrap_or_default(),
            name,
            root: self.workspace(view),
            served: tool.served.as_ref(),
            rights: &rights,
            environment: &view.environment,
            arguments: &step.input,
            links: &definition.linked_agents,
            nodes: node_context(view, step, Some(tool)),
            program: program_step(view, step, self.clock.moment().steady),
        };
        let call = self.tools.call(call);
        match tokio::time::timeout(limit, call).await {
            Ok(Called::Done(output)) => StepOutcome::ToolResult {
                text: output.text,
                is_error: output.is_error,
            },
            Ok(Called::Waits) => StepOutcome::Waits,
            Ok(Called::Uncertain { why, is_final }) => StepOutcome::Uncertain { why, is_final },
            Ok(Called::Gone(why)) => StepOutcome::failed(RunError::new(
                "workspace_gone",
                format!("{why}; restore it, then retry the run: abide retry RUN"),
            )),
            Err(_) => StepOutcome::ToolResult {
                text: format!("{name} was stopped after {limit:?}; make the call narrower"),
                is_error: true,
            },
        }
    }
}

fn node_context<'a>(
    view: &'a RunView,
    step: &Step,
    pinned: Option<&'a PinnedTool>,
) -> NodeContext<'a> {
    NodeContext {
        org: &view.run.org,
        on: pinned.and_then(|tool| tool.on.as_deref()),
        overlay: &view.run.env,
        may_have_begun: step.state == StepState::Started,
    }
}

fn site_of(step: &Step) -> Site {
    Site {
        run: step.run,
        id: step.id,
        step: step.seq,
        attempt: step.attempts,
    }
}

/// The refusal of a call whose paths could not be resolved in time, so that no rule could be
/// checked.
fn unanswered(name: &str, limit: Duration) -> String {
    format!(
        "{name} was not called, nothing was done: within {limit:?} the file system did not resolve \
         its paths"
    )
}

/// A tool as the run has pinned it.
#[derive(Deserialize)]
#[serde(from = "StoredTool")]
pub(super) struct PinnedTool {
    pub(super) schema: Arc<ToolSchema>,
    /// The agents that a plan may choose, if this is the delegation tool of plans.
    pub(super) candidates: Vec<PlanCandidate>,
    /// The server that provides it, if one does.
    pub(super) served: Option<Served>,
    /// The node on which it works, if its agent works on one.
    pub(super) on: Option<String>,
    /// The nodes that its argument may name, each in a line for models.
    pub(super) nodes: Vec<String>,
}

/// The format in the pinned JSON. The schema stays raw JSON text, which a flattened field cannot
/// hold.
#[derive(Deserialize)]
struct StoredTool {
    name: String,
    description: String,
    parameters: Box<RawValue>,
    #[serde(default)]
    candidates: Vec<PlanCandidate>,
    served: Option<Served>,
    on: Option<String>,
    #[serde(default)]
    nodes: Vec<String>,
}

impl From<StoredTool> for PinnedTool {
    fn from(written: StoredTool) -> Self {
        PinnedTool {
            schema: Arc::new(ToolSchema {
                name: written.name,
                description: written.description,
                parameters: written.parameters,
            }),
            candidates: written.candidates,
            served: written.served,
            on: written.on,
            nodes: written.nodes,
        }
    }
}

/// The tools of a run, as it has pinned them.
pub(super) struct PinnedTools {
    /// In the order shown to models.
    pub(super) tools: Vec<PinnedTool>,
    /// Estimated tokens of their schemas.
    pub(super) tokens: u64,
}

impl PinnedTools {
    pub(super) fn find(&self, name: &str) -> Option<&PinnedTool> {
        self.tools.iter().find(|tool| tool.schema.name == name)
    }
}

/// The node on which this tool works, if its agent works on one.
pub(super) fn node_of_tool(view: &RunView, name: &str) -> Option<String> {
    pinned_tools(view).ok()?.find(name)?.on.clone()
}

/// The effect class of this tool, if a server provides it.
pub(super) fn served_effect(view: &RunView, name: &str) -> Option<EffectClass> {
    let pinned = pinned_tools(view).ok()?;
    let served = pinned.find(name)?.served.as_ref()?;
    Some(served.effect)
}

pub(super) fn pinned_tools(view: &RunView) -> Result<Arc<PinnedTools>, RunError> {
    view.tools.read(|json| {
        let tools = serde_json::from_str(json).map_err(|error| {
            let message = format!("the tools that this run pinned cannot be read: {error}");
            RunError::new("pins", message)
        })?;
        let tokens = tokens(json);
        Ok(PinnedTools { tools, tokens })
    })
}
