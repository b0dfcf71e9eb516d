//! Tool calls of a session as the editor knows them, from the transcript and from events.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

use super::titles;
use crate::acp_protocol::update::{
    PlanEntry, ToolCall, ToolCallUpdate, ToolContent, ToolStatus, Update,
};
use crate::kernel::event::{StepMoved, SubAgentPartial, ToolProgress};
use crate::kernel::ids::RunId;
use crate::kernel::text::preview;
use crate::wire::shapes::TodoItem;

/// The tool that records a to-do list, which editors show as a plan.
const TODO: &str = "todo";
/// Maximum number of lines about the steps of a subagent.
const PROGRESS_LINES: usize = 50;
/// Maximum number of characters of such a line.
const PROGRESS_LINE: usize = 100;

/// Id of a call in the editor: the model's id is unique only in its run.
pub(super) fn call_id(run: RunId, call: &str) -> String {
    format!("{run}:{call}")
}

/// The calls of the runs that are open, or that are being replayed.
pub(super) struct Calls {
    /// Working folder of the session.
    folder: String,
    known: HashMap<String, KnownCall>,
}

struct KnownCall {
    tool: String,
    status: ToolStatus,
    /// The change of a file, shown instead of the result of a call that succeeded.
    change: Vec<ToolContent>,
    has_result: bool,
    /// Steps of the subagent that carries it out, one line each, with the id of each.
    progress: Vec<(String, String)>,
    /// Text of the agent that was called into the session.
    answer: String,
}

impl KnownCall {
    fn is_plan(&self) -> bool {
        self.tool == TODO
    }
}

/// Arguments of a call of the to-do tool.
#[derive(Deserialize)]
struct TodoList {
    items: Vec<TodoItem>,
}

impl Calls {
    pub(super) fn new(folder: String) -> Calls {
        Calls {
            folder,
            known: HashMap::new(),
        }
    }

    /// The working folder is now this one.
    pub(super) fn move_to(&mut self, folder: String) {
        self.folder = folder;
    }

    /// A model requests a call.
    pub(super) fn requested(
        &mut self,
        run: RunId,
        call: &str,
        tool: &str,
        arguments: &Value,
    ) -> Option<Update> {
        let id = call_id(run, call);
        let change = titles::change(tool, arguments, &self.folder);
        let title = titles::title(tool, arguments);
        let known = self.known.get(&id).map(|known| known.status);
        let call = ToolCall {
            tool_call_id: id.clone(),
            title,
            name: tool.to_owned(),
            kind: titles::kind(tool),
            status: known.unwrap_or(ToolStatus::Pending),
            content: change.clone(),
            locations: titles::locations(tool, arguments, &self.folder),
            raw_input: Some(arguments.clone()),
        };
        let known = self.known.entry(id).or_insert_with(|| KnownCall {
            tool: tool.to_owned(),
            status: ToolStatus::Pending,
            change: Vec::new(),
            has_result: false,
            progress: Vec::new(),
            answer: String::new(),
        });
        known.change = change;
        match known.is_plan() {
            true => plan(arguments),
            false => Some(Update::ToolCall(call)),
        }
    }

    /// The step of a call has begun or ended.
    pub(super) fn moved(&mut self, run: RunId, step: &StepMoved) -> Vec<Update> {
        let (Some(call), Some(tool)) = (&step.tool_call_id, &step.tool_name) else {
            return Vec::new();
        };
        let id = call_id(run, call);
        let mut updates = Vec::new();
        let status = match &*step.state {
            "intended" | "started" => ToolStatus::InProgress,
            "done" => ToolStatus::Completed,
            _ => ToolStatus::Failed,
        };
        if !self.known.contains_key(&id) {
            // Steps of plans have no message of a model that requests them.
            let update = self.requested(run, call, tool, &Value::Null);
            updates.extend(update.map(|update| with_summary(update, step)));
        }
        let Some(known) = self.known.get_mut(&id).filter(|known| !known.is_plan()) else {
            return Vec::new();
        };
        if known.status == status || known.has_result {
            return updates;
        }
        known.status = status;
        let said = step.error.as_ref().or(step.result_summary.as_ref());
        let is_over = status != ToolStatus::InProgress;
        let content = said
            .filter(|_| is_over && (known.change.is_empty() || status == ToolStatus::Failed))
            .map(|said| vec![titles::output(&known.tool, said)]);
        updates.push(Update::ToolCallUpdate(ToolCallUpdate {
            tool_call_id: id,
            status: Some(status),
            content,
            ..ToolCallUpdate::default()
        }));
        updates
    }

    /// The transcript has the result of a call.
    pub(super) fn result(
        &mut self,
        run: RunId,
        call: &str,
        text: &str,
        is_error: bool,
    ) -> Option<Update> {
        let id = call_id(run, call);
        let status = match is_error {
            true => ToolStatus::Failed,
            false => ToolStatus::Completed,
        };
        let known = self.known.get_mut(&id);
        if known.as_ref().is_some_and(|known| known.is_plan()) {
            return None;
        }
        let tool = known.as_ref().map_or("", |known| known.tool.as_str());
        let content = match &known {
            Some(known) if !is_error && !known.change.is_empty() => None,
            _ => Some(vec![titles::output(tool, text)]),
        };
        if let Some(known) = known {
            known.status = status;
            known.has_result = true;
        }
        Some(Update::ToolCallUpdate(ToolCallUpdate {
            tool_call_id: id,
            status: Some(status),
            content,
            ..ToolCallUpdate::default()
        }))
    }

    /// A subagent that carries out a call has begun or ended a step.
    pub(super) fn progress(&mut self, run: RunId, moved: &ToolProgress) -> Option<Update> {
        let id = call_id(run, &moved.tool_call_id);
        let known = self.known.get_mut(&id).filter(|known| !known.has_result)?;
        let step = &moved.progress;
        let tool = step.tool_name.clone().flatten()?;
        let sub = step.sub_tool_call_id.clone().flatten().unwrap_or_default();
        let summary = step.params_summary.clone().flatten().unwrap_or_default();
        let mark = match &*step.status {
            "running" => "…",
            "completed" => "✓",
            _ => "✗",
        };
        let line = preview(&format!("{mark} {tool} {summary}"), PROGRESS_LINE);
        match known.progress.iter_mut().find(|(of, _)| *of == sub) {
            Some((_, old)) => *old = line,
            None => known.progress.push((sub, line)),
        }
        if known.progress.len() > PROGRESS_LINES {
            known.progress.remove(0);
        }
        let lines: Vec<&str> = known.progress.iter().map(|(_, line)| &**line).collect();
        Some(in_progress(id, titles::fenced(&lines.join("\n"))))
    }

    /// An agent that was called into the session has said something.
    pub(super) fn partial(&mut self, run: RunId, piece: &SubAgentPartial) -> Option<Update> {
        let id = call_id(run, &piece.tool_call_id);
        let known = self.known.get_mut(&id).filter(|known| !known.has_result)?;
        let keep = known.answer.get(..piece.offset)?;
        known.answer = format!("{keep}{}", piece.text);
        Some(in_progress(id, known.answer.clone()))
    }

    /// Nothing more happens to calls with a result.
    pub(super) fn forget_results(&mut self) {
        self.known.retain(|_, known| !known.has_result);
    }

    /// The run has ended: nothing more happens to its calls.
    pub(super) fn ended(&mut self, run: RunId) {
        let prefix = call_id(run, "");
        self.known.retain(|id, _| !id.starts_with(&prefix));
    }
}

fn in_progress(id: String, text: String) -> Update {
    Update::ToolCallUpdate(ToolCallUpdate {
        tool_call_id: id,
        status: Some(ToolStatus::InProgress),
        content: Some(vec![ToolContent::text(text)]),
        ..ToolCallUpdate::default()
    })
}

/// A call of which only the summary of its step is known.
fn with_summary(update: Update, step: &StepMoved) -> Update {
    let Update::ToolCall(mut call) = update else {
        return update;
    };
    call.title = titles::short_title(&call.name, step.params_summary.as_deref());
    call.raw_input = None;
    Update::ToolCall(call)
}

/// The to-do list as a plan.
fn plan(arguments: &Value) -> Option<Update> {
    let list = TodoList::deserialize(arguments).ok()?;
    let entries = list.items.into_iter().map(|item| PlanEntry {
        content: item.text,
        priority: "medium".into(),
        status: match &*item.status {
            "done" => "completed",
            "in_progress" => "in_progress",
            _ => "pending",
        }
        .into(),
    });
    Some(Update::Plan {
        entries: entries.collect(),
    })
}
