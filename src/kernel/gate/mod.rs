//! What an agent may do with its tools: rules as its definition writes them, the bundle of
//! rules that runs hand on to those they spawn, and the decision that both come to.
//!
//! The rule of inheritance: a run's own definition decides first, by its rules and else by the
//! tool's habit; then every rule that is *written* for one of the agents above it is asked too,
//! and the strictest word counts. So a child never does what a rule above it forbids, and asks
//! where a rule above it asks; what is not written there, the operator has left to the child's
//! own definition.

mod rules;

use serde::{Deserialize, Serialize};

pub use rules::{Rule, Subject, Thing, is_closed};

use self::rules::{Why, judged};
use super::text_enum::text_enum;

text_enum! {
    /// What becomes of a call.
    Decision {
        /// It is made.
        Allow = "allow",
        /// A person is asked first.
        Ask = "ask",
        /// It is not made.
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
        /// In `subagents/<its name>/` of it only.
        Own = "own",
        /// Nowhere.
        None = "none",
    }
}

/// The rules of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Whose.
    pub agent: String,
    /// As its definition writes them.
    pub rules: Vec<Rule>,
}

/// Where file tools may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writes {
    /// Anywhere in the workspace.
    #[default]
    Anywhere,
    /// In this folder of it only.
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
    /// What is left of it for an agent of this name and scope: never more.
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

/// What a spawned run's session may do at most: fixed when it is made, by what made it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The rules of the agents above, the topmost first.
    pub layers: Vec<Layer>,
    /// Where they may write.
    pub writes: Writes,
}

impl Bundle {
    /// What is left of it for an agent of this name and scope: never more.
    pub fn narrowed(mut self, scope: WriteScope, agent: &str) -> Bundle {
        self.writes = self.writes.narrowed(scope, agent);
        self
    }
}

/// What one run may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    own: Layer,
    above: Vec<Layer>,
    writes: Writes,
}

/// What becomes of a call, and by which rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub decision: Decision,
    /// The rule or habit that says so, in words.
    pub why: String,
}

impl Rights {
    /// What a run of this agent may do, below `bundle`.
    pub fn new(agent: &str, rules: &[Rule], scope: WriteScope, bundle: Bundle) -> Rights {
        Rights {
            own: Layer {
                agent: agent.to_owned(),
                rules: rules.to_vec(),
            },
            writes: bundle.writes.narrowed(scope, agent),
            above: bundle.layers,
        }
    }

    /// What those that it spawns may do at most.
    pub fn bundle(&self) -> Bundle {
        let mut layers = self.above.clone();
        if !self.own.rules.is_empty() && !layers.contains(&self.own) {
            layers.push(self.own.clone());
        }
        Bundle {
            layers,
            writes: self.writes.clone(),
        }
    }

    /// Is no call of the tool open to it?
    pub fn closes(&self, tool: &str) -> bool {
        let mut layers = self.above.iter().chain([&self.own]);
        layers.any(|layer| is_closed(&layer.rules, tool))
    }

    /// Does a rule look at what tools are called with?
    pub fn looks_at_arguments(&self) -> bool {
        let mut rules = self
            .above
            .iter()
            .chain([&self.own])
            .flat_map(|layer| &layer.rules);
        rules.any(|rule| rule.pattern.is_some())
    }

    /// Is there a rule with this decision, its own or one above it?
    pub fn has_rule(&self, decision: Decision) -> bool {
        let mut layers = self.above.iter().chain([&self.own]);
        layers.any(|layer| layer.rules.iter().any(|rule| rule.decision == decision))
    }

    /// Where its file tools may write.
    pub fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Decides on a call of `tool`, whose habit is `habit` where its agent says nothing of it.
    pub fn judge(&self, tool: &str, habit: Decision, subject: &Subject) -> Verdict {
        let own = judged(&self.own.rules, tool, subject, Some(habit));
        let mut verdict = match own {
            Some((decision, Why::Rule(rule))) => said_by(&self.own.agent, decision, rule),
            Some((decision, Why::Unsure(rule))) => unsure(&self.own.agent, decision, rule),
            Some((_, Why::Habit)) | None => Verdict {
                decision: habit,
                why: format!(
                    "{tool} is {} where no rule says otherwise (field gate of agent {})",
                    match habit {
                        Decision::Allow => "allowed",
                        Decision::Ask => "asked for",
                        Decision::Deny => "denied",
                    },
                    self.own.agent
                ),
            },
        };
        for layer in &self.above {
            let Some((decision, why)) = judged(&layer.rules, tool, subject, None) else {
                continue;
            };
            if decision.rank() <= verdict.decision.rank() {
                continue;
            }
            verdict = match why {
                Why::Unsure(rule) => unsure(&layer.agent, decision, rule),
                Why::Rule(rule) => said_by(&layer.agent, decision, rule),
                Why::Habit => continue,
            };
            verdict.why.push_str(", which holds for what it spawns too");
        }
        verdict
    }
}

impl Verdict {
    /// The same, at least an `ask` for the reason `why`.
    pub fn at_least_ask(self, why: String) -> Verdict {
        match self.decision {
            Decision::Allow => Verdict {
                decision: Decision::Ask,
                why,
            },
            Decision::Ask | Decision::Deny => self,
        }
    }
}

fn said_by(agent: &str, decision: Decision, rule: &Rule) -> Verdict {
    let why = format!("the gate of agent {agent} says {}", rule.shown());
    Verdict { decision, why }
}

fn unsure(agent: &str, decision: Decision, rule: &Rule) -> Verdict {
    let why = format!(
        "the gate of agent {agent} says {}, and it cannot be ruled out that this call is one of those",
        rule.shown()
    );
    Verdict { decision, why }
}

#[cfg(test)]
mod tests;
