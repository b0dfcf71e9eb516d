//! What an agent may do with its tools: rules as its definition writes them, the bundle of
//! rules that runs hand on to those they spawn, and the decision that both come to.
//!
//! The rule of inheritance: a run's own definition decides first, by its rules and else by the
//! tool's habit; then every rule that is *written* for one of the agents above it is asked too,
//! and the strictest word counts. So a child never does what a rule above it forbids, and asks
//! where a rule above it asks; what is not written there, the operator has left to the child's
//! own definition.

use serde::{Deserialize, Serialize};

use super::pattern::fits;
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

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The tool's name, or a pattern.
    pub tool: String,
    /// A pattern of what it is called with; any call if unset.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// What becomes of such a call.
    pub decision: Decision,
}

/// What a call is about, as rules look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Each thing that it touches, in the spellings by which a rule may name it.
    pub things: Vec<Vec<String>>,
    /// All of it, at which only `ask` and `deny` look: what is allowed must be allowed bit by bit.
    pub text: Option<String>,
    /// It may touch more than can be told from outside: no rule with a pattern allows it.
    pub is_opaque: bool,
    /// What a remembered decision covers; empty: every call of the tool.
    pub covers: String,
}

impl Rule {
    /// Does it speak of this call? An `allow` must fit everything that the call touches, the
    /// others anything.
    fn fits(&self, subject: &Subject) -> bool {
        let Some(pattern) = &self.pattern else {
            return true;
        };
        let any = |spellings: &Vec<String>| spellings.iter().any(|one| fits(pattern, one));
        match self.decision {
            Decision::Allow => {
                !subject.is_opaque && !subject.things.is_empty() && subject.things.iter().all(any)
            }
            Decision::Ask | Decision::Deny => {
                let text = subject.text.as_deref();
                subject.things.iter().any(any) || text.is_some_and(|text| fits(pattern, text))
            }
        }
    }

    fn shown(&self) -> String {
        match &self.pattern {
            Some(pattern) => format!("{} {pattern:?}: {}", self.tool, self.decision),
            None => format!("{}: {}", self.tool, self.decision),
        }
    }
}

/// The rule that counts for a call: of those written for exactly this tool the last that fits;
/// else, of those whose pattern of names fits, the strictest.
fn rule<'a>(rules: &'a [Rule], tool: &str, subject: &Subject) -> Option<&'a Rule> {
    let fitting = || rules.iter().filter(|rule| rule.fits(subject));
    let exact = fitting().rfind(|rule| rule.tool == tool);
    exact.or_else(|| {
        let named = fitting().filter(|rule| fits(&rule.tool, tool));
        named.max_by_key(|rule| rule.decision.rank())
    })
}

/// Do these rules leave no call of the tool open?
pub fn is_closed(rules: &[Rule], tool: &str) -> bool {
    let says = |rule: &Rule| rule.decision == Decision::Deny;
    rule(rules, tool, &Subject::default()).is_some_and(says)
        && rules.iter().filter(|rule| rule.tool == tool).all(says)
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
        let mut verdict = match rule(&self.own.rules, tool, subject) {
            Some(rule) => said_by(&self.own.agent, rule),
            None => Verdict {
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
            if let Some(rule) = rule(&layer.rules, tool, subject)
                && rule.decision.rank() > verdict.decision.rank()
            {
                verdict = said_by(&layer.agent, rule);
                verdict.why.push_str(", which holds for what it spawns too");
            }
        }
        verdict
    }
}

fn said_by(agent: &str, rule: &Rule) -> Verdict {
    Verdict {
        decision: rule.decision,
        why: format!("the gate of agent {agent} says {}", rule.shown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn says(tool: &str, pattern: Option<&str>, decision: Decision) -> Rule {
        Rule {
            tool: tool.to_owned(),
            pattern: pattern.map(str::to_owned),
            decision,
        }
    }

    fn about(things: &[&str]) -> Subject {
        Subject {
            things: things.iter().map(|one| vec![(*one).to_owned()]).collect(),
            ..Subject::default()
        }
    }

    fn judge(rules: &[Rule], tool: &str, subject: &Subject) -> Decision {
        let rights = Rights::new("a", rules, WriteScope::Workspace, Bundle::default());
        rights.judge(tool, Decision::Ask, subject).decision
    }

    #[test]
    fn the_last_rule_that_fits_counts_and_an_exact_name_goes_before_a_pattern() {
        use Decision::{Allow, Ask, Deny};
        let rules = [
            says("shell", Some("*"), Deny),
            says("shell", Some("git *"), Allow),
            says("shell", Some("git push*"), Ask),
            says("mcp_*", None, Ask),
            says("mcp_files_*", None, Deny),
            says("mcp_files_read", None, Allow),
            says("*", Some("*secret*"), Deny),
        ];
        for (tool, things, expected) in [
            ("shell", "git status", Allow),
            ("shell", "git push origin", Ask),
            ("shell", "rm x", Deny),
            ("mcp_web_get", "{}", Ask),
            ("mcp_files_write", "{}", Deny),
            ("mcp_files_read", "{}", Allow),
            ("read", "notes.txt", Ask),
            ("read", "my/secret/file", Deny),
        ] {
            assert_eq!(
                judge(&rules, tool, &about(&[things])),
                expected,
                "{tool} {things}"
            );
        }
    }

    #[test]
    fn allow_must_fit_everything_and_the_others_anything() {
        let allow = [says("shell", Some("git *"), Decision::Allow)];
        assert_eq!(
            judge(&allow, "shell", &about(&["git a", "git b"])),
            Decision::Allow
        );
        assert_eq!(
            judge(&allow, "shell", &about(&["git a", "rm b"])),
            Decision::Ask
        );
        // What touches nothing that can be named is nothing that was allowed by name.
        assert_eq!(judge(&allow, "shell", &about(&[])), Decision::Ask);
        let opaque = Subject {
            is_opaque: true,
            ..about(&["git a"])
        };
        assert_eq!(judge(&allow, "shell", &opaque), Decision::Ask);
        let deny = [says("shell", Some("rm *"), Decision::Deny)];
        assert_eq!(
            judge(&deny, "shell", &about(&["git a", "rm b"])),
            Decision::Deny
        );
    }

    #[test]
    fn c5_a_bundle_only_narrows_where_may_be_written() {
        let writes = |scopes: &[WriteScope]| {
            let mut bundle = Bundle::default();
            for scope in scopes {
                bundle = Rights::new("kid", &[], *scope, bundle).bundle();
            }
            bundle.writes
        };
        use WriteScope::{None, Own, Workspace};
        let below = |folder: &str| Writes::Below(folder.to_owned());
        assert_eq!(writes(&[Workspace, Workspace]), Writes::Anywhere);
        assert_eq!(writes(&[Own]), below("subagents/kid"));
        assert_eq!(writes(&[Own, Workspace]), below("subagents/kid"));
        assert_eq!(writes(&[Own, Own]), below("subagents/kid/subagents/kid"));
        assert_eq!(writes(&[None, Workspace]), Writes::Nowhere);
    }

    fn rules() -> impl Strategy<Value = Vec<Rule>> {
        let tool = prop::sample::select(vec!["shell", "write", "*", "w*"]);
        let pattern = prop::sample::select(vec![None, Some("*"), Some("a*"), Some("*b")]);
        let decision = prop::sample::select(Decision::ALL);
        let one = (tool, pattern, decision)
            .prop_map(|(tool, pattern, decision)| says(tool, pattern, decision));
        prop::collection::vec(one, 0..4)
    }

    proptest! {
        /// Whatever a child's own definition says, and however many lie in between: no written
        /// rule above it is ever softened.
        #[test]
        fn g10_11_a_child_never_does_what_a_rule_above_it_forbids(
            family in prop::collection::vec(rules(), 1..4),
            tool in prop::sample::select(vec!["shell", "write"]),
            things in prop::collection::vec("[ab]{1,2}", 1..3),
            habit in prop::sample::select(Decision::ALL),
        ) {
            let things: Vec<&str> = things.iter().map(String::as_str).collect();
            let subject = about(&things);
            let mut bundle = Bundle::default();
            let mut strictest = 0;
            for (at, own) in family.iter().enumerate() {
                let name = format!("agent-{at}");
                let rights = Rights::new(&name, own, WriteScope::Workspace, bundle);
                let rank = rights.judge(tool, habit, &subject).decision.rank();
                prop_assert!(rank >= strictest);
                if let Some(written) = rule(own, tool, &subject) {
                    strictest = strictest.max(written.decision.rank());
                }
                bundle = rights.bundle();
            }
            // What was stored is read back as it was.
            let text = serde_json::to_string(&bundle).unwrap();
            prop_assert_eq!(serde_json::from_str::<Bundle>(&text).unwrap(), bundle);
        }
    }
}
