//! Links between agents, and the names of the delegation tools. Agent definitions declare the
//! links; tools and registry carry them out.

use serde::{Deserialize, Serialize};

use crate::kernel::delegation::Stream;
use crate::kernel::ids::AgentId;
use crate::kernel::policy::gate::WriteScope;

/// The tool that delegates to any agent made for spawned work.
pub const TASK: &str = "task";
/// Name prefix of a tool that is one agent in a session of its own.
pub const SUBAGENT_PREFIX: &str = "subagent_";
/// Name prefix of a tool that is one agent in its caller's session.
pub const CALL_PREFIX: &str = "call_";

/// The tool by which a plan delegates to another agent. It is never offered to a model.
pub const DELEGATE: &str = "delegate";
/// Maximum number of agents that a plan may choose from.
pub const MAX_CANDIDATES: usize = 20;

/// An agent that a plan may choose, as pinned by a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCandidate {
    /// Its unique id.
    pub id: AgentId,
    /// Its display name.
    pub name: String,
    /// What it is for.
    pub description: String,
}

impl PlanCandidate {
    /// Its line in the planner's prompt.
    pub fn line(&self) -> String {
        format!("{} (id: {}): {}", self.name, self.id, self.description)
    }
}

/// The `format` of a tool argument that names an agent for spawned work. When an agent is resolved,
/// it is replaced by an `enum` of the agents that it may delegate to.
pub const HELPER_FORMAT: &str = "helper";

/// The session in which a linked agent works that is offered as a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSession {
    /// A session of its own, sealed: the caller sees only its result.
    Own,
    /// Its caller's session.
    Shared,
}

/// What happens to a run when an agent that it has called into its session fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The failure is returned as the tool result, and the run continues.
    Continue,
    /// The run fails, too.
    Abort,
}

/// A link to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredLink")]
pub struct Link {
    /// The linked agent.
    pub agent: AgentId,
    /// The link is a tool that works in this session; unset = the other delegation tools may name
    /// the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<LinkSession>,
    /// Time limit of a call, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Where the agent may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_scope: Option<WriteScope>,
    /// How much of the agent's text is streamed while it works, for a `call_` tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// What happens to the caller when the called agent fails; the caller's `on_child_failure` if
    /// unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
}

/// The format in pinned definitions: older ones contain only the name.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredLink {
    Name(AgentId),
    Whole {
        agent: AgentId,
        session: Option<LinkSession>,
        timeout_ms: Option<u64>,
        write_scope: Option<WriteScope>,
        stream: Option<Stream>,
        on_failure: Option<OnFailure>,
    },
}

impl From<StoredLink> for Link {
    fn from(written: StoredLink) -> Self {
        match written {
            StoredLink::Name(agent) => Link::to(agent),
            StoredLink::Whole {
                agent,
                session,
                timeout_ms,
                write_scope,
                stream,
                on_failure,
            } => Link {
                agent,
                session,
                timeout_ms,
                write_scope,
                stream,
                on_failure,
            },
        }
    }
}

impl Link {
    /// A link with no options set.
    pub fn to(agent: AgentId) -> Self {
        Link {
            agent,
            session: None,
            timeout_ms: None,
            write_scope: None,
            stream: None,
            on_failure: None,
        }
    }

    /// The name prefix of its tool, if it is one.
    pub fn prefix(&self) -> Option<&'static str> {
        Some(match self.session? {
            LinkSession::Own => SUBAGENT_PREFIX,
            LinkSession::Shared => CALL_PREFIX,
        })
    }

    /// The name of its tool, if it is one. Dots are replaced, since providers reject them in tool
    /// names.
    pub fn tool(&self) -> Option<String> {
        let prefix = self.prefix()?;
        Some(format!("{prefix}{}", self.agent.as_str().replace('.', "_")))
    }
}

/// The prefix of this tool's name, if the tool is a linked agent.
pub fn prefix_of(tool: &str) -> Option<&'static str> {
    // In the name of a tool server's tool, the server's name is followed by two underscores.
    let begins = |prefix: &&str| {
        let rest = tool.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('_'))
    };
    [SUBAGENT_PREFIX, CALL_PREFIX].into_iter().find(begins)
}

/// True if another agent carries out a call of this tool while the caller waits.
pub fn is_waited_for(tool: &str) -> bool {
    tool == TASK || tool == DELEGATE || prefix_of(tool).is_some()
}

/// Does a call of this tool create a child run of its caller?
pub fn delegates(tool: &str) -> bool {
    tool == "sessions_spawn" || is_waited_for(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_as_older_and_newer_definitions_hold_it() {
        let agent = AgentId::parse("reviewer").unwrap();
        let plain: Link = serde_json::from_str("\"reviewer\"").unwrap();
        assert_eq!(plain, Link::to(agent.clone()));
        assert_eq!(plain.tool(), None);
        let own = Link {
            session: Some(LinkSession::Own),
            timeout_ms: Some(1000),
            write_scope: Some(WriteScope::Own),
            ..plain
        };
        assert_eq!(own.tool().as_deref(), Some("subagent_reviewer"));
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Link>(&text).unwrap(), own);
        let dotted = Link {
            agent: AgentId::parse("code.review").unwrap(),
            ..own
        };
        assert_eq!(dotted.tool().as_deref(), Some("subagent_code_review"));
        assert!(delegates("subagent_reviewer") && delegates("task") && !delegates("tasks"));
        assert!(delegates("sessions_spawn") && !is_waited_for("sessions_spawn"));
        assert!(delegates("call_reviewer") && !delegates("call__reviewer") && !delegates("call_"));
        let shared = Link {
            session: Some(LinkSession::Shared),
            stream: Some(Stream::Direct),
            on_failure: Some(OnFailure::Abort),
            ..Link::to(AgentId::parse("code.review").unwrap())
        };
        assert_eq!(shared.tool().as_deref(), Some("call_code_review"));
        let text = serde_json::to_string(&shared).unwrap();
        assert_eq!(serde_json::from_str::<Link>(&text).unwrap(), shared);
    }
}
