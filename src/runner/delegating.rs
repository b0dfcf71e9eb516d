//! Delegation in a turn: the context pack of a subagent, the server connections of a run that a
//! plan delegated to, and the failure of a caller whose link says `abort`. Called by `turn` and
//! `plan`.

use serde_json::Value;

use super::rights::rights;
use super::turn::{TurnRunner, answer_of, pinned_agent};
use crate::contract::journal::RunView;
use crate::contract::linked::{self, OnFailure};
use crate::kernel::delegation::DelegationMode;
use crate::kernel::delegation::pack::Pack;
use crate::kernel::policy::gate::{Rights, WriteScope};
use crate::kernel::run::RunError;
use crate::kernel::run::step::{Step, StepState};
use crate::kernel::session::message::Block;

impl TurnRunner {
    /// Leases connections of its own to the agent's servers, if a plan delegated to this run. They
    /// are released when the run ends.
    pub(super) fn connect(&self, view: &RunView) {
        let delegated = view.run.delegated.as_ref();
        if delegated.is_none_or(|of| of.mode != DelegationMode::Planned) {
            return;
        }
        if let Ok(definition) = pinned_agent(view)
            && let Some(servers) = &definition.mcp_servers
        {
            self.tools.lease(view.run.id, servers);
        }
    }
}

/// The failure of a run whose called agent failed and whose setting is to abort then.
pub(super) fn aborted(view: &RunView, model: &Step) -> Option<RunError> {
    let failed = view.steps.iter().find(|step| {
        let tool = step.tool.as_deref().unwrap_or_default();
        step.asked_by == Some(model.id)
            && step.state == StepState::Failed
            // A refused call has started no agent.
            && step.waits.is_some()
            && linked::prefix_of(tool) == Some(linked::CALL_PREFIX)
    })?;
    let tool = failed.tool.as_deref()?;
    let definition = pinned_agent(view).ok()?;
    let mut links = definition.linked_agents.iter();
    let link = links.find(|link| link.tool().as_deref() == Some(tool))?;
    let then = link.on_failure.or(definition.on_child_failure)?;
    (then == OnFailure::Abort).then(|| {
        let message = format!(
            "an agent called by this run has failed, and the run is set to fail with it \
             (on_child_failure): {}",
            why(view, failed)
        );
        RunError::new("child_failed", message)
    })
}

/// The called agent's error, taken from its result.
fn why(view: &RunView, failed: &Step) -> String {
    let said = answer_of(view, failed)
        .iter()
        .find_map(|block| match block {
            Block::ToolResult { text, .. } => serde_json::from_str::<Value>(text).ok(),
            _ => None,
        });
    let error = said.as_ref().and_then(|said| said["error"].as_str());
    let shown = error.or(failed.error.as_deref());
    shown.unwrap_or("no reason was given").to_owned()
}

/// The context pack for a subagent that does not see the conversation; `None` if the call does not
/// start one.
pub(super) fn pack(view: &RunView, tool: &str, arguments: &Value) -> Option<Value> {
    let (agent, task, scope) = match linked::prefix_of(tool) {
        Some(linked::SUBAGENT_PREFIX) => {
            let definition = pinned_agent(view).ok()?;
            let mut links = definition.linked_agents.iter();
            let link = links.find(|link| link.tool().as_deref() == Some(tool))?;
            let scope = link.write_scope.unwrap_or(WriteScope::Workspace);
            (link.agent.to_string(), "task_summary", scope)
        }
        None if tool == linked::DELEGATE => {
            let agent = arguments.get("agent")?.as_str()?;
            (agent.to_owned(), "task", WriteScope::Workspace)
        }
        _ => return None,
    };
    let task = arguments.get(task)?.as_str()?;
    let definition = pinned_agent(view).ok()?;
    let own = rights(&definition, view).ok()?;
    let child = Rights::new(&agent, &[], scope, own.bundle());
    let transcript = view.messages.iter().map(AsRef::as_ref);
    serde_json::to_value(Pack::build(task, transcript, &child)).ok()
}
