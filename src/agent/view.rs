//! The prepared agents of one place: what a spawn pins, what lists show, and the errors that name
//! the available agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::command::{CommandSpec, ProgramCheck, Speaks};
use super::delegating;
use super::dialects::names::OURS;
use super::health::{AgentHealth, Dependencies, ProviderCheck};
use super::names::nearest;
use super::nodes;
use super::served::{Equipment, Equipped, Reachable};
use super::set::{DefinitionSource, Effective, LayeredDefinition, Layers, shown};
use super::tools::ToolChoice;
use super::{AgentDefinition, Strategy};
use crate::contract::catalog::{
    AgentListing, AgentSummary, InactiveDefinition, OffPreset, Omitted, Overrides, Pinned,
    Resolved, usable_skills,
};
use crate::contract::linked;
use crate::contract::servers::{ServedTool, ServerViews};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::AgentId;
use crate::kernel::policy::overlay::{AgentEnv, Overlay};
use crate::kernel::policy::pattern::fits;
use crate::kernel::run::OnUncertain;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::text::{in_quotes, preview};
use crate::kernel::time::Timestamp;

/// The available models and programs.
#[derive(Clone)]
pub struct AvailableModels {
    /// Returns why a program, by name or absolute path, cannot be started.
    pub programs: ProgramCheck,
    /// Returns why the models of a provider cannot answer.
    pub providers: ProviderCheck,
    /// The model of agents that name none.
    pub default: String,
    /// The offered models: `provider/name`, or `provider/*` for any name.
    pub offered: Vec<String>,
    /// The models with thinking levels, in the same form.
    pub thinking: Vec<String>,
}

impl AvailableModels {
    /// True if both have the same models; programs and providers are not compared.
    pub fn is_like(&self, other: &AvailableModels) -> bool {
        (&self.default, &self.offered, &self.thinking)
            == (&other.default, &other.offered, &other.thinking)
    }

    /// Refuses a model that is not offered; `path` names the field of the request.
    pub fn check(&self, path: &str, model: &str) -> Result<(), Fault> {
        if self.offers(model) {
            return Ok(());
        }
        let list = self.offered.join(", ");
        let shown = in_quotes(model, 128);
        Err(Fault::params(
            path,
            format!("unknown model {shown}; the offered models are {list}"),
        )
        .hint("models are named provider/name; name one that is offered")
        .with("offered", self.offered.clone()))
    }

    fn offers(&self, model: &str) -> bool {
        self.offered.iter().any(|offer| stands_for(offer, model))
    }

    /// A warning if a thinking level is requested of a model without levels.
    fn thinking_warning(&self, model: &str, level: Thinking) -> Option<String> {
        let has_levels = self.thinking.iter().any(|offer| stands_for(offer, model));
        (level != Thinking::Off && !has_levels).then(|| {
            format!("model {model} has no thinking levels: thinking {level} has no effect")
        })
    }

    /// Why the agent's model cannot answer; `None` if it can.
    pub(super) fn problem(&self, definition: &AgentDefinition) -> Option<String> {
        let model = self.of(definition);
        if !self.offers(model) {
            return Some(format!("model {model} is not offered"));
        }
        let (provider, _) = model.split_once('/')?;
        let why = (self.providers)(provider)?;
        Some(format!("model {model} cannot answer: {why}"))
    }

    fn of<'a>(&'a self, definition: &'a AgentDefinition) -> &'a str {
        if let Some(command) = &definition.command {
            return no_model(command);
        }
        definition.model.as_deref().unwrap_or(&self.default)
    }
}

/// Shown instead of a model for an agent that is a program.
fn no_model(command: &CommandSpec) -> &'static str {
    match command.speaks {
        Speaks::Text => "command",
        Speaks::Acp => "acp",
    }
}

/// The names by which rules judge the program of an outside agent, and its calls.
const OUTSIDE_TOOLS: &[&str] = &[
    "command", "read", "grep", "write", "edit", "shell", "fetch", "tool",
];

fn stands_for(offer: &str, model: &str) -> bool {
    match offer.strip_suffix('*') {
        Some(start) => model.len() > start.len() && model.starts_with(start),
        None => offer == model,
    }
}

/// The agents of one place.
pub(super) struct Set {
    entries: BTreeMap<AgentId, PreparedAgent>,
    rejected: Vec<InactiveDefinition>,
    off: Vec<OffPreset>,
}

/// One agent, prepared so that a spawn only copies it.
pub(super) struct PreparedAgent {
    /// Its layer.
    pub source: DefinitionSource,
    /// Its file; `None` if it is stored or built in.
    pub file: Option<String>,
    revision: Option<i64>,
    definition: AgentDefinition,
    pinned_definition: Pinned,
    /// The schemas of its own tools, without those of servers.
    tools: Vec<Value>,
    /// The tools that it asks for.
    choice: ToolChoice,
    equipped: Equipped,
    shadowed: Vec<InactiveDefinition>,
    made_at: Timestamp,
    /// Checked when it was prepared.
    health: AgentHealth,
    /// Linked agents that cannot be tools of it, with reasons.
    left_out: Vec<Omitted>,
    /// Shown in lists only.
    warnings: Vec<String>,
    /// Shown in lists and to callers that use it.
    notes: Vec<String>,
    /// Why it cannot be used before its project is trusted.
    untrusted: Option<String>,
    /// Why it cannot be used before a broken file of this user is repaired.
    replaced_by_broken: Option<String>,
}

impl Set {
    /// Prepares the agents of `layers`.
    pub(super) fn new(layers: &Layers, ground: Dependencies<'_>) -> Self {
        let Dependencies { models, tools, .. } = ground;
        let names: Vec<String> = tools
            .iter()
            .filter_map(|schema| schema["name"].as_str())
            // These are templates for the tools of links and planners.
            .filter(|name| {
                ![
                    linked::SUBAGENT_PREFIX,
                    linked::CALL_PREFIX,
                    linked::DELEGATE,
                ]
                .contains(name)
            })
            .map(str::to_owned)
            .collect();
        let entries = layers.agents.iter();
        let mut entries: BTreeMap<AgentId, PreparedAgent> = entries
            .map(|(id, taken)| (id.clone(), PreparedAgent::new(taken, ground, &names)))
            .collect();
        // Delegation targets can be resolved once all agents are known.
        let servers = ServerViews::default();
        let none = Reachable {
            servers: &servers,
            nodes: &[],
        };
        let summaries: Vec<AgentSummary> = entries
            .iter()
            .map(|(id, entry)| entry.summary(id, models, none))
            .collect();
        for (id, entry) in &mut entries {
            entry.take_tools(id, &summaries, tools);
        }
        Set {
            entries,
            rejected: layers.rejected.clone(),
            off: layers.off.clone(),
        }
    }

    /// Finds the agent called `name`. The error lists the available agents, and names a broken file
    /// of that name.
    pub(super) fn entry(&self, name: &str) -> Result<(&AgentId, &PreparedAgent), Fault> {
        let id = AgentId::given(name).and_then(|name| AgentId::parse(name).ok());
        id.and_then(|id| self.entries.get_key_value(&id))
            .ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> Fault {
        let names = self.names();
        let list = names.join(", ");
        let shown = preview(name, 64);
        let fault = Fault::new(
            Kind::NotFound,
            format!(
                "no agent {}; the agents are {list}. Nothing was created",
                in_quotes(name, 64)
            ),
        )
        .with("id", shown)
        .with("allowed", names.clone());
        let broken = self.rejected.iter().find(|one| {
            let file = one.file.as_deref().map(std::path::Path::new);
            let stem = file.and_then(std::path::Path::file_stem);
            stem.is_some_and(|stem| stem == name)
        });
        if let Some(broken) = broken {
            return fault.hint(format!("its file is not valid: {}", place_of(broken)));
        }
        match nearest(name, &names) {
            Some(near) => fault.hint(format!("did you mean {near}?")),
            None => fault.hint("name one of these agents"),
        }
    }

    /// All names, sorted.
    pub(super) fn names(&self) -> Vec<&str> {
        self.entries.keys().map(AgentId::as_str).collect()
    }

    /// Maps each name to a hash of the source and pinned definition. Of its tools only the names
    /// count: the agent names in their schemas depend on other agents.
    pub(super) fn hashes(&self) -> BTreeMap<String, String> {
        let hash = |entry: &PreparedAgent| {
            let parts = [entry.source.as_str(), &entry.pinned_definition.hash];
            blake3::hash(parts.join("\n").as_bytes())
                .to_hex()
                .to_string()
        };
        self.entries
            .iter()
            .map(|(id, entry)| (id.to_string(), hash(entry)))
            .collect()
    }

    /// Returns what a run pins of the agent called `name`.
    pub(super) fn resolve(
        &self,
        models: &AvailableModels,
        reachable: Reachable<'_>,
        name: &str,
        overrides: Overrides<'_>,
    ) -> Result<Resolved, Fault> {
        let (id, entry) = self.entry(name)?;
        entry.usable(id)?;
        let definition = &entry.definition;
        let equipment = entry.equipment(reachable);
        let mut warnings = [entry.notes.as_slice(), &equipment.notes].concat();
        let (model, thinking) = if let Some(command) = &definition.command {
            if overrides.model.is_some() || overrides.thinking.is_some() {
                let note = format!("agent {id} is a program: model and thinking have no effect");
                warnings.push(note);
            }
            (no_model(command), None)
        } else {
            let model = overrides.model.unwrap_or_else(|| models.of(definition));
            models.check("model", model)?;
            (model, overrides.thinking.or(definition.thinking))
        };
        warnings.extend(thinking.and_then(|level| models.thinking_warning(model, level)));
        Ok(Resolved {
            id: id.clone(),
            title: definition.title.clone(),
            mode: definition.mode,
            model: model.to_owned(),
            thinking,
            run_timeout_ms: definition.run_timeout_ms,
            on_uncertain: definition.on_uncertain.unwrap_or(OnUncertain::Report),
            definition: entry.pinned_definition.clone(),
            tools: entry.with_served(&equipment, overrides.served),
            skill_names: match definition.command.is_some() {
                true => Some(Vec::new()),
                false => usable_skills(&definition.tools, definition.skills.as_deref()),
            },
            skills: None,
            env: AgentEnv {
                env: definition.env.clone(),
                secret: definition.secret_env.clone(),
                of_project: entry.source == DefinitionSource::Project,
            },
            overlay: Overlay::default(),
            warnings,
        })
    }

    /// Lists all agents as clients see them.
    pub(super) fn list(&self, models: &AvailableModels, reachable: Reachable<'_>) -> AgentListing {
        AgentListing {
            agents: self
                .entries
                .iter()
                .map(|(id, entry)| entry.summary(id, models, reachable))
                .collect(),
            rejected: self.rejected.clone(),
            off: {
                let is_replaced = |name: &str| self.entries.keys().any(|id| id.as_str() == name);
                let off = self.off.iter().filter(|one| !is_replaced(&one.name));
                off.cloned().collect()
            },
        }
    }
}

/// File, line and reason as one text.
fn place_of(aside: &InactiveDefinition) -> String {
    let file = aside.file.as_deref().unwrap_or(&aside.source);
    match aside.line {
        Some(line) => format!("{file}:{line}: {}", aside.reason),
        None => format!("{file}: {}", aside.reason),
    }
}

impl PreparedAgent {
    /// Prepares everything except the tool schemas.
    fn new(taken: &Effective, ground: Dependencies<'_>, names: &[String]) -> Self {
        let models = ground.models;
        let draft = &taken.candidate.draft;
        let mut definition = draft.definition.clone();
        let (mut chosen, unknown) = draft.tools.pick(names);
        // A tool without any permitted call is not shown to models.
        chosen.retain(|tool| !definition.closes(tool));
        let mut warnings = draft.warnings.clone();
        if draft.soft_model
            && let Some(model) = definition.model.take_if(|model| !models.offers(model))
        {
            warnings.push(format!(
                "model {model} is not offered: the default model is used"
            ));
        }
        // A preset may name tools that do not exist; any other definition depends on the tools it
        // names.
        let is_preset = taken.candidate.source == DefinitionSource::Preset;
        let unknown = (!unknown.is_empty() && !is_preset).then(|| {
            let (unknown, names) = (unknown.join(", "), names.join(", "));
            format!("no tool {unknown}; the tools are {names}")
        });
        warnings.extend(unknown.clone());
        definition.tools = chosen;
        let mut health = AgentHealth::of(&definition, unknown.as_ref(), ground);
        if definition.inactive {
            health.problems.insert(0, "it is not active".to_owned());
        }
        if let Some(why) = &taken.candidate.untrusted {
            health.problems.insert(0, why.clone());
        }
        health
            .problems
            .extend(taken.candidate.replaced_by_broken.clone());
        let model = models.of(&definition);
        if definition.command.is_none() && !models.offers(model) {
            warnings.push(format!(
                "model {model} is not offered: a request must name another"
            ));
        }
        if let Some(level) = definition.thinking {
            warnings.extend(models.thinking_warning(model, level));
        }
        PreparedAgent {
            source: taken.candidate.source,
            file: taken.candidate.file.as_deref().map(shown),
            revision: taken.candidate.revision,
            tools: Vec::new(),
            choice: draft.tools.clone(),
            equipped: Equipped::default(),
            pinned_definition: pin(&definition),
            definition,
            made_at: made_at(&taken.candidate),
            health,
            left_out: Vec::new(),
            shadowed: taken.shadowed.clone(),
            warnings,
            notes: taken.notes.clone(),
            untrusted: taken.candidate.untrusted.clone(),
            replaced_by_broken: taken.candidate.replaced_by_broken.clone(),
        }
    }

    /// Sets the schemas of its own tools, with the allowed agents filled in, and adds those of the
    /// linked agents that are its tools.
    fn take_tools(&mut self, id: &AgentId, agents: &[AgentSummary], tools: &[Value]) {
        let definition = &self.definition;
        let allowed = definition.allow().allowed(id, &definition.linked(), agents);
        self.warnings
            .extend(delegating::unknown_agents(definition, agents));
        let named = |name: &str| tools.iter().find(|schema| schema["name"] == name);
        let mut schemas: Vec<Value> = definition
            .tools
            .iter()
            .filter_map(|name| named(name))
            .filter_map(|schema| delegating::described(schema, &allowed, agents))
            .collect();
        if let Some(node) = &definition.node {
            let left_out;
            (schemas, left_out) = nodes::on_node(schemas, tools, node);
            self.left_out.extend(left_out);
        }
        let links = definition.linked_agents.iter();
        for link in links.filter(|link| link.tool().is_some()) {
            match delegating::linked(link, tools, &allowed, agents) {
                Ok(schema) => schemas.push(schema),
                Err(why) => {
                    let name = link.tool().unwrap_or_default();
                    self.warnings
                        .push(format!("tool {name} is left out: {why}"));
                    self.left_out.push(Omitted { name, reason: why });
                }
            }
        }
        if definition.strategy == Strategy::Plan {
            let (pool, warnings) = delegating::pool(id, tools, &allowed, agents);
            schemas.extend(pool);
            self.warnings.extend(warnings);
        }
        let names = schemas.iter().filter_map(|schema| schema["name"].as_str());
        self.definition.tools = names.map(str::to_owned).collect();
        self.tools = schemas;
        // Drops the cached equipment without these tools.
        self.equipped = Equipped::default();
    }

    /// All its tools at the current state of the servers and nodes.
    pub(super) fn equipment(&self, reachable: Reachable<'_>) -> Arc<Equipment> {
        let (definition, choice) = (&self.definition, &self.choice);
        self.equipped
            .over(definition, choice, &self.tools, reachable)
    }

    /// The schemas of its tools in a session whose servers have these tools.
    pub(super) fn with_served(&self, equipment: &Equipment, served: &[ServedTool]) -> Pinned {
        equipment.with_session(&self.definition, &self.choice, served)
    }

    /// Warnings about gate rules for tools that the agent does not have. Tools of servers are known
    /// only while these run, so they are not judged.
    pub(super) fn idle_rules(&self, gate_lines: &[(String, Option<usize>)]) -> Vec<String> {
        let definition = &self.definition;
        let equipped = definition.tools.iter().map(String::as_str);
        // Including those that the gate closes.
        let own = OURS.iter().copied().filter(|tool| self.choice.takes(tool));
        let program = definition
            .command
            .iter()
            .flat_map(|command| match command.speaks {
                Speaks::Text => &["command"][..],
                Speaks::Acp => OUTSIDE_TOOLS,
            });
        let program = program.copied();
        let has: Vec<&str> = equipped.chain(own).chain(program).collect();
        let is_idle = |rule: &str| !rule.contains("__") && !has.iter().any(|tool| fits(rule, tool));
        let idle = gate_lines.iter().filter(|(rule, _)| is_idle(rule));
        idle.map(|(rule, line)| {
            let at = line.map_or_else(String::new, |line| format!("line {line}: "));
            format!(
                "{at}gate: the agent does not have the tool {rule}, so this rule has no effect; \
                 add {rule} to tools, or remove the rule"
            )
        })
        .collect()
    }

    /// All tools that are not offered at the current state of the servers and nodes.
    pub(super) fn left_out(&self, equipment: &Equipment) -> Vec<Omitted> {
        [self.left_out.as_slice(), &equipment.left_out].concat()
    }

    /// True if it shadows a definition of that layer.
    pub(super) fn shadows(&self, source: DefinitionSource) -> bool {
        self.shadowed
            .iter()
            .any(|aside| aside.source == source.as_str())
    }

    fn usable(&self, id: &AgentId) -> Result<(), Fault> {
        let refusal = |why: &str, hint: String| {
            let message = format!("agent {id} cannot be used: {why}. Nothing was created");
            Fault::new(Kind::Forbidden, message)
                .hint(hint)
                .with("agent", id.as_str())
        };
        let file = self.file.as_deref().unwrap_or("its definition");
        if let Some(why) = &self.replaced_by_broken {
            let hint = "repair that file (abide agents check FILE), or move it away".to_owned();
            return Err(refusal(why, hint));
        }
        match &self.untrusted {
            Some(why) => {
                Err(refusal(why, format!("read {file} before you trust it"))
                    .with("untrusted", true))
            }
            None if self.definition.inactive => {
                let hint = format!("set active = true in {file}, or use another agent");
                Err(refusal("it is not active", hint))
            }
            None => Ok(()),
        }
    }

    /// Returns the agent as lists show it.
    pub(super) fn summary(
        &self,
        id: &AgentId,
        models: &AvailableModels,
        reachable: Reachable<'_>,
    ) -> AgentSummary {
        let definition = &self.definition;
        let equipment = self.equipment(reachable);
        let model = models.of(definition);
        let program = definition.command.as_ref();
        AgentSummary {
            id: id.clone(),
            title: definition.title.clone(),
            description: definition.description.clone(),
            mode: definition.mode,
            active: !definition.inactive,
            model: model.to_owned(),
            program: program.map(|program| program.argv.clone()),
            thinking: definition.thinking,
            tools: equipment.offered(&definition.tools),
            skills: definition.skills.clone(),
            hidden: definition.hidden,
            source: self.source.as_str().to_owned(),
            file: self.file.clone(),
            revision: self.revision,
            max_loops: definition.max_loops,
            run_timeout_ms: definition.run_timeout_ms,
            allow: definition.allow(),
            linked: definition.linked(),
            max_spawn_depth: definition.max_spawn_depth,
            system_prompt: definition.system_prompt.clone(),
            warnings: [self.warnings.as_slice(), &self.notes, &equipment.notes].concat(),
            problems: self.health.problems.clone(),
            missing: self.health.lacks.clone(),
            made_at: self.made_at,
            shadowed: self.shadowed.clone(),
        }
    }
}

/// When the definition was stored or its file was modified; 0 for presets.
fn made_at(candidate: &LayeredDefinition) -> Timestamp {
    let written = candidate.file.as_ref().and_then(|file| {
        let modified = std::fs::metadata(file).and_then(|about| about.modified());
        modified.ok()?.duration_since(std::time::UNIX_EPOCH).ok()
    });
    match (written, candidate.stored_at) {
        (Some(since), _) => Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
        (None, stored) => stored.unwrap_or_default(),
    }
}

pub(super) fn pin<T: serde::Serialize>(value: &T) -> Pinned {
    // Definitions and schemas hold only texts, numbers, lists and maps with text keys.
    let body = serde_json::to_string(value).expect("plain data has a JSON form");
    Pinned::of(body.into())
}
