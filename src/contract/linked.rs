//! The agents that an agent is linked with, and the names of the tools by which it has them do
//! something. Definitions state the links, tools and registry carry them out.

use serde::{Deserialize, Serialize};

use crate::kernel::gate::WriteScope;
use crate::kernel::ids::AgentId;

/// The tool that has any agent for spawned work do something.
pub const TASK: &str = "task";
/// What the name of a tool begins with that is one agent, in a session of its own.
pub const SEALED: &str = "subagent_";

/// The `format` of a tool's argument that names an agent for spawned work. Where an agent is
/// made ready, those that it may delegate to take its place.
pub const HELPER_FORMAT: &str = "helper";

/// Where a linked agent works that is a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSession {
    /// In one of its own, sealed: nothing is seen of it but its result.
    Own,
}

/// A link to another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Link {
    /// To whom.
    pub agent: AgentId,
    /// It is a tool that works there; unset = it may be delegated to by the other tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<LinkSession>,
    /// How long a call may take, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Where it may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_scope: Option<WriteScope>,
}

/// As a pinned definition holds it: older ones have the name alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Name(AgentId),
    Whole {
        agent: AgentId,
        session: Option<LinkSession>,
        timeout_ms: Option<u64>,
        write_scope: Option<WriteScope>,
    },
}

impl From<Written> for Link {
    fn from(written: Written) -> Self {
        match written {
            Written::Name(agent) => Link::to(agent),
            Written::Whole {
                agent,
                session,
                timeout_ms,
                write_scope,
            } => Link {
                agent,
                session,
                timeout_ms,
                write_scope,
            },
        }
    }
}

impl Link {
    /// A link that says no more than to whom.
    pub fn to(agent: AgentId) -> Self {
        Link {
            agent,
            session: None,
            timeout_ms: None,
            write_scope: None,
        }
    }

    /// The name of the tool that it is, if it is one. Providers take no dots in names of tools.
    pub fn tool(&self) -> Option<String> {
        match self.session? {
            LinkSession::Own => Some(format!("{SEALED}{}", self.agent.as_str().replace('.', "_"))),
        }
    }
}

/// Does another agent carry out a call of this tool, while its caller waits?
pub fn is_waited_for(tool: &str) -> bool {
    tool == TASK || tool.starts_with(SEALED)
}

/// Does a call of this tool make a run below its caller's?
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
    }
}
