//! What an outside agent asks of its client: requests that wait for a decision, how they are answered,
//! and what happens if the agent drops one before that.

use std::sync::Arc;

use serde_json::{Value, json};

use super::OutsideRunner;
use super::agent::Agent;
use super::commands::TerminalCommand;
use super::turn::{Ask, MAX_CALLS, MAX_WAITING, Turn};
use crate::acp_protocol::answer::{AskPermission, PermissionKind, PermissionOption};
use crate::acp_protocol::request::{
    CancelRequest, PermissionAnswer, PermissionOutcome, ReadFile, WriteFile,
};
use crate::acp_protocol::terminal::CreateTerminal;
use crate::acp_protocol::{Incoming, RpcError, code, params};
use crate::contract::journal::RunView;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::step::{EffectClass, Step};

/// The kinds of options that refuse a call.
const REJECTIONS: [PermissionKind; 2] = [PermissionKind::RejectOnce, PermissionKind::RejectAlways];

/// The outcome of a call whose question the agent has withdrawn.
const WITHDRAWN: &str = "the agent withdrew this request before it was decided; nothing was done";

impl OutsideRunner {
    /// Handles a message of the agent. Nothing here waits.
    pub(super) fn hear(
        &self,
        agent: &Arc<Agent>,
        view: &Arc<RunView>,
        step: &Arc<Step>,
        message: Incoming,
    ) {
        match message {
            Incoming::Request { id, method, params } if method == "fs/read_text_file" => {
                self.read_at_once(agent, view, step, (id, params));
            }
            Incoming::Request { id, method, params }
                if matches!(
                    &*method,
                    "terminal/output"
                        | "terminal/wait_for_exit"
                        | "terminal/kill"
                        | "terminal/release"
                ) =>
            {
                agent.of_terminal(id, &method, params);
            }
            Incoming::Notification { method, params } if method == "$/cancel_request" => {
                let dropped = agent.cancel_request(params);
                self.end_calls(agent, step.run, dropped.into_iter().collect());
            }
            other => agent.hear(other),
        }
    }

    /// Ends the waits of these calls, whose questions the agent has dropped, so that no person decides on
    /// them. A call that begins to wait later is ended by [`OutsideRunner::ends_if_dropped`].
    pub(super) fn end_calls(&self, agent: &Agent, run: RunId, dropped: Vec<StepId>) {
        let Ok(delegate) = self.delegate() else {
            return;
        };
        for step in dropped {
            let Some(why) = agent.dropped(step) else {
                continue;
            };
            let delegate = Arc::clone(&delegate);
            tokio::spawn(async move {
                if let Err(fault) = delegate.end_call(run, step, why.to_owned()).await {
                    // Its approval expires at last.
                    tracing::warn!(%run, %step, %fault, "a dropped question could not be closed");
                }
            });
        }
    }

    /// Ends the wait of this step, which has just begun, if the agent has dropped its question.
    pub(super) fn ends_if_dropped(&self, step: &Step) {
        if let Some(agent) = self.agent_of(step.run) {
            self.end_calls(&agent, step.run, vec![step.id]);
        }
    }
}

impl Agent {
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

    fn asked(&self, id: &Value, method: &str, given: Value) -> Result<(), RpcError> {
        let mut state = self.state();
        let is_cancelling = state.is_cancelling;
        let turn = state.turn.as_mut().filter(|turn| turn.result.is_none());
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
                has_room(turn, 0)?;
                turn.permission(asked.tool_call, ask);
            }
            // Only if a person decides on it; otherwise it is answered before this.
            "fs/read_text_file" => {
                let file: ReadFile = params(given)?;
                self.check(&file.session_id)?;
                let turn = under_way(turn)?;
                let bytes = file.path.len();
                has_room(turn, bytes)?;
                let fixed = ("read", json!({ "path": file.path }));
                let title = format!("read {}", file.path);
                let id = id.clone();
                turn.request(title, fixed, bytes, Ask::Read { id, file });
            }
            "fs/write_text_file" => {
                let file: WriteFile = params(given)?;
                self.check(&file.session_id)?;
                let turn = under_way(turn)?;
                let bytes = file.path.len() + file.content.len();
                has_room(turn, bytes)?;
                let fixed = json!({ "path": file.path, "content": file.content });
                let title = format!("write {}", file.path);
                let id = id.clone();
                turn.request(title, ("write", fixed), bytes, Ask::Write { id, file });
            }
            "terminal/create" => {
                let asked: CreateTerminal = params(given)?;
                self.check(&asked.session_id)?;
                let turn = under_way(turn.filter(|_| !is_cancelling))?;
                let command = TerminalCommand::new(asked)?;
                has_room(turn, command.bytes())?;
                let fixed = ("shell", command.arguments());
                let (id, bytes) = (id.clone(), command.bytes());
                let ask = Ask::Terminal {
                    id,
                    command: command.clone(),
                };
                let call = turn.request(command.line(), fixed, bytes, ask);
                // What a command does, it may do again.
                call.effect = EffectClass::Once;
                call.command = Some(command);
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

    /// The agent does not want the answer to its request any more. Returns the step that waits for a
    /// decision on it, if there is one. A request that is being carried out goes on.
    fn cancel_request(&self, given: Value) -> Option<StepId> {
        let CancelRequest { request_id } = params(given).ok()?;
        let mut state = self.state();
        for (id, is_dropped) in &mut state.reading {
            *is_dropped |= *id == request_id;
        }
        let mut calls = state.turn.as_mut()?.calls.iter_mut();
        let is_asked = |ask: &Ask| *ask.id() == request_id;
        let call = calls.find(|call| call.ask.as_ref().is_some_and(is_asked))?;
        call.ask = None;
        call.dropped = Some(WITHDRAWN);
        let step = call.step;
        self.link.respond::<Value>(&request_id, Err(withdrawn()));
        drop(state);
        self.changed();
        step
    }

    /// Why the agent has dropped the question of this step; `None` if it has not.
    pub(super) fn dropped(&self, step: StepId) -> Option<&'static str> {
        self.of_call(step, |call| call.dropped).flatten()
    }

    /// A request of a file that may be read at once begins.
    pub(super) fn reading(&self, id: &Value) {
        self.state().reading.push((id.clone(), false));
    }

    /// The request of a file is decided on. True if the agent has dropped it meanwhile.
    pub(super) fn stops_reading(&self, id: &Value) -> bool {
        let mut state = self.state();
        let found = state.reading.iter().position(|(known, _)| known == id);
        found.is_some_and(|at| state.reading.swap_remove(at).1)
    }

    /// True if a request waits for this step.
    pub(super) fn has_ask(&self, step: StepId) -> bool {
        self.of_call(step, |call| call.ask.is_some())
            .unwrap_or_default()
    }

    /// The request that waits for this step, which is answered now.
    pub(super) fn take_ask(&self, step: StepId) -> Option<Ask> {
        self.of_call(step, |call| call.ask.take()).flatten()
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
            Some(other) => {
                let error = RpcError::new(code::INTERNAL, why);
                self.link.respond::<Value>(other.id(), Err(error));
            }
            None => {}
        }
        self.recorded(step);
    }

    /// Answers a request on which nothing is decided any more.
    pub(super) fn withdraw(&self, ask: &Ask) {
        match ask {
            Ask::Permission { id, .. } => self.link.respond(id, Ok(cancelled())),
            other => {
                let error = RpcError::new(code::CANCELLED, "the turn is being cancelled");
                self.link.respond::<Value>(other.id(), Err(error));
            }
        }
    }
}

fn under_way(turn: Option<&mut Turn>) -> Result<&mut Turn, RpcError> {
    turn.ok_or_else(|| RpcError::new(code::INVALID_REQUEST, "there is no turn under way"))
}

/// Refuses a request beyond the limits of a turn, counted and in bytes.
fn has_room(turn: &Turn, bytes: usize) -> Result<(), RpcError> {
    let message = if !turn.room() {
        format!("a turn has at most {MAX_CALLS} calls; nothing was done")
    } else if !turn.has_room_for(bytes) {
        format!("requests with more than {MAX_WAITING} bytes would wait; nothing was done")
    } else {
        return Ok(());
    };
    Err(RpcError::new(code::INVALID_REQUEST, message))
}

/// The answer to a request that the agent has withdrawn.
pub(super) fn withdrawn() -> RpcError {
    RpcError::new(code::CANCELLED, "the request was withdrawn")
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
