//! `agents.*`.

use std::sync::Arc;

use jsonrpsee::core::RegisterMethodError;

use super::method::Table;
use super::{Context, convert};
use crate::contract::catalog::AgentMode;
use crate::kernel::fault::Fault;
use crate::wire::agents as wire;

pub(super) fn register(table: &mut Table) -> Result<(), RegisterMethodError> {
    table.method("agents.list", list)?;
    table.method("agents.get", get)
}

async fn list(context: Arc<Context>, params: wire::ListAgents) -> Result<wire::Agents, Fault> {
    let mut agents = context.registry.catalog().list();
    match params.audience {
        None => {}
        Some(wire::Audience::People) => agents.retain(|agent| !agent.hidden),
        Some(wire::Audience::Task) => agents.retain(|agent| agent.mode != AgentMode::Primary),
    }
    // A name is a cursor: the list is in the order of names.
    if let Some(last) = &params.cursor {
        agents.retain(|agent| agent.id.as_str() > last.as_str());
    }
    let limit = params.limit.0 as usize;
    let more = agents.len() > limit;
    agents.truncate(limit);
    let last = agents.last().filter(|_| more);
    Ok(wire::Agents {
        next_cursor: last.map(|agent| agent.id.to_string()),
        agents: agents.into_iter().map(convert::agent).collect(),
    })
}

async fn get(context: Arc<Context>, params: wire::GetAgent) -> Result<wire::Agent, Fault> {
    let agent = context.registry.catalog().get(&params.agent)?;
    Ok(convert::agent(agent))
}
