//! Whether an outside agent may be started, and make a call that it asks about, by the rules that the
//! run has pinned.

use std::sync::Arc;

use serde_json::{Value, json};

use super::agent::Agent;
use super::calls::{OTHER, paths_in, unknown_target};
use super::{OutsideRunner, shown_start, site_of};
use crate::contract::journal::RunView;
use crate::contract::runner::Admission;
use crate::kernel::policy::approval::Consent;
use crate::kernel::run::RunError;
use crate::kernel::run::step::{EffectClass, Step, StepState};
use crate::runner::command::program_step;
use crate::runner::rights::rights;
use crate::runner::turn::pinned_agent;
use crate::tool::{self, Call, NodeContext};

impl OutsideRunner {
    /// Whether the program may be started.
    pub(super) fn admit_program(&self, view: &RunView, step: &Step) -> Result<Admission, RunError> {
        let definition = pinned_agent(view)?;
        let Some(command) = &definition.command else {
            return Err(RunError::new("pins", "the pinned agent is not a program"));
        };
        let mut admitted = tool::admit_program(&rights(&definition, view)?, &command.argv);
        if let Admission::NeedsApproval(consent) = &mut admitted {
            consent.arguments = Some(shown_start(command, view, step));
        }
        Ok(admitted)
    }

    /// Whether the call of this step may be made. Calls that the agent has not asked about are only
    /// shown.
    pub(super) async fn admit_call(
        &self,
        view: &RunView,
        step: &Step,
    ) -> Result<Admission, RunError> {
        if step.effect == EffectClass::Read {
            return Ok(Admission::Allowed);
        }
        let is_here = |agent: &Arc<Agent>| agent.has_call(step.id);
        if !self.agent_of(step.run).as_ref().is_some_and(is_here)
            && step.state == StepState::Intended
            && !self.is_repeated(view, step).await
        {
            // Nothing is done: its call then says so.
            return Ok(Admission::Allowed);
        }
        let live = self.agent_of(step.run);
        if let Some(why) = live.as_ref().and_then(|agent| agent.dropped(step.id)) {
            return Ok(Admission::Refused(why.to_owned()));
        }
        let definition = pinned_agent(view)?;
        let rights = rights(&definition, view)?;
        let folder = self.folder(view.run.cwd.as_deref(), definition.command.as_ref());
        let name = step.tool.as_deref().unwrap_or_default();
        // Those of the step are redacted, and a rule would judge another path. Without a program nothing
        // is done: its call then says so.
        let Some(arguments) = live.as_ref().and_then(|agent| agent.arguments(step.id)) else {
            return Ok(Admission::Allowed);
        };
        let arguments = &arguments;
        match name {
            "think" => return Ok(Admission::Allowed),
            OTHER => return Ok(tool::admit_unknown(&rights, name, arguments)),
            _ => {}
        }
        let command = live.as_ref().and_then(|agent| agent.command(step.id));
        if let Some(command) = command
            && let Some(argv) = command.judged()
        {
            return Ok(tool::admit_argv(&rights, &argv, &command.line()));
        }
        let mut admitted = Admission::Allowed;
        for one in each(arguments) {
            let decided = self.tools.admit(Call {
                site: site_of(step),
                id: "",
                name,
                root: &folder,
                served: None,
                rights: &rights,
                environment: &view.environment,
                arguments: &one,
                links: &definition.linked_agents,
                nodes: NodeContext::default(),
                program: program_step(view, step, self.clock.moment().steady),
            });
            admitted = stricter(admitted, decided.await);
        }
        // The file of a request is confined anyway, and its command is known.
        let is_confined = live.is_some_and(|agent| agent.is_request(step.id));
        let unknown = unknown_target(name, arguments, &folder);
        if let Some(why) = unknown.filter(|_| !is_confined) {
            let asked = Admission::NeedsApproval(Consent {
                why,
                covers: arguments.to_string(),
                arguments: None,
            });
            admitted = match admitted {
                Admission::Refused(_) => admitted,
                _ => asked,
            };
        }
        Ok(admitted)
    }
}

/// The arguments for each file of a call that concerns several.
fn each(arguments: &Value) -> Vec<Value> {
    match arguments.get("paths") {
        Some(_) => {
            let paths = paths_in(arguments).into_iter();
            paths.map(|path| json!({ "path": path })).collect()
        }
        None => vec![arguments.clone()],
    }
}

fn stricter(one: Admission, other: Admission) -> Admission {
    match (one, other) {
        (refused @ Admission::Refused(_), _) | (_, refused @ Admission::Refused(_)) => refused,
        (Admission::NeedsApproval(one), Admission::NeedsApproval(other)) => {
            Admission::NeedsApproval(Consent {
                covers: format!("{}\n{}", one.covers, other.covers),
                ..one
            })
        }
        (asked @ Admission::NeedsApproval(_), _) | (_, asked @ Admission::NeedsApproval(_)) => {
            asked
        }
        (Admission::Allowed, Admission::Allowed) => Admission::Allowed,
    }
}
