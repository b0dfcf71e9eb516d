//! Creates the daemon's parts from the settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Failure;
use super::folder::refused;
use super::skills::{self, Skills};
use super::started::ManagedProcesses;
use crate::agent::{self, Agents, ProgramCheck};
use crate::clock::Clock;
use crate::config::{Config, FileWatch, MAX_GRACE};
use crate::contract;
use crate::contract::catalog::{Catalog, Place};
use crate::contract::commit::Thresholds;
use crate::contract::delegate::DelegateSlot;
use crate::contract::runner::Runner;
use crate::contract::servers::ServerRows;
use crate::gateway;
use crate::kernel::delegation::breaker::BreakerPolicy;
use crate::kernel::fault::Fault;
use crate::kernel::policy::env::Environment;
use crate::kernel::policy::{Policy, Visibility};
use crate::kernel::run::budget;
use crate::kernel::run::budget::Budget;
use crate::kernel::run::limits::SpawnLimits;
use crate::kernel::run::recover::RecoveryPolicy;
use crate::kernel::secret::{GivenValue, Reference};
use crate::process::{self, Descriptors, Processes};
use crate::provider::{self, Providers};
use crate::registry::{self, LaneCaps, Registry, ReloadReason, SkillEnvironment};
use crate::runner::{self, CommandRunner, Runners, TurnRunner};
use crate::store::{OpenOptions, Store};
use crate::tool::{self, Catalogue, ServerOptions, Servers, Shell};
use crate::watch::{self, Watcher};

/// Maximum number of announces that one client-owned session may leave unacknowledged.
const MAX_UNACKED: u32 = 1000;
/// Maximum number of undelivered announces of one agent-owned session.
const MAX_UNDELIVERED: u32 = 50;

/// The tenant of this machine's own users.
pub const ORG: &str = "default";

/// The parts that execute runs.
pub struct Workers {
    /// The agents.
    pub catalog: Arc<dyn Catalog>,
    /// Executes their runs.
    pub runner: Arc<dyn Runner>,
    /// The model providers.
    pub providers: Arc<Providers>,
    /// Sends changed models to the catalog.
    pub models: tokio::sync::watch::Sender<agent::Models>,
    /// Controls the processes of runs and of tool servers.
    pub processes: Arc<dyn contract::processes::Processes>,
    /// Starts and controls programs; part of `processes`.
    pub programs: Processes,
    /// The tool servers.
    pub servers: Servers,
    /// The skills.
    pub skills: Skills,
    /// The base environment of programs.
    pub environment: Environment,
    /// Sends changed settings to the runner.
    pub times: tokio::sync::watch::Sender<runner::Options>,
    /// The agents' names.
    pub names: Vec<String>,
}

/// The options for opening the store.
pub fn store_options(folder: &Path, clock: &Clock, config: &Config) -> OpenOptions {
    OpenOptions {
        folder: folder.to_owned(),
        clock: clock.clone(),
        settings: store_settings(config),
        on_fatal: Box::new(|why| end_now(&Failure::Store(why))),
    }
}

/// The settings that store commands apply.
pub fn store_settings(config: &Config) -> contract::commit::Settings {
    contract::commit::Settings {
        limits: SpawnLimits {
            max_depth: config.max_spawn_depth,
            max_children: config.max_client_children,
            max_run_children: config.max_children,
            max_total: config.max_total_children,
            max_unacked: MAX_UNACKED,
            max_undelivered: MAX_UNDELIVERED,
            max_queued_turns: config.max_queued_turns,
        },
        recovery: RecoveryPolicy {
            max_age_ms: millis(config.max_age),
            max_attempts: config.max_attempts,
        },
        policy: policy(config),
        max_ping_pong: config.max_ping_pong,
        breaker: BreakerPolicy {
            failures: config.breaker_failures,
            window_ms: millis(config.breaker_window),
            cool_off_ms: millis(config.breaker_cool_off),
        },
        tree_budget: Budget {
            tokens: config.budget_tree_tokens.map(u64::from),
            cost_micros: config.budget_tree_cost.map(budget::micros),
        },
        audit_rows: config.audit_rows,
        max_memories: config.max_memories,
        thresholds: Thresholds {
            cost_micros: micros(config.alert_cost),
            failed_percent: (config.alert_failures > 0).then_some(config.alert_failures),
        },
    }
}

/// An amount of money in millionths; 0 becomes `None`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the setting takes no negative amount, and a float that is too large saturates"
)]
fn micros(amount: f64) -> Option<u64> {
    (amount > 0.0).then_some((amount * 1e6).ceil() as u64)
}

/// The host names and origins that clients may use.
pub fn names(config: &Config) -> gateway::Names {
    gateway::Names {
        hosts: config.allowed_hosts.clone(),
        origins: config.allowed_origins.clone(),
    }
}

/// The runner's settings.
pub fn times(config: &Config) -> runner::Options {
    runner::Options {
        pace: config.pace,
        model_timeout: config.model_timeout,
        tool_timeout: config.tool_timeout,
        max_spawn_depth: config.max_spawn_depth,
        fallback_models: config.fallback_models.clone(),
        prices: config.named.prices.clone(),
        window: u64::from(config.window),
        overflow: config.overflow,
    }
}

/// The models that agents may use.
pub fn models(
    config: &Config,
    providers: &Arc<Providers>,
    programs: ProgramCheck,
) -> agent::Models {
    let known = Arc::clone(providers);
    agent::Models {
        programs,
        providers: Arc::new(move |name| known.problem(name)),
        default: config.model.clone(),
        offered: providers.offered(),
        thinking: providers.thinking(),
    }
}

/// Refuses settings whose default model no provider offers.
pub fn check_models(config: &Config, clock: &Clock) -> Result<(), Fault> {
    let providers = Providers::new(provider::Options {
        script: config.script.clone(),
        tables: config.named.providers.clone(),
        clock: clock.clone(),
        on_change: Arc::new(|_, _| {}),
    })
    .map_err(Fault::internal)?;
    let programs: ProgramCheck = Arc::new(|_| Ok(()));
    models(config, &Arc::new(providers), programs).check("defaults.model", &config.model)
}

/// Ends the process: after a commit that cannot be trusted, or when another process has taken the
/// state folder. Nothing may continue, since only a fresh start can tell what is on disk.
#[expect(
    clippy::disallowed_methods,
    reason = "destructors would write on, and nothing after a failed sync can be trusted"
)]
pub fn end_now(failure: &Failure) {
    tracing::error!("{failure}");
    std::process::exit(i32::from(failure.exit_code()));
}

/// The registry's settings.
pub fn registry_options(config: &Config, drain_timeout: Duration) -> registry::Options {
    registry::Options {
        lanes: LaneCaps {
            main: config.lane_main,
            subagent: config.lane_subagent,
            nested: config.lane_nested,
            global: config.lane_global,
        },
        policy: policy(config),
        run_timeout_ms: config.run_timeout.map(millis),
        delegation_timeout_ms: millis(config.delegation_timeout),
        memory_budget: u64::from(config.memory_budget),
        approval_ms: millis(config.approval_timeout),
        drain_timeout,
        compare_each: config.compare_each,
        touch_each: config.touch_each,
        max_age_ms: millis(config.max_age),
        retention: registry::Retention {
            archive_after_ms: config.archive_after.map(millis),
            runs_ms: config.retain_runs.map(millis),
            events_ms: config.retain_events.map(millis),
            keys_ms: millis(config.retain_keys),
            sweep_each: config.sweep_each,
        },
        events_behind: i64::from(config.max_events_behind),
        skills: skill_environments(config),
    }
}

/// The environment that the settings add to runs with a skill, by the skill's name or key.
pub fn skill_environments(config: &Config) -> BTreeMap<String, SkillEnvironment> {
    let entries = config.named.skills.iter();
    entries
        .map(|(name, entry)| {
            let key = entry.api_key_env.clone().map(Reference::Variable);
            let environment = SkillEnvironment {
                env: entry.env.clone(),
                api_key: entry.api_key.clone().or(key.map(GivenValue::From)),
            };
            (name.clone(), environment)
        })
        .filter(|(_, one)| *one != SkillEnvironment::default())
        .collect()
}

/// The access policy between sessions.
fn policy(config: &Config) -> Policy {
    let reach = |right: Option<Visibility>| right.unwrap_or(config.visibility);
    Policy {
        reach: [config.right_send, config.right_list, config.right_history].map(reach),
        agent_to_agent: config.agent_to_agent.clone(),
    }
}

/// Creates agents, providers, tools and program runners over the rows of `store`. `delegate` is the
/// slot in which tools find the registry later, `socket` the path by which programs find the
/// daemon, with its limit of open files; `on_change` is called when a provider's health changes.
pub fn workers(
    folder: &Path,
    (socket, descriptors): (Option<&str>, Option<Descriptors>),
    clock: &Clock,
    config: &Config,
    store: &Store,
    delegate: DelegateSlot,
    on_change: provider::OnChange,
) -> Result<Workers, Failure> {
    let workspace = workspace(config)?;
    let providers = Providers::new(provider::Options {
        script: config.script.clone(),
        tables: config.named.providers.clone(),
        clock: clock.clone(),
        on_change,
    })
    .map_err(|fault| Failure::Config(fault.to_string()))?;
    let providers = Arc::new(providers);
    let shell = shell(folder, socket, clock, config, descriptors);
    let (processes, environment) = (shell.processes.clone(), environment(config));
    let models = models(config, &providers, programs(&environment));
    let (models, followed_models) = tokio::sync::watch::channel(models);
    let servers = servers(
        processes.clone(),
        environment.clone(),
        clock,
        config,
        &workspace,
        Some(Arc::new(store.clone())),
    );
    let tools = Catalogue::new(tool::Options {
        denied: denied(folder),
        private: tool::Private::new(&config.fetch_private),
        delegate,
        shell: Some(shell),
        servers: Some(servers.clone()),
    });
    let skills = skills::parts(folder, workspace.clone(), clock, config, &environment)?;
    let agents = Agents::new(agent::Options {
        default_agent: config.agent.clone(),
        models: followed_models,
        tools: tools.schemas(),
        servers: servers.seen(),
        skills: Some(Arc::clone(&skills.library) as _),
        config: agent_files(),
        personal: personal_files(),
        workspace: Some(workspace.clone()),
        orgs: vec![ORG.to_owned()],
        rows: Some(Arc::new(store.clone())),
        clock: clock.clone(),
    })
    .map_err(|fault| Failure::Config(fault.to_string()))?;
    let names = agents
        .list(Place {
            org: ORG,
            cwd: None,
        })
        .agents
        .into_iter()
        .map(|agent| agent.id.to_string())
        .collect();
    let (times, followed) = tokio::sync::watch::channel(times(config));
    let command = CommandRunner {
        processes: processes.clone(),
        workspace: workspace.as_path().into(),
        clock: clock.clone(),
    };
    let turn = TurnRunner::new(
        followed,
        workspace,
        Arc::clone(&providers),
        Arc::new(tools),
        Some(Arc::new(store.clone())),
        clock.clone(),
    );
    Ok(Workers {
        catalog: Arc::new(agents),
        runner: Arc::new(Runners { turn, command }),
        programs: processes.clone(),
        processes: Arc::new(ManagedProcesses {
            processes,
            servers: servers.clone(),
        }),
        skills,
        environment,
        providers,
        servers,
        models,
        times,
        names,
    })
}

/// The setting's maximum stays within what the `process` module guarantees.
const _: () = assert!(MAX_GRACE.as_millis() <= process::LONGEST_GRACE.as_millis());

/// The part of the daemon's environment that every program gets.
pub fn environment(config: &Config) -> Environment {
    Environment::base(std::env::vars_os(), &config.env_pass)
}

/// The environment of the notification command: it also gets the variables of the user's desktop.
pub fn desktop_environment(config: &Config) -> Environment {
    let desktop = super::notifications::DESKTOP.map(str::to_owned);
    let pass = [&config.env_pass[..], &desktop[..]].concat();
    Environment::base(std::env::vars_os(), &pass)
}

/// The shell that starts commands.
pub fn shell(
    folder: &Path,
    socket: Option<&str>,
    clock: &Clock,
    config: &Config,
    descriptors: Option<Descriptors>,
) -> Shell {
    let options = process::Options {
        state: folder.to_owned(),
        socket: socket.map(str::to_owned),
        grace: config.process_grace,
        max_output: config.process_output,
        descriptors,
    };
    Shell {
        processes: Processes::new(options, clock.clone()),
        timeout: config.shell_timeout,
    }
}

/// The tool servers of these settings, none of them started; `known` has the rows of earlier
/// starts.
pub fn servers(
    processes: Processes,
    environment: Environment,
    clock: &Clock,
    config: &Config,
    workspace: &Path,
    known: Option<Arc<dyn ServerRows>>,
) -> Servers {
    let options = ServerOptions {
        processes,
        environment,
        folder: workspace.to_owned(),
        rows: known,
        clock: clock.clone(),
    };
    Servers::new(options, &config.named.mcp)
}

/// Looks up programs the way agents' programs are looked up.
pub fn programs(environment: &Environment) -> ProgramCheck {
    let path = environment.get("PATH").map(ToOwned::to_owned);
    Arc::new(move |name| process::find(name, path.as_deref(), Path::new("/")).map(|_| ()))
}

/// The folder of runs that name none: never the daemon's working directory, which depends on how it
/// was started.
fn workspace(config: &Config) -> Result<PathBuf, Failure> {
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

/// The folder of this user's agent files.
pub fn agent_files() -> Option<PathBuf> {
    config_folder().map(|folder| folder.join("agents"))
}

/// The folder of this user's agent files for Claude Code.
pub fn personal_files() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from)?;
    let folder = home.join(".claude/agents");
    folder.is_absolute().then_some(folder)
}

/// The watcher of the agent files.
pub fn watcher(clock: &Clock, config: &Config) -> Watcher {
    let folders = agent_files().into_iter().chain(personal_files()).collect();
    let options = watch::Options {
        mode: match config.agents_watch {
            FileWatch::Events => watch::Mode::Events,
            FileWatch::Poll => watch::Mode::Poll(config.agents_poll_each),
            FileWatch::Off => watch::Mode::Off,
        },
        quiet: config.agents_debounce,
        longest: LONGEST_BURST.max(config.agents_debounce),
        file: None,
    };
    Watcher::new(folders, options, clock.clone())
}

/// Reloads the agents at start, whenever their files change, and repeatedly while some cannot be
/// read, until `stop`. A reload in progress is finished.
pub async fn keep_agents(registry: Registry, mut files: Watcher, stop: CancellationToken) {
    let mut reason = ReloadReason::Start;
    let heard = files.heard();
    loop {
        let mut changed = std::pin::pin!(files.changed());
        loop {
            if let Err(fault) = registry.reload_agents(reason).await {
                tracing::error!(%fault, "the agents could not be reloaded; the previous ones stay in force");
            }
            reason = ReloadReason::Watch;
            let unread = !registry.catalog().unread().is_empty();
            tokio::select! {
                () = &mut changed => break,
                () = tokio::time::sleep(UNREAD_AGAIN), if unread => heard.notify_one(),
                () = stop.cancelled() => return,
            }
        }
    }
}

/// Retry interval for files that could not be read.
pub(super) const UNREAD_AGAIN: Duration = Duration::from_secs(1);

/// Changes that keep coming are read after this long.
pub(super) const LONGEST_BURST: Duration = Duration::from_secs(2);

/// The folders that tools may not access: state and configuration.
fn denied(state: &Path) -> Vec<PathBuf> {
    std::iter::once(state.to_owned())
        .chain(config_folder())
        .collect()
}

pub(super) fn config_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))
        .map(|path| path.join("abide"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
