//! A turn of an outside agent as its updates tell it: the answer to one prompt, and the calls that the
//! agent has made for it.

use serde_json::{Value, json};

use super::calls::Described;
use super::commands::TerminalCommand;
use super::link::NoResult;
use crate::acp_protocol::answer::{PermissionOption, Prompted};
use crate::acp_protocol::request::{ContentBlock, ReadFile, WriteFile};
use crate::acp_protocol::update::{Chunk, PlanEntry, ToolCallUpdate, ToolStatus};
use crate::kernel::ids::StepId;
use crate::kernel::run::step::{EffectClass, Step, StepState};
use crate::kernel::text::redact::MASK;

/// Maximum number of calls of a turn that become steps of the run. Later ones are only carried out, and
/// later questions and requests of files are refused.
pub(super) const MAX_CALLS: usize = 1000;
/// Maximum number of bytes of the requests for files and commands that wait at the same time.
pub(super) const MAX_WAITING: usize = 64 * 1024 * 1024;
/// Maximum number of bytes of thinking that are shown for a message.
const MAX_THINKING: usize = 256 * 1024;
/// The answer to one prompt.
pub(super) struct Turn {
    pub(super) prompt: StepId,
    /// The text of the present message.
    pub(super) message: String,
    pub(super) message_id: Option<String>,
    /// What comes next begins a new message.
    pub(super) is_message_over: bool,
    /// The last message that was followed by another.
    pub(super) before: String,
    pub(super) thinking: String,
    /// Number of messages before the present one.
    pub(super) messages: u32,
    /// Maximum number of bytes of the answer.
    pub(super) limit: usize,
    pub(super) is_cut: bool,
    pub(super) calls: Vec<AgentCall>,
    pub(super) result: Option<Result<Prompted, NoResult>>,
}

/// A call of the agent.
pub(super) struct AgentCall {
    /// The agent's id of it; `None`: a request of a file or command, or the plan.
    pub(super) id: Option<String>,
    pub(super) described: Described,
    /// The tool and arguments that are journaled, if the description does not tell them.
    pub(super) fixed: Option<(&'static str, Value)>,
    /// The command of a request for a terminal.
    pub(super) command: Option<TerminalCommand>,
    /// The arguments that its gate judges: those of its step are redacted.
    pub(super) judged: Option<Value>,
    /// It is to become a step.
    pub(super) is_due: bool,
    /// The step, once it is one.
    pub(super) step: Option<StepId>,
    pub(super) ask: Option<Ask>,
    /// The agent has dropped its question, for this reason.
    pub(super) dropped: Option<&'static str>,
    /// Of a call that is only followed `read`; of one that a gate and people decide on another.
    pub(super) effect: EffectClass,
    /// Bytes of the request.
    pub(super) bytes: usize,
    /// It has ended, with this result.
    pub(super) is_over: bool,
    /// A request that is carried out; it is over once it is `done`.
    pub(super) is_carried_out: bool,
    /// What became of such a request, and whether it failed.
    pub(super) done: Option<(String, bool)>,
    /// Its step needs nothing more.
    pub(super) is_recorded: bool,
}

/// A request of the agent that waits for a decision.
pub(super) enum Ask {
    /// Whether it may make the call.
    Permission {
        id: Value,
        options: Vec<PermissionOption>,
    },
    /// The content of a file.
    Read { id: Value, file: ReadFile },
    /// That a file is written.
    Write { id: Value, file: WriteFile },
    /// That a command is run.
    Terminal { id: Value, command: TerminalCommand },
}

impl Ask {
    /// The agent's id of the request.
    pub(super) fn id(&self) -> &Value {
        match self {
            Ask::Permission { id, .. }
            | Ask::Read { id, .. }
            | Ask::Write { id, .. }
            | Ask::Terminal { id, .. } => id,
        }
    }
}

impl Turn {
    /// The turn of this prompt; its answer has at most `limit` bytes.
    pub(super) fn new(prompt: StepId, limit: usize) -> Self {
        Turn {
            prompt,
            message: String::new(),
            message_id: None,
            is_message_over: false,
            before: String::new(),
            thinking: String::new(),
            messages: 0,
            limit,
            is_cut: false,
            calls: Vec::new(),
            result: None,
        }
    }

    /// Begins a new message if the present one is over.
    fn message(&mut self, id: Option<&String>) {
        let is_other = id.is_some() && self.message_id.is_some() && id != self.message_id.as_ref();
        if (self.is_message_over || is_other) && !self.message.is_empty() {
            self.before = std::mem::take(&mut self.message);
            self.thinking.clear();
            self.messages += 1;
        }
        self.is_message_over = false;
        if id.is_some() {
            self.message_id = id.cloned();
        }
    }

    pub(super) fn say(&mut self, chunk: Chunk) {
        self.message(chunk.message_id.as_ref());
        let ContentBlock::Text { text } = chunk.content else {
            return;
        };
        if self.message.len() + text.len() > self.limit {
            self.is_cut = true;
        }
        if !self.is_cut {
            self.message.push_str(&text);
        }
    }

    pub(super) fn think(&mut self, chunk: Chunk) {
        // An agent may give its thoughts ids of their own.
        self.message(None);
        if let ContentBlock::Text { text } = chunk.content
            && self.thinking.len() + text.len() <= MAX_THINKING
        {
            self.thinking.push_str(&text);
        }
    }

    /// True if one more call may become a step.
    pub(super) fn room(&self) -> bool {
        let steps = self
            .calls
            .iter()
            .filter(|call| call.is_due || call.step.is_some());
        steps.count() < MAX_CALLS
    }

    /// Changes the description of a call; once it has begun it becomes a step.
    pub(super) fn call(&mut self, id: &str, change: impl FnOnce(&mut Described)) {
        self.is_message_over = true;
        let has_room = self.room();
        let known = self
            .calls
            .iter()
            .rposition(|call| call.id.as_deref() == Some(id));
        let index = known.unwrap_or_else(|| {
            // Calls that are no steps are forgotten, so that there is a bound.
            if self.calls.len() >= 2 * MAX_CALLS {
                self.calls.retain(|call| call.step.is_some() || call.is_due);
            }
            self.calls.push(AgentCall::new(Some(id.to_owned())));
            self.calls.len() - 1
        });
        let call = &mut self.calls[index];
        if call.is_over {
            return;
        }
        change(&mut call.described);
        let status = call.described.status;
        if status != ToolStatus::Pending && call.step.is_none() {
            call.is_due |= has_room;
        }
        call.is_over = matches!(status, ToolStatus::Completed | ToolStatus::Failed);
    }

    /// The agent asks whether it may make this call.
    pub(super) fn permission(&mut self, update: ToolCallUpdate, ask: Ask) {
        let id = update.tool_call_id.clone();
        let known = self
            .calls
            .iter()
            .rfind(|call| call.id.as_deref() == Some(&id));
        let mut described = known.map(|call| call.described.clone()).unwrap_or_default();
        described.merge(update);
        self.is_message_over = true;
        // A call may ask more than once; each question is a step of its own.
        match self
            .calls
            .iter_mut()
            .rfind(|call| call.id.as_deref() == Some(&id))
        {
            Some(call) if call.step.is_none() && call.ask.is_none() => {
                call.described = described;
                call.asks(ask);
            }
            known => {
                if let Some(before) = known {
                    before.is_over = true;
                }
                let mut call = AgentCall::new(Some(id));
                call.described = described;
                call.asks(ask);
                self.calls.push(call);
            }
        }
    }

    /// The agent requests something of its client.
    pub(super) fn request(
        &mut self,
        title: String,
        fixed: (&'static str, Value),
        bytes: usize,
        ask: Ask,
    ) -> &mut AgentCall {
        let mut call = AgentCall::new(None);
        call.described.title = title;
        call.fixed = Some(fixed);
        call.bytes = bytes;
        call.asks(ask);
        self.calls.push(call);
        let last = self.calls.len() - 1;
        &mut self.calls[last]
    }

    /// True if requests with these many bytes more may wait.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        let waiting = self.calls.iter().filter(|call| !call.is_recorded);
        waiting.map(|call| call.bytes).sum::<usize>() + bytes <= MAX_WAITING
    }

    /// The agent's to-do list, which is shown as a call of the tool `todo`.
    pub(super) fn plan(&mut self, entries: &[PlanEntry]) {
        let items: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let status = match &*entry.status {
                    "completed" => "done",
                    "in_progress" => "in_progress",
                    _ => "open",
                };
                json!({ "text": entry.content, "status": status })
            })
            .collect();
        let done = items.iter().filter(|item| item["status"] == "done").count();
        let title = format!("{done} of {} done", items.len());
        let fixed = ("todo", json!({ "items": items }));
        let has_room = self.room();
        let waiting = self.calls.iter_mut().find(|call| {
            let is_todo = call.fixed.as_ref().is_some_and(|(tool, _)| *tool == "todo");
            is_todo && call.is_due && call.step.is_none()
        });
        let call = match waiting {
            Some(call) => call,
            None if has_room => {
                self.calls.push(AgentCall::new(None));
                let last = self.calls.len() - 1;
                &mut self.calls[last]
            }
            None => return,
        };
        call.described.title = title;
        call.fixed = Some(fixed);
        call.is_due = true;
        call.is_over = true;
    }
}

impl AgentCall {
    fn new(id: Option<String>) -> Self {
        AgentCall {
            id,
            described: Described::default(),
            fixed: None,
            command: None,
            judged: None,
            is_due: false,
            step: None,
            ask: None,
            dropped: None,
            effect: EffectClass::Read,
            bytes: 0,
            is_over: false,
            is_carried_out: false,
            done: None,
            is_recorded: false,
        }
    }

    fn asks(&mut self, ask: Ask) {
        self.ask = Some(ask);
        // Carried out again, a question gets the same answer.
        self.effect = EffectClass::Idempotent;
        self.is_due = true;
    }

    /// True if this is the request of that stored step: of this prompt, the same call, and one whose
    /// answer the agent cannot have got. Values that are masked in a step could make different calls
    /// equal, so a call with a mask is no repetition.
    pub(super) fn repeats(
        &self,
        step: &Step,
        prompt: StepId,
        tool: &str,
        arguments: &Value,
    ) -> bool {
        self.ask.is_some()
            && step.is_outside_call()
            && step.asked_by == Some(prompt)
            && step.state == StepState::Intended
            && step.waits.is_none()
            && step.effect == self.effect
            && step.tool.as_deref() == Some(tool)
            && step.input == *arguments
            && !arguments.to_string().contains(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ids::RunId;
    use crate::kernel::run::step::{Intent, StepKind};
    use crate::kernel::time::Timestamp;
    use uuid::Uuid;

    fn id(number: u128) -> StepId {
        StepId(Uuid::from_u128(number))
    }

    fn stored(command: &str) -> Step {
        let intent = Intent {
            id: id(7),
            kind: StepKind::Tool,
            tool: Some("shell".to_owned()),
            tool_call: None,
            asked_by: Some(id(1)),
            effect: EffectClass::Idempotent,
            input: json!({ "command": command }),
            params_summary: None,
            context: None,
        };
        intent.into_step(RunId(Uuid::from_u128(2)), 2, None, Timestamp(0))
    }

    fn repeats(step: &Step, prompt: StepId, command: &str) -> bool {
        let mut call = AgentCall::new(Some("c".to_owned()));
        call.asks(Ask::Permission {
            id: json!(1),
            options: Vec::new(),
        });
        call.repeats(step, prompt, "shell", &json!({ "command": command }))
    }

    #[test]
    fn a_question_repeats_only_the_same_call_that_was_not_answered() {
        let step = stored("make");
        assert!(repeats(&step, id(1), "make"));
        assert!(!repeats(&step, id(1), "make "));
        assert!(!repeats(&step, id(3), "make"), "another prompt");
        for state in [StepState::Started, StepState::Done, StepState::Failed] {
            let step = Step {
                state,
                ..step.clone()
            };
            assert!(!repeats(&step, id(1), "make"), "{state}");
        }
        // A command with this text is another one than that with the hidden value.
        let masked = stored("cat [secret:KEY]");
        assert!(!repeats(&masked, id(1), "cat [secret:KEY]"));
    }
}
