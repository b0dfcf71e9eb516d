//! Tools that delegate to another agent while the caller waits: `task`, `delegate`, and for each
//! linked agent `subagent_<agent>` in a session of its own, or `call_<agent>` in the caller's
//! session. Their descriptions list the available agents, which are filled in when an agent is
//! prepared.

use std::future::ready;

use schemars::JsonSchema;
use serde::Deserialize;

use super::arguments::NonEmptyText;
use super::built_in::BuiltIn;
use super::registry_tool::{CallingStep, ReplyFuture};
use crate::contract::allow::AGENT_FORMAT;
use crate::contract::delegate::DelegateArgs;
use crate::contract::linked::{self, HELPER_FORMAT, Link};
use crate::kernel::delegation::{DelegationMode, Stream};
use crate::kernel::fault::Fault;
use crate::kernel::policy::gate::{Bundle, WriteScope};
use crate::kernel::run::step::EffectClass;

/// Delegates a task to another agent in its own session, and waits for its answer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TaskToolArgs {
    /// A summary of the task in 3 to 5 words.
    description: NonEmptyText,
    /// The task, in detail and self-contained.
    prompt: NonEmptyText,
    /// The agent for the task.
    #[schemars(extend("format" = HELPER_FORMAT))]
    subagent_type: NonEmptyText,
    /// Continues the session of an earlier task: metadata.sessionId of its result.
    #[serde(default)]
    session_id: String,
}

/// Delegates a plan to one other agent, and waits for its result.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PlanToolArgs {
    /// The agent for the task.
    #[schemars(extend("format" = AGENT_FORMAT))]
    agent: String,
    /// The task for the agent.
    task: NonEmptyText,
}

// The descriptions of a linked agent's tools are filled in from its definition.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SubagentToolArgs {
    /// The task, self-contained, in at most 2,000 characters.
    task_summary: NonEmptyText,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallToolArgs {
    /// The task or question for the agent.
    message: NonEmptyText,
}

/// The delegating tools; the last two are the templates of `subagent_<agent>` and `call_<agent>`.
pub(super) fn all() -> [BuiltIn; 4] {
    let effect = EffectClass::Idempotent;
    [
        BuiltIn::of_registry(linked::TASK, effect, |registry, by, given: TaskToolArgs| {
            let agent = given.subagent_type.trim();
            let session = given.session_id.trim();
            let delegation = DelegateArgs {
                title: Some(format!("{} (@{agent})", given.description.trim())),
                resume_session: Some(session.to_owned()).filter(|key| !key.is_empty()),
                ..delegation(
                    DelegationMode::Task,
                    agent,
                    given.prompt.trim(),
                    by.rights.bundle(),
                )
            };
            registry.delegate(by.site, delegation)
        }),
        // Planners call it.
        BuiltIn::of_registry(
            linked::DELEGATE,
            effect,
            |registry, by, given: PlanToolArgs| {
                let bundle = by.rights.bundle();
                let delegation =
                    delegation(DelegationMode::Planned, &given.agent, &given.task, bundle);
                registry.delegate(by.site, delegation)
            },
        ),
        BuiltIn::of_registry(
            linked::SUBAGENT_PREFIX,
            effect,
            |registry, by, given: SubagentToolArgs| {
                let Some(link) = by.link else {
                    return without_link();
                };
                let mode = DelegationMode::Sealed;
                registry.delegate(by.site, to_linked(mode, link, &given.task_summary, &by))
            },
        ),
        BuiltIn::of_registry(
            linked::CALL_PREFIX,
            effect,
            |registry, by, given: CallToolArgs| {
                let Some(link) = by.link else {
                    return without_link();
                };
                let delegation = DelegateArgs {
                    stream: Some(link.stream.unwrap_or(Stream::Aggregated)),
                    ..to_linked(DelegationMode::Called, link, &given.message, &by)
                };
                registry.delegate(by.site, delegation)
            },
        ),
    ]
}

fn delegation(mode: DelegationMode, agent: &str, task: &str, bundle: Bundle) -> DelegateArgs {
    DelegateArgs {
        mode,
        agent: agent.to_owned(),
        task: task.to_owned(),
        title: None,
        resume_session: None,
        timeout_ms: None,
        stream: None,
        bundle,
    }
}

fn to_linked(mode: DelegationMode, link: &Link, task: &str, by: &CallingStep<'_>) -> DelegateArgs {
    DelegateArgs {
        timeout_ms: link.timeout_ms,
        ..delegation(mode, link.agent.as_str(), task, narrowed(by, link))
    }
}

/// The maximum rights of a linked agent for this caller.
fn narrowed(by: &CallingStep<'_>, link: &Link) -> Bundle {
    let scope = link.write_scope.unwrap_or(WriteScope::Workspace);
    by.rights.bundle().narrowed(scope, link.agent.as_str())
}

fn without_link() -> ReplyFuture {
    let fault = Fault::internal("linked-agent tool without its link");
    Box::pin(ready(Err(fault)))
}
