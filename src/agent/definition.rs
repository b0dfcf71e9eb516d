//! What an agent is. A run pins this as JSON at its spawn, and its runner reads it back from
//! there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::command::CommandSpec;
use crate::contract::allow::AllowList;
use crate::contract::catalog::AgentMode;
use crate::contract::linked::{Link, OnFailure};
use crate::kernel::gate::{Bundle, Layer, Rights, Rule, WriteScope, is_closed};
use crate::kernel::ids::AgentId;
use crate::kernel::run::OnUncertain;
use crate::kernel::secret::Given;
use crate::kernel::thinking::Thinking;

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentDefinition {
    /// Its name.
    pub name: String,
    /// A heading for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for, in one sentence.
    pub description: String,
    /// What it may be used for.
    pub mode: AgentMode,
    /// The base of every model call.
    pub system_prompt: String,
    /// Its model, `provider/name`; the default one if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much its model thinks; the model's own habit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// The models asked in its place, in this order, where it has failed for good; the
    /// default ones if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_models: Option<Vec<String>>,
    /// How freely its model chooses words; the model's own habit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of one answer; the provider's own limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Further fields of its model's requests, as the provider's API names them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// The servers whose tools it has, by name; unset = every one that is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<String>>,
    /// Names and patterns of the skills that it may use; all if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// The most model calls of one run.
    pub max_loops: u32,
    /// Long transcripts are shortened for its model; unset = unless it is a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<bool>,
    /// Left out of lists for people.
    #[serde(default)]
    pub hidden: bool,
    /// It is put away: listed, but not used. Unset = it is active.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inactive: bool,
    /// The tenant that it belongs to; every one if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// The limit of its runs where the request says nothing, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// Whom it may delegate to, by name; `*` = every configured agent; unset = see
    /// [`AllowList::Unset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_agents: Option<Vec<String>>,
    /// The agents that it is linked with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linked_agents: Vec<Link>,
    /// Levels of spawning below its root sessions, 0 to 5; the default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_spawn_depth: Option<u32>,
    /// What becomes of calls of its tools; see [`Rights::judge`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<Rule>,
    /// Rules that hold besides its gate and never open anything: those of a definition that it
    /// stands in for, and what fields of other programs say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Layer>,
    /// Where its file tools may write; anywhere in the workspace if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_scope: Option<WriteScope>,
    /// How its model goes about its work.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub strategy: Strategy,
    /// The program that does its work; unset = a model does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    /// What becomes of an effect that may have happened when the daemon was killed; the model
    /// is told, if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_uncertain: Option<OnUncertain>,
    /// What its runs have in their environment; nothing for a name that only a request gives.
    /// Pinned are the names: what they stand for is kept with each run, where nobody sees it.
    #[serde(
        default,
        skip_deserializing,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "names"
    )]
    pub env: BTreeMap<String, Option<Given>>,
    /// The names of `env` that it declares as secrets. Not pinned: each run's values say it.
    #[serde(skip)]
    pub secret_env: BTreeSet<String>,
    /// What becomes of its runs when an agent has failed that they have called into their session;
    /// they are told, if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_child_failure: Option<OnFailure>,
}

fn names<S: Serializer>(
    env: &BTreeMap<String, Option<Given>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(env.keys())
}

/// How an agent's model goes about its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// It calls tools until it answers.
    #[default]
    React,
    /// It plans, has the plan carried out, reflects and responds.
    Plan,
}

fn is_usual(strategy: &Strategy) -> bool {
    *strategy == Strategy::React
}

fn is_false(value: &bool) -> bool {
    !value
}

impl AgentDefinition {
    /// An agent that only looks, with nothing else set: a base for others.
    pub fn named(name: &str, description: &str, system_prompt: &str) -> Self {
        AgentDefinition {
            name: name.to_owned(),
            title: None,
            description: description.to_owned(),
            mode: AgentMode::All,
            system_prompt: system_prompt.to_owned(),
            model: None,
            thinking: None,
            fallback_models: None,
            temperature: None,
            max_tokens: None,
            provider: Map::new(),
            tools: Vec::new(),
            mcp_servers: None,
            skills: None,
            max_loops: MAX_LOOPS,
            compression: None,
            hidden: false,
            inactive: false,
            org: None,
            run_timeout_ms: None,
            allow_agents: None,
            linked_agents: Vec::new(),
            max_spawn_depth: None,
            gate: Vec::new(),
            bounds: Vec::new(),
            write_scope: None,
            strategy: Strategy::React,
            command: None,
            on_uncertain: None,
            env: BTreeMap::new(),
            secret_env: BTreeSet::new(),
            on_child_failure: None,
        }
    }

    /// What its runs may do, below `bundle`.
    pub fn rights(&self, bundle: Bundle) -> Rights {
        let scope = self.write_scope.unwrap_or(WriteScope::Workspace);
        let mut bundle = bundle;
        for layer in &self.bounds {
            if !bundle.layers.contains(layer) {
                bundle.layers.push(layer.clone());
            }
        }
        Rights::new(&self.name, &self.gate, scope, bundle)
    }

    /// Is no call of the tool open to it, whatever its rights are below others?
    pub(super) fn closes(&self, tool: &str) -> bool {
        let mut rules = [&self.gate]
            .into_iter()
            .chain(self.bounds.iter().map(|layer| &layer.rules));
        rules.any(|rules| is_closed(rules, tool))
    }

    /// Are long transcripts shortened for its model? Sessions of primary agents live for months,
    /// a subagent is there for one task.
    pub fn compresses(&self) -> bool {
        self.compression.unwrap_or(self.mode != AgentMode::Subagent)
    }

    /// The agents that it is linked with.
    pub fn linked(&self) -> Vec<AgentId> {
        self.linked_agents
            .iter()
            .map(|link| link.agent.clone())
            .collect()
    }

    /// Whom it may delegate to.
    pub fn allow(&self) -> AllowList {
        match &self.allow_agents {
            // Whom its plans may choose, everything may.
            None if self.strategy == Strategy::Plan => AllowList::Any,
            None => AllowList::Unset,
            Some(names) if names.iter().any(|name| name == "*") => AllowList::Any,
            // Names that are no agent's name are nobody's.
            Some(names) => AllowList::Only(
                names
                    .iter()
                    .filter_map(|name| AgentId::parse(name).ok())
                    .collect(),
            ),
        }
    }
}

/// The most model calls of one run, where a definition says nothing.
pub(super) const MAX_LOOPS: u32 = 50;
