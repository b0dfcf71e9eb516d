//! Runs of outside agents: programs that speak the Agent Client Protocol. The program works by itself
//! and is prompted in a session of its own; each prompt is one step, each call that the agent makes
//! another. Its questions for permission go through the gate of its agent, then to people.
//!
//! `link` has the connection, `agent` the program with its session, `turn` what it has said and done
//! for a prompt, `calls` its calls as tools, `steps` the calls as steps, `asks` what it asks of its
//! client, `gate` decides on it, `files` and `terminals` carry it out, `commands` has the commands of
//! terminals, `session` starts the program and opens its session, `prompt` has the texts that it is
//! told.

mod agent;
mod asks;
mod calls;
mod commands;
mod files;
mod gate;
mod link;
mod prompt;
mod session;
mod steps;
mod terminals;
mod turn;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use self::agent::{Agent, EndedTurn};
use self::link::NoResult;
use super::command::{next_of_program, out_of_turns, task, working_folder};
use super::turn::{SUMMARY_LIMIT, pinned_agent, preview_in, read_agent};
use crate::acp_protocol::answer::StopReason;
use crate::acp_protocol::{RpcError, code};
use crate::agent::{AgentDefinition, CommandSpec};
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::delegate::{Delegate, DelegateSlot, Site};
use crate::contract::journal::RunView;
use crate::contract::preview::{Preview, UnapprovedCall};
use crate::contract::runner::{Admission, Next, Runner, StepOutcome, TextSink};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::run::outside::OutsideTurn;
use crate::kernel::run::step::{EffectClass, Intent, ModelUsage, Step, StepKind};
use crate::kernel::run::{RunError, Usage};
use crate::kernel::session::message::Block;
use crate::kernel::text::{preview, storable};
use crate::process::Processes;
use crate::tool::Catalogue;

/// The pause between two looks at a streaming answer, so that an agent that writes single characters
/// causes no more work than another.
const PACE: Duration = Duration::from_millis(20);

/// Executes runs of outside agents. Cheap to clone.
#[derive(Clone)]
pub struct OutsideRunner {
    processes: Processes,
    workspace: Arc<Path>,
    tools: Arc<Catalogue>,
    registry: DelegateSlot,
    clock: Clock,
    live: Arc<Mutex<HashMap<RunId, Arc<Agent>>>>,
    /// Counts the prompts that were sent.
    begun: Arc<watch::Sender<u64>>,
}

impl OutsideRunner {
    /// A runner that starts programs by `processes`, in `workspace` for runs that name no folder.
    /// `tools` judges calls and carries out requests for files, and `registry` journals them.
    pub fn new(
        processes: Processes,
        workspace: Arc<Path>,
        tools: Arc<Catalogue>,
        registry: DelegateSlot,
        clock: Clock,
    ) -> Self {
        OutsideRunner {
            processes,
            workspace,
            tools,
            registry,
            clock,
            live: Arc::default(),
            begun: Arc::new(watch::channel(0).0),
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Agent>>> {
        // The map is consistent at every moment, so a poisoned lock is safe to use.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn agent_of(&self, run: RunId) -> Option<Arc<Agent>> {
        self.live().get(&run).cloned()
    }

    /// The run has this agent no more.
    fn forget(&self, run: RunId, agent: &Arc<Agent>) {
        let mut live = self.live();
        if live
            .get(&run)
            .is_some_and(|known| Arc::ptr_eq(known, agent))
        {
            live.remove(&run);
        }
    }

    fn folder(&self, cwd: Option<&str>, command: Option<&CommandSpec>) -> PathBuf {
        working_folder(&self.workspace, cwd, command)
    }

    /// The intent of a prompt.
    fn start(&self, view: &RunView, definition: &AgentDefinition) -> Next {
        if let Some(error) = out_of_turns(view, definition) {
            return Next::Fail(error);
        }
        let argv = definition
            .command
            .as_ref()
            .map(|command| command.argv.join(" "));
        let turn = OutsideTurn {
            agent: definition.name.clone(),
            ..OutsideTurn::default()
        };
        Next::Steps(vec![Intent {
            id: StepId(self.clock.new_id()),
            kind: StepKind::Command,
            tool: None,
            tool_call: None,
            asked_by: None,
            effect: EffectClass::Once,
            input: turn.input(),
            params_summary: Some(preview(&argv.unwrap_or_default(), SUMMARY_LIMIT)),
            context: None,
        }])
    }

    /// Prompts the agent, or follows the prompt that an earlier attempt has sent.
    async fn prompt(
        &self,
        view: &Arc<RunView>,
        step: &Step,
        sink: &dyn TextSink,
    ) -> Result<StepOutcome, StepOutcome> {
        let definition = pinned_agent(view).map_err(StepOutcome::failed)?;
        let agent = match self.agent_of(step.run) {
            Some(agent) if agent.has_prompt(step.id) => agent,
            live => self.begin(view, step, &definition, live).await?,
        };
        let mut changes = agent.changes();
        let mut shown = agent.shown();
        self.tell_decisions(&agent, view);
        loop {
            self.journal(&agent, view, step).await?;
            agent.show(&mut shown, sink);
            if let Some(ended) = agent.ended() {
                return Ok(outcome(&agent, view, ended));
            }
            // The sender lives in `agent`, so this cannot fail.
            let _ = changes.changed().await;
            tokio::time::sleep(PACE).await;
        }
    }

    fn delegate(&self) -> Result<Arc<dyn Delegate>, RunError> {
        let registry = self.registry.get().cloned();
        registry.ok_or_else(|| RunError::new("acp", "the daemon is starting; try again"))
    }
}

impl Runner for OutsideRunner {
    fn next(&self, view: &RunView) -> Next {
        next_of_program(view, "acp", |definition| self.start(view, definition))
    }

    fn admit(&self, view: Arc<RunView>, step: Arc<Step>) -> BoxFuture<'static, Admission> {
        let runner = self.clone();
        Box::pin(async move {
            let admitted = match step.kind {
                StepKind::Tool => runner.admit_call(&view, &step).await,
                _ => runner.admit_program(&view, &step),
            };
            admitted.unwrap_or_else(|error| Admission::Refused(error.message))
        })
    }

    fn preview(&self, call: UnapprovedCall) -> BoxFuture<'static, Preview> {
        let definition = read_agent(&call.agent).ok();
        let command = definition.as_ref().and_then(|one| one.command.as_ref());
        let root = self.folder(call.cwd.as_deref(), command);
        preview_in(&self.tools, root, call)
    }

    fn prepare(&self, _: &RunView, _: &Step) {}

    fn refused(&self, step: &Step, why: &str) {
        if let Some(agent) = self.agent_of(step.run) {
            agent.refuse(step.id, why);
        }
    }

    fn waits(&self, step: &Step) {
        self.ends_if_dropped(step);
    }

    fn stopping(&self, run: RunId) -> BoxFuture<'static, ()> {
        match self.agent_of(run) {
            Some(agent) => Box::pin(async move { agent.cancel().await }),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn stored(&self, _: StepId) {}

    fn ended(&self, run: RunId) -> BoxFuture<'static, Vec<String>> {
        let Some(agent) = self.live().remove(&run) else {
            return Box::pin(std::future::ready(Vec::new()));
        };
        agent.ask_to_end();
        Box::pin(async move {
            agent.link.close().await;
            agent.terminals.all_ended().await;
            Vec::new()
        })
    }

    fn perform(
        &self,
        view: Arc<RunView>,
        step: Arc<Step>,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, StepOutcome> {
        let runner = self.clone();
        Box::pin(async move {
            match step.kind {
                StepKind::Command => {
                    let done = runner.prompt(&view, &step, &*sink).await;
                    done.unwrap_or_else(|failed| failed)
                }
                StepKind::Tool => runner.call(view, step).await,
                StepKind::Compaction | StepKind::Model => {
                    let why = "the agent is a program, so there is no model context to compact";
                    StepOutcome::failed(RunError::new("no_model", why))
                }
            }
        })
    }
}

/// The outcome of a turn that has ended.
fn outcome(agent: &Agent, view: &RunView, ended: EndedTurn) -> StepOutcome {
    let name = &agent.name;
    let failed = |kind: &str, message: String| StepOutcome::failed(RunError::new(kind, message));
    let prompted = match ended.result {
        Ok(prompted) => prompted,
        Err(why) => return StepOutcome::failed(failure(agent, "session/prompt", why)),
    };
    let mut warnings = Vec::new();
    let mut limit = |what: &str| {
        warnings.push(format!(
            "{name} stopped at {what}: its answer may be incomplete"
        ));
    };
    match prompted.stop_reason {
        StopReason::EndTurn => {}
        StopReason::MaxTokens => limit("the token limit of its model"),
        StopReason::MaxTurnRequests => limit("its limit of model calls for a turn"),
        StopReason::Refusal => {
            return failed("refused", format!("{name} refused to go on with the task"));
        }
        StopReason::Cancelled => {
            let message = format!("{name} ended its turn as cancelled, without being asked to");
            return failed("acp", message);
        }
    }
    if ended.is_cut {
        warnings.push(format!(
            "the answer of {name} is longer than output_limit; the rest was dropped"
        ));
    }
    let used = prompted.usage.map(|usage| ModelUsage {
        model: view.run.model.clone(),
        usage: Usage {
            model_calls: 1,
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cost_micros: 0,
        },
    });
    StepOutcome::Answer {
        blocks: vec![Block::Text {
            text: storable(ended.answer.trim_end()),
        }],
        used,
        warnings,
    }
}

/// The failure of a request to the agent.
fn failure(agent: &Agent, method: &str, why: NoResult) -> RunError {
    let name = &agent.name;
    match why {
        NoResult::Ended(how) => RunError::new("exit", how),
        NoResult::Refused(RpcError { code, message, .. }) if code == code::AUTH_REQUIRED => {
            let ways = agent.sign_in.get().map_or("", String::as_str);
            let message = format!(
                "{name} is not signed in ({message}). Sign in once with its own program, as the user \
                 that runs abide, or give it its key in env; then retry the run{ways}"
            );
            RunError::new("unauthorized", message)
        }
        NoResult::Refused(RpcError {
            code,
            message,
            data,
        }) => {
            let data = data.map_or_else(String::new, |data| {
                format!(": {}", preview(&storable(&data.to_string()), SUMMARY_LIMIT))
            });
            let message = format!("{name} answered {method} with error {code}, {message}{data}");
            RunError::new("acp", message)
        }
    }
}

fn site_of(step: &Step) -> Site {
    Site {
        run: step.run,
        id: step.id,
        step: step.seq,
        attempt: step.attempts,
    }
}

/// What a person approves with the start of the program.
fn shown_start(command: &CommandSpec, view: &RunView, step: &Step) -> serde_json::Value {
    json!({ "argv": command.argv, "prompt": task(view, step) })
}
