//! A session: a conversation with a transcript.

pub mod blocks;
pub mod message;
pub mod raw_metadata;
pub mod send;
pub mod stored_content;

use super::ids::{AgentId, SessionId, SessionKey};
use super::run::Usage;
use super::time::Timestamp;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// How to treat a transcript that is too long for its model.
    Overflow {
        /// Its older part is replaced by a summary.
        Summarize = "summarize",
        /// Its older turns are left out.
        Slide = "slide",
        /// It is sent unchanged; the provider may refuse it.
        None = "none",
    }
}

text_enum! {
    /// Who answers in a session.
    Owner {
        /// Its agent: messages start turns.
        Agent = "agent",
        /// A client program: no turns run, and announces wait for `sessions.ack`.
        Client = "client",
    }
}

text_enum! {
    /// Lifetime of the child session.
    #[schemars(rename = "Mode")]
    SessionMode {
        /// One task.
        Run = "run",
        /// Until it is deleted.
        Session = "session",
    }
}

text_enum! {
    /// What happens to the child session after its run.
    Cleanup {
        /// It is kept and archived after a while.
        Keep = "keep",
        /// It is deleted once all announces are delivered.
        Delete = "delete",
    }
}

/// The origin of a forked session: its transcript starts with that of another session, by
/// reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The other session; it is a parent, so it stays as long as the fork does.
    pub of: SessionId,
    /// Generation of that session at the fork.
    pub generation: i64,
    /// Seq of that session's last message at the fork; the fork's own messages continue from it.
    pub seq: i64,
}

/// A conversation with a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The id; it is never reused.
    pub id: SessionId,
    /// Tenant that owns the session.
    pub org: String,
    /// Its address.
    pub key: SessionKey,
    /// Raised by a reset; rows bind to id and generation.
    pub generation: i64,
    /// Who answers the messages in it.
    pub owner: Owner,
    /// The agent of its turns.
    pub agent: AgentId,
    /// The session that it was spawned from.
    pub parent: Option<SessionId>,
    /// Key of that session.
    pub parent_key: Option<SessionKey>,
    /// The root session of its tree; its own id for a root.
    pub root: SessionId,
    /// Levels below the root.
    pub depth: u32,
    /// A name given by a client.
    pub label: Option<String>,
    /// A title for people.
    pub title: Option<String>,
    /// The model of its turns; `None` = the agent's.
    pub model: Option<String>,
    /// The thinking level of its turns; `None` = the agent's.
    pub thinking: Option<Thinking>,
    /// The working directory of its tools.
    pub cwd: Option<String>,
    /// How long it accepts messages.
    pub mode: SessionMode,
    /// What happens to it once all announces are delivered.
    pub cleanup: Cleanup,
    /// When it was archived by the sweep.
    pub archived_at: Option<Timestamp>,
    /// The fork that its transcript starts with, if any.
    pub fork: Option<Fork>,
    /// Seq of its last message; without a fork this is the number of its messages.
    pub messages: i64,
    /// Model usage of all its runs.
    pub usage: Usage,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// Row version, raised by each write.
    pub ver: i64,
}
