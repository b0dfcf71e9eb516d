//! The calls of an outside agent as steps of its run: journaled, decided on, carried out and followed
//! to their ends.

use std::sync::Arc;

use super::agent::Agent;
use super::turn::Ask;
use super::{OutsideRunner, site_of};
use crate::contract::journal::RunView;
use crate::contract::runner::StepOutcome;
use crate::kernel::ids::StepId;
use crate::kernel::run::step::{EffectClass, Intent, Step, StepKind, StepState};
use crate::kernel::text::{preview, storable};
use crate::runner::turn::SUMMARY_LIMIT;

/// Why an allowed call is not made.
const NO_SINGLE: &str = "the agent offers no permission for this call alone, so it got none";

impl OutsideRunner {
    /// The calls that have begun become steps.
    pub(super) async fn journal(
        &self,
        agent: &Agent,
        view: &RunView,
        prompt: &Step,
    ) -> Result<(), StepOutcome> {
        loop {
            let id = StepId(self.clock.new_id());
            let Some(call) = agent.next_due(id, &view.steps) else {
                return Ok(());
            };
            let id = call.step;
            let redactor = &view.environment.redactor;
            let mut arguments = call.arguments;
            redactor.in_value(&mut arguments);
            let title = redactor.text(&call.title).into_owned();
            let intent = Intent {
                id,
                kind: StepKind::Tool,
                tool: Some(call.tool),
                tool_call: None,
                asked_by: Some(prompt.id),
                effect: call.effect,
                input: arguments,
                params_summary: Some(preview(&storable(&title), SUMMARY_LIMIT)),
                context: None,
            };
            let begun = self
                .delegate()
                .map_err(StepOutcome::failed)?
                .begin_call(site_of(prompt), intent)
                .await;
            agent.begun(id);
            if let Err(fault) = begun {
                agent.refuse(id, &fault.message);
            }
        }
    }

    /// Tells the agent what people decided while its run was paused.
    pub(super) fn tell_decisions(&self, agent: &Agent, view: &RunView) {
        for step in view.steps.iter().filter(|step| !step.state.is_open()) {
            if agent.has_call(step.id) {
                agent.refuse(step.id, step.error.as_deref().unwrap_or("it was refused"));
            }
        }
    }

    /// Waits until the agent repeats the request of this step, which an earlier process of the daemon
    /// has stored and has not answered. False if the turn ends without that.
    pub(super) async fn is_repeated(&self, view: &RunView, step: &Step) -> bool {
        let mut steps = view.steps.iter();
        let prompt = steps.find(|other| Some(other.id) == step.asked_by);
        let Some(prompt) = prompt.filter(|prompt| prompt.state.is_open()) else {
            return false;
        };
        let mut begun = self.begun.subscribe();
        loop {
            let live = self.agent_of(step.run);
            if let Some(agent) = live.filter(|agent| agent.has_prompt(prompt.id)) {
                let mut changes = agent.changes();
                while !agent.has_call(step.id) {
                    if agent.is_over(prompt.id) {
                        return false;
                    }
                    // The sender lives in `agent`, so this cannot fail.
                    let _ = changes.changed().await;
                }
                return true;
            }
            // The sender lives in `self`, so this cannot fail.
            let _ = begun.changed().await;
        }
    }

    /// Carries out what the agent asks for with this call, and follows the call to its end.
    pub(super) async fn call(&self, view: Arc<RunView>, step: Arc<Step>) -> StepOutcome {
        let live = self.agent_of(step.run);
        let Some(agent) = live.filter(|agent| agent.has_call(step.id)) else {
            return unanswered(&step);
        };
        let mut changes = agent.changes();
        let refused = match self.may_answer(&agent, &step).await {
            Ok(()) => self.answer(&agent, &view, &step),
            Err(why) => {
                agent.refuse(step.id, &why);
                Some(why)
            }
        };
        let (text, is_error) = match refused {
            Some(why) => (why, true),
            None => loop {
                if let Some(over) = agent.over(step.id) {
                    break over;
                }
                // The sender lives in `agent`, so this cannot fail.
                let _ = changes.changed().await;
            },
        };
        agent.recorded(step.id);
        StepOutcome::ToolResult {
            text: storable(&text),
            is_error,
        }
    }

    /// Stores that the request of this step is answered, before it is: a later process of the daemon
    /// must not give the answer to a repetition.
    async fn may_answer(&self, agent: &Agent, step: &Step) -> Result<(), String> {
        if step.effect != EffectClass::Idempotent || !agent.has_ask(step.id) {
            return Ok(());
        }
        let delegate = self.delegate().map_err(|error| error.message)?;
        let stored = delegate.answer_call(site_of(step)).await;
        stored.map_err(|fault| fault.message)
    }

    /// Answers the request of this step, or begins to carry it out. Returns why it is not made.
    fn answer(&self, agent: &Arc<Agent>, view: &Arc<RunView>, step: &Arc<Step>) -> Option<String> {
        match agent.take_ask(step.id)? {
            Ask::Permission { id, options } => {
                let is_allowed = agent.allow(&id, &options);
                return (!is_allowed).then(|| NO_SINGLE.to_owned());
            }
            Ask::Read { id, file } => {
                let (runner, of, view) = (self.clone(), Arc::clone(agent), Arc::clone(view));
                agent.carry_out(step.id, async move {
                    runner.read_file(&of, &view, &id, file).await
                });
            }
            Ask::Write { id, file } => {
                let (runner, of, view) = (self.clone(), Arc::clone(agent), Arc::clone(view));
                let of_step = Arc::clone(step);
                agent.carry_out(step.id, async move {
                    runner.write_file(&of, &view, &of_step, &id, file).await
                });
            }
            Ask::Terminal { id, command } => {
                let (runner, of, view) = (self.clone(), Arc::clone(agent), Arc::clone(view));
                let of_step = Arc::clone(step);
                agent.carry_out(step.id, async move {
                    runner.run_command(&of, &view, &of_step, &id, command).await
                });
            }
        }
        None
    }
}

/// The outcome of a call whose program an earlier process of the daemon had started.
fn unanswered(step: &Step) -> StepOutcome {
    let text = match (step.effect, step.state) {
        (EffectClass::Once, StepState::Started) => {
            return StepOutcome::Uncertain {
                why: "the daemon stopped while the command ran, which ended it".to_owned(),
                is_final: true,
            };
        }
        (EffectClass::Idempotent | EffectClass::Once, StepState::Intended) => {
            "the agent's program ended before it got the answer to this request, and the agent did \
             not repeat it; nothing was done"
        }
        _ => "the agent's program ended during this call; it is unknown whether the call was made",
    };
    StepOutcome::ToolResult {
        text: text.to_owned(),
        is_error: true,
    }
}
