//! A built-in tool: what models read about it, what gate rules look at, and how a call is made. The
//! catalogue lists them all.

use std::sync::Arc;

use serde_json::Value;

use super::arguments::{ToolArguments, parse, tool_schema};
use super::blocking::{StopFlag, blocking};
use super::nodes::NodeTool;
use super::registry_tool::{CallingStep, ReplyFuture};
use super::{Aim, Shell, ToolOutput, Workspace};
use crate::contract::BoxFuture;
use crate::contract::delegate::Delegate;
use crate::kernel::policy::gate::Decision;
use crate::kernel::run::step::EffectClass;

/// A built-in tool.
pub(super) struct BuiltIn {
    /// The name by which models call it.
    pub name: &'static str,
    /// The effect of repeating a call; decides whether a call may be retried.
    pub effect: EffectClass,
    /// The arguments that gate rules look at.
    pub aim: Aim,
    /// The decision on a call that no rule of the agent's gate matches.
    pub default: Decision,
    /// What models read: `{name, description, parameters}`.
    pub schema: Value,
    /// Why arguments do not fit the schema, so that the call is refused; `None` if they fit.
    pub misfit: fn(&Value) -> Option<String>,
    /// How a call is made.
    pub action: ToolAction,
}

/// Works in the workspace. Arguments that do not fit give an error result without any effect;
/// dropping the future stops the work.
pub(super) type InWorkspace =
    Arc<dyn Fn(Workspace, Value) -> BoxFuture<'static, ToolOutput> + Send + Sync>;

/// Calls the registry; the error says which argument does not fit.
pub(super) type AskRegistry =
    Box<dyn Fn(&dyn Delegate, CallingStep<'_>, Value) -> Result<ReplyFuture, String> + Send + Sync>;

/// How a call is made.
pub(super) enum ToolAction {
    /// In the workspace of the run.
    Workspace(InWorkspace),
    /// By the registry.
    Registry(AskRegistry),
    /// By the tool `skill`.
    Skill,
    /// By the tool `shell`.
    Shell(Shell),
    /// On a node.
    Node(NodeTool),
}

impl BuiltIn {
    /// The tool `name` with the arguments `A`. Gate rules look at all of its arguments, and a call
    /// that none of them matches is allowed.
    pub(super) fn new<A: ToolArguments>(
        name: &'static str,
        effect: EffectClass,
        action: ToolAction,
    ) -> Self {
        BuiltIn {
            name,
            effect,
            aim: Aim::Whole,
            default: Decision::Allow,
            schema: tool_schema::<A>(name),
            misfit: |arguments| parse::<A>(arguments.clone()).err(),
            action,
        }
    }

    /// A tool that works on files, on a thread of the pool.
    pub(super) fn of_files<A: ToolArguments>(
        name: &'static str,
        effect: EffectClass,
        aim: Aim,
        work: fn(A, &Workspace, &StopFlag) -> Result<String, String>,
    ) -> Self {
        let call: InWorkspace = Arc::new(move |workspace, arguments| {
            blocking(move |stop| work(parse(arguments)?, &workspace, stop))
        });
        BuiltIn {
            aim,
            ..BuiltIn::new::<A>(name, effect, ToolAction::Workspace(call))
        }
    }

    /// A tool that calls the registry.
    pub(super) fn of_registry<A: ToolArguments>(
        name: &'static str,
        effect: EffectClass,
        ask: fn(&dyn Delegate, CallingStep<'_>, A) -> ReplyFuture,
    ) -> Self {
        let call: AskRegistry =
            Box::new(move |registry, by, arguments| Ok(ask(registry, by, parse(arguments)?)));
        BuiltIn::new::<A>(name, effect, ToolAction::Registry(call))
    }
}
