//! Starts the program of an outside agent, opens its session and sends the prompt. The session is
//! stored before the prompt, so that a prompt is never sent twice without the agent being told.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::agent::Agent;
use super::link::{Link, NoResult};
use super::{OutsideRunner, failure, prompt, site_of};
use crate::acp_protocol::VERSION;
use crate::acp_protocol::answer::{AgentCapabilities, AuthMethod, Introduced, NewSessionId};
use crate::acp_protocol::request::{
    ClientCapabilities, ContentBlock, FileCapabilities, Initialize, NewSession, OpenSession,
};
use crate::agent::{AgentDefinition, CommandSpec};
use crate::contract::journal::RunView;
use crate::contract::runner::StepOutcome;
use crate::kernel::run::RunError;
use crate::kernel::run::outside::{OutsideTurn, Reopens};
use crate::kernel::run::step::Step;
use crate::kernel::text::{preview, storable};
use crate::process::{Program, ProgramInput};
use crate::version::version;

/// How long is waited for the end of a program that ends with each turn, before the next prompt is
/// sent to it.
const AFTER_TURN: Duration = Duration::from_millis(50);
/// How long an agent may take to introduce itself and to open a session; some load packages first.
const OPENING: Duration = Duration::from_secs(120);
/// Maximum number of characters that are shown of the ways to sign in.
const WAYS: usize = 400;
/// Bytes of the program's standard error that are kept.
const STDERR: usize = 16 * 1024;

impl OutsideRunner {
    /// Prompts the agent in its session; the program and the session are made if there are none.
    /// `live` is the agent of an earlier prompt of the run.
    pub(super) async fn begin(
        &self,
        view: &Arc<RunView>,
        step: &Step,
        definition: &AgentDefinition,
        live: Option<Arc<Agent>>,
    ) -> Result<Arc<Agent>, StepOutcome> {
        let command = definition.command.as_ref().ok_or_else(|| {
            StepOutcome::failed(RunError::new("pins", "the pinned agent is not a program"))
        })?;
        let begun = OutsideTurn::of(step).filter(|turn| turn.may_have_begun(step));
        if let Some(turn) = &begun
            && turn.reopens.is_none()
        {
            return Err(lost(
                "its program has ended, and it cannot open its session again",
            ));
        }
        let agent = match live {
            Some(agent) if agent.link.stays_open(AFTER_TURN).await => agent,
            // Its program has ended between two prompts, which may leave processes that still end.
            Some(ended) => {
                ended.link.close().await;
                self.forget(step.run, &ended);
                self.connect(view, step, command).await?
            }
            None => self.connect(view, step, command).await?,
        };
        let opened = self.open(view, step, definition, &agent, begun.as_ref());
        let (session, blocks) = opened.await?;
        let turn = OutsideTurn {
            agent: definition.name.clone(),
            reopens: agent.can.get().and_then(reopens),
            session: Some(session.clone()),
        };
        let kept = self
            .delegate()
            .map_err(StepOutcome::failed)?
            .keep_turn(site_of(step), turn)
            .await;
        kept.map_err(|fault| StepOutcome::failed(RunError::new("acp", fault.message)))?;
        crate::failpoint::reach("acp.prompting");
        let limit = usize::try_from(command.output_limit).unwrap_or(usize::MAX);
        let answer = agent.prompt(step.id, &session, blocks, limit);
        let (runner, of, prompt) = (self.clone(), Arc::clone(&agent), step.clone());
        tokio::spawn(async move {
            let result = of.link.result("session/prompt", answer).await;
            let dropped = of.end_turn(prompt.id, result);
            runner.end_calls(&of, prompt.run, dropped);
        });
        // Calls of an earlier attempt wait for this.
        self.begun.send_modify(|count| *count += 1);
        crate::failpoint::reach("acp.prompted");
        Ok(agent)
    }

    /// Starts the program and has it introduce itself.
    async fn connect(
        &self,
        view: &Arc<RunView>,
        step: &Step,
        command: &CommandSpec,
    ) -> Result<Arc<Agent>, StepOutcome> {
        let failed = |error| StepOutcome::failed(error);
        let name = command.argv.first().map_or("the agent", String::as_str);
        let program = Program {
            argv: command.argv.clone(),
            environment: view.environment.variables.clone(),
            folder: self.folder(view.run.cwd.as_deref(), Some(command)),
            input: ProgramInput::Pipe,
            time: None,
            keep: STDERR,
            detach: false,
        };
        let opened = self
            .processes
            .open_for_step((step.run, step.id), program, |_| ());
        let service = opened.await.map_err(|why| {
            let message = format!("the program was not started: {why}");
            failed(RunError::new("command", message))
        })?;
        let (link, unattended) = Link::to(name, service);
        let agent = Arc::new(Agent::new(name, link));
        let known = self.live().insert(step.run, Arc::clone(&agent));
        debug_assert!(known.is_none(), "a run has one agent");
        let (runner, attended) = (self.clone(), Arc::clone(&agent));
        let (of_run, of_step) = (Arc::clone(view), Arc::new(step.clone()));
        tokio::spawn(async move {
            let heard = |message| runner.hear(&attended, &of_run, &of_step, message);
            attended.link.attend(unattended, heard).await;
        });
        let method = "initialize";
        let greeting = Initialize {
            protocol_version: u32::from(VERSION),
            client_capabilities: ClientCapabilities {
                fs: FileCapabilities {
                    read_text_file: true,
                    write_text_file: true,
                },
                terminal: true,
                ..ClientCapabilities::default()
            },
            client_info: Some(json!({ "name": "abide", "version": version() })),
        };
        let introduced = within(agent.link.request::<Introduced>(method, &greeting));
        let introduced = introduced
            .await
            .map_err(|why| failed(failure(&agent, method, why)))?;
        if introduced.protocol_version != u32::from(VERSION) {
            let message = format!(
                "{name} speaks version {} of the Agent Client Protocol, abide version {VERSION}",
                introduced.protocol_version
            );
            return Err(failed(RunError::new("acp", message)));
        }
        agent.sign_in.get_or_init(|| ways(&introduced.auth_methods));
        agent.can.get_or_init(|| introduced.agent_capabilities);
        Ok(agent)
    }

    /// The session of the agent, opened, and what it is told in it.
    async fn open(
        &self,
        view: &Arc<RunView>,
        step: &Step,
        definition: &AgentDefinition,
        agent: &Agent,
        begun: Option<&OutsideTurn>,
    ) -> Result<(String, Vec<ContentBlock>), StepOutcome> {
        if let Some(session) = agent.session.get() {
            return Ok((session.clone(), prompt::next(view, step)));
        }
        let folder = self.folder(view.run.cwd.as_deref(), definition.command.as_ref());
        let cwd = folder.display().to_string();
        let can = agent.can.get().cloned().unwrap_or_default();
        if let Some(turn) = begun {
            let session = turn.session.clone().unwrap_or_default();
            return match reopen(agent, &can, &session, &cwd).await {
                Ok(()) => Ok((session, prompt::continued(view, step))),
                Err(why) => {
                    let error = failure(agent, "the opening of its session", why);
                    Err(lost(&format!(
                        "its program has ended, and its session could not be opened again ({})",
                        error.message
                    )))
                }
            };
        }
        let earlier = prompt::earlier_session(view, step, &definition.name);
        if let Some(session) = earlier.and_then(|turn| turn.session)
            && reopens(&can).is_some()
        {
            match reopen(agent, &can, &session, &cwd).await {
                Ok(()) => return Ok((session, prompt::next(view, step))),
                // The agent may have deleted it; the new session is told what was said.
                Err(NoResult::Refused(error)) => {
                    tracing::info!(run = %step.run, %session, ?error, "an outside agent begins a new session");
                }
                Err(ended) => {
                    let error = failure(agent, "the opening of its session", ended);
                    return Err(StepOutcome::failed(error));
                }
            }
        }
        let method = "session/new";
        let wanted = NewSession {
            cwd,
            mcp_servers: Some(Vec::new()),
        };
        let opened = within(agent.link.request::<NewSessionId>(method, &wanted));
        let opened = opened
            .await
            .map_err(|why| StepOutcome::failed(failure(agent, method, why)))?;
        let session = agent.session.get_or_init(|| opened.session_id).clone();
        let blocks = prompt::first(view, step, &definition.system_prompt);
        Ok((session, blocks))
    }
}

/// Opens a session of an earlier program again. The conversation that the agent repeats is not heard,
/// since no turn is under way.
async fn reopen(
    agent: &Agent,
    can: &AgentCapabilities,
    session: &str,
    cwd: &str,
) -> Result<(), NoResult> {
    let method = match reopens(can) {
        Some(Reopens::Resume) => "session/resume",
        _ => "session/load",
    };
    let params = OpenSession {
        session_id: session.to_owned(),
        cwd: cwd.to_owned(),
        mcp_servers: Some(Vec::new()),
    };
    within(
        agent
            .link
            .request::<Option<serde_json::Value>>(method, &params),
    )
    .await?;
    agent.session.get_or_init(|| session.to_owned());
    Ok(())
}

/// The ways to sign in that the agent names.
fn ways(methods: &[AuthMethod]) -> String {
    let shown = methods.iter().map(|method| match &method.description {
        Some(description) => format!("{} ({description})", method.name),
        None => method.name.clone(),
    });
    match shown.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => none,
        ways => format!(". Its ways to sign in: {}", preview(&storable(&ways), WAYS)),
    }
}

/// How the agent opens its sessions again: the way without a repetition, if there is one.
fn reopens(can: &AgentCapabilities) -> Option<Reopens> {
    match (&can.session_capabilities.resume, can.load_session) {
        (Some(_), _) => Some(Reopens::Resume),
        (None, true) => Some(Reopens::Load),
        (None, false) => None,
    }
}

async fn within<T>(work: impl Future<Output = Result<T, NoResult>>) -> Result<T, NoResult> {
    match tokio::time::timeout(OPENING, work).await {
        Ok(done) => done,
        Err(_) => Err(NoResult::Ended(format!(
            "the agent gave no answer within {} s",
            OPENING.as_secs()
        ))),
    }
}

/// The prompt may have been carried out in part.
fn lost(why: &str) -> StepOutcome {
    StepOutcome::Uncertain {
        why: why.to_owned(),
        is_final: true,
    }
}
