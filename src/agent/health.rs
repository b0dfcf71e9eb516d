//! Whether an agent has all that it counts on: its program, or its model and whoever answers for
//! that; its tools, its skills, its servers. Looked at once, where a definition is made ready;
//! nothing is started for it and nobody is asked. Called by `view`.

use std::sync::Arc;

use serde_json::Value;

use super::AgentDefinition;
use super::served::no_server;
use super::view::Models;
use crate::contract::catalog::usable_skills;
use crate::contract::servers::ServerViews;
use crate::contract::skills::Skills;

/// Says why nobody answers for the models of a provider: its key is missing, for one.
pub type ProviderCheck = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What the agents of a place can count on.
#[derive(Clone, Copy)]
pub(super) struct Ground<'a> {
    /// The models, the programs and who answers for the models.
    pub models: &'a Models,
    /// The schemas of all tools.
    pub tools: &'a [Value],
    /// The servers of further tools.
    pub servers: &'a ServerViews,
    /// The skills; `None`: nobody knows them.
    pub skills: Option<&'a dyn Skills>,
    /// The folder of the place; the default one if unset.
    pub cwd: Option<&'a str>,
}

/// What was found of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// Why it cannot be used.
    pub problems: Vec<String>,
    /// What it counts on and would not have. It can be used all the same, by who can see that.
    pub lacks: Vec<String>,
}

impl Health {
    /// Looks at what an agent with these tools counts on. `unknown` says of tools that it names
    /// and that are not there.
    pub(super) fn of(
        definition: &AgentDefinition,
        unknown: Option<&String>,
        ground: Ground<'_>,
    ) -> Health {
        let models = ground.models;
        if let Some(program) = &definition.command {
            return Health {
                problems: program.problem(&models.programs).into_iter().collect(),
                lacks: Vec::new(),
            };
        }
        let named = definition.mcp_servers.iter().flatten();
        let servers = named.filter_map(|name| no_server(name, &ground.servers.servers));
        Health {
            problems: models.problem(definition).into_iter().collect(),
            lacks: unknown
                .cloned()
                .into_iter()
                .chain(missing_skills(definition, ground))
                .chain(servers)
                .collect(),
        }
    }
}

/// What is to be said of skills that it names and that are not there.
fn missing_skills(definition: &AgentDefinition, ground: Ground<'_>) -> Vec<String> {
    let names = usable_skills(&definition.tools, definition.skills.as_deref()).unwrap_or_default();
    let Some(skills) = ground.skills.filter(|_| !names.is_empty()) else {
        return Vec::new();
    };
    let here = skills.here(ground.cwd, false);
    let set = definition.env.iter().filter(|(_, value)| value.is_some());
    let env: Vec<String> = set.map(|(name, _)| name.clone()).collect();
    let picked = skills.pick(&here, Some(&names), &env);
    let unknown = picked.unknown.iter();
    unknown
        .map(|name| format!("skill {name} is not to be had"))
        .collect()
}
