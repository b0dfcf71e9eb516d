//! A running outside agent: what it has said and done in its present turn. It lives as long as its
//! run, longer than one attempt of a step, since the run may pause while a person is asked.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};

use super::calls::Described;
use super::link::{Link, NoResult};
use super::turn::{AgentCall, Ask, MAX_CALLS, Turn};
use crate::acp_protocol::answer::{
    AgentCapabilities, AskPermission, PermissionKind, PermissionOption, Prompted,
};
use crate::acp_protocol::request::{
    ContentBlock, OfSession, PermissionAnswer, PermissionOutcome, Prompt, ReadFile, WriteFile,
};
use crate::acp_protocol::update::{ToolStatus, Update};
use crate::acp_protocol::{Incoming, RpcError, code, params};
use crate::contract::runner::TextSink;
use crate::kernel::ids::StepId;

/// Maximum number of files that an agent reads at the same time.
const MAX_READS: usize = 64;
/// How long the agent may take to end its turn when it is asked to.
const CANCEL_TIME: Duration = Duration::from_millis(1500);

/// The kinds of options that refuse a call.
const REJECTIONS: [PermissionKind; 2] = [PermissionKind::RejectOnce, PermissionKind::RejectAlways];

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
    state: Mutex<AgentState>,
    /// Counts the changes of the state.
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct AgentState {
    turn: Option<Turn>,
    is_cancelling: bool,
}

/// A call that is to become a step.
pub(super) struct DueCall {
    pub step: StepId,
    pub tool: String,
    pub arguments: Value,
    pub title: String,
    /// A gate and people decide on it.
    pub is_asked: bool,
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
            state: Mutex::default(),
            changes: watch::channel(0).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, AgentState> {
        // The state is consistent at every moment, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the changes; subscribe before you look.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
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

    /// Sends the prompt of this step; the answer has at most `limit` bytes.
    pub(super) fn prompt(
        self: &Arc<Self>,
        step: StepId,
        session: &str,
        prompt: Vec<ContentBlock>,
        limit: usize,
    ) {
        let mut state = self.state();
        state.turn = Some(Turn::new(step, limit));
        drop(state);
        let method = "session/prompt";
        let params = Prompt {
            session_id: session.to_owned(),
            prompt,
        };
        let answer = self.link.send(method, &params);
        let agent = Arc::clone(self);
        tokio::spawn(async move {
            let result = agent.link.result(method, answer).await;
            agent.end_turn(step, result);
        });
    }

    fn end_turn(&self, prompt: StepId, result: Result<Prompted, NoResult>) {
        let mut state = self.state();
        if let Some(turn) = state.turn.as_mut().filter(|turn| turn.prompt == prompt) {
            turn.result = Some(result);
            for call in &mut turn.calls {
                call.is_over = true;
                if let Some(ask) = call.ask.take() {
                    self.withdraw(&ask);
                }
            }
        }
        drop(state);
        self.changed();
    }

    /// Handles a request or notification of the agent.
    pub(super) fn hear(&self, message: Incoming) {
        match message {
            Incoming::Notification { method, params } if method == "session/update" => {
                self.update(params);
            }
            Incoming::Request { id, method, params } => {
                if let Err(error) = self.asked(&id, &method, params) {
                    self.link.respond::<Value>(&id, Err(error));
                }
            }
            _ => {}
        }
        self.changed();
    }

    /// Takes an update of the session; one that cannot be read has no effect.
    fn update(&self, mut params: Value) {
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

    fn asked(&self, id: &Value, method: &str, given: Value) -> Result<(), RpcError> {
        let mut state = self.state();
        let is_cancelling = state.is_cancelling;
        let turn = state.turn.as_mut().filter(|turn| turn.result.is_none());
        let outside_turn = || RpcError::new(code::INVALID_REQUEST, "there is no turn under way");
        if method.starts_with("fs/") && turn.as_ref().is_some_and(|turn| !turn.room()) {
            return Err(too_many());
        }
        match method {
            "session/request_permission" => {
                let asked: AskPermission = params(given)?;
                self.check(&asked.session_id)?;
                let Some(turn) = turn.filter(|_| !is_cancelling) else {
                    self.link.respond(id, Ok(cancelled()));
                    return Ok(());
                };
                let ask = Ask::Permission {
                    id: id.clone(),
                    options: asked.options,
                };
                if !turn.room() {
                    return Err(too_many());
                }
                turn.permission(asked.tool_call, ask);
            }
            // Only if a person decides on it; otherwise it is answered before this.
            "fs/read_text_file" => {
                let file: ReadFile = params(given)?;
                self.check(&file.session_id)?;
                let fixed = ("read", json!({ "path": file.path }));
                let title = format!("read {}", file.path);
                let id = id.clone();
                turn.ok_or_else(outside_turn)?
                    .request(title, fixed, Ask::Read { id, file });
            }
            "fs/write_text_file" => {
                let file: WriteFile = params(given)?;
                self.check(&file.session_id)?;
                let fixed = json!({ "path": file.path, "content": file.content });
                let title = format!("write {}", file.path);
                let id = id.clone();
                turn.ok_or_else(outside_turn)?.request(
                    title,
                    ("write", fixed),
                    Ask::Write { id, file },
                );
            }
            _ => {
                let message = format!("this client has no method {method}");
                return Err(RpcError::new(code::UNKNOWN_METHOD, message));
            }
        }
        Ok(())
    }

    /// Refuses another session than that of the run.
    pub(super) fn check(&self, session: &str) -> Result<(), RpcError> {
        match self.session.get().is_some_and(|own| own == session) {
            true => Ok(()),
            false => Err(RpcError::params(format!("no session {session}"))),
        }
    }

    /// The next call that is to become a step: `step`, unless an earlier attempt has given it one. It
    /// stays due until [`Agent::begun`].
    pub(super) fn next_due(&self, step: StepId) -> Option<DueCall> {
        let mut state = self.state();
        let calls = &mut state.turn.as_mut()?.calls;
        let call = calls.iter_mut().find(|call| call.is_due)?;
        let step = *call.step.get_or_insert(step);
        let (tool, arguments) = match call.fixed.clone() {
            Some(fixed) => fixed,
            None => call.described.tool(),
        };
        call.judged = Some(arguments.clone());
        Some(DueCall {
            step,
            tool: tool.to_owned(),
            arguments,
            title: call.described.shown(),
            is_asked: call.is_asked,
        })
    }

    /// The call of this step is stored as a step, or is refused.
    pub(super) fn begun(&self, step: StepId) {
        self.of_call(step, |call| call.is_due = false);
    }

    /// The arguments of the call as the agent gave them.
    pub(super) fn arguments(&self, step: StepId) -> Option<Value> {
        self.of_call(step, |call| call.judged.clone()).flatten()
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

    fn of_call<T>(&self, step: StepId, on: impl FnOnce(&mut AgentCall) -> T) -> Option<T> {
        let mut state = self.state();
        let mut calls = state.turn.as_mut()?.calls.iter_mut();
        calls.find(|call| call.step == Some(step)).map(on)
    }

    /// The request that waits for this step, which is answered now.
    pub(super) fn take_ask(&self, step: StepId) -> Option<Ask> {
        self.of_call(step, |call| call.ask.take()).flatten()
    }

    /// True if this step is a request for a file, and no call that the agent makes itself.
    pub(super) fn requests_file(&self, step: StepId) -> bool {
        let is_file = |call: &mut AgentCall| call.id.is_none();
        self.of_call(step, is_file).unwrap_or_default()
    }

    /// The result of a call once it has ended, and whether it failed.
    pub(super) fn over(&self, step: StepId) -> Option<(String, bool)> {
        self.of_call(step, |call| {
            if call.is_carried_out {
                return call.done.clone();
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
            (call.fixed, call.judged) = (None, None);
        });
        self.changed();
    }

    /// The request of a file is being carried out.
    pub(super) fn carries_out(&self, step: StepId) {
        self.of_call(step, |call| call.is_carried_out = true);
    }

    /// The request of a file was carried out.
    pub(super) fn carried_out(&self, step: StepId, done: (String, bool)) {
        self.of_call(step, |call| call.done = Some(done));
        self.changed();
    }

    /// The call may be made. False if the agent offers no permission for this call alone: a permission
    /// for all calls of its kind would let it pass the gate from then on.
    pub(super) fn allow(&self, id: &Value, options: &[PermissionOption]) -> bool {
        let is_offered = options
            .iter()
            .any(|option| option.kind == PermissionKind::AllowOnce);
        let answer = match is_offered {
            true => choice(options, [PermissionKind::AllowOnce]),
            false => choice(options, REJECTIONS),
        };
        self.link.respond(id, Ok(answer));
        is_offered
    }

    /// The call of this step is not made.
    pub(super) fn refuse(&self, step: StepId, why: &str) {
        match self.take_ask(step) {
            Some(Ask::Permission { id, options }) => {
                self.link.respond(&id, Ok(choice(&options, REJECTIONS)));
            }
            Some(Ask::Read { id, .. } | Ask::Write { id, .. }) => {
                let error = RpcError::new(code::INTERNAL, why);
                self.link.respond::<Value>(&id, Err(error));
            }
            None => {}
        }
        self.recorded(step);
    }

    fn withdraw(&self, ask: &Ask) {
        match ask {
            Ask::Permission { id, .. } => self.link.respond(id, Ok(cancelled())),
            Ask::Read { id, .. } | Ask::Write { id, .. } => {
                let error = RpcError::new(code::CANCELLED, "the turn is being cancelled");
                self.link.respond::<Value>(id, Err(error));
            }
        }
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
        let Some(turn) = state.turn.as_mut().filter(|turn| turn.result.is_none()) else {
            return false;
        };
        for call in &mut turn.calls {
            if let Some(ask) = call.ask.take() {
                self.withdraw(&ask);
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

fn too_many() -> RpcError {
    let message = format!("a turn has at most {MAX_CALLS} calls; nothing was done");
    RpcError::new(code::INVALID_REQUEST, message)
}

fn cancelled() -> PermissionAnswer {
    PermissionAnswer {
        outcome: PermissionOutcome::Cancelled,
    }
}

/// The option of the first kind that is offered; chosen by its kind, never by its place.
fn choice<const N: usize>(
    options: &[PermissionOption],
    wanted: [PermissionKind; N],
) -> PermissionAnswer {
    let found = wanted
        .iter()
        .find_map(|kind| options.iter().find(|option| option.kind == *kind));
    match found {
        Some(option) => PermissionAnswer {
            outcome: PermissionOutcome::Selected {
                option_id: option.option_id.clone(),
            },
        },
        None => cancelled(),
    }
}
