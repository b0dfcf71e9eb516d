//! The tools `node_run`, `node_read` and `node_list`: programs and files of paired nodes. The tools
//! `shell`, `read` and `list` of an agent that works on a node lead here, too.
//!
//! A program runs under the id of its step, and the node answers for that id. So a step that lost
//! its daemon is carried out again and continues the call; the node forgets it once the step's
//! outcome is stored ([`NodeTools::stored`]) or its run has ended ([`NodeTools::ended`]).

mod result;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::arguments::{BoundedCount, NonEmptyText, parse};
use super::built_in::{BuiltIn, ToolAction};
use super::registry_tool::{Called, ms};
use super::shell::{KEEP, LONGEST, ShellToolArgs};
use super::{Aim, ToolOutput};
use crate::contract::BoxFuture;
use crate::contract::delegate::Site;
use crate::contract::nodes::{
    NODE_FORMAT, NODE_LIST, NODE_READ, NODE_RUN, NodeEnd, NodeOutput, Nodes, NodesSlot,
};
use crate::kernel::ids::{CallId, RunId, StepId};
use crate::kernel::node::{NodeCall, OutputStream, RunCall};
use crate::kernel::policy::env::Environment;
use crate::kernel::policy::gate::Decision;
use crate::kernel::policy::overlay::{EnvName, is_blocked};
use crate::kernel::run::step::EffectClass;

/// The number of bytes that `node_read` returns by default.
const DEFAULT_READ: u64 = 24 * 1024;
/// The maximum number of bytes that `node_read` returns.
const LONGEST_READ: usize = 256 * 1024;

/// Runs a program on a node, which is another machine, and returns its exit status and output. No
/// shell reads the arguments.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeRunToolArgs {
    /// The node.
    #[schemars(extend("format" = NODE_FORMAT))]
    node: NonEmptyText,
    /// The program and its arguments, one item each.
    argv: Vec<String>,
    /// The time limit in seconds.
    timeout: Option<BoundedCount<1, LONGEST>>,
    /// The folder on the node to run it in, an absolute path. Default: the node's own.
    cwd: Option<NonEmptyText>,
    /// The purpose in a few words, shown to people.
    #[serde(rename = "note")]
    _note: Option<NonEmptyText>,
}

/// Shows a part of a text file on a node, below one of the folders that the node allows.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeReadToolArgs {
    /// The node.
    #[schemars(extend("format" = NODE_FORMAT))]
    node: NonEmptyText,
    /// The file, an absolute path on the node.
    path: NonEmptyText,
    /// The byte to begin at. Default 0.
    offset: Option<BoundedCount<0, 1_000_000_000_000>>,
    /// The number of bytes to show. Default 24576.
    limit: Option<BoundedCount<1, LONGEST_READ>>,
}

/// Lists a folder on a node, below one of the folders that the node allows. Folders end with a
/// slash.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeListToolArgs {
    /// The node.
    #[schemars(extend("format" = NODE_FORMAT))]
    node: NonEmptyText,
    /// The folder, an absolute path on the node.
    path: NonEmptyText,
}

/// What a tool does on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeTool {
    /// Runs a program.
    Run,
    /// Reads a file.
    Read,
    /// Lists a folder.
    List,
    /// Runs a command line with /bin/sh.
    Shell,
}

impl NodeTool {
    /// What the tool `name` does for an agent that works on a node; `None` if it cannot work there.
    pub(super) fn of_agent_on_node(name: &str) -> Option<NodeTool> {
        match name {
            "shell" => Some(NodeTool::Shell),
            "read" => Some(NodeTool::Read),
            "list" => Some(NodeTool::List),
            _ => None,
        }
    }

    /// The built-in tool with its arguments.
    pub(super) fn tool_name(self) -> &'static str {
        match self {
            NodeTool::Run => NODE_RUN,
            NodeTool::Read => NODE_READ,
            NodeTool::List => NODE_LIST,
            NodeTool::Shell => "shell",
        }
    }

    /// The arguments of a call by an agent that works on `node`, whose tools have no argument for
    /// it.
    pub(super) fn with_node(self, node: &str, mut arguments: Value) -> Value {
        if let (NodeTool::Read | NodeTool::List, Some(fields)) = (self, arguments.as_object_mut()) {
            fields.insert("node".to_owned(), node.into());
        }
        arguments
    }

    /// The effect class of a call.
    pub(super) fn effect(self) -> EffectClass {
        match self {
            NodeTool::Run | NodeTool::Shell => EffectClass::Kept,
            NodeTool::Read | NodeTool::List => EffectClass::Read,
        }
    }

    /// True if a call has its own time limit.
    pub(super) fn keeps_time(self) -> bool {
        matches!(self, NodeTool::Run | NodeTool::Shell)
    }

    /// The arguments that gate rules look at.
    pub(super) fn aim(self) -> Aim {
        match self {
            NodeTool::Run => Aim::Argv("argv"),
            NodeTool::Shell => Aim::Command("command"),
            NodeTool::Read | NodeTool::List => Aim::NodePath("path"),
        }
    }
}

/// The tools.
pub(super) fn all() -> [BuiltIn; 3] {
    let run = NodeTool::Run;
    let (read, list) = (NodeTool::Read, NodeTool::List);
    [
        BuiltIn {
            aim: run.aim(),
            default: Decision::Ask,
            ..BuiltIn::new::<NodeRunToolArgs>(NODE_RUN, run.effect(), ToolAction::Node(run))
        },
        BuiltIn {
            aim: read.aim(),
            ..BuiltIn::new::<NodeReadToolArgs>(NODE_READ, read.effect(), ToolAction::Node(read))
        },
        BuiltIn {
            aim: list.aim(),
            ..BuiltIn::new::<NodeListToolArgs>(NODE_LIST, list.effect(), ToolAction::Node(list))
        },
    ]
}

/// What a call on a node needs to know of its run.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeContext<'a> {
    /// The tenant.
    pub org: &'a str,
    /// The node on which the agent works, if it works on one.
    pub on: Option<&'a str>,
    /// The names that the run adds to the environment of programs.
    pub overlay: &'a [EnvName],
    /// An earlier attempt of the step may have begun the effect.
    pub may_have_begun: bool,
}

/// The calls of tools to nodes. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct NodeTools {
    nodes: NodesSlot,
    /// The default time limit of a program.
    timeout: Duration,
    held: Arc<Mutex<HashMap<StepId, HeldCall>>>,
}

/// A call whose step has no stored outcome.
struct HeldCall {
    run: RunId,
    org: String,
    node: String,
    /// The end; `None` if the node was lost, so that the next attempt asks it again.
    end: Option<Shared<BoxFuture<'static, NodeEnd>>>,
}

/// Discards live output: results have it, and no front end shows a tool's output before.
struct DiscardOutput;

impl NodeOutput for DiscardOutput {
    fn piece(&self, _: OutputStream, _: &str) {}
}

/// Where and how a call is made.
struct NodeCallSite {
    site: Site,
    org: String,
    node: String,
    may_have_begun: bool,
}

impl NodeTools {
    /// The calls to these nodes; `timeout` is the default time limit of a program.
    pub(super) fn new(nodes: NodesSlot, timeout: Duration) -> Self {
        NodeTools {
            nodes,
            timeout,
            held: Arc::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<StepId, HeldCall>> {
        // Each change is one insertion or removal.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call. Dropping the future of a program's call does not end the program: the end of
    /// its run does.
    pub(super) fn call(
        &self,
        tool: NodeTool,
        site: Site,
        context: NodeContext<'_>,
        environment: &Environment,
        arguments: Value,
    ) -> BoxFuture<'static, Called> {
        let (node, call) = match self.decode(tool, context, environment, arguments) {
            Ok(decoded) => decoded,
            Err(text) => return done(ToolOutput::error(text)),
        };
        let Some(nodes) = self.nodes.get().cloned() else {
            return done(ToolOutput::error("no nodes: the daemon is starting"));
        };
        let at = NodeCallSite {
            site,
            org: context.org.to_owned(),
            node,
            may_have_begun: context.may_have_begun,
        };
        let tools = self.clone();
        match tool.effect() {
            EffectClass::Kept => Box::pin(async move { tools.run(nodes, at, call).await }),
            _ => Box::pin(async move { look(nodes, at, call).await }),
        }
    }

    /// The node and the command for it.
    fn decode(
        &self,
        tool: NodeTool,
        context: NodeContext<'_>,
        environment: &Environment,
        arguments: Value,
    ) -> Result<(String, NodeCall), String> {
        let arguments = match context.on {
            Some(on) => tool.with_node(on, arguments),
            None => arguments,
        };
        let env = variables(context.overlay, environment);
        let run = |argv, cwd: Option<NonEmptyText>, timeout: Option<BoundedCount<1, LONGEST>>| {
            let time = timeout.map_or(self.timeout, |seconds| {
                Duration::from_millis(ms(seconds.into()))
            });
            NodeCall::Run(RunCall {
                argv,
                cwd: cwd.map(Into::into),
                env,
                timeout_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
                keep: KEEP,
            })
        };
        Ok(match tool {
            NodeTool::Run => {
                let given: NodeRunToolArgs = parse(arguments)?;
                check_argv(&given.argv)?;
                (given.node.into(), run(given.argv, given.cwd, given.timeout))
            }
            NodeTool::Shell => {
                let given: ShellToolArgs = parse(arguments)?;
                if given.detach == Some(true) {
                    let why = "detach: a command on a node ends with all that it has started";
                    return Err(why.to_owned());
                }
                let argv = ["/bin/sh", "-c", &given.command].map(str::to_owned);
                check_argv(&argv)?;
                let node = context.on.unwrap_or_default().to_owned();
                (node, run(argv.to_vec(), given.cwd, given.timeout))
            }
            NodeTool::Read => {
                let given: NodeReadToolArgs = parse(arguments)?;
                let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
                let call = NodeCall::Read {
                    path: given.path.into(),
                    offset: given.offset.map_or(0, |offset| bytes(offset.into())),
                    limit: given
                        .limit
                        .map_or(DEFAULT_READ, |limit| bytes(limit.into())),
                };
                (given.node.into(), call)
            }
            NodeTool::List => {
                let given: NodeListToolArgs = parse(arguments)?;
                let path = given.path.into();
                (given.node.into(), NodeCall::List { path })
            }
        })
    }

    /// Runs a program, or continues to wait for the one that runs for the step.
    async fn run(&self, nodes: Arc<dyn Nodes>, at: NodeCallSite, call: NodeCall) -> Called {
        let time = match &call {
            NodeCall::Run(run) => Duration::from_millis(run.timeout_ms),
            _ => Duration::ZERO,
        };
        let step = at.site.id;
        let end = {
            let mut held = self.held();
            let held = held.entry(step).or_insert_with(|| HeldCall {
                run: at.site.run,
                org: at.org.clone(),
                node: at.node.clone(),
                end: None,
            });
            let begin = || {
                let output = Arc::new(DiscardOutput);
                let id = CallId(step.0);
                nodes.call(&held.org, &held.node, id, call, output).shared()
            };
            held.end.get_or_insert_with(begin).clone()
        };
        let ended = end.await;
        if !matches!(ended, NodeEnd::Answered(_))
            && let Some(held) = self.held().get_mut(&step)
        {
            held.end = None;
        }
        result::of_program(&at.node, at.may_have_begun, ended, time)
    }

    /// The outcome of the step is stored: its node may forget the call.
    pub(super) fn stored(&self, step: StepId) {
        let held = self.held().remove(&step);
        if let Some(held) = held {
            self.let_go(step, held);
        }
    }

    /// The run has ended: its calls are cancelled, and its nodes may forget them.
    pub(super) fn ended(&self, run: RunId) {
        let mut held = self.held();
        let steps: Vec<StepId> = held
            .iter()
            .filter(|(_, held)| held.run == run)
            .map(|(step, _)| *step)
            .collect();
        let calls: Vec<_> = steps
            .into_iter()
            .filter_map(|step| Some((step, held.remove(&step)?)))
            .collect();
        drop(held);
        for (step, call) in calls {
            self.let_go(step, call);
        }
    }

    fn let_go(&self, step: StepId, held: HeldCall) {
        // Dropping a call that goes on cancels it; its result is then released without a caller.
        let goes_on = held.end.as_ref().is_some_and(|end| end.peek().is_none());
        if let (false, Some(nodes)) = (goes_on, self.nodes.get()) {
            nodes.release(&held.org, &held.node, CallId(step.0));
        }
    }
}

/// Reads something of a node. Nothing is kept of it.
async fn look(nodes: Arc<dyn Nodes>, at: NodeCallSite, call: NodeCall) -> Called {
    let id = CallId(at.site.id.0);
    let output = Arc::new(DiscardOutput);
    let ended = nodes.call(&at.org, &at.node, id, call.clone(), output);
    let ended = ended.await;
    if matches!(ended, NodeEnd::Answered(_)) {
        nodes.release(&at.org, &at.node, id);
    }
    result::of_look(&at.node, &call, ended)
}

/// The variables that the run adds, without those that change how programs load or start.
fn variables(overlay: &[EnvName], environment: &Environment) -> BTreeMap<String, String> {
    let names = overlay.iter().map(|one| &one.name);
    names
        .filter(|name| !is_blocked(name))
        .filter_map(|name| {
            let value = environment.get(name)?.to_str()?;
            Some((name.clone(), value.to_owned()))
        })
        .collect()
}

fn check_argv(argv: &[String]) -> Result<(), String> {
    match argv.first() {
        None => return Err("argv: a program is expected".to_owned()),
        Some(program) if program.is_empty() => {
            return Err("argv: the program has no name".to_owned());
        }
        Some(_) => {}
    }
    match argv.iter().any(|text| text.contains('\0')) {
        true => Err("argv: an argument cannot contain U+0000".to_owned()),
        false => Ok(()),
    }
}

fn done(output: ToolOutput) -> BoxFuture<'static, Called> {
    Box::pin(std::future::ready(Called::Done(output)))
}

#[cfg(test)]
mod tests;
