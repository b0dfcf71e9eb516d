//! Checks agent files as the daemon would read them, without a daemon. The command line calls it.

use std::path::Path;
use std::sync::Arc;

use super::{Failure, parts};
use crate::agent::{self, Agents, Broken, Checked};
use crate::clock::Clock;
use crate::config::Config;
use crate::provider::{self, Providers};
use crate::tool::{self, Catalogue};

/// Reads agent files as if they stood among this user's agents.
pub struct AgentCheck(Agents);

impl AgentCheck {
    /// Models and tools are those that the settings bring.
    pub fn new(config: &Config) -> Result<Self, Failure> {
        let failure = |fault: &dyn std::fmt::Display| Failure::Config(fault.to_string());
        let providers = Providers::new(provider::Options {
            script: config.script.clone(),
            tables: config.named.providers.clone(),
            clock: Clock::system(),
            on_change: Arc::new(|_, _| {}),
        })
        .map_err(|fault| failure(&fault))?;
        let clock = Clock::system();
        // Nothing is started; its name and where programs are looked for count.
        let shell = parts::shell(Path::new("/"), None, &clock, config, None);
        let environment = parts::environment(config);
        let programs = parts::programs(&environment);
        let processes = shell.processes.clone();
        let servers = parts::servers(processes, environment, &clock, config, Path::new("/"), None);
        let tools = Catalogue::new(tool::Options {
            shell: Some(shell),
            ..tool::Options::default()
        });
        let models = parts::models(config, &Arc::new(providers), programs);
        let agents = Agents::new(agent::Options {
            // Always there; which one the settings name is not asked here.
            default_agent: "build".to_owned(),
            models: tokio::sync::watch::channel(models).1,
            tools: tools.schemas(),
            servers: servers.seen(),
            skills: None,
            config: None,
            personal: None,
            workspace: None,
            orgs: Vec::new(),
            rows: None,
            clock,
        })
        .map_err(|fault| failure(&fault))?;
        Ok(AgentCheck(agents))
    }

    /// The agent in `file` and what is to be said of it, or the line at fault and the reason.
    pub fn check(&self, file: &Path) -> Result<(String, Vec<String>), (Option<usize>, String)> {
        match self.0.check_file(file) {
            Ok(Checked { name, warnings }) => Ok((name, warnings)),
            Err(Broken { line, reason }) => Err((line, reason)),
        }
    }
}
