//! The catalog: which agents there are and what a run pins of one. Made once at the start of
//! the daemon; the registry asks it on every spawn.

use std::collections::BTreeMap;

use serde_json::Value;

use super::AgentDefinition;
use super::presets::presets;
use crate::contract::catalog::{AgentSummary, Catalog, Pinned, Resolved};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::AgentId;

/// What the catalog must know.
#[derive(Clone, Debug)]
pub struct Options {
    /// The agent used where none is named.
    pub default_agent: String,
    /// The model of agents that name none, `provider/name`.
    pub default_model: String,
}

/// Which agents there are.
pub struct Agents {
    agents: BTreeMap<AgentId, Entry>,
    default_agent: AgentId,
    default_model: String,
    offered: Vec<String>,
}

/// One agent with what a run pins of it, made ready so that a spawn only copies it.
struct Entry {
    definition: AgentDefinition,
    pinned_definition: Pinned,
    pinned_tools: Pinned,
}

impl Agents {
    /// The built-in agents. `offered` are the models there are (`provider/name`, or
    /// `provider/*` for any name), `tools` the schemas of all tools (`{name, description,
    /// parameters}`). The fault says which default is not there.
    pub fn new(options: Options, offered: Vec<String>, tools: &[Value]) -> Result<Self, Fault> {
        let mut agents = BTreeMap::new();
        for definition in presets() {
            let id = AgentId::parse(&definition.name).map_err(Fault::internal)?;
            agents.insert(id, Entry::new(definition, tools)?);
        }
        let default_agent = AgentId::parse(&options.default_agent)
            .map_err(|error| Fault::params("defaults.agent", error))?;
        let catalog = Agents {
            agents,
            default_agent,
            default_model: options.default_model,
            offered,
        };
        catalog.entry(catalog.default_agent.as_str())?;
        catalog.check_model("defaults.model", &catalog.default_model)?;
        Ok(catalog)
    }

    fn entry(&self, name: &str) -> Result<(&AgentId, &Entry), Fault> {
        let id = AgentId::parse(name).ok();
        id.and_then(|id| self.agents.get_key_value(&id))
            .ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Fault {
        let names: Vec<&str> = self.agents.keys().map(AgentId::as_str).collect();
        let list = names.join(", ");
        let shown = crate::kernel::text::preview(name, 64);
        let fault = Fault::new(
            Kind::NotFound,
            format!("no agent {shown:?}; the agents are {list}. Nothing was created"),
        )
        .with("id", shown)
        .with("allowed", names.clone());
        match nearest(name, &names) {
            Some(near) => fault.hint(format!("did you mean {near}?")),
            None => fault.hint("name one of these agents"),
        }
    }

    fn check_model(&self, path: &str, model: &str) -> Result<(), Fault> {
        let is_offered = self
            .offered
            .iter()
            .any(|offer| match offer.strip_suffix('*') {
                Some(start) => model.len() > start.len() && model.starts_with(start),
                None => offer == model,
            });
        if is_offered {
            return Ok(());
        }
        let list = self.offered.join(", ");
        let shown = crate::kernel::text::preview(model, 128);
        Err(
            Fault::params(path, format!("no model {shown:?}; offered are {list}"))
                .hint("models are named provider/name; name one that is offered")
                .with("offered", self.offered.clone()),
        )
    }

    fn model<'a>(&'a self, definition: &'a AgentDefinition) -> &'a str {
        definition.model.as_deref().unwrap_or(&self.default_model)
    }

    fn summary(&self, id: &AgentId, entry: &Entry) -> AgentSummary {
        let definition = &entry.definition;
        AgentSummary {
            id: id.clone(),
            description: definition.description.clone(),
            mode: definition.mode,
            model: self.model(definition).to_owned(),
            tools: definition.tools.clone(),
            hidden: definition.hidden,
            source: "preset".to_owned(),
            max_loops: definition.max_loops,
        }
    }
}

impl Entry {
    fn new(definition: AgentDefinition, tools: &[Value]) -> Result<Self, Fault> {
        let mut own = Vec::with_capacity(definition.tools.len());
        for name in &definition.tools {
            let schema = tools.iter().find(|schema| schema["name"] == name.as_str());
            own.push(schema.ok_or_else(|| {
                Fault::internal(format!("agent {}: no tool {name}", definition.name))
            })?);
        }
        Ok(Entry {
            pinned_tools: pin(serde_json::to_string(&own))?,
            pinned_definition: pin(serde_json::to_string(&definition))?,
            definition,
        })
    }
}

fn pin(body: Result<String, serde_json::Error>) -> Result<Pinned, Fault> {
    let body = body.map_err(Fault::internal)?;
    Ok(Pinned {
        hash: blake3::hash(body.as_bytes()).to_hex().to_string(),
        body: body.into(),
    })
}

impl Catalog for Agents {
    fn resolve(&self, name: &str, model: Option<&str>) -> Result<Resolved, Fault> {
        let (id, entry) = self.entry(name)?;
        let model = model.unwrap_or_else(|| self.model(&entry.definition));
        self.check_model("model", model)?;
        Ok(Resolved {
            id: id.clone(),
            mode: entry.definition.mode,
            model: model.to_owned(),
            definition: entry.pinned_definition.clone(),
            tools: entry.pinned_tools.clone(),
            warnings: Vec::new(),
        })
    }

    fn allowed(&self, name: &str) -> Vec<AgentId> {
        let Ok((_, entry)) = self.entry(name) else {
            return Vec::new();
        };
        let listed = |id: &&AgentId| {
            let names = entry.definition.allow_agents.iter().flatten();
            names.clone().any(|name| name == id.as_str())
        };
        self.agents.keys().filter(listed).cloned().collect()
    }

    fn default_agent(&self) -> AgentId {
        self.default_agent.clone()
    }

    fn list(&self) -> Vec<AgentSummary> {
        self.agents
            .iter()
            .map(|(id, entry)| self.summary(id, entry))
            .collect()
    }

    fn get(&self, name: &str) -> Result<AgentSummary, Fault> {
        let (id, entry) = self.entry(name)?;
        Ok(self.summary(id, entry))
    }
}

/// The name that is written almost like `name`, if one is.
fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let wanted: String = name.to_lowercase().chars().take(64).collect();
    names
        .iter()
        .map(|known| (strsim::levenshtein(&wanted, known), *known))
        .filter(|(distance, known)| *distance <= known.len() / 3 + 1)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::catalog::AgentMode;
    use serde_json::json;

    const TOOLS: [&str; 12] = [
        "grep",
        "glob",
        "list",
        "read",
        "agents_list",
        "sessions_spawn",
        "sessions_wait",
        "sessions_send",
        "sessions_list",
        "sessions_history",
        "session_status",
        "ask",
    ];

    fn agents() -> Agents {
        let tools: Vec<Value> = TOOLS
            .iter()
            .map(|name| json!({"name": name, "description": "", "parameters": {}}))
            .collect();
        let options = Options {
            default_agent: "build".to_owned(),
            default_model: "offline/search".to_owned(),
        };
        let offered = vec!["offline/search".to_owned(), "script/*".to_owned()];
        Agents::new(options, offered, &tools).unwrap()
    }

    #[test]
    fn a_run_pins_definition_and_tools_by_hash() {
        let resolved = agents().resolve("explore", None).unwrap();
        assert_eq!(resolved.model, "offline/search");
        assert_eq!(resolved.mode, AgentMode::Subagent);
        for pinned in [&resolved.definition, &resolved.tools] {
            let hash = blake3::hash(pinned.body.as_bytes()).to_hex().to_string();
            assert_eq!(pinned.hash, hash);
        }
        let read_back: AgentDefinition = serde_json::from_str(&resolved.definition.body).unwrap();
        assert_eq!(read_back.max_loops, 20);
        let tools: Vec<Value> = serde_json::from_str(&resolved.tools.body).unwrap();
        let names: Vec<&str> = tools
            .iter()
            .filter_map(|tool| tool["name"].as_str())
            .collect();
        assert_eq!(names, ["read", "list", "glob", "grep"]);
        assert_eq!(agents().resolve("explore", None).unwrap(), resolved);
    }

    #[test]
    fn g4_7_an_unknown_agent_is_refused_with_the_known_names() {
        for name in ["exlpore", "Explore", "", "../x", "*"] {
            let fault = agents().resolve(name, None).unwrap_err();
            assert_eq!(fault.kind, Kind::NotFound, "{name}");
            assert!(
                fault.message.contains("build, explore"),
                "{}",
                fault.message
            );
            assert_eq!(fault.data["allowed"], json!(["build", "explore"]));
        }
        let fault = agents().get("exlpore").unwrap_err();
        assert_eq!(fault.hint.as_deref(), Some("did you mean explore?"));
    }

    #[test]
    fn a_model_that_nobody_offers_is_refused_with_what_is_offered() {
        let agents = agents();
        for model in ["gpt", "script/", "offline/other", "offline/search2", ""] {
            let fault = agents.resolve("build", Some(model)).unwrap_err();
            assert_eq!(fault.kind, Kind::InvalidParams, "{model}");
            assert_eq!(fault.data["path"], "model");
            assert!(
                fault.message.contains("offline/search"),
                "{}",
                fault.message
            );
        }
        let resolved = agents.resolve("build", Some("script/any")).unwrap();
        assert_eq!(resolved.model, "script/any");
    }

    #[test]
    fn defaults_that_are_not_there_are_refused_at_the_start() {
        let options = |agent: &str, model: &str| Options {
            default_agent: agent.to_owned(),
            default_model: model.to_owned(),
        };
        let tools: Vec<Value> = TOOLS.iter().map(|name| json!({"name": name})).collect();
        let offered = vec!["offline/search".to_owned()];
        let no_agent = Agents::new(options("x", "offline/search"), offered.clone(), &tools);
        assert_eq!(no_agent.err().unwrap().kind, Kind::NotFound);
        let no_model = Agents::new(options("build", "x/y"), offered.clone(), &tools);
        assert_eq!(no_model.err().unwrap().data["path"], "defaults.model");
        let no_tool = Agents::new(options("build", "offline/search"), offered, &tools[1..]);
        assert!(no_tool.err().unwrap().message.contains("no tool grep"));
    }

    #[test]
    fn the_list_is_by_name() {
        let names: Vec<String> = agents()
            .list()
            .iter()
            .map(|one| one.id.to_string())
            .collect();
        assert_eq!(names, ["build", "explore"]);
        assert_eq!(agents().default_agent().as_str(), "build");
    }
}
