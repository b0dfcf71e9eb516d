//! A session: a conversation with a transcript.

use super::ids::{AgentId, SessionId, SessionKey};
use super::run::Usage;
use super::text_enum::text_enum;
use super::thinking::Thinking;
use super::time::Timestamp;

text_enum! {
    /// What becomes of a transcript that is too long for its model.
    Overflow {
        /// A summary stands for its older part.
        Summarize = "summarize",
        /// Its older turns are left out.
        Slide = "slide",
        /// Nothing: the provider says what it thinks of it.
        None = "none",
    }
}

text_enum! {
    /// Who answers in a session.
    Owner {
        /// Its agent: messages become turns.
        Agent = "agent",
        /// A client program: nothing runs, announces wait for `sessions.ack`.
        Client = "client",
    }
}

text_enum! {
    /// How long a session stays open for messages.
    SessionMode {
        /// For the one task that it was spawned for.
        Run = "run",
        /// Until it is deleted.
        Session = "session",
    }
}

text_enum! {
    /// What becomes of a spawned session once its runs have ended and all is told.
    Cleanup {
        /// It stays, and is archived after a while.
        Keep = "keep",
        /// It is deleted, with the sessions below it.
        Delete = "delete",
    }
}

/// Where a forked session's transcript begins: with that of another session, by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fork {
    /// The other session; it is a parent, so it stays as long as the fork does.
    pub of: SessionId,
    /// Its generation then.
    pub generation: i64,
    /// The seq of its last message then; the fork's own go on from there.
    pub seq: i64,
}

/// A conversation with a transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The tenant.
    pub org: String,
    /// Its address.
    pub key: SessionKey,
    /// Raised by a reset; rows bind to id and generation.
    pub generation: i64,
    /// Who answers in it.
    pub owner: Owner,
    /// The agent of its turns.
    pub agent: AgentId,
    /// The session that it was spawned from.
    pub parent: Option<SessionId>,
    /// That session's key.
    pub parent_key: Option<SessionKey>,
    /// The topmost session of the tree; itself for a root.
    pub root: SessionId,
    /// Levels below the root.
    pub depth: u32,
    /// A name given by a client.
    pub label: Option<String>,
    /// A heading for people.
    pub title: Option<String>,
    /// The model of its turns, if not the agent's.
    pub model: Option<String>,
    /// How much the model of its turns thinks, if not the agent's.
    pub thinking: Option<Thinking>,
    /// The folder that its tools see.
    pub cwd: Option<String>,
    /// How long it stays open for messages.
    pub mode: SessionMode,
    /// What becomes of it once all is told.
    pub cleanup: Cleanup,
    /// When the sweep put it aside.
    pub archived_at: Option<Timestamp>,
    /// What its transcript begins with.
    pub fork: Option<Fork>,
    /// The seq of its last message; without a fork, how many it holds.
    pub messages: i64,
    /// Model use of all its runs.
    pub usage: Usage,
    /// When it was made.
    pub created_at: Timestamp,
    /// The last change.
    pub updated_at: Timestamp,
    /// Raised by each write.
    pub ver: i64,
}
