//! A running outside agent: what it has said and done in its present turn. It lives as long as its
//! run, longer than one attempt of a step, since the run may pause while a person is asked.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, oneshot, watch};

use super::calls::Described;
use super::commands::TerminalCommand;
use super::link::{Link, NoResult};
use super::terminals::Terminals;
use super::turn::{AgentCall, Turn};
use crate::acp_protocol::Answered;
use crate::acp_protocol::answer::{AgentCapabilities, Prompted};
use crate::acp_protocol::request::{ContentBlock, OfSession, Prompt};
use crate::acp_protocol::update::{ToolStatus, Update};
use crate::contract::runner::TextSink;
use crate::kernel::ids::StepId;
use crate::kernel::run::step::{EffectClass, Step};

/// Maximum number of files that an agent reads at the same time.
const MAX_READS: usize = 64;
/// How long the agent may take to end its turn when it is asked to.
const CANCEL_TIME: Duration = Duration::from_millis(1500);

/// The program of an outside agent, with its session.
pub(super) struct Agent {
    /// The name of the program.
    pub name: String,
    pub link: Link,
    /// What it can do; set by its first answer.
    pub can: OnceLock<AgentCapabilities>,
    /// How to sign in, as a sentence; set by its first answer.
    pub sign_in: OnceLock<String>,
    /// Its present session.
    pub session: OnceLock<String>,
    /// Files that are read at the same time.
    pub reads: Arc<Semaphore>,
    /// The commands that run for it.
    pub terminals: Terminals,
    state: Mutex<AgentState>,
    /// Counts the changes of the state.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
pub(super) struct AgentState {
    pub(super) turn: Option<Turn>,
    pub(super) is_cancelling: bool,
    /// Requests of files that may be read at once; true: the agent has dropped the request.
    pub(super) reading: Vec<(Value, bool)>,
}

/// A call that is to become a step.
pub(super) struct DueCall {
    pub step: StepId,
    pub tool: String,
    pub arguments: Value,
    pub title: String,
    pub effect: EffectClass,
}

/// The end of a turn.
pub(super) struct EndedTurn {
    pub result: Result<Prompted, NoResult>,
    pub answer: String,
    /// The answer was longer than its limit.
    pub is_cut: bool,
}

/// What an observer has been shown of a turn.
pub(super) struct Shown {
    messages: u32,
    text: usize,
    thinking: usize,
}

impl Agent {
    pub(super) fn new(name: &str, link: Link) -> Self {
        Agent {
            name: name.to_owned(),
            link,
            can: OnceLock::new(),
            sign_in: OnceLock::new(),
            session: OnceLock::new(),
            reads: Arc::new(Semaphore::new(MAX_READS)),
            terminals: Terminals::default(),
            state: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, AgentState> {
        // The state is consistent at every moment, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the changes; subscribe before you look.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// True if this step's prompt was sent.
    pub(super) fn has_prompt(&self, prompt: StepId) -> bool {
        let state = self.state();
        state
            .turn
            .as_ref()
            .is_some_and(|turn| turn.prompt == prompt)
    }

    /// Sends the prompt of this step; the answer has at most `limit` bytes. Its result belongs to
    /// [`Agent::end_turn`].
    pub(super) fn prompt(
        &self,
        step: StepId,
        session: &str,
        prompt: Vec<ContentBlock>,
        limit: usize,
    ) -> oneshot::Receiver<Answered<Value>> {
        self.state().turn = Some(Turn::new(step, limit));
        let params = Prompt {
            session_id: session.to_owned(),
            prompt,
        };
        self.link.send("session/prompt", &params)
    }

    /// The turn of this prompt has ended. Returns the steps of the questions that were still open.
    pub(super) fn end_turn(
        &self,
        prompt: StepId,
        result: Result<Prompted, NoResult>,
    ) -> Vec<StepId> {
        let mut dropped = Vec::new();
        let mut state = self.state();
        if let Some(turn) = state.turn.as_mut().filter(|turn| turn.prompt == prompt) {
            let why = match &result {
                Ok(_) => "the agent ended its turn before this was decided; nothing was done",
                Err(NoResult::Refused(_)) => {
                    "the turn failed before this was decided; nothing was done"
                }
                Err(NoResult::Ended(_)) => {
                    "the agent's program ended before this was decided; nothing was done"
                }
            };
            turn.result = Some(result);
            for call in &mut turn.calls {
                call.is_over = true;
                if let Some(ask) = call.ask.take() {
                    self.withdraw(&ask);
                    call.dropped = Some(why);
                    dropped.extend(call.step);
                }
            }
            self.terminals.end_all();
        }
        drop(state);
        self.changed();
        dropped
    }

    /// Takes an update of the session; one that cannot be read has no effect.
    pub(super) fn update(&self, mut params: Value) {
        let session = params.get("sessionId").and_then(Value::as_str);
        if session != self.session.get().map(String::as_str) {
            return;
        }
        let update = params.get_mut("update").map(Value::take);
        let update = serde_json::from_value(update.unwrap_or_default());
        let mut state = self.state();
        let Some(turn) = state.turn.as_mut().filter(|turn| turn.result.is_none()) else {
            return;
        };
        match update {
            Ok(Update::AgentMessageChunk(chunk)) => turn.say(chunk),
            Ok(Update::AgentThoughtChunk(chunk)) => turn.think(chunk),
            Ok(Update::ToolCall(call)) => {
                let id = call.tool_call_id.clone();
                turn.call(&id, |described| *described = Described::new(call));
            }
            Ok(Update::ToolCallUpdate(update)) => {
                let id = update.tool_call_id.clone();
                turn.call(&id, |described| described.merge(update));
            }
            Ok(Update::Plan { entries }) => turn.plan(&entries),
            Ok(_) | Err(_) => {}
        }
    }

    /// The next call that is to become a step: `step`, unless an earlier attempt has given it one, or
    /// an earlier process of the daemon has stored the same request among `stored`. It stays due until
    /// [`Agent::begun`].
    pub(super) fn next_due(&self, step: StepId, stored: &[Arc<Step>]) -> Option<DueCall> {
        let mut state = self.state();
        let turn = state.turn.as_mut()?;
        let prompt = turn.prompt;
        let taken: Vec<StepId> = turn.calls.iter().filter_map(|call| call.step).collect();
        let call = turn.calls.iter_mut().find(|call| call.is_due)?;
        let (tool, arguments) = match call.fixed.clone() {
            Some(fixed) => fixed,
            None => call.described.tool(),
        };
        let repeated = || {
            let mut stored = stored.iter().filter(|step| !taken.contains(&step.id));
            let is_same = |step: &&Arc<Step>| call.repeats(step, prompt, tool, &arguments);
            stored.find(is_same).map(|step| step.id)
        };
        let step = match call.step {
            Some(step) => step,
            None => repeated().unwrap_or(step),
        };
        call.step = Some(step);
        if call.fixed.is_none() {
            call.judged = Some(arguments.clone());
        }
        let due = DueCall {
            step,
            tool: tool.to_owned(),
            arguments,
            title: call.described.shown(),
            effect: call.effect,
        };
        drop(state);
        // A stored request waits for this.
        self.changed();
        Some(due)
    }

    /// The call of this step is stored as a step, or is refused.
    pub(super) fn begun(&self, step: StepId) {
        self.of_call(step, |call| call.is_due = false);
    }

    /// The arguments of the call as the agent gave them.
    pub(super) fn arguments(&self, step: StepId) -> Option<Value> {
        let given = |call: &mut AgentCall| match &call.fixed {
            Some((_, arguments)) => Some(arguments.clone()),
            None => call.judged.clone(),
        };
        self.of_call(step, given).flatten()
    }

    /// The command that the agent wants to run by this call.
    pub(super) fn command(&self, step: StepId) -> Option<TerminalCommand> {
        self.of_call(step, |call| call.command.clone()).flatten()
    }

    /// Shows the text and thinking since the last time.
    pub(super) fn show(&self, shown: &mut Shown, sink: &dyn TextSink) {
        let state = self.state();
        let Some(turn) = &state.turn else { return };
        if shown.messages != turn.messages {
            if shown.text + shown.thinking > 0 {
                sink.reset();
            }
            *shown = Shown {
                messages: turn.messages,
                text: 0,
                thinking: 0,
            };
        }
        let thinking = &turn.thinking[shown.thinking..];
        if !thinking.is_empty() {
            sink.thinking(thinking);
            shown.thinking = turn.thinking.len();
        }
        let text = &turn.message[shown.text..];
        if !text.is_empty() {
            sink.text(text);
            shown.text = turn.message.len();
        }
    }

    /// What an observer has been shown who comes now: nothing.
    pub(super) fn shown(&self) -> Shown {
        let state = self.state();
        Shown {
            messages: state.turn.as_ref().map_or(0, |turn| turn.messages),
            text: 0,
            thinking: 0,
        }
    }

    /// The end of the turn, once every call of it that is a step needs nothing more.
    pub(super) fn ended(&self) -> Option<EndedTurn> {
        let state = self.state();
        let turn = state.turn.as_ref()?;
        let result = turn.result.clone()?;
        let is_settled = |call: &AgentCall| match call.step {
            Some(_) => call.is_recorded,
            None => !call.is_due,
        };
        if !turn.calls.iter().all(is_settled) {
            return None;
        }
        let answer = match turn.message.trim().is_empty() {
            true => &turn.before,
            false => &turn.message,
        };
        Some(EndedTurn {
            result,
            answer: answer.clone(),
            is_cut: turn.is_cut,
        })
    }

    /// True if this step is a call of the present turn.
    pub(super) fn has_call(&self, step: StepId) -> bool {
        self.of_call(step, |_| ()).is_some()
    }

    pub(super) fn of_call<T>(
        &self,
        step: StepId,
        on: impl FnOnce(&mut AgentCall) -> T,
    ) -> Option<T> {
        let mut state = self.state();
        let mut calls = state.turn.as_mut()?.calls.iter_mut();
        calls.find(|call| call.step == Some(step)).map(on)
    }

    /// True if this step is a request of its client, and no call that the agent makes itself.
    pub(super) fn is_request(&self, step: StepId) -> bool {
        let is_request = |call: &mut AgentCall| call.id.is_none();
        self.of_call(step, is_request).unwrap_or_default()
    }

    /// The result of a call once it has ended, and whether it failed.
    pub(super) fn over(&self, step: StepId) -> Option<(String, bool)> {
        self.of_call(step, |call| {
            if call.is_carried_out {
                return call.done.clone();
            }
            if let Some(why) = call.dropped {
                return Some((why.to_owned(), true));
            }
            let failed = call.described.status == ToolStatus::Failed;
            call.is_over.then(|| (call.described.said(), failed))
        })
        .flatten()
    }

    /// The step of this call needs nothing more.
    pub(super) fn recorded(&self, step: StepId) {
        self.of_call(step, |call| {
            call.is_recorded = true;
            // The content of a file may be long.
            (call.fixed, call.judged, call.command) = (None, None, None);
        });
        self.changed();
    }

    /// Carries out the request of this step. A pause of the run drops the attempt of the step, but the
    /// agent must get its answer, so this goes on by itself.
    pub(super) fn carry_out(
        self: &Arc<Self>,
        step: StepId,
        work: impl Future<Output = (String, bool)> + Send + 'static,
    ) {
        self.of_call(step, |call| call.is_carried_out = true);
        let agent = Arc::clone(self);
        tokio::spawn(async move {
            let done = work.await;
            agent.of_call(step, |call| call.done = Some(done));
            agent.changed();
        });
    }

    /// Asks the agent to end its turn, and waits a short time for that.
    pub(super) async fn cancel(&self) {
        if !self.ask_to_end() {
            return;
        }
        let mut changes = self.changes();
        let ended = async { while self.is_in_turn() && changes.changed().await.is_ok() {} };
        // Without an end in time the program is ended.
        let _ = tokio::time::timeout(CANCEL_TIME, ended).await;
    }

    /// True if the turn of this prompt has ended.
    pub(super) fn is_over(&self, prompt: StepId) -> bool {
        let state = self.state();
        let turn = state.turn.as_ref().filter(|turn| turn.prompt == prompt);
        turn.is_some_and(|turn| turn.result.is_some())
    }

    fn is_in_turn(&self) -> bool {
        let state = self.state();
        state
            .turn
            .as_ref()
            .is_some_and(|turn| turn.result.is_none())
    }

    /// Sends a cancel if there is a turn under way.
    pub(super) fn ask_to_end(&self) -> bool {
        let mut state = self.state();
        state.is_cancelling = true;
        self.terminals.end_all();
        let Some(turn) = state.turn.as_mut().filter(|turn| turn.result.is_none()) else {
            return false;
        };
        for call in &mut turn.calls {
            if let Some(ask) = call.ask.take() {
                self.withdraw(&ask);
                call.dropped = Some("the run ended before this was decided; nothing was done");
            }
        }
        let Some(session) = self.session.get() else {
            return false;
        };
        let params = OfSession {
            session_id: session.clone(),
        };
        self.link.notify("session/cancel", &params);
        true
    }
}
