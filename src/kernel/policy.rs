//! Access control between sessions. Every entry point uses the same check: tools, lists, histories
//! and messages call it with what they know as values.

pub mod approval;
pub mod env;
pub mod gate;
pub mod overlay;
pub mod pattern;
pub mod shell;
pub mod steering;

use super::fault::{Fault, Kind};
use super::ids::{AgentId, SessionKey};
use crate::kernel::policy::pattern::fits;
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// The sessions that a session of an agent can reach.
    Visibility {
        /// The session itself.
        Own = "self",
        /// The session itself and its descendants.
        Tree = "tree",
        /// Also sessions of the same agent.
        Agent = "agent",
        /// Every session of its tenant; those of other agents only if `agent_to_agent` allows both.
        All = "all",
    }
}

text_enum! {
    /// An operation on a session. Each has its own visibility.
    Right {
        /// Send a message to it.
        Send = "send",
        /// See that it exists, and its state.
        List = "list",
        /// Read its transcript.
        History = "history",
    }
}

/// The settings for access between sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The visibility of each right of [`Right::ALL`], in that order.
    pub reach: [Visibility; 3],
    /// Patterns in which `*` matches any text: two agents may interact if each matches one of them.
    pub agent_to_agent: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            reach: [Visibility::Tree; 3],
            agent_to_agent: Vec::new(),
        }
    }
}

/// The relation of a target session to the requesting session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same session.
    Same,
    /// A descendant.
    Descendant,
    /// Neither.
    Other,
}

/// The principal that requests an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who<'a> {
    /// A client; within its tenant its scopes decide.
    Client,
    /// A run in a session of an agent.
    Session {
        /// The agent.
        agent: &'a AgentId,
        /// Levels below the root session; a subagent sees at most its own tree.
        depth: u32,
    },
}

/// The session that the operation targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyTarget<'a> {
    /// Its key, for the refusal.
    pub key: &'a SessionKey,
    /// Its agent.
    pub agent: &'a AgentId,
    /// Its relation to the requesting session.
    pub relation: Relation,
}

impl Policy {
    /// Allows or refuses `right` on `target` for `who`; the fault names the setting that forbids
    /// it.
    pub fn may(&self, right: Right, who: Who<'_>, target: PolicyTarget<'_>) -> Result<(), Fault> {
        let Who::Session { agent, depth } = who else {
            return Ok(());
        };
        let set = self.reach(right);
        let reach = if depth > 0 && matches!(set, Visibility::Agent | Visibility::All) {
            Visibility::Tree
        } else {
            set
        };
        // Descendants are reachable whatever their agent.
        let allowed = match (target.relation, reach) {
            (Relation::Same, _) => true,
            (Relation::Descendant, Visibility::Own) => false,
            (Relation::Descendant, _) => true,
            (Relation::Other, Visibility::Own | Visibility::Tree) => false,
            (Relation::Other, Visibility::Agent) => target.agent == agent,
            (Relation::Other, Visibility::All) if target.agent == agent => true,
            (Relation::Other, Visibility::All) => {
                return self.between(agent, target.agent);
            }
        };
        if allowed {
            return Ok(());
        }
        let ceiling = if reach == set {
            ""
        } else {
            "; a subagent never sees more than its own tree"
        };
        Err(Fault::new(
            Kind::Forbidden,
            format!(
                "no access to session {}: sessions.visibility for {right} is {reach}{ceiling}",
                target.key
            ),
        )
        .hint("sessions_list shows the sessions that you can access")
        .with("sessionKey", target.key.as_str())
        .with("right", right.as_str())
        .with("visibility", reach.as_str()))
    }

    /// The visibility that is set for this right.
    pub fn reach(&self, right: Right) -> Visibility {
        let [send, list, history] = self.reach;
        match right {
            Right::Send => send,
            Right::List => list,
            Right::History => history,
        }
    }

    fn between(&self, one: &AgentId, other: &AgentId) -> Result<(), Fault> {
        let named = |agent: &AgentId| {
            self.agent_to_agent
                .iter()
                .any(|pattern| fits(pattern, agent.as_str()))
        };
        if named(one) && named(other) {
            return Ok(());
        }
        Err(Fault::new(
            Kind::Forbidden,
            format!(
                "agents {one} and {other} may not interact: \
                 sessions.agent_to_agent.allow must name both"
            ),
        )
        .hint("use a session of your own agent, or ask the operator to change the setting")
        .with("agents", vec![one.to_string(), other.to_string()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentId {
        AgentId::parse(name).unwrap()
    }

    fn policy(reach: Visibility, allow: &[&str]) -> Policy {
        Policy {
            reach: [reach; 3],
            agent_to_agent: allow.iter().map(ToString::to_string).collect(),
        }
    }

    fn may(policy: &Policy, depth: u32, other: &str, relation: Relation) -> bool {
        let (own, other) = (agent("build"), agent(other));
        let key = SessionKey::parse("agent:x:y").unwrap();
        let who = Who::Session { agent: &own, depth };
        let target = PolicyTarget {
            key: &key,
            agent: &other,
            relation,
        };
        policy.may(Right::Send, who, target).is_ok()
    }

    #[test]
    fn each_visibility_reaches_as_far_as_it_says() {
        use Relation::{Descendant, Other, Same};
        use Visibility::{Agent, All, Own, Tree};
        for (reach, relation, other, expected) in [
            (Own, Same, "build", true),
            (Own, Descendant, "explore", false),
            (Tree, Descendant, "explore", true),
            (Tree, Other, "build", false),
            (Agent, Descendant, "explore", true),
            (Agent, Other, "build", true),
            (Agent, Other, "explore", false),
            (All, Other, "build", true),
            (All, Other, "explore", false),
            (All, Descendant, "explore", true),
        ] {
            let found = may(&policy(reach, &[]), 0, other, relation);
            assert_eq!(found, expected, "{reach} {relation:?} {other}");
        }
    }

    #[test]
    fn two_agents_must_both_be_named() {
        let other = |allow: &[&str]| {
            may(
                &policy(Visibility::All, allow),
                0,
                "explore",
                Relation::Other,
            )
        };
        assert!(!other(&["explore"]));
        assert!(!other(&["build"]));
        assert!(other(&["build", "exp*"]));
        assert!(other(&["*"]));
    }

    #[test]
    fn a_subagent_sees_no_more_than_its_tree() {
        for reach in [Visibility::Agent, Visibility::All] {
            let policy = policy(reach, &["*"]);
            assert!(may(&policy, 0, "build", Relation::Other));
            assert!(!may(&policy, 1, "build", Relation::Other));
            assert!(may(&policy, 1, "build", Relation::Descendant));
        }
    }

    #[test]
    fn rights_are_apart() {
        let policy = Policy {
            reach: [Visibility::All, Visibility::Own, Visibility::Tree],
            agent_to_agent: Vec::new(),
        };
        let own = agent("build");
        let key = SessionKey::parse("agent:build:y").unwrap();
        let who = Who::Session {
            agent: &own,
            depth: 0,
        };
        let target = PolicyTarget {
            key: &key,
            agent: &own,
            relation: Relation::Other,
        };
        assert!(policy.may(Right::Send, who, target).is_ok());
        for right in [Right::List, Right::History] {
            let fault = policy.may(right, who, target).unwrap_err();
            assert_eq!(fault.kind, Kind::Forbidden);
            assert_eq!(fault.data["right"], right.as_str());
            assert!(policy.may(right, Who::Client, target).is_ok());
        }
    }
}
