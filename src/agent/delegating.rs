//! The schemas of the tools with which an agent delegates. The names of the available agents are
//! filled in when the agent is prepared, and are pinned with it.

use serde_json::{Value, json};

use super::AgentDefinition;
use super::names::nearest;
use crate::contract::allow::AGENT_FORMAT;
use crate::contract::catalog::{AgentMode, AgentSummary};
use crate::contract::linked::{
    DELEGATE, HELPER_FORMAT, Link, LinkSession, MAX_CANDIDATES, PlanCandidate, TASK,
};
use crate::contract::reach::{AGENTS_LIST, LISTED};
use crate::kernel::ids::AgentId;

/// Warnings for names in `allow_agents` and `linked_agents` that match no agent.
pub(super) fn unknown_agents(definition: &AgentDefinition, agents: &[AgentSummary]) -> Vec<String> {
    let names: Vec<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
    let allowed = definition.allow_agents.iter().flatten();
    let allowed = allowed.map(|name| ("allow_agents", name.as_str()));
    // A link that is a tool reports itself why it is left out.
    let plain = definition.linked_agents.iter();
    let plain = plain.filter(|link| link.tool().is_none());
    let linked = plain.map(|link| ("linked_agents", link.agent.as_str()));
    let unknown = allowed
        .chain(linked)
        .filter(|(_, name)| *name != "*" && !names.contains(name));
    unknown
        .map(|(field, name)| match nearest(name, &names) {
            Some(near) => format!("{field}: there is no agent {name}; did you mean {near}?"),
            None => format!("{field}: there is no agent {name}"),
        })
        .collect()
}

/// Follows the list of agents in the description of `task`.
const TASK_NOTES: &str = "\
Notes:
1. Each task runs in its own session and does not see this conversation. Pass session_id \
to continue the session of an earlier task; without it a new session starts.
2. Write a detailed prompt: the goal, where to look, and what the answer must contain.
3. Only you see its answer. Summarize the outcome for the user.
4. Call independent tasks at the same time.
5. Do not expect the agent to delegate further.";

/// Fills the names in `allowed` into the arguments that name an agent; `None` for `task` if no
/// agent could do it.
pub(super) fn described(
    schema: &Value,
    allowed: &[AgentId],
    agents: &[AgentSummary],
) -> Option<Value> {
    let mut schema = schema.clone();
    name_agents(&mut schema, AGENT_FORMAT, allowed);
    if schema["name"] == AGENTS_LIST {
        schema[LISTED] = json!(allowed);
    }
    if schema["name"] != TASK {
        return Some(schema);
    }
    let helpers: Vec<&AgentSummary> = agents
        .iter()
        .filter(|agent| allowed.contains(&agent.id) && agent.mode != AgentMode::Primary)
        .collect();
    if helpers.is_empty() {
        return None;
    }
    let names: Vec<AgentId> = helpers.iter().map(|agent| agent.id.clone()).collect();
    name_agents(&mut schema, HELPER_FORMAT, &names);
    let lines: Vec<String> = helpers
        .iter()
        .map(|agent| format!("- {}: {}", agent.id, agent.description))
        .collect();
    let about = schema["description"].as_str().unwrap_or_default();
    schema["description"] = format!(
        "{about}\n\nThe agents:\n{}\n\n{TASK_NOTES}",
        lines.join("\n")
    )
    .into();
    Some(schema)
}

/// Returns the schema of the tool with which a planner delegates, with its candidates, newest
/// first, and their warnings. Without candidates there is no such tool.
pub(super) fn pool(
    own: &AgentId,
    tools: &[Value],
    allowed: &[AgentId],
    agents: &[AgentSummary],
) -> (Option<Value>, Vec<String>) {
    let others = agents
        .iter()
        .filter(|agent| agent.id != *own && agent.active && allowed.contains(&agent.id));
    let mut found: Vec<&AgentSummary> = others.collect();
    found.sort_by_key(|agent| std::cmp::Reverse(agent.made_at));
    found.truncate(MAX_CANDIDATES);
    let pattern = tools.iter().find(|schema| schema["name"] == DELEGATE);
    let (Some(pattern), false) = (pattern, found.is_empty()) else {
        let note = "strategy plan: there is no agent to delegate to".to_owned();
        return (None, vec![note]);
    };
    let mut schema = pattern.clone();
    let names: Vec<AgentId> = found.iter().map(|agent| agent.id.clone()).collect();
    name_agents(&mut schema, AGENT_FORMAT, &names);
    let candidates = found.iter().map(|agent| PlanCandidate {
        id: agent.id.clone(),
        name: agent.title.clone().unwrap_or_else(|| agent.id.to_string()),
        description: agent.description.clone(),
    });
    schema["candidates"] = json!(candidates.collect::<Vec<_>>());
    // A candidate with a problem stays: it may be repaired by the time it is chosen.
    let warnings = found.iter().filter_map(|agent| {
        let problem = agent.problems.first()?;
        Some(format!("candidate {}: {problem}", agent.id))
    });
    (Some(schema), warnings.collect())
}

/// Replaces this format by the names of these agents in every argument. Without names the argument
/// stays open: an enum must not be empty.
fn name_agents(schema: &mut Value, format: &str, allowed: &[AgentId]) {
    let properties = schema["parameters"]["properties"].as_object_mut();
    for argument in properties
        .into_iter()
        .flatten()
        .map(|(_, argument)| argument)
    {
        if argument["format"] == format
            && let Some(argument) = argument.as_object_mut()
        {
            argument.shift_remove("format");
            if !allowed.is_empty() {
                let names = allowed.iter().map(AgentId::as_str).collect();
                argument.insert("enum".to_owned(), names);
            }
        }
    }
}

/// Creates the schema of the tool that represents a linked agent, from the template in `tools`. The
/// error says why a linked agent cannot be a tool. An agent with its own session runs unseen, so it
/// must also have everything that it depends on.
pub(super) fn linked(
    link: &Link,
    tools: &[Value],
    allowed: &[AgentId],
    agents: &[AgentSummary],
) -> Result<Value, String> {
    let name = link.tool().unwrap_or_default();
    let agent = agents.iter().find(|agent| agent.id == link.agent);
    let Some(agent) = agent else {
        return Err(format!("there is no agent {}", link.agent));
    };
    let lacks = match link.session {
        Some(LinkSession::Own) => agent.missing.as_slice(),
        _ => &[],
    };
    let found = [agent.problems.as_slice(), lacks].concat();
    if !found.is_empty() {
        return Err(found.join("; "));
    }
    if !allowed.contains(&link.agent) {
        return Err(format!("allow_agents does not name {}", link.agent));
    }
    let pattern = tools
        .iter()
        .find(|schema| Some(schema["name"].as_str().unwrap_or_default()) == link.prefix());
    let Some(pattern) = pattern else {
        return Err("this build has no delegation tool of this kind".to_owned());
    };
    let mut schema = pattern.clone();
    schema["name"] = name.into();
    let does = match link.session {
        Some(LinkSession::Shared) => {
            "Calls agent {} into this conversation, which it can see, and returns its answer"
        }
        _ => "Delegates work to agent {} and returns its result",
    };
    let does = does.replace("{}", agent.id.as_str());
    schema["description"] = format!("{does}. Purpose: {}", agent.description).into();
    Ok(schema)
}
