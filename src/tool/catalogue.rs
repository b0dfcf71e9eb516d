//! All tools by name. Runners call tools only through the catalogue, so that every call and result
//! is subject to the same limits.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::built_in::{BuiltIn, ToolAction};
use super::gate::Aim;
use super::mcp::McpServers;
use super::nodes::{self, NodeContext, NodeTool, NodeTools};
use super::output::Rest;
use super::registry_tool::{self, Called, CallingStep};
use super::shell::Shell;
use super::{
    ToolOutput, Unopened, Workspace, delegating, fetch, gate, memory_tools, session_tools, shell,
    skill, todo,
};
use crate::contract::BoxFuture;
use crate::contract::delegate::{Delegate, DelegateSlot, Site};
use crate::contract::journal::RunEnvironment;
use crate::contract::linked::{self, Link};
use crate::contract::nodes::NodesSlot;
use crate::contract::runner::Admission;
use crate::contract::servers::{Served, SessionServer};
use crate::file_work::TOOLS;
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::policy::gate::{Decision, Rights, Subject};
use crate::kernel::run::step::EffectClass;
use crate::outbound::address::Private;
use crate::process::ProgramStep;
use crate::tool::files::workspace::LedTo;
use crate::tool::files::{definition_files, edit, glob, grep, list, preview, read, write};

/// The inputs of the catalogue.
#[derive(Clone, Default)]
pub struct ToolOptions {
    /// Folders that no tool may access, even within a workspace: the daemon's state and
    /// configuration.
    pub denied: Vec<PathBuf>,
    /// The registry, once it is available.
    pub delegate: DelegateSlot,
    /// Private addresses that may be fetched from.
    pub private: Private,
    /// How commands are started; `None` = there is no tool `shell`.
    pub shell: Option<Shell>,
    /// The tool servers; `None` = there are none.
    pub servers: Option<McpServers>,
    /// The paired nodes, once they are available.
    pub nodes: NodesSlot,
}

/// A tool call.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The step of the call.
    pub site: Site,
    /// The model's id of the call.
    pub id: &'a str,
    /// The name of the tool.
    pub name: &'a str,
    /// The workspace folder.
    pub root: &'a Path,
    /// The server tool; `None` for a built-in tool.
    pub served: Option<&'a Served>,
    /// The rights of the calling run.
    pub rights: &'a Rights,
    /// The environment for programs of the call.
    pub environment: &'a RunEnvironment,
    /// The arguments, unchecked.
    pub arguments: &'a Value,
    /// The links of the calling agent.
    pub links: &'a [Link],
    /// What a call on a node needs to know.
    pub nodes: NodeContext<'a>,
    /// What a program of the call needs to know of its step.
    pub program: ProgramStep,
}

impl Call<'_> {
    /// What the tool does on the node of its agent; `None` if the call is made here or names its
    /// node.
    fn on_node(&self) -> Option<NodeTool> {
        self.nodes.on?;
        NodeTool::of_agent_on_node(self.name).filter(|_| self.served.is_none())
    }
}

/// Appended to the failed result of a call whose arguments contain the mask of a value.
const MASKED: &str = "\nnote: [secret:NAME] is a mask for an environment value; the \
                      tool received the mask as plain text. In a shell command use \"$NAME\", \
                      in a file edit around it.";

/// The time limit of programs on nodes if there is no tool `shell`, which has the setting.
const NODE_TIMEOUT: Duration = Duration::from_secs(600);

/// All tools by name.
pub struct Catalogue {
    tools: Vec<BuiltIn>,
    denied: Vec<PathBuf>,
    delegate: DelegateSlot,
    servers: Option<McpServers>,
    nodes: NodeTools,
    judged: Judged,
    kept: preview::PreviewCache,
}

/// The resolved paths of admitted calls that are not made yet, by step.
type Judged = Arc<Mutex<HashMap<StepId, (RunId, LedTo)>>>;

fn lock(judged: &Judged) -> MutexGuard<'_, HashMap<StepId, (RunId, LedTo)>> {
    judged.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Catalogue {
    /// Creates the catalogue with the built-in tools.
    pub fn new(options: ToolOptions) -> Self {
        use EffectClass::{Idempotent, Read};
        let path = Aim::Paths(&["path"]);
        let tree = Aim::Trees(&["path"]);
        let trees = Aim::Trees(&["path", "paths"]);
        let mut tools = vec![
            BuiltIn::of_files("read", Read, path, read::read),
            BuiltIn::of_files("list", Read, tree, list::list),
            BuiltIn::of_files("glob", Read, tree, glob::glob),
            BuiltIn::of_files("grep", Read, trees, grep::grep),
            BuiltIn::of_files("write", Idempotent, path, write::write),
            BuiltIn::of_files("edit", Idempotent, path, edit::edit),
            todo::tool(),
            fetch::tool(options.private),
        ];
        tools.extend(session_tools::all());
        tools.extend(memory_tools::all());
        tools.extend(delegating::all());
        tools.extend(nodes::all());
        tools.push(skill::tool());
        let time = options
            .shell
            .as_ref()
            .map_or(NODE_TIMEOUT, |shell| shell.timeout);
        tools.extend(options.shell.map(Shell::tool));
        Catalogue {
            tools,
            denied: options.denied,
            delegate: options.delegate,
            servers: options.servers,
            nodes: NodeTools::new(options.nodes, time),
            judged: Judged::default(),
            kept: preview::PreviewCache::default(),
        }
    }

    /// The cache of previews.
    pub(super) fn kept(&self) -> &preview::PreviewCache {
        &self.kept
    }

    /// Folders that no tool may access.
    pub(super) fn denied(&self) -> &[PathBuf] {
        &self.denied
    }

    /// The tool with this name; a linked agent's tool maps to its template.
    fn get(&self, name: &str) -> Option<&BuiltIn> {
        let name = linked::prefix_of(name).unwrap_or(name);
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Opens the workspace at `root` in the thread pool, since this may block forever.
    fn opened(&self, root: &Path) -> impl Future<Output = Result<Workspace, Unopened>> + use<> {
        let (root, denied) = (root.to_owned(), self.denied.clone());
        async move {
            let opened = TOOLS.run(move |_| Workspace::open(&root, &denied)).await;
            opened.unwrap_or_else(|busy| Err(Unopened::Refused(busy.to_string())))
        }
    }

    /// The effect of repeating a call of this tool; `None` if there is no such tool. `is_on_node`:
    /// its agent works on a node.
    pub fn effect(&self, name: &str, is_on_node: bool) -> Option<EffectClass> {
        let on_node = NodeTool::of_agent_on_node(name).filter(|_| is_on_node);
        match on_node {
            Some(tool) => Some(tool.effect()),
            None => self.get(name).map(|tool| tool.effect),
        }
    }

    /// Why these arguments do not fit the schema of a built-in tool, so that the call is refused;
    /// `None` if they fit or there is no such tool. `on` is the node on which its agent works.
    pub fn misfit(&self, name: &str, on: Option<&str>, arguments: &Value) -> Option<String> {
        match on.and_then(|on| Some((on, NodeTool::of_agent_on_node(name)?))) {
            Some((on, tool)) => {
                let named = tool.with_node(on, arguments.clone());
                (self.get(tool.tool_name())?.misfit)(&named)
            }
            None => (self.get(name)?.misfit)(arguments),
        }
    }

    /// True if calls of this tool have their own time limit, which an argument may set.
    pub fn keeps_time(&self, name: &str) -> bool {
        self.get(name).is_some_and(|tool| match &tool.action {
            ToolAction::Shell(_) => true,
            ToolAction::Node(tool) => tool.keeps_time(),
            _ => false,
        })
    }

    /// The schemas of all tools for models: `{name, description, parameters}`.
    pub fn schemas(&self) -> Vec<Value> {
        self.tools.iter().map(|tool| tool.schema.clone()).collect()
    }

    /// Decides whether a call may be made. Every call of every tool passes this gate before it has
    /// any effect.
    pub fn admit(&self, call: Call<'_>) -> BoxFuture<'static, Admission> {
        let (aim, habit) = self
            .get(call.name)
            .map_or((Aim::Whole, Decision::Allow), |tool| {
                (tool.aim, tool.default)
            });
        let aim = call.on_node().map_or(aim, NodeTool::aim);
        let is_program = call.served.map_or_else(
            || matches!(aim, Aim::Command(_) | Aim::Argv(_)),
            // Rules for paths do not apply to what the program of a server writes either.
            |served| served.local,
        );
        if is_program && let Some(refused) = gate::confined(call.name, call.rights) {
            return Box::pin(std::future::ready(refused));
        }
        let (name, rights) = (call.name.to_owned(), call.rights.clone());
        let (root, denied) = (call.root.to_owned(), self.denied.clone());
        let arguments = call.arguments.clone();
        let judge = move |subject: Subject, defining: Option<String>| {
            let mut verdict = rights.judge(&name, habit, &subject);
            if let Some(why) = defining {
                verdict = verdict.at_least_ask(why);
            }
            gate::admission(&name, verdict, subject.covers)
        };
        let effect = call.served.map(|served| served.effect);
        let effect = effect.or_else(|| self.effect(call.name, call.nodes.on.is_some()));
        let acts = effect != Some(EffectClass::Read);
        let may_define = acts && (call.served.is_some() || matches!(aim, Aim::Paths(_)));
        if !call.rights.looks_at_arguments() && !may_define {
            match judge(Subject::default(), None) {
                // An approval that is remembered covers specific arguments, so these are needed.
                Admission::NeedsApproval(_) => {}
                decided => return Box::pin(std::future::ready(decided)),
            }
        }
        if !matches!(aim, Aim::Paths(_) | Aim::Trees(_)) {
            let on = call.on_node().and(call.nodes.on);
            let mut subject = gate::subject(aim, None, &arguments).on_node(on);
            let defining = may_define
                .then(|| definition_files::reason_in(&subject.texts))
                .flatten();
            if defining.is_some() {
                // An approval for all calls of the tool does not cover such a file.
                subject.covers = arguments.to_string();
            }
            return Box::pin(std::future::ready(judge(subject, defining)));
        }
        let (site, places) = (call.site, Arc::clone(&self.judged));
        Box::pin(async move {
            let judged = TOOLS.run(move |_| {
                let workspace = Workspace::open(&root, &denied);
                if let Err(Unopened::Gone(_)) = workspace {
                    // No approval is requested; the call reports the missing folder.
                    return Admission::Allowed;
                }
                let subject = gate::subject(aim, workspace.as_ref().ok(), &arguments);
                let path = arguments
                    .get("path")
                    .and_then(Value::as_str)
                    .filter(|_| may_define);
                let defining = match (&workspace, path) {
                    (Ok(workspace), Some(path)) => definition_files::reason(workspace, path),
                    _ => None,
                };
                let admission = judge(subject, defining);
                if let (Ok(workspace), false) =
                    (&workspace, matches!(admission, Admission::Refused(_)))
                {
                    // The tool opens the paths that were judged.
                    lock(&places).insert(site.id, (site.run, workspace.led_to()));
                }
                admission
            });
            judged
                .await
                .unwrap_or_else(|busy| Admission::Refused(busy.to_string()))
        })
    }

    /// Makes an admitted call. An unknown tool, a folder that cannot be opened, and invalid
    /// arguments give failed results with a message for the model.
    pub fn call(&self, call: Call<'_>) -> BoxFuture<'static, Called> {
        let Call {
            site,
            id,
            name,
            served,
            environment,
            ..
        } = call;
        let arguments = call.arguments.clone();
        // A mask matches nothing, so the model gets an explanation.
        let note = environment
            .redactor
            .is_named_in(&arguments.to_string())
            .then_some(MASKED);
        let called = match (served, self.get(name)) {
            (Some(served), _) if served.of_session => {
                self.call_of_session(site, served, call.root, arguments)
            }
            (Some(served), _) => self.call_served(site, served, environment.clone(), arguments),
            (None, _) if let Some(tool) = call.on_node() => {
                let variables = &environment.variables;
                self.nodes
                    .call(tool, site, call.nodes, variables, arguments)
            }
            (None, Some(tool)) => self.call_built_in(tool, call, arguments),
            (None, None) => {
                let works = |tool: &&BuiltIn| matches!(tool.action, ToolAction::Workspace(_));
                let names = self.tools.iter().filter(works).map(|tool| tool.name);
                let names = names.collect::<Vec<_>>().join(", ");
                done(ToolOutput::error(format!(
                    "no tool {name:?}; the tools are {names}"
                )))
            }
        };
        let (id, registry) = (id.to_owned(), self.delegate.get().cloned());
        let redactor = environment.redactor.clone();
        Box::pin(async move {
            match called.await {
                Called::Done(mut output) => {
                    if output.is_error {
                        output.text.extend(note);
                    }
                    // Redacted before it is cut, since a cut could split a secret.
                    redactor.in_place(&mut output.text);
                    Called::Done(bounded(output, site, &id, registry).await)
                }
                other => other,
            }
        })
    }
}

impl Catalogue {
    /// The run now has its own connections to these tool servers.
    pub fn lease(&self, run: RunId, servers: &[String]) {
        if let Some(known) = &self.servers {
            known.lease(run, servers);
        }
    }

    /// Reads lines of a text file in the workspace at `root`, unchanged, from `first` on, counted
    /// from 1. The error says why it may not be read, or cannot.
    pub fn read_lines(
        &self,
        root: &Path,
        path: String,
        first: usize,
        count: Option<usize>,
    ) -> BoxFuture<'static, Result<String, String>> {
        let opening = self.opened(root);
        Box::pin(async move {
            let workspace = opening.await.map_err(|unopened| match unopened {
                Unopened::Gone(why) | Unopened::Refused(why) => why,
            })?;
            let read = TOOLS.run(move |_| read::lines(&workspace, &path, first, count));
            read.await.unwrap_or_else(|busy| Err(busy.to_string()))
        })
    }

    /// The working folder of a command in the workspace at `root`, which is `cwd` or the workspace
    /// itself. The error says why it may not run there.
    pub fn folder(
        &self,
        root: &Path,
        cwd: Option<String>,
    ) -> BoxFuture<'static, Result<PathBuf, String>> {
        let opening = self.opened(root);
        Box::pin(async move {
            let workspace = opening.await.map_err(|unopened| match unopened {
                Unopened::Gone(why) | Unopened::Refused(why) => why,
            })?;
            let found = TOOLS.run(move |_| shell::folder(&workspace, cwd.as_deref()));
            found.await.unwrap_or_else(|busy| Err(busy.to_string()))
        })
    }

    /// Prepares a call of this tool on this machine, before it is stored that its step begins.
    pub fn prepare(&self, name: &str, run: RunId, step: StepId) {
        if let Some(ToolAction::Shell(shell)) = self.get(name).map(|tool| &tool.action) {
            shell.processes.prepare(run, step);
        }
    }

    /// The outcome of this step is stored: a node may forget its call.
    pub fn stored(&self, step: StepId) {
        self.nodes.stored(step);
    }

    /// Once this resolves, the run's own connections and their processes are gone, and its calls to
    /// nodes are cancelled. Call it when the run has ended; returns what went wrong.
    pub fn release(&self, run: RunId) -> BoxFuture<'static, Vec<String>> {
        self.nodes.ended(run);
        lock(&self.judged).retain(|_, (of, _)| *of != run);
        match &self.servers {
            Some(servers) if servers.has_leased(run) => {
                let servers = servers.clone();
                Box::pin(async move { servers.release(run).await })
            }
            _ => Box::pin(std::future::ready(Vec::new())),
        }
    }

    fn call_built_in(
        &self,
        tool: &BuiltIn,
        call: Call<'_>,
        mut arguments: Value,
    ) -> BoxFuture<'static, Called> {
        let Call {
            site,
            name,
            rights,
            environment,
            links,
            ..
        } = call;
        match &tool.action {
            ToolAction::Registry(ask) => {
                // The arguments are stored and shown to people and other agents.
                environment.redactor.in_value(&mut arguments);
                let mut links = links.iter();
                let link = links.find(|link| link.tool().as_deref() == Some(name));
                let by = CallingStep { site, rights, link };
                registry_tool::call(tool.name, ask, self.delegate.get(), by, arguments)
            }
            ToolAction::Skill => {
                let output = skill::call(self.delegate.get(), site, arguments);
                Box::pin(async move { Called::Done(output.await) })
            }
            ToolAction::Shell(shell) => {
                let (shell, variables) = (shell.clone(), environment.variables.clone());
                let (opening, program) = (self.opened(call.root), call.program);
                Box::pin(async move {
                    match opening.await {
                        Ok(workspace) => shell.call(program, workspace, variables, arguments).await,
                        Err(unopened) => unopened.into(),
                    }
                })
            }
            ToolAction::Node(tool) => {
                let variables = &environment.variables;
                self.nodes
                    .call(*tool, site, call.nodes, variables, arguments)
            }
            ToolAction::Workspace(work) => {
                let work = Arc::clone(work);
                let (writes, masks) = (rights.writes().clone(), environment.redactor.clone());
                let led_to = lock(&self.judged)
                    .remove(&site.id)
                    .map(|(_, led_to)| led_to);
                let opening = self.opened(call.root);
                Box::pin(async move {
                    match opening.await {
                        Ok(workspace) => {
                            let workspace = workspace.led(led_to).writing(writes).masking(masks);
                            Called::Done(work(workspace, arguments).await)
                        }
                        Err(unopened) => unopened.into(),
                    }
                })
            }
        }
    }

    /// Calls a tool of a server of the run's session.
    fn call_of_session(
        &self,
        site: Site,
        served: &Served,
        root: &Path,
        arguments: Value,
    ) -> BoxFuture<'static, Called> {
        let Value::Object(arguments) = arguments else {
            return done(ToolOutput::error("an object of arguments is expected"));
        };
        let (Some(servers), Some(registry)) = (self.servers.clone(), self.delegate.get().cloned())
        else {
            return done(ToolOutput::error("no tool servers can be started"));
        };
        let (served, folder) = (served.clone(), root.to_string_lossy().into_owned());
        Box::pin(async move {
            let found = registry.session_server(site, served.server.clone()).await;
            let server = match found {
                Ok(server) => SessionServer {
                    folder: Some(folder),
                    ..server
                },
                Err(fault) => {
                    let why = fault.message;
                    return Called::Done(ToolOutput::error(format!(
                        "{why}; the call was not made"
                    )));
                }
            };
            let arguments = served.given(arguments);
            let called = servers.call_of_session(site.run, server, &served.tool, arguments);
            Called::Done(called.await)
        })
    }

    /// Calls a server tool.
    fn call_served(
        &self,
        site: Site,
        served: &Served,
        environment: RunEnvironment,
        arguments: Value,
    ) -> BoxFuture<'static, Called> {
        let Value::Object(arguments) = arguments else {
            return done(ToolOutput::error("an object of arguments is expected"));
        };
        let Some(servers) = self.servers.clone() else {
            return done(ToolOutput::error("no tool servers are configured"));
        };
        let served = served.clone();
        Box::pin(async move {
            let (run, server, tool) = (site.run, &served.server, &served.tool);
            let arguments = served.given(arguments);
            let called = servers.call(run, &environment, server, tool, arguments);
            Called::Done(called.await)
        })
    }
}

impl From<Unopened> for Called {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Gone(why) => Called::Gone(why),
            Unopened::Refused(why) => Called::Done(ToolOutput::error(why)),
        }
    }
}

fn done(output: ToolOutput) -> BoxFuture<'static, Called> {
    Box::pin(std::future::ready(Called::Done(output)))
}

/// Limits the result to [`OUTPUT_LIMIT`](super::OUTPUT_LIMIT). A longer result is stored first, so
/// that its shown part can say how to get the rest.
async fn bounded(
    output: ToolOutput,
    site: Site,
    id: &str,
    registry: Option<Arc<dyn Delegate>>,
) -> ToolOutput {
    let output = output.storable();
    if !output.is_long() {
        return output;
    }
    let Some(registry) = registry else {
        return output.cut(&Rest::Lost("the daemon is starting"));
    };
    match registry.keep(site, output.text.clone()).await {
        Ok(()) => output.cut(&Rest::Kept(id)),
        Err(fault) => output.cut(&Rest::Lost(&fault.message)),
    }
}

#[cfg(test)]
#[path = "catalogue_tests.rs"]
mod tests;
