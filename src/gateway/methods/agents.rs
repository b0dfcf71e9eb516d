//! Handlers of `agents.*`.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::convert;
use super::method::MethodsBuilder;
use crate::contract::catalog::{AgentMode, AgentSummary, Definition};
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::registry::ReloadReason;
use crate::wire::agents as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(get);
    table.method(create);
    table.method(update);
    table.method(delete);
    table.method(reload);
}

async fn list(context: Arc<CallContext>, params: wire::ListAgents) -> Result<wire::Agents, Fault> {
    let listing = context
        .registry
        .agents(&context.principal, params.cwd)
        .await?;
    let mut agents = listing.agents;
    match params.audience {
        None => {}
        Some(wire::Audience::People) => agents.retain(|agent| !agent.hidden),
        Some(wire::Audience::Task) => {
            agents.retain(|agent| agent.active && agent.mode != AgentMode::Primary);
        }
    }
    // The list is sorted by name, so the last name serves as the cursor.
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
        rejected: listing.rejected,
        off: listing.off,
    })
}

async fn get(context: Arc<CallContext>, params: wire::GetAgent) -> Result<wire::Agent, Fault> {
    let agent = context
        .registry
        .agent(&context.principal, params.cwd, params.agent)
        .await?;
    Ok(whole(agent))
}

async fn create(
    context: Arc<CallContext>,
    params: wire::CreateAgent,
) -> Result<wire::Agent, Fault> {
    let definition = definition(params.name, params.definition, params.text, params.format)?;
    let registry = &context.registry;
    let agent = registry
        .create_agent(&context.principal, definition)
        .await?;
    Ok(whole(agent))
}

async fn update(
    context: Arc<CallContext>,
    params: wire::UpdateAgent,
) -> Result<wire::Agent, Fault> {
    let definition = definition(None, params.definition, params.text, params.format)?;
    let agent = context
        .registry
        .update_agent(
            &context.principal,
            params.agent,
            definition,
            params.if_revision,
        )
        .await?;
    Ok(whole(agent))
}

async fn delete(
    context: Arc<CallContext>,
    params: wire::DeleteAgent,
) -> Result<wire::Deleted, Fault> {
    let deleted = context
        .registry
        .delete_agent(&context.principal, params.agent, params.if_revision)
        .await?;
    Ok(wire::Deleted { deleted })
}

async fn reload(context: Arc<CallContext>, _: wire::ReloadAgents) -> Result<wire::Agents, Fault> {
    context.registry.reload_agents(ReloadReason::Manual).await?;
    list(context, wire::ListAgents::default()).await
}

/// The agent including its system prompt.
fn whole(mut agent: AgentSummary) -> wire::Agent {
    let prompt = std::mem::take(&mut agent.system_prompt);
    wire::Agent {
        system_prompt: Some(prompt),
        ..convert::agent(agent)
    }
}

fn definition(
    name: Option<String>,
    fields: Option<Map<String, Value>>,
    text: Option<String>,
    format: Option<wire::Format>,
) -> Result<Definition, Fault> {
    let (format, text) = match (fields, text) {
        (Some(fields), None) if format.is_none() => {
            (wire::Format::Json, Value::Object(fields).to_string())
        }
        (None, Some(text)) => (format.unwrap_or(wire::Format::Markdown), text),
        _ => {
            return Err(Fault::params(
                "definition",
                "give either definition (an object) or text, and format only with text",
            ));
        }
    };
    Ok(Definition {
        name,
        format: format.as_str().to_owned(),
        text,
    })
}
