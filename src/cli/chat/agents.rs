//! `/agent` in `abide chat`: lists the agents and finds the session with another one.

use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, line};
use crate::kernel::ids::{AgentId, SessionKey};
use crate::wire::agents::{Agent, Audience, ListAgents};
use crate::wire::input::{PAGE_LIMIT, PageSize};

/// Active agents that users can talk to; pure subagents are excluded.
pub(super) async fn of_people(
    link: &DaemonLink,
    cwd: Option<String>,
) -> Result<Vec<Agent>, Failure> {
    let request = ListAgents {
        audience: Some(Audience::People),
        cwd,
        limit: PageSize(PAGE_LIMIT),
        cursor: None,
    };
    let mut agents = link.ask(&request).await?.agents;
    agents.retain(|agent| agent.active && agent.mode != "subagent");
    Ok(agents)
}

/// Finds an agent by name; without a name it lists the agents and returns `None`.
pub(super) async fn choose(
    link: &DaemonLink,
    current: &AgentId,
    name: &str,
    cwd: Option<String>,
) -> Result<Option<Agent>, Failure> {
    let agents = of_people(link, cwd).await?;
    if name.is_empty() {
        list(&agents, current);
        return Ok(None);
    }
    let names: Vec<String> = agents.iter().map(|agent| agent.name.clone()).collect();
    match agents.into_iter().find(|agent| agent.name == name) {
        Some(chosen) => Ok(Some(chosen)),
        None => Err(Failure::new(
            exit::NOT_FOUND,
            "not_found",
            format!("there is no agent {} that you can talk to", line(name, 40)),
        )
        .hint(format!("available: {}", names.join(", ")))),
    }
}

fn list(agents: &[Agent], current: &AgentId) {
    let mut table = TextTable::new(&["", "AGENT", "WHAT FOR"]);
    for agent in agents {
        let mark = if agent.name == current.as_str() {
            "●"
        } else {
            " "
        };
        let what = agent.title.as_ref().unwrap_or(&agent.description);
        table.row(vec![mark.to_owned(), agent.name.clone(), what.clone()]);
    }
    print::note(&table.fit(print::notes_width()).lines().join("\n"));
    print::note("talk to one: /agent NAME");
}

/// Key of the session with another agent: the same name under that agent. The two sessions share no
/// messages.
pub(super) fn session_of(key: &SessionKey, current: &AgentId, chosen: &str) -> String {
    let own = format!("agent:{current}:");
    let name = key.as_str().strip_prefix(&own);
    let name = name.filter(|name| !name.starts_with("subagent:"));
    format!("agent:{chosen}:{}", name.unwrap_or("chat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_has_its_own_conversation_of_the_same_name() {
        let build = AgentId::parse("build").unwrap();
        let of = |key: &str| session_of(&SessionKey::parse(key).unwrap(), &build, "plan");
        assert_eq!(of("agent:build:tour"), "agent:plan:tour");
        assert_eq!(of("client:x"), "agent:plan:chat");
        assert_eq!(of("agent:build:subagent:0a"), "agent:plan:chat");
    }
}
