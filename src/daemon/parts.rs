//! Makes the parts from the settings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::Failure;
use super::folder::refused;
use crate::agent::{self, Agents};
use crate::clock::Clock;
use crate::config::Config;
use crate::contract::catalog::Catalog;
use crate::contract::runner::Runner;
use crate::gateway;
use crate::kernel::limits::SpawnLimits;
use crate::kernel::recover::RecoveryPolicy;
use crate::provider::{self, Providers};
use crate::registry::{self, LaneCaps};
use crate::runner::{self, TurnRunner};
use crate::store::{self, OpenOptions};
use crate::tool::{self, Catalogue};

/// Announces that one client-owned session may leave unacknowledged.
const MAX_UNACKED: u32 = 1000;
/// Announces that may wait to be told to one agent-owned session.
const MAX_UNTOLD: u32 = 50;

/// Who runs, and how.
pub struct Workers {
    /// Which agents there are.
    pub catalog: Arc<dyn Catalog>,
    /// Who carries out their runs.
    pub runner: Arc<dyn Runner>,
    /// Gives them other times.
    pub times: watch::Sender<runner::Options>,
    /// The agents' names.
    pub names: Vec<String>,
}

/// How the store is opened.
pub fn store_options(folder: &Path, clock: &Clock, config: &Config) -> OpenOptions {
    OpenOptions {
        folder: folder.to_owned(),
        clock: clock.clone(),
        settings: store_settings(config),
        on_fatal: Box::new(|why| end_now(&why)),
    }
}

/// What the store's commands obey.
pub fn store_settings(config: &Config) -> store::Settings {
    store::Settings {
        limits: SpawnLimits {
            max_depth: config.max_spawn_depth,
            max_children: config.max_client_children,
            max_unacked: MAX_UNACKED,
            max_untold: MAX_UNTOLD,
            max_queued_turns: config.max_queued_turns,
        },
        recovery: RecoveryPolicy {
            max_age_ms: millis(config.max_age),
            max_attempts: config.max_attempts,
        },
        audit_rows: config.audit_rows,
    }
}

/// The names by which callers may know the daemon.
pub fn names(config: &Config) -> gateway::Names {
    gateway::Names {
        hosts: config.allowed_hosts.clone(),
        origins: config.allowed_origins.clone(),
    }
}

/// How long steps take and may take.
pub fn times(config: &Config) -> runner::Options {
    runner::Options {
        pace: config.pace,
        model_timeout: config.model_timeout,
        tool_timeout: config.tool_timeout,
    }
}

/// Ends the process after a commit that cannot be trusted. Nothing may run on: what is on
/// disk is only known after a fresh start.
#[expect(
    clippy::disallowed_methods,
    reason = "destructors would write on, and nothing after a failed sync can be trusted"
)]
fn end_now(why: &str) {
    tracing::error!("{why}");
    std::process::exit(i32::from(Failure::Store(why.to_owned()).exit_code()));
}

/// The registry's settings.
pub fn registry_options(config: &Config) -> registry::Options {
    let [main, subagent, global] = config.lanes;
    registry::Options {
        lanes: LaneCaps {
            main,
            subagent,
            global,
        },
        run_timeout_ms: config.run_timeout.map(millis),
        drain_timeout: config.drain_timeout,
        compare_each: config.compare_each,
        touch_each: config.touch_each,
        max_age_ms: millis(config.max_age),
    }
}

/// Agents, providers and tools.
pub fn workers(folder: &Path, clock: &Clock, config: &Config) -> Result<Workers, Failure> {
    let workspace = workspace(config)?;
    let providers = Providers::new(&provider::Options {
        script: config.script.clone(),
    })
    .map_err(|fault| Failure::Config(fault.to_string()))?;
    let tools = Catalogue::new(tool::Options {
        denied: denied(folder),
    });
    let agents = Agents::new(
        agent::Options {
            default_agent: config.agent.clone(),
            default_model: config.model.clone(),
        },
        providers.offered(),
        &tools.schemas(),
    )
    .map_err(|fault| Failure::Config(fault.to_string()))?;
    let names = agents
        .list()
        .into_iter()
        .map(|agent| agent.id.to_string())
        .collect();
    let (times, followed) = watch::channel(times(config));
    let runner = TurnRunner::new(
        followed,
        workspace,
        Arc::new(providers),
        Arc::new(tools),
        clock.clone(),
    );
    Ok(Workers {
        catalog: Arc::new(agents),
        runner: Arc::new(runner),
        times,
        names,
    })
}

/// The folder of runs that name none: never the daemon's own working folder, which is
/// whatever happened to be open when it was started.
fn workspace(config: &Config) -> Result<PathBuf, Failure> {
    let folder = config.workspace.clone().unwrap_or_else(default_workspace);
    std::fs::create_dir_all(&folder).map_err(|fault| refused(&folder, fault))?;
    Ok(folder)
}

fn default_workspace() -> PathBuf {
    let data = std::env::var_os("XDG_DATA_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
    data.unwrap_or_else(std::env::temp_dir)
        .join("abide/workspace")
}

/// The folders that no tool may look into: state and configuration.
fn denied(state: &Path) -> Vec<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))
        .map(|path| path.join("abide"));
    std::iter::once(state.to_owned()).chain(config).collect()
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
