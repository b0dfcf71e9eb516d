//! Strategy `plan`: the model plans, its plan is carried out by tools or by one other agent, it
//! reflects on what came out, and responds. What comes next is judged from the journal alone.
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
use super::turn::{
    TurnRunner, answer_of, empty_answers, has_step, has_unseen_input, is_paused, tool_calls,
};
use crate::agent::AgentDefinition;
use crate::contract::journal::RunView;
use crate::contract::linked::DELEGATE;
use crate::contract::runner::{Next, StepOutcome};
use crate::kernel::message::{Block, plain_text};
use crate::kernel::run::RunError;
use crate::kernel::step::{NODE, Node, Step, StepKind, StepState};
use crate::provider::ModelRequest;
use reading::{Plan, Pool, asked, read};

/// How often in a row a plan is given back that is none.
const FAULTY_PLANS: usize = 2;
/// How often a response that says nothing is asked for again.
const EMPTY_RESPONSES: usize = 2;

/// What a model call of the run is for; `None`: it is of a run without plans.
pub(super) fn node_of(step: &Step) -> Option<Node> {
    step.input[NODE].as_str().and_then(Node::parse)
}

impl TurnRunner {
    /// What comes next in a run of this strategy.
    pub(super) fn next_planned(&self, view: &RunView, definition: &AgentDefinition) -> Next {
        let ask = |node| self.ask_model(view, definition, Some(node));
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
            // What was said meanwhile has a plan of its own.
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

    fn after_plan(&self, view: &RunView, definition: &AgentDefinition, plan: &Step) -> Next {
        let ask = |node| self.ask_model(view, definition, Some(node));
        let calls = tool_calls(answer_of(view, plan));
        if let Some(error) = aborted(view, plan).or_else(|| self.without_valid_calls(view)) {
            return Next::Fail(error);
        }
        // One after another: a later step may build on what an earlier one has done.
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
        let message = format!(
            "the model was asked for a plan {faulty} times and gave none that could be carried \
             out; the last time: {fault}. The transcript holds all of it"
        );
        Next::Fail(RunError::new("bad_plan", message))
    }

    /// The request of a call for this node, out of the one that the model would get without a plan.
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
        // They are told of in words: what is wanted is a text.
        request.tools = Vec::new();
        request
    }

    /// The outcome of a call for a plan, with the calls of tools that it comes to.
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
                // What the provider said verbatim has no such calls.
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

    /// Whom the run may delegate to, and what tools of its own it has.
    fn pool(&self, view: &RunView, definition: &AgentDefinition) -> Pool {
        Pool::of(
            view,
            self.offered_tools(definition, view).unwrap_or_default(),
        )
    }
}

/// Why nothing can be done by what the model gave for a plan; `None` where something is.
fn fault(view: &RunView, pool: &Pool, plan: &Step) -> Option<String> {
    let answer = answer_of(view, plan);
    if !tool_calls(answer).is_empty() {
        return None;
    }
    read(&plain_text(answer), pool, view).err()
}

/// What a plan comes to: its steps, else the one agent, else nothing.
fn calls(view: &RunView, step: &Step, plan: Plan) -> Vec<Block> {
    let plan_id = step.id.0.simple().to_string();
    let call = |(number, (name, arguments)): (usize, (String, Value))| Block::ToolCall {
        // A session has many plans; names of calls are not to come again in it.
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
