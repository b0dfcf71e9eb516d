//! The agents that an agent is linked with, and the names of the tools by which it has them do
//! something. Definitions state the links, tools and registry carry them out.

use serde::{Deserialize, Serialize};

use crate::kernel::delegation::Stream;
use crate::kernel::gate::WriteScope;
use crate::kernel::ids::AgentId;

/// The tool that has any agent for spawned work do something.
pub const TASK: &str = "task";
/// What the name of a tool begins with that is one agent, in a session of its own.
pub const SEALED: &str = "subagent_";
/// What the name of a tool begins with that is one agent, in its caller's session.
pub const CALLED: &str = "call_";

/// The tool by which a plan has another agent do something. No model calls it by itself.
pub const DELEGATE: &str = "delegate";
/// So many agents a plan may choose from.
pub const MOST_CANDIDATES: usize = 20;

/// An agent that a plan may choose, as a run has pinned it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// By which it is told apart.
    pub id: AgentId,
    /// What people call it.
    pub name: String,
    /// What it is for.
    pub description: String,
}

impl Candidate {
    /// As the planner is told of it.
    pub fn line(&self) -> String {
        format!("{} (id: {}): {}", self.name, self.id, self.description)
    }
}

/// The `format` of a tool's argument that names an agent for spawned work. Where an agent is
/// made ready, those that it may delegate to take its place.
pub const HELPER_FORMAT: &str = "helper";

/// Where a linked agent works that is a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkSession {
    /// In one of its own, sealed: nothing is seen of it but its result.
    Own,
    /// In its caller's.
    Shared,
}

/// What becomes of a run when an agent has failed that it has called into its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is told, and goes on.
    Continue,
    /// It fails too.
    Abort,
}

impl OnFailure {
    /// Reads the text of definitions.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "continue" => Some(OnFailure::Continue),
            "abort" => Some(OnFailure::Abort),
            _ => None,
        }
    }
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
    /// How much of what it says is shown while it comes, if it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// What becomes of the caller when it fails that is called; as the caller says for all, if
    /// unset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
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
        stream: Option<Stream>,
        on_failure: Option<OnFailure>,
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
    /// A link that says no more than to whom.
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

    /// What the name of the tool begins with that it is, if it is one.
    pub fn prefix(&self) -> Option<&'static str> {
        Some(match self.session? {
            LinkSession::Own => SEALED,
            LinkSession::Shared => CALLED,
        })
    }

    /// The name of the tool that it is, if it is one. Providers take no dots in names of tools.
    pub fn tool(&self) -> Option<String> {
        let prefix = self.prefix()?;
        Some(format!("{prefix}{}", self.agent.as_str().replace('.', "_")))
    }
}

/// The prefix of a tool's name that is an agent.
pub fn prefix_of(tool: &str) -> Option<&'static str> {
    // A server's tools have two underscores behind the server's name.
    let begins = |prefix: &&str| {
        let rest = tool.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('_'))
    };
    [SEALED, CALLED].into_iter().find(begins)
}

/// Does another agent carry out a call of this tool, while its caller waits?
pub fn is_waited_for(tool: &str) -> bool {
    tool == TASK || tool == DELEGATE || prefix_of(tool).is_some()
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
