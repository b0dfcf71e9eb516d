//! Applies events to the tree. An event may be repeated, or arrive after a row with the same
//! content: what is known already changes nothing.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Followed, RunTree, is_ended};
use crate::kernel::event::{RunEnded, StepMoved, ToolProgress};
use crate::kernel::ids::RunId;
use crate::wire::events::{Event, MessageText};
use crate::wire::shapes::{CurrentStep, ProviderWait, Step};

/// Source prefix of events on a caller's stream that repeat a child run's own events.
const MIRRORED: &str = "subagent:";

/// Parses the data of an event; `None` if its shape is unknown.
fn data<T: DeserializeOwned>(event: &Event) -> Option<T> {
    T::deserialize(&event.data).ok()
}

impl RunTree {
    /// Applies an event. Unknown kinds and shapes are ignored: the rows are authoritative, and are
    /// read again when a run ends.
    pub(crate) fn hear(&mut self, event: &Event) {
        let Some(id) = event.run_id else {
            return;
        };
        if !self.has(id) {
            // A child run of one of these.
            if event.parent_run_id.is_some_and(|parent| self.has(parent)) {
                self.unread.insert(id);
            }
            return;
        }
        match event.kind.as_str() {
            "tool.progress" => self.hear_of_child(id, event),
            "sub_agent.call_start" => self.link(id, &event.data),
            // The row tells which value is missing.
            "run.paused" if event.data["pause"] == "input" => {
                self.unread.insert(id);
                self.hear_of(id, event);
            }
            "run.ended" => {
                // The event does not carry the result's text.
                self.unread.insert(id);
                self.hear_of(id, event);
            }
            _ => self.hear_of(id, event),
        }
    }

    fn hear_of(&mut self, id: RunId, event: &Event) {
        let Some(known) = self.find(id) else {
            return;
        };
        match event.kind.as_str() {
            "message.delta" | "message.partial" | "message.reset" => known.hear_text(event),
            "message.added" => {
                // Another message may be stored while this one is already being written.
                let added = event.data["messageId"].as_str();
                let coming = known.partial_message.take();
                known.partial_message = coming.filter(|(id, _)| added != Some(&id.to_string()));
            }
            kind if kind.starts_with("run.") || kind.starts_with("tool.") => {
                known.run.last_activity_at = known.run.last_activity_at.max(event.at);
                match kind {
                    "run.step" | "tool.started" | "tool.completed" => known.hear_step(event),
                    "run.ended" => known.hear_end(event),
                    _ => known.hear_move(event),
                }
            }
            _ => {}
        }
    }

    /// Applies progress of a child run that its caller's stream reports; it matters only where the
    /// child run's own events do not arrive.
    fn hear_of_child(&mut self, caller: RunId, event: &Event) {
        let Some(told) = data::<ToolProgress>(event) else {
            return;
        };
        self.link(caller, &event.data);
        let Some(child) = self.find(told.child_run_id) else {
            self.unread.insert(told.child_run_id);
            return;
        };
        let call = told.progress.sub_tool_call_id.flatten();
        let is_known = |step: &Step| {
            step.tool_call_id == call
                && (step.ended_at.is_some() || &*told.progress.r#type != "tool_complete")
        };
        if call.is_some() && !child.steps.iter().any(is_known) {
            self.unread.insert(told.child_run_id);
        }
    }

    /// Records which run executes a call.
    fn link(&mut self, caller: RunId, data: &Value) {
        let child: Option<RunId> = data["childRunId"].as_str().and_then(|id| id.parse().ok());
        let (Some(child), Some(call)) = (child, data["toolCallId"].as_str()) else {
            return;
        };
        if !self.has(child) {
            self.unread.insert(child);
        }
        let Some(caller) = self.find(caller) else {
            return;
        };
        // The ids of calls may be reused in a later answer of the model.
        let mut steps = caller.steps.iter_mut().rev();
        if let Some(step) = steps.find(|step| step.tool_call_id.as_deref() == Some(call)) {
            step.child_run_id = Some(child);
        }
    }
}

impl Followed {
    fn hear_text(&mut self, event: &Event) {
        // A run that writes is not quiet.
        self.heard_at = self.heard_at.max(Some(event.at));
        let Some(text) = data::<MessageText>(event) else {
            return;
        };
        if text.channel.as_deref() == Some("thinking") {
            return;
        }
        let said = text.text.unwrap_or_default();
        match &mut self.partial_message {
            Some((message, known))
                if *message == text.message_id && event.kind == "message.delta" =>
            {
                known.push_str(&said);
            }
            // The full text so far, or a restart of the message.
            coming => *coming = Some((text.message_id, said)),
        }
    }

    fn hear_step(&mut self, event: &Event) {
        let mirrored = event.data["source"].as_str();
        if mirrored.is_some_and(|source| source.starts_with(MIRRORED)) {
            return;
        }
        let Some(moved) = data::<StepMoved>(event) else {
            return;
        };
        let is_open = matches!(&*moved.state, "intended" | "started");
        let at = self
            .steps
            .iter()
            .position(|step| step.step_id == moved.step_id);
        let known = at.map(|at| &self.steps[at]);
        if is_open && known.is_some_and(|known| known.ended_at.is_some()) {
            return;
        }
        if is_open && !is_ended(&self.run.state) {
            // The next step of a resumed run shows that it is running.
            self.run.state = "running".into();
            self.run.pause_reason = None;
        }
        let kind = if moved.tool_name.is_some() {
            "tool"
        } else {
            "model"
        };
        let what = moved.tool_name.clone();
        if self
            .run
            .step
            .as_ref()
            .is_none_or(|step| step.seq <= moved.seq)
        {
            self.run.step = Some(CurrentStep {
                seq: moved.seq,
                what: what.unwrap_or_else(|| kind.to_owned()),
            });
        }
        let step = Step {
            step_id: moved.step_id,
            seq: moved.seq,
            kind: known.map_or(kind.into(), |known| known.kind.clone()),
            tool: moved.tool_name,
            tool_call_id: moved.tool_call_id,
            effect: known.and_then(|known| known.effect.clone()),
            state: moved.state,
            params_summary: moved.params_summary,
            result_summary: moved.result_summary,
            started_at: known.map_or(event.at, |known| known.started_at),
            ended_at: (!is_open).then_some(event.at),
            child_run_id: known.and_then(|known| known.child_run_id),
            waits_for: None,
            waits_until: None,
            attempts: known.map_or(1, |known| known.attempts),
            error: moved.error,
            model: known.and_then(|known| known.model.clone()),
            usage: known.and_then(|known| known.usage),
        };
        match at {
            Some(at) => self.steps[at] = step,
            None => {
                let at = self.steps.partition_point(|known| known.seq < step.seq);
                self.steps.insert(at, step);
            }
        }
        self.count();
    }

    /// Updates the number of tool calls that have an outcome.
    fn count(&mut self) {
        let done = |step: &&Step| step.tool.is_some() && step.ended_at.is_some();
        let count = u32::try_from(self.steps.iter().filter(done).count()).unwrap_or(u32::MAX);
        self.run.tool_calls = self.run.tool_calls.max(count);
    }

    fn hear_move(&mut self, event: &Event) {
        if is_ended(&self.run.state) {
            return;
        }
        self.run.pause_reason = None;
        match (event.kind.as_str(), event.data["state"].as_str()) {
            ("run.paused", _) => {
                self.run.state = "paused".into();
                let why = event.data["pause"].as_str();
                self.run.pause_reason = why.map(|why| why.to_owned().into());
                let until = serde_json::from_value(event.data["until"].clone());
                self.run.provider_wait = until.ok().map(|until| ProviderWait {
                    since: event.at,
                    until,
                    reason: event.data["reason"].as_str().unwrap_or_default().to_owned(),
                });
            }
            (kind, Some(state)) => {
                self.run.state = state.to_owned().into();
                if kind == "run.started" {
                    self.run.started_at.get_or_insert(event.at);
                }
            }
            _ => {}
        }
    }

    fn hear_end(&mut self, event: &Event) {
        let Some(end) = data::<RunEnded>(event) else {
            return;
        };
        self.partial_message = None;
        self.run.state = end.state;
        self.run.pause_reason = None;
        self.run.error = end.error;
        self.run.tool_calls = end.tool_calls;
        self.run.ended_at = Some(event.at);
    }
}
