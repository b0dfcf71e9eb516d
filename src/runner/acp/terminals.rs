//! Terminals of an outside agent: commands that its client runs for it, in the run's folder and with
//! the run's environment, until the agent releases them. None outlives the turn.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::OutsideRunner;
use super::agent::Agent;
use super::commands::TerminalCommand;
use crate::acp_protocol::terminal::{OfTerminal, TerminalCreated, TerminalExit, TerminalOutput};
use crate::acp_protocol::{Answered, RpcError, code, params};
use crate::contract::journal::RunView;
use crate::kernel::ids::StepId;
use crate::kernel::run::step::Step;
use crate::kernel::text::storable;
use crate::process::{ExitReason, Finished, Program, ProgramInput, signal_name};
use crate::runner::turn::pinned_agent;

/// Maximum number of bytes of output that are kept of a command, whatever the agent wants.
const KEEP: usize = 1024 * 1024;
/// Maximum number of terminals of an agent that it has not released.
const MAX_TERMINALS: usize = 32;
/// Maximum number of requests that wait for the end of a command.
const MAX_WAITS: usize = 256;
/// Bytes of output that the outcome of the call's step shows.
const SHOWN: usize = 2000;

/// The terminals of an agent, by the step of the call that has created each.
pub(super) struct Terminals {
    known: Mutex<HashMap<StepId, Arc<Terminal>>>,
    waits: Arc<Semaphore>,
}

/// A command with its output.
pub(super) struct Terminal {
    output: Mutex<Tail>,
    /// How the command has ended; `None` while it runs.
    ended: watch::Sender<Option<TerminalExit>>,
    stop: CancellationToken,
    /// The agent does not know it any more.
    is_released: AtomicBool,
}

/// The last bytes of an output.
struct Tail {
    bytes: VecDeque<u8>,
    limit: usize,
    is_cut: bool,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        let kept = &bytes[bytes.len().saturating_sub(self.limit)..];
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.limit);
        self.is_cut |= over > 0 || kept.len() < bytes.len();
        self.bytes.drain(..over);
        self.bytes.extend(kept);
    }

    /// The text of at most `limit` bytes; no character of it is cut.
    fn text(&self, limit: usize) -> String {
        let limit = limit.min(self.limit);
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        // At most three bytes can be the rest of a cut character.
        let is_rest = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        let rest = bytes.iter().take(3).take_while(is_rest).count();
        let from = if self.is_cut { rest } else { 0 };
        let text = String::from_utf8_lossy(&bytes[from..]);
        // The replacement of invalid bytes is longer than they are.
        let mut from = text.len().saturating_sub(limit);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        text[from..].to_owned()
    }

    /// The text of at most `most` bytes. `…` marks a cut, by which redaction finds a cut secret.
    fn last(&self, most: usize) -> String {
        let text = self.text(most);
        match self.is_cut || text.len() < self.bytes.len() {
            true => format!("…{text}"),
            false => text,
        }
    }
}

impl Terminal {
    fn new(limit: Option<u64>) -> Self {
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        Terminal {
            output: Mutex::new(Tail {
                bytes: VecDeque::new(),
                limit: limit.unwrap_or(KEEP).min(KEEP),
                is_cut: false,
            }),
            ended: watch::channel(None).0,
            stop: CancellationToken::new(),
            is_released: AtomicBool::new(false),
        }
    }

    fn output(&self) -> MutexGuard<'_, Tail> {
        // The bytes are consistent at every moment, so a poisoned lock is safe to use.
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shown(&self) -> TerminalOutput {
        // First, so that the output of an ended command is complete.
        let exit_status = self.ended.borrow().clone();
        let output = self.output();
        TerminalOutput {
            output: output.text(KEEP),
            truncated: output.is_cut,
            exit_status,
        }
    }

    async fn exit(&self) -> TerminalExit {
        let mut ended = self.ended.subscribe();
        // The sender lives in `self`, so this cannot fail.
        match ended.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone(),
            Err(_) => None,
        }
        .unwrap_or_else(|| by_signal("SIGTERM"))
    }

    fn release(&self) {
        self.is_released.store(true, Ordering::Relaxed);
        self.stop.cancel();
    }

    fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}

impl Default for Terminals {
    fn default() -> Self {
        Terminals {
            known: Mutex::default(),
            waits: Arc::new(Semaphore::new(MAX_WAITS)),
        }
    }
}

impl Terminals {
    fn known(&self) -> MutexGuard<'_, HashMap<StepId, Arc<Terminal>>> {
        // The map is consistent at every moment, so a poisoned lock is safe to use.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new terminal; `None` if there are too many.
    pub(super) fn add(&self, step: StepId, limit: Option<u64>) -> Option<Arc<Terminal>> {
        let mut known = self.known();
        known.retain(|_, one| !(one.has_ended() && one.is_released.load(Ordering::Relaxed)));
        if known.len() >= MAX_TERMINALS {
            return None;
        }
        let terminal = Arc::new(Terminal::new(limit));
        known.insert(step, Arc::clone(&terminal));
        Some(terminal)
    }

    /// The terminal that the agent means.
    fn named(&self, id: &str) -> Answered<Arc<Terminal>> {
        let known = self.known();
        let found = id.parse().ok().and_then(|step| known.get(&StepId(step)));
        let found = found.filter(|one| !one.is_released.load(Ordering::Relaxed));
        found
            .cloned()
            .ok_or_else(|| RpcError::new(code::NOT_FOUND, format!("no terminal {id}")))
    }

    /// Ends every command. The agent does not know any of them any more.
    pub(super) fn end_all(&self) {
        self.known().values().for_each(|one| one.release());
    }

    /// Once this returns, no command runs any more.
    pub(super) async fn all_ended(&self) {
        let all: Vec<_> = self.known().drain().map(|(_, one)| one).collect();
        for one in all {
            one.exit().await;
        }
    }
}

impl Agent {
    /// Answers a request about a terminal that there is.
    pub(super) fn of_terminal(self: &Arc<Self>, id: Value, method: &str, given: Value) {
        let found = params::<OfTerminal>(given).and_then(|asked| {
            self.check(&asked.session_id)?;
            self.terminals.named(&asked.terminal_id)
        });
        let terminal = match found {
            Ok(terminal) => terminal,
            Err(error) => return self.link.respond::<Value>(&id, Err(error)),
        };
        match method {
            "terminal/output" => self.link.respond(&id, Ok(terminal.shown())),
            "terminal/wait_for_exit" => {
                let Ok(place) = Arc::clone(&self.terminals.waits).try_acquire_owned() else {
                    let error = RpcError::new(code::INVALID_REQUEST, "too many requests wait");
                    return self.link.respond::<Value>(&id, Err(error));
                };
                let agent = Arc::clone(self);
                tokio::spawn(async move {
                    let exit = terminal.exit().await;
                    agent.link.respond(&id, Ok(exit));
                    drop(place);
                });
            }
            "terminal/kill" => {
                terminal.stop.cancel();
                self.link.respond(&id, Ok(json!({})));
            }
            _ => {
                terminal.release();
                self.link.respond(&id, Ok(json!({})));
            }
        }
    }

    /// A terminal for the command of this step; an error says why there is none.
    fn open_terminal(&self, step: StepId, limit: Option<u64>) -> Result<Arc<Terminal>, String> {
        let state = self.state();
        let turn = state.turn.as_ref().filter(|turn| turn.result.is_none());
        let is_called = |call: &super::turn::AgentCall| call.step == Some(step);
        if state.is_cancelling || !turn.is_some_and(|turn| turn.calls.iter().any(is_called)) {
            return Err("the turn has ended; the command was not started".to_owned());
        }
        // Under the lock, so that the end of the turn ends it.
        self.terminals.add(step, limit).ok_or_else(|| {
            format!("there are {MAX_TERMINALS} terminals; release one. Nothing was started")
        })
    }
}

impl OutsideRunner {
    /// Runs the command to its end and answers the request once it has begun; returns what the call's
    /// step says.
    pub(super) async fn run_command(
        &self,
        agent: &Agent,
        view: &RunView,
        step: &Step,
        id: &Value,
        command: TerminalCommand,
    ) -> (String, bool) {
        let opened = self.start_command(agent, view, step, command).await;
        let (terminal, program) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                let error = RpcError::new(code::INVALID_REQUEST, &why);
                agent.link.respond::<Value>(id, Err(error));
                return (why, true);
            }
        };
        crate::failpoint::reach("acp.terminal");
        let terminal_id = step.id.to_string();
        agent.link.respond(id, Ok(TerminalCreated { terminal_id }));
        let heard = |bytes: &[u8]| terminal.output().push(bytes);
        let stop = terminal.stop.cancelled();
        let ended = program.attend(heard, stop).await;
        let (text, exit, is_error) = outcome(ended);
        terminal.ended.send_replace(Some(exit));
        let said = terminal.output().last(SHOWN);
        let said = storable(said.trim());
        match said.is_empty() {
            true => (text, is_error),
            false => (format!("{text}\n{said}"), is_error),
        }
    }

    async fn start_command(
        &self,
        agent: &Agent,
        view: &RunView,
        step: &Step,
        command: TerminalCommand,
    ) -> Result<(Arc<Terminal>, crate::process::AttendedProgram), String> {
        let definition = pinned_agent(view).map_err(|error| error.message)?;
        let root = self.folder(view.run.cwd.as_deref(), definition.command.as_ref());
        let folder = self.tools.folder(&root, command.cwd.clone()).await?;
        let mut environment = view.environment.variables.clone();
        for (name, value) in &command.env {
            environment = environment.with(name, value);
        }
        let program = Program {
            argv: command.started(),
            environment,
            folder,
            input: ProgramInput::Nothing,
            time: None,
            keep: 0,
            detach: false,
        };
        let terminal = agent.open_terminal(step.id, command.limit)?;
        let started = self
            .processes
            .start_for_step((step.run, step.id), program)
            .await;
        let started = started.map_err(|why| {
            terminal.release();
            terminal.ended.send_replace(Some(by_signal("SIGTERM")));
            format!("the command was not started: {why}")
        })?;
        Ok((terminal, started))
    }
}

/// How a command has ended: for its step, for the agent, and whether it counts as failed.
fn outcome(ended: Result<Finished, String>) -> (String, TerminalExit, bool) {
    let ending = match ended {
        Ok(finished) => finished.ending,
        Err(why) => return (why, by_signal("SIGKILL"), true),
    };
    match ending {
        ExitReason::Exited(status) => {
            let exit = TerminalExit {
                exit_code: u32::try_from(status).ok(),
                signal: None,
            };
            (format!("exit status {status}"), exit, status != 0)
        }
        ExitReason::Signal(signal) => {
            let name = signal_name(signal);
            let short = name
                .split_once('(')
                .map(|(_, name)| name.trim_end_matches(')'));
            let exit = by_signal(short.unwrap_or(&name));
            (format!("ended by signal {name}"), exit, true)
        }
        ExitReason::OutputLimit(most) => {
            let text = format!("too much output: it wrote more than {most} bytes");
            (text, by_signal("SIGTERM"), true)
        }
        ExitReason::TimedOut | ExitReason::Stopped | ExitReason::Orphaned(_) => {
            let text = "ended: its terminal was killed or released, or the turn ended";
            (text.to_owned(), by_signal("SIGTERM"), true)
        }
    }
}

fn by_signal(name: &str) -> TerminalExit {
    TerminalExit {
        exit_code: None,
        signal: Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_last_bytes_are_kept_in_whole_characters(
            text in "[aä€𝄞]{0,60}", limit in 0usize..40, piece in 1usize..9
        ) {
            let mut tail = Tail { bytes: VecDeque::new(), limit, is_cut: false };
            for piece in text.as_bytes().chunks(piece) {
                tail.push(piece);
            }
            let shown = tail.text(KEEP);
            prop_assert!(text.ends_with(&shown), "{}", shown);
            prop_assert!(shown.len() <= limit && (shown.len() + 3 >= limit.min(text.len())));
            prop_assert_eq!(tail.is_cut, text.len() > limit);
        }
    }

    #[test]
    fn invalid_bytes_stay_within_the_limit() {
        let mut tail = Tail {
            bytes: VecDeque::new(),
            limit: 8,
            is_cut: false,
        };
        tail.push(&[0xff; 20]);
        assert!(tail.text(KEEP).len() <= 8);
    }
}
