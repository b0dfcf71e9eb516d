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
        if let Some(url) = &self.table.url {
            secrets.push(("url", Secret::new(url)));
            if let Ok(url) = reqwest::Url::parse(url) {
                // As errors of the HTTP client have it.
                secrets.push(("url", Secret::new(url)));
            }
        }
        secrets
    }
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
