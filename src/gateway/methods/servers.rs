//! Handlers of `mcp.list` and `tools.list`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use crate::contract::servers::ServerView;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::wire::servers as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(servers);
    table.method(tools);
}

async fn servers(context: Arc<CallContext>, _: wire::ListServers) -> Result<wire::Servers, Fault> {
    let views = Arc::clone(&context.servers.borrow());
    Ok(wire::Servers {
        servers: views.servers.iter().map(server).collect(),
    })
}

fn server(view: &ServerView) -> wire::Server {
    let tools = view.tools.iter().map(|tool| wire::ServerTool {
        name: tool.name.clone(),
        tool: tool.served.tool.clone(),
        effect: tool.served.effect.as_str().to_owned(),
    });
    let skipped = view.skipped.iter().map(|skipped| wire::Skipped {
        name: skipped.tool.clone(),
        reason: skipped.reason.clone(),
    });
    wire::Server {
        name: view.name.clone(),
        transport: view.transport.to_owned(),
        scope: view.scope.to_owned(),
        state: view.state.as_str().to_owned(),
        since: view.since,
        pid: view.pid,
        protocol: view.protocol.clone(),
        tools: tools.collect(),
        skipped: skipped.collect(),
        last_error: view.last_error.clone(),
        starts: view.starts,
        noise: view.stray_line_count,
        noise_lines: view.stray_lines.clone(),
    }
}

async fn tools(context: Arc<CallContext>, params: wire::ListTools) -> Result<wire::Tools, Fault> {
    let registry = &context.registry;
    let (mut agent, mut folder) = (params.agent, params.cwd);
    let mut served = Vec::new();
    if let Some(key) = &params.session_key {
        let session = registry.session(&context.principal, key).await?.session;
        agent = agent.or_else(|| Some(session.agent.to_string()));
        folder = folder.or(session.cwd);
        served = registry.served_in(session.id).await?;
    }
    let Some(agent) = agent else {
        return Err(Fault::params("agent", "give agent or sessionKey"));
    };
    let set = registry
        .tools(&context.principal, folder, agent, served)
        .await?;
    Ok(wire::Tools {
        agent: set.agent,
        tools: serde_json::from_str(&set.tools.body).map_err(Fault::internal)?,
        hash: set.tools.hash,
        skipped: set
            .left_out
            .into_iter()
            .map(|one| wire::Skipped {
                name: one.name,
                reason: one.reason,
            })
            .collect(),
    })
}
