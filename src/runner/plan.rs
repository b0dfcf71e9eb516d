//! Strategy `plan`: the model plans, its plan is carried out by tools or by one other agent, the
//! model reflects on the results, and responds. The next step is decided from the journal alone.
//! Called by `turn`, for agents of this strategy.
//!
//! ```text
//! PLAN ──▶ ACT | DELEGATE ──▶ REFLECT ──▶ RESPOND
//!   │                            └──▶ PLAN
//!   └───────────────────────────────▶ RESPOND
//! ```

mod prompt;
mod reading;

use serde_json::{Value, json};

use super::delegating::aborted;
use super::findings;
use super::turn::{
    TurnRunner, answer_of, empty_answers, has_step, has_unseen_input, is_paused, loops_left,
    out_of_loops, tool_calls,
};
use crate::agent::AgentDefinition;
use crate::contract::journal::RunView;
use crate::contract::linked::DELEGATE;
use crate::contract::runner::{Next, StepOutcome};
use crate::kernel::run::RunError;
use crate::kernel::run::step::{
    Cut, FORCED_ANSWER_KEY, Node, PLAN_PHASE_KEY, Step, StepKind, StepState,
};
use crate::kernel::session::message::{Block, plain_text};
use crate::kernel::text::open_ended;
use crate::provider::ModelRequest;
use reading::{Plan, PlanChoices, asked, read};

/// Maximum number of retries for consecutive invalid plans.
const FAULTY_PLANS: usize = 2;
/// Maximum number of retries for an empty response.
const EMPTY_RESPONSES: usize = 2;

/// The plan node of a model call; `None` if the run does not use plans.
pub(super) fn node_of(step: &Step) -> Option<Node> {
    step.input[PLAN_PHASE_KEY].as_str().and_then(Node::parse)
}

impl TurnRunner {
    /// The next step of a run of this strategy.
    pub(super) fn next_planned(&self, view: &RunView, definition: &AgentDefinition) -> Next {
        let ask = |node| self.ask_node(view, definition, node);
        let mut steps = view.steps.iter().rev();
        let Some(latest) = steps.find(|step| step.kind == StepKind::Model) else {
            return ask(Node::Plan);
        };
        let node = node_of(latest).unwrap_or(Node::Respond);
        if latest.was_too_long() {
            let next = self.after_too_long(view, definition);
            return next.unwrap_or_else(|| ask(node));
        }
        if latest.state != StepState::Done {
            let why = latest.error.as_deref().unwrap_or("the model call failed");
            return Next::Fail(RunError::new("provider", why));
        }
        let text = || plain_text(answer_of(view, latest));
        if is_paused(answer_of(view, latest)) {
            return ask(node);
        }
        match node {
            Node::Plan => self.after_plan(view, definition, latest),
            // New input gets a plan of its own.
            _ if has_unseen_input(view, latest) => ask(Node::Plan),
            Node::Reflect if prompt::plans_again(&text()) => ask(Node::Plan),
            Node::Reflect => ask(Node::Respond),
            Node::Respond => match Some(text()).filter(|text| !text.trim().is_empty()) {
                Some(text) => Next::EndTurn(Some(text)),
                None if empty_answers(view) <= EMPTY_RESPONSES => ask(Node::Respond),
                None => Next::EndTurn(None),
            },
        }
    }

    /// The next model call, for `node`. The last call that the run may make is always its response;
    /// without calls left the run ends with its findings.
    fn ask_node(&self, view: &RunView, definition: &AgentDefinition, node: Node) -> Next {
        let left = loops_left(view, definition);
        if left == 0 {
            let error = out_of_loops(definition);
            let mut models = view.steps.iter().rev();
            let latest = models.find(|step| step.kind == StepKind::Model);
            return match self::found(view, definition, Cut::MaxLoops) {
                // Ending the turn here would start another one for the unseen input.
                Some(found) if latest.is_some_and(|latest| has_unseen_input(view, latest)) => {
                    Next::Cut {
                        error,
                        findings: found,
                    }
                }
                Some(found) => Next::EndTurn(Some(found)),
                None => Next::Fail(error),
            };
        }
        if let Some(next) = self.shorten_first(view, definition) {
            return next;
        }
        match left == 1 && node != Node::Respond {
            true => self.model_call(view, Some(Node::Respond), Some(Cut::MaxLoops)),
            false => self.model_call(view, Some(node), None),
        }
    }

    fn after_plan(&self, view: &RunView, definition: &AgentDefinition, plan: &Step) -> Next {
        let ask = |node| self.ask_node(view, definition, node);
        let calls = tool_calls(answer_of(view, plan));
        if let Some(error) = aborted(view, plan).or_else(|| self.without_valid_calls(view)) {
            return Next::Fail(error);
        }
        // One after another: a later step may depend on an earlier one.
        if let Some(call) = calls.iter().find(|(id, ..)| !has_step(view, plan, id)) {
            return Next::Steps(vec![self.call_tool(view, plan, *call)]);
        }
        if !calls.is_empty() {
            return ask(Node::Reflect);
        }
        let pool = self.pool(view, definition);
        let Some(fault) = fault(view, &pool, plan) else {
            return ask(Node::Respond);
        };
        let models = view.steps.iter().rev();
        let faulty = models
            .filter(|step| step.kind == StepKind::Model)
            .take_while(|step| {
                node_of(step) == Some(Node::Plan) && self::fault(view, &pool, step).is_some()
            })
            .count();
        if faulty <= FAULTY_PLANS {
            return ask(Node::Plan);
        }
        if findings::results(view).is_some() {
            return self.model_call(view, Some(Node::Respond), Some(Cut::BadPlan));
        }
        let message = format!(
            "the model gave {faulty} plans in a row that could not be carried \
             out; the last error: {}. The transcript has all of them",
            open_ended(&fault.to_string())
        );
        Next::Fail(RunError::new("bad_plan", message))
    }

    /// Rewrites the request that the model would get without plans for this node.
    pub(super) fn node_request(
        &self,
        view: &RunView,
        definition: &AgentDefinition,
        step: &Step,
        node: Node,
        mut request: ModelRequest,
    ) -> ModelRequest {
        let pool = self.pool(view, definition);
        request.system = format!(
            "{}\n\n---\n\n{}",
            request.system.trim_end(),
            prompt::instruction(node, &pool)
        );
        let mut before = view.steps.iter().rev();
        let before = before.find(|one| one.seq < step.seq && one.kind == StepKind::Model);
        let fault = before
            .filter(|one| node == Node::Plan && node_of(one) == Some(Node::Plan))
            .and_then(|one| fault(view, &pool, one));
        request.messages = prompt::conversation(&request.messages, view.run.id, node, fault);
        // The prompt describes them: the wanted output is text.
        request.tools = Vec::new();
        if cut_of(step).is_some() {
            request.system.push_str(prompt::LAST);
        }
        request
    }

    /// The outcome of the last call of a run that is cut: an answer with a warning, or the findings
    /// if there is no answer.
    pub(super) fn cut(
        &self,
        view: &RunView,
        definition: &AgentDefinition,
        cut: Cut,
        outcome: StepOutcome,
    ) -> StepOutcome {
        let (why, used) = match outcome {
            StepOutcome::Answer {
                blocks,
                used,
                mut warnings,
            } if !plain_text(&blocks).trim().is_empty() => {
                warnings.push(warning(definition, cut));
                return StepOutcome::Answer {
                    blocks,
                    used,
                    warnings,
                };
            }
            StepOutcome::Answer { used, .. } => ("its answer was empty".to_owned(), used),
            StepOutcome::Failed { error, used } => (error.message, used),
            other => return other,
        };
        let Some(text) = found(view, definition, cut) else {
            let error = match cut {
                Cut::MaxLoops => out_of_loops(definition),
                Cut::BadPlan => RunError::new("bad_plan", why),
            };
            return StepOutcome::Failed { error, used };
        };
        StepOutcome::Answer {
            blocks: vec![Block::Text { text }],
            used,
            warnings: vec![
                warning(definition, cut),
                format!("the model gave no final answer ({why}); the result is its findings"),
            ],
        }
    }

    /// The outcome of a planning call, with the tool calls that the plan results in.
    pub(super) fn planned(
        &self,
        view: &RunView,
        definition: &AgentDefinition,
        step: &Step,
        outcome: StepOutcome,
    ) -> StepOutcome {
        let StepOutcome::Answer {
            mut blocks,
            used,
            warnings,
        } = outcome
        else {
            return outcome;
        };
        let text = plain_text(&blocks);
        if let Ok(plan) = read(&text, &self.pool(view, definition), view) {
            let calls = calls(view, step, plan);
            if !calls.is_empty() {
                // The provider's raw blocks do not contain these calls.
                blocks.retain(|block| matches!(block, Block::Text { .. }));
                blocks.extend(calls);
            }
        }
        StepOutcome::Answer {
            blocks,
            used,
            warnings,
        }
    }

    /// The agents that the run may delegate to, and its own tools.
    fn pool(&self, view: &RunView, definition: &AgentDefinition) -> PlanChoices {
        PlanChoices::of(
            view,
            self.offered_tools(definition, view).unwrap_or_default(),
        )
    }
}

/// Why this model call is the last one of its run; `None` if it is not.
pub(super) fn cut_of(step: &Step) -> Option<Cut> {
    step.input[FORCED_ANSWER_KEY].as_str().and_then(Cut::parse)
}

/// The warning for the requester of a run that was stopped early.
fn warning(definition: &AgentDefinition, cut: Cut) -> String {
    match cut {
        Cut::MaxLoops => format!(
            "cut: agent {} used all its {} model calls (max_loops) and answered with what it had",
            definition.name, definition.max_loops
        ),
        Cut::BadPlan => format!(
            "cut: agent {} gave no further plan that could be carried out, and answered with what \
             it had",
            definition.name
        ),
    }
}

/// The result of a run without an answer of its own: its last response, or the results of its
/// plans, marked as cut.
fn found(view: &RunView, definition: &AgentDefinition, cut: Cut) -> Option<String> {
    let mut answers = view
        .steps
        .iter()
        .rev()
        .filter(|step| step.kind == StepKind::Model && node_of(step) == Some(Node::Respond))
        .map(|step| plain_text(answer_of(view, step)));
    if let Some(answer) = answers.find(|text| !text.trim().is_empty()) {
        return Some(answer);
    }
    let results = findings::results(view)?;
    Some(format!(
        "[{}. No answer was written; these are the results of its plans.]\n\n{results}",
        warning(definition, cut)
    ))
}

/// Why the model's plan cannot be carried out; `None` if it can.
fn fault(view: &RunView, pool: &PlanChoices, plan: &Step) -> Option<String> {
    let answer = answer_of(view, plan);
    if !tool_calls(answer).is_empty() {
        return None;
    }
    read(&plain_text(answer), pool, view).err()
}

/// The calls that a plan results in: its steps, or one delegation, or none.
fn calls(view: &RunView, step: &Step, plan: Plan) -> Vec<Block> {
    let plan_id = step.id.0.simple().to_string();
    let call = |(number, (name, arguments)): (usize, (String, Value))| Block::ToolCall {
        // A session has many plans, and call ids must be unique in it.
        id: format!("plan_{}_{}", &plan_id[20..], number + 1),
        name,
        arguments,
    };
    let calls = match plan {
        Plan::Respond => Vec::new(),
        Plan::Act(steps) => steps
            .into_iter()
            .map(|act| (act.tool, Value::Object(act.arguments)))
            .collect(),
        Plan::Delegate { agent, task } => {
            let task = task.unwrap_or_else(|| asked(view));
            let arguments = json!({ "agent": agent, "task": task });
            vec![(DELEGATE.to_owned(), arguments)]
        }
    };
    calls.into_iter().enumerate().map(call).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
