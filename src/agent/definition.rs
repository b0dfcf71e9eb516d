//! The definition of an agent. A run pins it as JSON at its spawn, and its runner reads it from
//! there.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::command::CommandSpec;
use crate::contract::allow::AllowList;
use crate::contract::catalog::AgentMode;
use crate::contract::linked::{Link, OnFailure};
use crate::kernel::ids::AgentId;
use crate::kernel::policy::gate::{Bundle, Layer, Rights, Rule, WriteScope, is_closed};
use crate::kernel::run::OnUncertain;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::secret::GivenValue;

/// The definition of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentDefinition {
    /// Its unique name.
    pub name: String,
    /// A heading for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its purpose, in one sentence.
    pub description: String,
    /// How it may be used: as primary agent, as subagent, or both.
    pub mode: AgentMode,
    /// The base of every model call.
    pub system_prompt: String,
    /// Its model, `provider/name`; the default model if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The thinking level of its model; the model's own default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// The models tried in this order after its model has failed permanently; the default fallbacks
    /// if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_models: Option<Vec<String>>,
    /// The sampling temperature; the model's own default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The maximum number of tokens of one answer; the provider's own limit if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Additional fields of its model requests, as the provider's API names them.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub provider: Map<String, Value>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// The servers whose tools it has, by name; unset = every configured server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_servers: Option<Vec<String>>,
    /// Names and patterns of the skills that it may use; all if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// The maximum number of model calls of one run.
    pub max_loops: u32,
    /// Whether long transcripts are compressed for its model; unset = yes, unless it is a subagent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compression: Option<bool>,
    /// Whether it is left out of lists for people.
    #[serde(default)]
    pub hidden: bool,
    /// Whether it is inactive: listed, but refused for runs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub inactive: bool,
    /// The tenant that it belongs to; all tenants if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<String>,
    /// The time limit of its runs if the request sets none, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// The agents that it may delegate to, by name; `*` = every configured agent; unset = see
    /// [`AllowList::Unset`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_agents: Option<Vec<String>>,
    /// The agents that it is linked with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub linked_agents: Vec<Link>,
    /// The maximum number of spawn levels among the descendants of its root sessions, 0 to 5; the
    /// default if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_spawn_depth: Option<u32>,
    /// The decision rules for its tool calls; see [`Rights::judge`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<Rule>,
    /// Rules that apply in addition to its gate and never grant anything: those of a more trusted
    /// definition of the same name, and those from fields of other programs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<Layer>,
    /// Where its file tools may write; anywhere in the workspace if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_scope: Option<WriteScope>,
    /// The control flow of its runs.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub strategy: Strategy,
    /// The program that does its work; unset = a model does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandSpec>,
    /// The node on which its `shell`, `read` and `list` work; this machine if unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// How an effect is handled of which is unknown whether it has happened; if unset, it
    /// is reported to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_uncertain: Option<OnUncertain>,
    /// The environment of its runs; `None` for a name whose value only a request gives. Only the
    /// names are pinned; the values are stored with each run and are never shown.
    #[serde(
        default,
        skip_deserializing,
        skip_serializing_if = "BTreeMap::is_empty",
        serialize_with = "names"
    )]
    pub env: BTreeMap<String, Option<GivenValue>>,
    /// The names of `env` that it declares as secrets. Not pinned: the values of each run carry the
    /// mark.
    #[serde(skip)]
    pub secret_env: BTreeSet<String>,
    /// How its runs proceed after an agent that they called into their session has failed; if
    /// unset, the failure is reported to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_child_failure: Option<OnFailure>,
}

fn names<S: Serializer>(
    env: &BTreeMap<String, Option<GivenValue>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(env.keys())
}

/// The control flow of a model's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// It calls tools until it answers.
    #[default]
    React,
    /// It plans, delegates the plan, reflects and responds.
    Plan,
}

fn is_usual(strategy: &Strategy) -> bool {
    *strategy == Strategy::React
}

fn is_false(value: &bool) -> bool {
    !value
}

impl AgentDefinition {
    /// Creates a minimal definition without tools, as a base for others.
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
            node: None,
            on_uncertain: None,
            env: BTreeMap::new(),
            secret_env: BTreeSet::new(),
            on_child_failure: None,
        }
    }

    /// The rights of its runs, within the limits of `bundle`.
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

    /// True if its own rules deny every call of the tool.
    pub(super) fn closes(&self, tool: &str) -> bool {
        let mut rules = [&self.gate]
            .into_iter()
            .chain(self.bounds.iter().map(|layer| &layer.rules));
        rules.any(|rules| is_closed(rules, tool))
    }

    /// Whether long transcripts are compressed for its model. Sessions of primary agents last for
    /// months; a subagent does one task.
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

    /// The agents that it may delegate to.
    pub fn allow(&self) -> AllowList {
        match &self.allow_agents {
            // A planner may delegate to every agent.
            None if self.strategy == Strategy::Plan => AllowList::Any,
            None => AllowList::Unset,
            Some(names) if names.iter().any(|name| name == "*") => AllowList::Any,
            // Names that are not valid agent names match no agent.
            Some(names) => AllowList::Only(
                names
                    .iter()
                    .filter_map(|name| AgentId::parse(name).ok())
                    .collect(),
            ),
        }
    }
}

/// The default maximum number of model calls of one run.
pub(super) const MAX_LOOPS: u32 = 50;
