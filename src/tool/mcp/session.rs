//! The servers that clients give to sessions. Each run that calls one gets a process or connection
//! of its own, which ends with the run. Its environment is the shared one with the variables of its
//! client: it has none of the run's, and the run has none of its. Called by the registry and the
//! catalogue.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Map, Value};

use super::server::McpServer;
use super::servers::McpServers;
use crate::config::{ServerScope, ServerTable};
use crate::contract::BoxFuture;
use crate::contract::journal::RunEnvironment;
use crate::contract::servers::{ServedTool, SessionServer, SessionServers};
use crate::kernel::ids::RunId;
use crate::kernel::policy::overlay::looks_secret;
use crate::kernel::secret::{GivenValue, Secret};
use crate::tool::ToolOutput;

impl SessionServers for McpServers {
    fn configured(&self) -> Vec<String> {
        self.names()
    }

    fn tools(&self, server: SessionServer) -> BoxFuture<'static, Result<Vec<ServedTool>, String>> {
        let servers = self.clone();
        Box::pin(async move {
            if !servers.open.load(Ordering::Acquire) {
                return Err("the daemon is starting or stopping".to_owned());
            }
            let server = servers.of_session(&server);
            let id = servers.shared.options.clock.new_id();
            servers.lock_listed().insert(id, Arc::clone(&server));
            let listed = server.list().await;
            server.end().await;
            servers.lock_listed().remove(&id);
            let mut tools = listed?;
            for tool in &mut tools {
                tool.served.of_session = true;
            }
            Ok(tools)
        })
    }
}

impl McpServers {
    /// Calls a tool of a server of the run's session, over a connection of the run's own, which is
    /// opened first if there is none. Every failure is a result that says what happened.
    pub async fn call_of_session(
        &self,
        run: RunId,
        server: SessionServer,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> ToolOutput {
        let declared = self.of_session(&server);
        let environment = RunEnvironment {
            variables: self.shared.options.environment.clone(),
            ..RunEnvironment::default()
        };
        let own = self.run_server(run, &environment, &declared).await;
        match own.call(tool, arguments).await {
            Ok(output) => output,
            Err(why) => {
                let name = &server.name;
                ToolOutput::error(format!("{tool} of the session's MCP server {name}: {why}"))
            }
        }
    }

    fn of_session(&self, server: &SessionServer) -> Arc<McpServer> {
        McpServer::of_session(&server.name, &table(server), &self.shared)
    }
}

impl McpServer {
    /// Masks what only the client of a session knows: each of its values may be a secret.
    pub(super) fn session_secrets(&self) -> Vec<(&str, Secret)> {
        if !self.is_of_session {
            return Vec::new();
        }
        let mut secrets: Vec<(&str, Secret)> = Vec::new();
        for (name, given) in &self.table.env {
            if let GivenValue::Text(value) = given {
                secrets.push((name, value.clone()));
            }
        }
        let arguments = secret_arguments(&self.table.args);
        secrets.extend(arguments.map(|value| ("argument", Secret::new(value))));
        if let Some(url) = &self.table.url {
            secrets.push(("url", Secret::new(url)));
            if let Ok(url) = reqwest::Url::parse(url) {
                let values = url
                    .query_pairs()
                    .map(|(name, value)| match value.is_empty() {
                        true => name,
                        false => value,
                    });
                secrets.extend(values.map(|value| ("url", Secret::new(value))));
                // As errors of the HTTP client have it.
                secrets.push(("url", Secret::new(url)));
            }
        }
        secrets
    }
}

/// The values of options with the name of a secret: `--api-key X` and `--token=X`. Other arguments, such
/// as a folder, belong into results.
fn secret_arguments(arguments: &[String]) -> impl Iterator<Item = &str> {
    let names_secret = |option: &str| {
        let name = option.trim_start_matches('-').replace('-', "_");
        option.starts_with('-') && looks_secret(&name)
    };
    let before = std::iter::once("").chain(arguments.iter().map(String::as_str));
    before
        .zip(arguments)
        .filter_map(move |(before, argument)| match argument.split_once('=') {
            Some((name, value)) if names_secret(name) => Some(value),
            _ if names_secret(before) => Some(argument),
            _ => None,
        })
}

fn table(server: &SessionServer) -> ServerTable {
    let text = |secret: &Secret| secret.expose().to_owned();
    let env = server.env.iter();
    let env = env.map(|(name, value)| (name.clone(), GivenValue::Text(value.clone())));
    let folder = server.folder.as_deref().map(Path::new);
    ServerTable {
        command: server.command.as_ref().map(text),
        args: server.args.iter().map(text).collect(),
        env: env.collect::<BTreeMap<_, _>>(),
        scope: ServerScope::Run,
        cwd: folder.map(PathBuf::from),
        url: server.url.as_ref().map(text),
        headers: server.headers.clone(),
        ..ServerTable::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_the_name_of_a_secret_are_masked_and_folders_are_not() {
        let arguments = [
            "--root",
            "/work/project",
            "--api-key",
            "one",
            "--access-token=two=2",
            "-v",
        ];
        let arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        let secrets: Vec<&str> = secret_arguments(&arguments).collect();
        assert_eq!(secrets, ["one", "two=2"]);
    }
}
