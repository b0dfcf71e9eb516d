//! Validity of the tool calls that a model makes, and the end of a run whose model repeatedly makes
//! no valid one. Called by `turn`, `plan` and `perform`.

use serde_json::Value;

use super::perform::{node_of_tool, pinned_tools};
use super::plan::node_of;
use super::turn::{TurnRunner, answer_of, tool_calls};
use crate::contract::journal::RunView;
use crate::kernel::run::RunError;
use crate::kernel::run::step::{Node, Step, StepKind, StepState};
use crate::kernel::session::message::{AnswerFinding, Block};
use crate::kernel::text::preview;
use crate::tool::misfit;

/// Number of consecutive answers with only invalid calls after which the run fails.
const INVALID_ANSWERS: usize = 3;

/// A call: its id, tool name and arguments.
pub(super) type CallRef<'a> = (&'a str, &'a str, &'a Value);

impl TurnRunner {
    /// Why a call of `answer` is not carried out, independent of the agent's rights.
    pub(super) fn invalid_reason(
        &self,
        view: &RunView,
        answer: &[Block],
        (id, name, arguments): CallRef<'_>,
    ) -> Option<String> {
        let refused = answer.iter().find_map(|block| match block {
            Block::Note {
                note:
                    AnswerFinding::Refused {
                        tool_call_id,
                        reason,
                    },
            } if tool_call_id == id => Some(reason.clone()),
            _ => None,
        });
        refused.or_else(|| no_object(arguments)).or_else(|| {
            self.tools
                .misfit(name, node_of_tool(view, name).as_deref(), arguments)
        })
    }

    /// The failure of a run whose model has made only invalid calls in several answers in a row.
    /// Text without a call, or one valid call, resets the count.
    pub(super) fn without_valid_calls(&self, view: &RunView) -> Option<RunError> {
        let answers = view.steps.iter().rev().filter(|step| {
            let acts = node_of(step).is_none_or(|node| node == Node::Plan);
            step.kind == StepKind::Model && step.state == StepState::Done && acts
        });
        let invalid: Vec<String> = answers
            .map_while(|step| self.invalid(view, step))
            .take(INVALID_ANSWERS)
            .collect();
        let latest = invalid
            .first()
            .filter(|_| invalid.len() == INVALID_ANSWERS)?;
        let message = format!(
            "the model made no valid tool call in {INVALID_ANSWERS} answers in a row; the last: \
             {latest}. Each error was returned to it. The transcript has all of them"
        );
        Some(RunError::new("bad_arguments", message))
    }

    /// What is wrong with the first call of an answer whose calls are all invalid; `None` if it has
    /// none or a valid one.
    fn invalid(&self, view: &RunView, model: &Step) -> Option<String> {
        let answer = answer_of(view, model);
        let calls = tool_calls(answer).into_iter();
        let faults: Option<Vec<String>> = calls
            .map(|call| {
                let why = self
                    .invalid_reason(view, answer, call)
                    .or_else(|| misfit_of_pinned(view, model, call))?;
                Some(format!("{}: {}", preview(call.1, 64), preview(&why, 300)))
            })
            .collect();
        faults?.into_iter().next()
    }
}

/// Why arguments that are not a JSON object are invalid; text is what could not be parsed.
fn no_object(arguments: &Value) -> Option<String> {
    const ADVICE: &str = "Pass the arguments as one complete, well-formed JSON object";
    match arguments {
        Value::Object(_) | Value::Null => None,
        Value::String(text) => Some(match serde_json::from_str::<Value>(text) {
            Ok(_) => format!("its arguments are JSON, but not an object. {ADVICE}"),
            Err(error) => format!("its arguments are not valid JSON ({error}). {ADVICE}"),
        }),
        _ => Some(format!(
            "its arguments are JSON, but not an object. {ADVICE}"
        )),
    }
}

/// Why a call is invalid by the pinned tools: there is no such tool, or its server refused
/// arguments that do not match the server's own schema.
fn misfit_of_pinned(
    view: &RunView,
    model: &Step,
    (id, name, arguments): CallRef<'_>,
) -> Option<String> {
    let pinned = pinned_tools(view).ok()?;
    let Some(tool) = pinned.find(name) else {
        return Some("there is no such tool".to_owned());
    };
    let step = view
        .steps
        .iter()
        .find(|step| step.asked_by == Some(model.id) && step.tool_call.as_deref() == Some(id))?;
    let failed = |block: &Block| matches!(block, Block::ToolResult { is_error: true, .. });
    if tool.served.is_none() || !answer_of(view, step).iter().any(failed) {
        return None;
    }
    let schema: Value = serde_json::from_str(tool.schema.parameters.get()).ok()?;
    misfit(&schema, arguments)
}
