//! Parses the model's plan: its schema, the agents it may delegate to, and error messages that let
//! the model repair it.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::contract::journal::RunView;
use crate::contract::linked::{DELEGATE, PlanCandidate};
use crate::kernel::ids::AgentId;
use crate::provider::ToolSchema;
use crate::provider::stream::strict;
use crate::runner::perform::pinned_tools;
use crate::tool::YIELD;

/// A parsed plan. Own tools have priority: if there are steps, nothing is delegated.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plan {
    /// Carry out these calls, in this order.
    Act(Vec<PlanStep>),
    /// Delegate to one other agent.
    Delegate {
        /// The agent.
        agent: AgentId,
        /// The task; the latest input if unset.
        task: Option<String>,
    },
    /// Respond without further steps.
    Respond,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanStep {
    /// The name of one of the agent's own tools.
    pub tool: String,
    /// The tool's arguments.
    pub arguments: Map<String, Value>,
    /// A reason, which helps the model think and readers of the transcript.
    #[serde(default, rename = "why")]
    _why: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPlan {
    steps: Vec<PlanStep>,
    requires_delegation: bool,
    #[serde(default)]
    delegate_to: Option<String>,
    #[serde(default)]
    task: Option<String>,
}

/// The JSON Schema of a plan, as shown to the model.
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "tool": { "type": "string" },
                        "arguments": { "type": "object" },
                        "why": { "type": "string" },
                    },
                    "required": ["tool", "arguments"],
                    "additionalProperties": false,
                },
            },
            "requires_delegation": { "type": "boolean" },
            "delegate_to": { "type": ["string", "null"] },
            "task": { "type": ["string", "null"] },
        },
        "required": ["steps", "requires_delegation"],
        "additionalProperties": false,
    })
}

/// The agents that a run may delegate to, and its own tools.
pub(super) struct PlanChoices {
    /// The agents as pinned when the run began.
    pub candidates: Vec<PlanCandidate>,
    /// The tools that may be called.
    pub tools: Vec<Arc<ToolSchema>>,
}

impl PlanChoices {
    /// The pool that the run has pinned, with these tools. Without the delegation tool there are no
    /// levels left or no candidates.
    pub(super) fn of(view: &RunView, mut tools: Vec<Arc<ToolSchema>>) -> Self {
        let delegates = tools.iter().any(|tool| tool.name == DELEGATE);
        let pinned = pinned_tools(view).ok().filter(|_| delegates);
        let tools_of = pinned.iter().flat_map(|pinned| &pinned.tools);
        let candidates = tools_of.flat_map(|tool| tool.candidates.iter().cloned());
        let candidates = candidates.collect();
        // A turn of this strategy ends with its response, not by yielding.
        tools.retain(|tool| tool.name != DELEGATE && tool.name != YIELD);
        PlanChoices { candidates, tools }
    }

    /// Finds a candidate by name, then by id.
    fn resolve(&self, named: &str) -> Option<&PlanCandidate> {
        let mut by_name = self.candidates.iter();
        let mut by_id = self.candidates.iter();
        by_name
            .find(|one| one.name == named)
            .or_else(|| by_id.find(|one| one.id.as_str() == named))
    }
}

/// The plan in a model's answer; the error says what is wrong with it.
pub(super) fn read(text: &str, pool: &PlanChoices, view: &RunView) -> Result<Plan, String> {
    let written: WrittenPlan = strict(bare(text))
        .and_then(|plan| serde_json::from_value(plan).map_err(|error| error.to_string()))
        .map_err(|error| format!("it does not match the schema: {error}"))?;
    if !written.steps.is_empty() {
        let unknown = written
            .steps
            .iter()
            .find(|act| pool.tools.iter().all(|tool| tool.name != act.tool));
        let Some(act) = unknown else {
            return Ok(Plan::Act(written.steps));
        };
        let names: Vec<&str> = pool.tools.iter().map(|tool| tool.name.as_str()).collect();
        return Err(format!(
            "there is no tool {}; the tools are {}",
            crate::kernel::text::in_quotes(&act.tool, 64),
            or_none(&names)
        ));
    }
    if !written.requires_delegation {
        return Ok(Plan::Respond);
    }
    let list: Vec<String> = pool.candidates.iter().map(PlanCandidate::line).collect();
    let list = or_none(&list.iter().map(String::as_str).collect::<Vec<_>>());
    let named = written.delegate_to.unwrap_or_default();
    let Some(candidate) = pool.resolve(named.trim()) else {
        return Err(match named.trim() {
            "" => format!(
                "requires_delegation is true, but delegate_to is empty; available agents: {list}"
            ),
            named => format!(
                "there is no agent {} to delegate to; available agents: {list}",
                crate::kernel::text::in_quotes(named, 64)
            ),
        });
    };
    let task = written.task.filter(|task| !task.trim().is_empty());
    let what = task.clone().unwrap_or_else(|| asked(view));
    if was_delegated(view, &candidate.id, &what) {
        return Err(format!(
            "agent {} already got this exact task, and its result is above; do not \
             delegate it again",
            candidate.id
        ));
    }
    Ok(Plan::Delegate {
        agent: candidate.id.clone(),
        task,
    })
}

/// The text of the run's latest input.
pub(super) fn asked(view: &RunView) -> String {
    let mut inputs = view.messages.iter().rev();
    let latest = inputs.find(|message| message.is_input());
    latest.map_or_else(String::new, |message| message.text())
}

fn was_delegated(view: &RunView, agent: &AgentId, task: &str) -> bool {
    view.steps.iter().any(|step| {
        step.tool.as_deref() == Some(DELEGATE)
            && step.input["agent"] == agent.as_str()
            && step.input["task"].as_str().map(str::trim) == Some(task.trim())
    })
}

/// The JSON in an answer, without the code fences that models often add.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let Some(fenced) = text.strip_prefix("```") else {
        return text;
    };
    let inside = fenced.strip_suffix("```").unwrap_or(fenced);
    inside.strip_prefix("json").unwrap_or(inside).trim()
}

fn or_none(names: &[&str]) -> String {
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}
