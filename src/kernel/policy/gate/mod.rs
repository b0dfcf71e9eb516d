//! What an agent may do with its tools: the rules of its definition, the bundle of rules that runs
//! pass on to the runs they spawn, and the decision that follows from both.
//!
//! Inheritance: a run's own definition decides first, by its rules or else by the tool's default.
//! Then the *written* rules of every ancestor agent are checked too, and the strictest decision
//! wins. So a child never does what an ancestor's rule denies, and asks where an ancestor's rule
//! asks. What no ancestor has a rule for, the operator has left to the child's own definition.

mod rules;

use serde::{Deserialize, Serialize};

pub use rules::{CallTarget, Rule, Subject, is_closed};

use self::rules::{Reason, judged};
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// The decision on a tool call.
    Decision {
        /// The call is made.
        Allow = "allow",
        /// A person is asked for approval first.
        Ask = "ask",
        /// The call is not made.
        Deny = "deny",
    }
}

impl Decision {
    fn rank(self) -> u8 {
        match self {
            Decision::Allow => 0,
            Decision::Ask => 1,
            Decision::Deny => 2,
        }
    }
}

text_enum! {
    /// Where an agent's file tools may write.
    WriteScope {
        /// Anywhere in the workspace.
        Workspace = "workspace",
        /// Only in `subagents/<its name>/` of the workspace.
        Own = "own",
        /// Nowhere.
        None = "none",
    }
}

/// The rules of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Name of the agent.
    pub agent: String,
    /// The rules in the order of its definition.
    pub rules: Vec<Rule>,
}

/// Where the file tools of a run may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// Anywhere in the workspace.
    #[default]
    Anywhere,
    /// Only in this folder of the workspace.
    Below(String),
    /// Nowhere.
    Nowhere,
}

impl std::fmt::Display for Writes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Writes::Anywhere => f.write_str("in its workspace"),
            Writes::Below(folder) => write!(f, "in {folder}/"),
            Writes::Nowhere => f.write_str("nowhere"),
        }
    }
}

impl Writes {
    /// This permission restricted to an agent with this name and scope; never wider.
    fn narrowed(&self, scope: WriteScope, agent: &str) -> Writes {
        match (self, scope) {
            (Writes::Nowhere, _) | (_, WriteScope::None) => Writes::Nowhere,
            (same, WriteScope::Workspace) => same.clone(),
            (Writes::Anywhere, WriteScope::Own) => Writes::Below(format!("subagents/{agent}")),
            (Writes::Below(above), WriteScope::Own) => {
                Writes::Below(format!("{above}/subagents/{agent}"))
            }
        }
    }
}

/// The upper bound of what a spawned run's session may do, fixed by its creator when it is created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The rules of the ancestor agents, the topmost first.
    pub layers: Vec<Layer>,
    /// Where the spawned run may write at most.
    pub writes: Writes,
}

impl Bundle {
    /// The bundle restricted to an agent with this name and scope; never wider.
    pub fn narrowed(mut self, scope: WriteScope, agent: &str) -> Bundle {
        self.writes = self.writes.narrowed(scope, agent);
        self
    }
}

/// The permissions of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    own: Layer,
    ancestors: Vec<Layer>,
    writes: Writes,
}

/// The decision on a call, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateVerdict {
    /// The decision itself.
    pub decision: Decision,
    /// The rule or default that decides, in words.
    pub why: String,
}

impl Rights {
    /// The permissions of a run of this agent, within `bundle`.
    pub fn new(agent: &str, rules: &[Rule], scope: WriteScope, bundle: Bundle) -> Rights {
        Rights {
            own: Layer {
                agent: agent.to_owned(),
                rules: rules.to_vec(),
            },
            writes: bundle.writes.narrowed(scope, agent),
            ancestors: bundle.layers,
        }
    }

    /// The bundle for the runs that it spawns.
    pub fn bundle(&self) -> Bundle {
        let mut layers = self.ancestors.clone();
        if !self.own.rules.is_empty() && !layers.contains(&self.own) {
            layers.push(self.own.clone());
        }
        Bundle {
            layers,
            writes: self.writes.clone(),
        }
    }

    /// True if every call of the tool is denied.
    pub fn closes(&self, tool: &str) -> bool {
        let mut layers = self.ancestors.iter().chain([&self.own]);
        layers.any(|layer| is_closed(&layer.rules, tool))
    }

    /// True if a rule depends on the arguments of calls.
    pub fn looks_at_arguments(&self) -> bool {
        let mut rules = self
            .ancestors
            .iter()
            .chain([&self.own])
            .flat_map(|layer| &layer.rules);
        rules.any(Rule::looks_at_arguments)
    }

    /// True if there is a rule with this decision, its own or an ancestor's.
    pub fn has_rule(&self, decision: Decision) -> bool {
        let mut layers = self.ancestors.iter().chain([&self.own]);
        layers.any(|layer| layer.rules.iter().any(|rule| rule.decision == decision))
    }

    /// Where its file tools may write.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Decides on a call of `tool`; `habit` is the tool's default, which applies if the agent has
    /// no rule for the call.
    pub fn judge(&self, tool: &str, habit: Decision, subject: &Subject) -> GateVerdict {
        let own = judged(&self.own.rules, tool, subject, Some(habit));
        let mut verdict = match own {
            Some((decision, Reason::Rule(rule))) => said_by(&self.own.agent, decision, rule),
            Some((decision, Reason::Unsure(rule))) => unsure(&self.own.agent, decision, rule),
            Some((_, Reason::Habit)) | None => GateVerdict {
                decision: habit,
                why: format!(
                    "{tool} is {} by default, since no rule applies (field gate of agent {})",
                    match habit {
                        Decision::Allow => "allowed",
                        Decision::Ask => "subject to approval",
                        Decision::Deny => "denied",
                    },
                    self.own.agent
                ),
            },
        };
        for layer in &self.ancestors {
            let Some((decision, why)) = judged(&layer.rules, tool, subject, None) else {
                continue;
            };
            if decision.rank() <= verdict.decision.rank() {
                continue;
            }
            verdict = match why {
                Reason::Unsure(rule) => unsure(&layer.agent, decision, rule),
                Reason::Rule(rule) => said_by(&layer.agent, decision, rule),
                Reason::Habit => continue,
            };
            verdict
                .why
                .push_str(", which also applies to the runs that it spawns");
        }
        verdict
    }
}

impl GateVerdict {
    /// The same, raised to at least `ask` for the reason `why`.
    pub fn at_least_ask(self, why: String) -> GateVerdict {
        match self.decision {
            Decision::Allow => GateVerdict {
                decision: Decision::Ask,
                why,
            },
            Decision::Ask | Decision::Deny => self,
        }
    }
}

fn said_by(agent: &str, decision: Decision, rule: &Rule) -> GateVerdict {
    let why = format!("the gate of agent {agent} has the rule {}", rule.shown());
    GateVerdict { decision, why }
}

fn unsure(agent: &str, decision: Decision, rule: &Rule) -> GateVerdict {
    let why = format!(
        "the gate of agent {agent} has the rule {}, and this call may match it",
        rule.shown()
    );
    GateVerdict { decision, why }
}

#[cfg(test)]
mod tests;
