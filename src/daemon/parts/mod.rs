//! Puts the parts together: agents, providers, tools, skills, program runners and the registry that
//! uses them. The daemon's start calls [`Parts::assemble`].

pub mod agents;
mod check;
pub mod node_programs;
pub mod options;
mod processes;
pub mod skills;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

pub use check::AgentCheck;

use self::processes::ManagedProcesses;
use super::DaemonFailure;
use super::boot::Boot;
use super::control::Followers;
use super::listen::DaemonAddress;
use super::notifications::{self, Notifier};
use super::state::{self, refused};
use crate::agent::{self, AgentCatalog, ProgramCheck};
use crate::clock::Clock;
use crate::config::{Config, HookTables, MAX_GRACE, OpenAiOptions};
use crate::contract::catalog::{Catalog, CatalogScope};
use crate::contract::commit::CommitEffect;
use crate::contract::delegate::DelegateSlot;
use crate::contract::nodes::{Nodes, NodesSlot};
use crate::contract::servers::ServerRows;
use crate::contract::webhooks::WebhookBoard;
use crate::gateway::{self, GatewayKey, NodeHub, NodeHubParts};
use crate::kernel::fault::Fault;
use crate::kernel::policy::env::Environment;
use crate::kernel::scope::OWNER_ORG;
use crate::outbound::address::Private;
use crate::process::{self, Descriptors, KeeperOptions, Keepers, ProcessOptions, Processes};
use crate::provider::{self, OnChange, Providers};
use crate::registry::{self, Registry, ServiceLoop};
use crate::runner::{CommandRunner, OutsideRunner, Runners, TurnRunner};
use crate::skill::Library;
use crate::store::{Seal, Store};
use crate::tool::{self, Catalogue, McpServers, ServerOptions, Shell};
use crate::watch::Watcher;
use crate::webhooks::WebhookTables;

/// The tenant of this machine's own users.
pub const ORG: &str = OWNER_ORG;

/// Retry interval for files that could not be read.
pub(super) const UNREAD_AGAIN: Duration = Duration::from_secs(1);

/// Changes that keep coming are read after this long.
pub(super) const LONGEST_BURST: Duration = Duration::from_secs(2);

/// What the parts are made of, apart from the settings.
pub struct Basis<'a> {
    /// The state folder.
    pub folder: &'a Path,
    /// This boot of the daemon.
    pub boot: &'a Boot,
    /// Where programs reach the daemon.
    pub address: &'a DaemonAddress,
    /// Encrypts the values that callers give to runs.
    pub seal: Seal,
    /// The key by which nodes recognize this gateway.
    pub gateway_key: GatewayKey,
    /// The open store.
    pub store: Store,
    /// The registry's work after commits.
    pub effects: mpsc::UnboundedReceiver<Vec<CommitEffect>>,
}

/// The parts of a daemon. Those that execute runs are known to the registry alone.
pub struct DaemonParts {
    /// The registry.
    pub registry: Registry,
    /// Its loop, which must run for anything to happen.
    pub service: ServiceLoop,
    /// The names of the agents.
    pub agent_names: Vec<String>,
    /// The watcher of the agent files.
    pub agent_files: Watcher,
    /// The skills that exist.
    pub skills: Arc<Library>,
    /// The watcher of the skill folders.
    pub skill_files: Watcher,
    /// Starts and controls programs.
    pub programs: Processes,
    /// The tool servers.
    pub servers: McpServers,
    /// The paired nodes.
    pub nodes: NodeHub,
    /// Interval at which nodes are asked for programs.
    pub node_programs: Duration,
    /// Source of time and ids.
    pub clock: Clock,
    /// Runs the commands of notifications.
    pub notifier: Notifier,
    /// The names by which clients may call, as the settings change.
    pub names: watch::Receiver<gateway::Names>,
    /// What clients of the OpenAI-compatible API see, as the settings change.
    pub openai: watch::Receiver<OpenAiOptions>,
    /// The inbound webhooks, as the settings change.
    pub hooks: watch::Receiver<HookTables>,
    /// What is notified, as the settings change.
    pub notified: watch::Receiver<notifications::NotifySettings>,
    /// The webhooks, as the settings change.
    pub webhooks: watch::Receiver<WebhookTables>,
    /// Where the state of each webhook is shown.
    pub webhook_board: WebhookBoard,
}

impl DaemonParts {
    /// Creates all parts of these settings, and what passes new settings to them. Nothing happens
    /// before the registry's loop runs.
    pub fn assemble(
        basis: Basis<'_>,
        config: &Config,
    ) -> Result<(DaemonParts, Followers), DaemonFailure> {
        let (folder, clock) = (basis.folder, basis.boot.clock.clone());
        let environment = environment(config);
        let workspace = workspace(config)?;
        // Set below, as is the registry.
        let found_nodes = NodesSlot::default();
        let skills = skills::parts(
            folder,
            (workspace.clone(), Arc::clone(&found_nodes)),
            &clock,
            config,
            &environment,
        )?;
        // Set below; runs, which call providers and tools, start later than this.
        let (delegate, slot) = (
            DelegateSlot::default(),
            Arc::<OnceLock<Registry>>::default(),
        );
        let workers = Workers::new(
            &basis,
            config,
            (workspace, &environment, Arc::clone(&found_nodes)),
            &skills.library,
            (Arc::clone(&delegate), Arc::clone(&slot)),
        )?;
        let nodes = nodes(basis.gateway_key, &basis.store, &clock)?;
        found_nodes.get_or_init(|| Arc::new(nodes.clone()) as Arc<dyn Nodes>);
        let drain_timeout = basis.boot.supervisor.drain_timeout(config.drain_timeout);
        let (registry, service) = Registry::new(registry::RegistryParts {
            store: basis.store.clone(),
            effects: basis.effects,
            clock: clock.clone(),
            catalog: workers.catalog,
            skills: Arc::clone(&skills.library) as _,
            runner: workers.runner,
            processes: Arc::new(ManagedProcesses {
                processes: workers.programs.clone(),
                servers: workers.servers.clone(),
            }),
            session_servers: Arc::new(workers.servers.clone()),
            environment: environment.clone(),
            seal: basis.seal,
            options: options::of_registry(config, drain_timeout),
            boot: basis.boot.id,
        });
        let loaded = registry.load_tokens();
        loaded.map_err(|fault| DaemonFailure::store(&fault.to_string()))?;
        slot.get_or_init(|| registry.clone());
        delegate.get_or_init(|| Arc::new(registry.clone()));
        let (names, followed_names) = watch::channel(options::names(config));
        let (openai, followed_openai) = watch::channel(options::openai(config));
        let (hooks, followed_hooks) = watch::channel(options::hooks(config));
        let (notifications, notified) = watch::channel(notifications::NotifySettings::of(config));
        let (webhooks, followed_webhooks) = watch::channel(config.named.webhooks.clone());
        let followers = Followers {
            store: basis.store,
            webhooks,
            notifications,
            registry: registry.clone(),
            drain_timeout,
            names,
            openai,
            hooks,
            runner: workers.times,
            providers: workers.providers,
            models: workers.models,
            servers: workers.servers.clone(),
            skills: skills.settings,
            folder: folder.to_owned(),
            environment,
            clock: clock.clone(),
            certificate: basis.address.certificate().cloned(),
        };
        let parts = DaemonParts {
            registry,
            service,
            agent_names: workers.agent_names,
            agent_files: agents::watcher(&clock, config),
            skills: skills.library,
            skill_files: skills.watcher,
            node_programs: config.nodes_probe_each,
            clock: clock.clone(),
            notifier: Notifier {
                processes: workers.programs.clone(),
                environment: desktop_environment(config),
                folder: folder.to_owned(),
                clock,
            },
            programs: workers.programs,
            servers: workers.servers,
            nodes,
            names: followed_names,
            openai: followed_openai,
            hooks: followed_hooks,
            notified,
            webhooks: followed_webhooks,
            webhook_board: WebhookBoard::default(),
        };
        Ok((parts, followers))
    }

    /// Collects the exit status of adopted processes until the returned task is dropped.
    pub fn reap_orphans(&self) -> AbortOnDropHandle<()> {
        let programs = self.programs.clone();
        AbortOnDropHandle::new(tokio::spawn(async move { programs.reap_orphans().await }))
    }
}

/// The parts that execute runs.
struct Workers {
    catalog: Arc<dyn Catalog>,
    agent_names: Vec<String>,
    runner: Arc<Runners>,
    programs: Processes,
    servers: McpServers,
    providers: Arc<Providers>,
    /// Sends changed models to the catalog.
    models: watch::Sender<agent::AvailableModels>,
    /// Sends changed settings to the runner.
    times: watch::Sender<crate::runner::RunnerOptions>,
}

impl Workers {
    /// Creates agents, providers, tools and program runners. `delegate` and `slot` are where tools
    /// and providers find the registry later.
    fn new(
        basis: &Basis<'_>,
        config: &Config,
        (workspace, environment, nodes): (PathBuf, &Environment, NodesSlot),
        skills: &Arc<Library>,
        (delegate, slot): (DelegateSlot, Arc<OnceLock<Registry>>),
    ) -> Result<Workers, DaemonFailure> {
        let clock = &basis.boot.clock;
        let on_change: OnChange = Arc::new(move |name, seen| {
            if let Some(registry) = slot.get() {
                registry.provider_changed(name, seen);
            }
        });
        let providers = Arc::new(providers(config, clock, on_change)?);
        let socket = basis.address.socket.as_deref();
        let descriptors = basis.boot.descriptors.clone();
        let mut processes = process_options(basis.folder, socket, config, descriptors);
        processes.keepers = Some(keepers(basis.folder, &basis.seal, config)?);
        let shell = shell(processes, clock, config);
        let programs = shell.processes.clone();
        let servers = servers(
            programs.clone(),
            environment.clone(),
            clock,
            config,
            &workspace,
            Some(Arc::new(basis.store.clone())),
        );
        let tools = Catalogue::new(tool::ToolOptions {
            denied: denied(basis.folder),
            private: Private::new(&config.fetch_private),
            delegate: Arc::clone(&delegate),
            shell: Some(shell),
            servers: Some(servers.clone()),
            nodes: nodes.clone(),
        });
        let (models, followed) =
            watch::channel(models(config, &providers, program_check(environment)));
        let agents = AgentCatalog::new(agent::AgentCatalogOptions {
            default_agent: config.agent.clone(),
            models: followed,
            tools: tools.schemas(),
            servers: servers.seen(),
            nodes,
            skills: Some(Arc::clone(skills) as _),
            config: agents::files(),
            personal: agents::personal_files(),
            workspace: Some(workspace.clone()),
            orgs: vec![ORG.to_owned()],
            rows: Some(Arc::new(basis.store.clone())),
            clock: clock.clone(),
        })
        .map_err(|fault| DaemonFailure::Config(fault.to_string()))?;
        let (times, followed) = watch::channel(options::of_runner(config));
        let command = CommandRunner {
            processes: programs.clone(),
            workspace: workspace.as_path().into(),
            clock: clock.clone(),
        };
        let tools = Arc::new(tools);
        let outside = OutsideRunner::new(
            programs.clone(),
            workspace.as_path().into(),
            Arc::clone(&tools),
            delegate,
            clock.clone(),
        );
        let turn = TurnRunner::new(
            followed,
            workspace,
            Arc::clone(&providers),
            tools,
            Some(Arc::new(basis.store.clone())),
            clock.clone(),
        );
        Ok(Workers {
            agent_names: names_of(&agents),
            catalog: Arc::new(agents),
            runner: Arc::new(Runners {
                turn,
                command,
                outside,
            }),
            programs,
            servers,
            providers,
            models,
            times,
        })
    }
}

/// The paired nodes as the store has them, none of them connected yet.
fn nodes(key: GatewayKey, store: &Store, clock: &Clock) -> Result<NodeHub, DaemonFailure> {
    NodeHub::new(NodeHubParts {
        rows: Arc::new(store.clone()),
        clock: clock.clone(),
        key,
        gateway: store.id().to_owned(),
        org: ORG.to_owned(),
    })
    .map_err(|fault| DaemonFailure::store(&fault.to_string()))
}

fn names_of(agents: &AgentCatalog) -> Vec<String> {
    let place = CatalogScope {
        org: ORG,
        cwd: None,
    };
    let known = agents.list(place).agents.into_iter();
    known.map(|agent| agent.id.to_string()).collect()
}

/// The model providers; `on_change` is called when the health of one changes.
fn providers(
    config: &Config,
    clock: &Clock,
    on_change: OnChange,
) -> Result<Providers, DaemonFailure> {
    let options = provider::ProviderOptions {
        script: config.script.clone(),
        tables: config.named.providers.clone(),
        clock: clock.clone(),
        on_change,
    };
    Providers::new(options).map_err(|fault| DaemonFailure::Config(fault.to_string()))
}

/// The models that agents may use.
pub fn models(
    config: &Config,
    providers: &Arc<Providers>,
    programs: ProgramCheck,
) -> agent::AvailableModels {
    let known = Arc::clone(providers);
    agent::AvailableModels {
        programs,
        providers: Arc::new(move |name| known.problem(name)),
        default: config.model.clone(),
        offered: providers.offered(),
        thinking: providers.thinking(),
    }
}

/// Refuses settings whose default model no provider offers.
pub fn check_models(config: &Config, clock: &Clock) -> Result<(), Fault> {
    let providers = providers(config, clock, Arc::new(|_, _| {}));
    let providers = Arc::new(providers.map_err(Fault::internal)?);
    let programs: ProgramCheck = Arc::new(|_| Ok(()));
    models(config, &providers, programs).check("defaults.model", &config.model)
}

/// The setting's maximum stays within what the `process` module guarantees.
const _: () = assert!(MAX_GRACE.as_millis() <= process::LONGEST_GRACE.as_millis());

/// The part of the daemon's environment that every program gets.
fn environment(config: &Config) -> Environment {
    Environment::base(std::env::vars_os(), &config.env_pass)
}

/// The environment of the notification command: it also gets the variables of the user's desktop.
fn desktop_environment(config: &Config) -> Environment {
    let desktop = notifications::DESKTOP.map(str::to_owned);
    let pass = [&config.env_pass[..], &desktop[..]].concat();
    Environment::base(std::env::vars_os(), &pass)
}

/// The shell that starts commands.
fn shell(options: ProcessOptions, clock: &Clock, config: &Config) -> Shell {
    Shell {
        processes: Processes::new(options, clock.clone()),
        timeout: config.shell_timeout,
    }
}

/// How programs are started and ended, without keepers.
fn process_options(
    folder: &Path,
    socket: Option<&str>,
    config: &Config,
    descriptors: Option<Descriptors>,
) -> ProcessOptions {
    ProcessOptions {
        state: folder.to_owned(),
        socket: socket.map(str::to_owned),
        grace: config.process_grace,
        max_output: config.process_output,
        descriptors,
        keepers: None,
    }
}

/// The keepers of this state folder.
fn keepers(folder: &Path, seal: &Seal, config: &Config) -> Result<Arc<Keepers>, DaemonFailure> {
    let options = KeeperOptions {
        folder: folder.join(state::KEEPERS),
        daemon_lock: folder.join(state::LOCK),
        orphan_max: config.orphan_max,
        key: seal.key_for("abide 2026 output of kept programs"),
    };
    let path = options.folder.clone();
    let opened = Keepers::open(options);
    opened.map(Arc::new).map_err(|fault| refused(&path, fault))
}

/// The tool servers of these settings, none of them started; `known` has the rows of earlier
/// starts.
fn servers(
    processes: Processes,
    environment: Environment,
    clock: &Clock,
    config: &Config,
    workspace: &Path,
    known: Option<Arc<dyn ServerRows>>,
) -> McpServers {
    let options = ServerOptions {
        processes,
        environment,
        folder: workspace.to_owned(),
        rows: known,
        clock: clock.clone(),
    };
    McpServers::new(options, &config.named.mcp)
}

/// Looks up programs the way agents' programs are looked up.
fn program_check(environment: &Environment) -> ProgramCheck {
    let path = environment.get("PATH").map(ToOwned::to_owned);
    Arc::new(move |name| process::find(name, path.as_deref(), Path::new("/")).map(|_| ()))
}

/// The folder of runs that name none: never the daemon's working directory, which depends on how it
/// was started.
fn workspace(config: &Config) -> Result<PathBuf, DaemonFailure> {
    let folder = config.workspace.clone().unwrap_or_else(default_workspace);
    let made = std::fs::create_dir_all(&folder).and_then(|()| folder.canonicalize());
    made.map_err(|fault| refused(&folder, fault))
}

fn default_workspace() -> PathBuf {
    let data = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    data.unwrap_or_else(std::env::temp_dir)
        .join("abide/workspace")
}

/// The folders that tools may not access: state and configuration.
fn denied(state: &Path) -> Vec<PathBuf> {
    std::iter::once(state.to_owned())
        .chain(config_folder())
        .collect()
}

pub(super) fn config_folder() -> Option<PathBuf> {
    crate::config::folder()
}
