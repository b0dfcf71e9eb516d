//! Tools that delegate to another agent while the caller waits: `task`, `delegate`, and for each
//! linked agent `subagent_<agent>` in a session of its own, or `call_<agent>` in the caller's
//! session. Their descriptions list the available agents, which are filled in when an agent is
//! prepared.

use std::future::ready;

use super::arguments::{Parameter, Shape};
use super::registry_tool::{Answer, By, RegistryTool};
use crate::contract::delegate::DelegateArgs;
use crate::contract::linked::{self, Link};
use crate::kernel::delegation::{DelegationMode, Stream};
use crate::kernel::fault::Fault;
use crate::kernel::policy::gate::{Bundle, WriteScope};
use crate::kernel::run::step::Effect;

/// The tool `task`.
pub(super) const TASK: RegistryTool = RegistryTool {
    name: linked::TASK,
    description: "Delegates a task to another agent in its own session, and waits for \
                  its answer.",
    effect: Effect::Idempotent,
    parameters: &[
        Parameter {
            name: "description",
            shape: Shape::Text,
            required: true,
            description: "A summary of the task in 3 to 5 words.",
        },
        Parameter {
            name: "prompt",
            shape: Shape::Text,
            required: true,
            description: "The task, in detail and self-contained.",
        },
        Parameter {
            name: "subagent_type",
            shape: Shape::Helper,
            required: true,
            description: "The agent for the task.",
        },
        Parameter {
            name: "session_id",
            shape: Shape::AnyText,
            required: false,
            description: "Continues the session of an earlier task: metadata.sessionId of its result.",
        },
    ],
    ask: |registry, by, arguments| {
        let given = |name| arguments.text(name).map(str::trim).unwrap_or_default();
        let agent = given("subagent_type");
        registry.delegate(
            by.site,
            DelegateArgs {
                face: DelegationMode::Task,
                agent: agent.to_owned(),
                task: given("prompt").to_owned(),
                title: Some(format!("{} (@{agent})", given("description"))),
                resume_session: Some(given("session_id").to_owned()).filter(|key| !key.is_empty()),
                timeout_ms: None,
                stream: None,
                bundle: by.rights.bundle(),
            },
        )
    },
};

const TASK_SUMMARY: &[Parameter] = &[Parameter {
    name: "task_summary",
    shape: Shape::Text,
    required: true,
    description: "The task, self-contained, in at most 2,000 characters.",
}];

/// The template of `subagent_<agent>`.
pub(super) const SEALED: RegistryTool = RegistryTool {
    name: linked::SUBAGENT_PREFIX,
    description: "",
    effect: Effect::Idempotent,
    parameters: TASK_SUMMARY,
    ask: |registry, by, arguments| {
        let Some(link) = by.link else {
            return without_link();
        };
        registry.delegate(
            by.site,
            DelegateArgs {
                face: DelegationMode::Sealed,
                agent: link.agent.to_string(),
                task: arguments
                    .text("task_summary")
                    .unwrap_or_default()
                    .to_owned(),
                title: None,
                resume_session: None,
                timeout_ms: link.timeout_ms,
                stream: None,
                bundle: narrowed(&by, link),
            },
        )
    },
};

/// The template of `call_<agent>`.
pub(super) const CALLED: RegistryTool = RegistryTool {
    name: linked::CALL_PREFIX,
    description: "",
    effect: Effect::Idempotent,
    parameters: &[Parameter {
        name: "message",
        shape: Shape::Text,
        required: true,
        description: "The task or question for the agent.",
    }],
    ask: |registry, by, arguments| {
        let Some(link) = by.link else {
            return without_link();
        };
        registry.delegate(
            by.site,
            DelegateArgs {
                face: DelegationMode::Called,
                agent: link.agent.to_string(),
                task: arguments.text("message").unwrap_or_default().to_owned(),
                title: None,
                resume_session: None,
                timeout_ms: link.timeout_ms,
                stream: Some(link.stream.unwrap_or(Stream::Aggregated)),
                bundle: narrowed(&by, link),
            },
        )
    },
};

/// The tool `delegate`, which planners call.
pub(super) const DELEGATE: RegistryTool = RegistryTool {
    name: linked::DELEGATE,
    description: "Delegates a plan to one other agent, and waits for its result.",
    effect: Effect::Idempotent,
    parameters: &[
        Parameter {
            name: "agent",
            shape: Shape::Agent,
            required: true,
            description: "The agent for the task.",
        },
        Parameter {
            name: "task",
            shape: Shape::Text,
            required: true,
            description: "The task for the agent.",
        },
    ],
    ask: |registry, by, arguments| {
        let given = |name| arguments.text(name).unwrap_or_default().to_owned();
        registry.delegate(
            by.site,
            DelegateArgs {
                face: DelegationMode::Planned,
                agent: given("agent"),
                task: given("task"),
                title: None,
                resume_session: None,
                timeout_ms: None,
                stream: None,
                bundle: by.rights.bundle(),
            },
        )
    },
};

/// The maximum rights of a linked agent for this caller.
fn narrowed(by: &By<'_>, link: &Link) -> Bundle {
    let scope = link.write_scope.unwrap_or(WriteScope::Workspace);
    by.rights.bundle().narrowed(scope, link.agent.as_str())
}

fn without_link() -> Answer {
    let fault = Fault::internal("linked-agent tool without its link");
    Box::pin(ready(Err(fault)))
}
