//! Validates agent files as the daemon would read them, without a running daemon. Called by the
//! command line.

use std::path::Path;
use std::sync::Arc;

use crate::agent::{self, AgentCatalog, CheckedAgent, LoadError};
use crate::clock::Clock;
use crate::config::Config;
use crate::daemon::DaemonFailure;
use crate::tool::{self, Catalogue};

/// Validates agent files with the same rules as this user's own agents.
pub struct AgentCheck(AgentCatalog);

impl AgentCheck {
    /// Uses the models and tools of these settings.
    pub fn new(config: &Config) -> Result<Self, DaemonFailure> {
        let clock = Clock::system();
        let providers = super::providers(config, &clock, Arc::new(|_, _| {}))?;
        // Nothing is started: only the shell's tool name and its program lookup are used.
        let options = super::process_options(Path::new("/"), None, config, None);
        let shell = super::shell(options, &clock, config);
        let environment = super::environment(config);
        let programs = super::program_check(&environment);
        let processes = shell.processes.clone();
        let servers = super::servers(processes, environment, &clock, config, Path::new("/"), None);
        let tools = Catalogue::new(tool::ToolOptions {
            shell: Some(shell),
            ..tool::ToolOptions::default()
        });
        let models = super::models(config, &Arc::new(providers), programs);
        let agents = AgentCatalog::new(agent::AgentCatalogOptions {
            // Always present; the configured default agent is not needed here.
            default_agent: "build".to_owned(),
            models: tokio::sync::watch::channel(models).1,
            tools: tools.schemas(),
            servers: servers.seen(),
            nodes: Default::default(),
            skills: None,
            config: None,
            personal: None,
            workspace: None,
            orgs: Vec::new(),
            rows: None,
            clock,
        })
        .map_err(|fault| DaemonFailure::Config(fault.to_string()))?;
        Ok(AgentCheck(agents))
    }

    /// The name of the agent in `file` with warnings, or the faulty line and the reason.
    pub fn check(&self, file: &Path) -> Result<(String, Vec<String>), (Option<usize>, String)> {
        match self.0.check_file(file) {
            Ok(CheckedAgent { name, warnings }) => Ok((name, warnings)),
            Err(LoadError { line, reason }) => Err((line, reason)),
        }
    }
}
