//! `agents.*`.

use std::sync::Arc;

use jsonrpsee::core::RegisterMethodError;

use super::method::Table;
use super::{Context, convert};
use crate::contract::catalog::{AgentMode, Place};
use crate::kernel::fault::Fault;
use crate::wire::agents as wire;

pub(super) fn register(table: &mut Table) -> Result<(), RegisterMethodError> {
    table.method("agents.list", list)?;
    table.method("agents.get", get)
}

async fn list(context: Arc<Context>, params: wire::ListAgents) -> Result<wire::Agents, Fault> {
    let place = Place {
        org: &context.principal.org,
        cwd: None,
    };
    let mut agents = context.registry.catalog().list(place).agents;
    match params.audience {
        None => {}
        Some(wire::Audience::People) => agents.retain(|agent| !agent.hidden),
        Some(wire::Audience::Task) => agents.retain(|agent| agent.mode != AgentMode::Primary),
    }
    Ok(wire::Agents {
        agents: agents.into_iter().map(convert::agent).collect(),
    })
}

async fn get(context: Arc<Context>, params: wire::GetAgent) -> Result<wire::Agent, Fault> {
    let place = Place {
        org: &context.principal.org,
        cwd: None,
    };
    let agent = context.registry.catalog().get(place, &params.agent)?;
    Ok(convert::agent(agent))
}
