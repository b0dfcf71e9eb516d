//! Checks whether everything that an agent depends on is available: its program, or its model and
//! provider, its tools, skills and servers. Checked once when a definition is prepared; nothing is
//! started and no server is contacted. Called by `view`.

use std::sync::Arc;

use serde_json::Value;

use super::AgentDefinition;
use super::served::no_server;
use super::view::AvailableModels;
use crate::contract::catalog::{CatalogScope, usable_skills};
use crate::contract::servers::ServerViews;
use crate::contract::skills::SkillCatalog;

/// Returns why the models of a provider cannot answer, for example because its key is missing.
pub type ProviderCheck = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What the agents of a place can depend on.
#[derive(Clone, Copy)]
pub(super) struct Dependencies<'a> {
    /// The models, programs and providers.
    pub models: &'a AvailableModels,
    /// The schemas of all tools.
    pub tools: &'a [Value],
    /// The tool servers.
    pub servers: &'a ServerViews,
    /// The skills; `None` = skills are not checked.
    pub skills: Option<&'a dyn SkillCatalog>,
    /// The place.
    pub place: CatalogScope<'a>,
}

/// The result of checking an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentHealth {
    /// Why it cannot be used.
    pub problems: Vec<String>,
    /// Missing dependencies; the agent can still be used where its caller can see them.
    pub lacks: Vec<String>,
}

impl AgentHealth {
    /// Checks what an agent with these tools depends on. `unknown` is the message about named tools
    /// that do not exist.
    pub(super) fn of(
        definition: &AgentDefinition,
        unknown: Option<&String>,
        ground: Dependencies<'_>,
    ) -> AgentHealth {
        let models = ground.models;
        if let Some(program) = &definition.command {
            return AgentHealth {
                problems: program.problem(&models.programs).into_iter().collect(),
                lacks: Vec::new(),
            };
        }
        let named = definition.mcp_servers.iter().flatten();
        let servers = named.filter_map(|name| no_server(name, &ground.servers.servers));
        AgentHealth {
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

/// Messages about named skills that do not exist.
fn missing_skills(definition: &AgentDefinition, ground: Dependencies<'_>) -> Vec<String> {
    let names = usable_skills(&definition.tools, definition.skills.as_deref()).unwrap_or_default();
    let Some(skills) = ground.skills.filter(|_| !names.is_empty()) else {
        return Vec::new();
    };
    let here = skills.here(ground.place, false);
    let set = definition.env.iter().filter(|(_, value)| value.is_some());
    let env: Vec<String> = set.map(|(name, _)| name.clone()).collect();
    let picked = skills.pick(&here, Some(&names), &env);
    let unknown = picked.unknown.iter();
    unknown
        .map(|name| format!("skill {name} is missing"))
        .collect()
}
