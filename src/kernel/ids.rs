//! Identities as types. Ids are UUID v7: sortable by creation, safe as clustered keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An id or key with an invalid format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidId {
    /// The kind of id that was expected.
    pub what: &'static str,
    /// The given text, cut to 80 bytes.
    pub text: String,
    /// The rule that it violates.
    pub rule: &'static str,
}

impl InvalidId {
    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        InvalidId {
            what,
            text: super::text::prefix(text, 80).to_owned(),
            rule,
        }
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                // Only the hyphenated form is accepted: one id has one text.
                if text.len() != 36 {
                    return Err(InvalidId::new($what, text, "ids are UUID text of 36 characters"));
                }
                Uuid::try_parse(text)
                    .map($name)
                    .map_err(|_| InvalidId::new($what, text, "ids are UUID text of 36 characters"))
            }
        }
    };
}

uuid_id!(
    /// One piece of work in a session.
    RunId, "run id"
);
uuid_id!(
    /// One conversation. After a deletion its key may be reused, its id never.
    SessionId, "session id"
);
uuid_id!(
    /// One journaled action of a run.
    StepId, "step id"
);
uuid_id!(
    /// One entry of a transcript.
    MessageId, "message id"
);
uuid_id!(
    /// A node that is paired with this gateway.
    NodeId, "node id"
);
uuid_id!(
    /// One call to a node. For a step of a run it has the same digits as the step's id, so that a
    /// repeated step calls once.
    CallId, "call id"
);
uuid_id!(
    /// One boot of the daemon process.
    BootId, "boot id"
);
uuid_id!(
    /// The announce of one run's end. Derived from the run id, so that the receiver recognizes a
    /// repeated delivery.
    AnnounceId, "announce id"
);

uuid_id!(
    /// A run's question to the user. It has the same digits as the id of the step that asks, so
    /// that a repeated step asks once.
    QuestionId, "question id"
);
uuid_id!(
    /// A person's approval of one tool call. It has the same digits as the id of the step that is
    /// the call, so that a repeated step asks once.
    ApprovalId, "approval id"
);
uuid_id!(
    /// One entry of the long-term memory. It has the same digits as the id of the tool step that
    /// saved it, so that a repeated step saves once.
    MemoryId, "memory id"
);

uuid_id!(
    /// An access token of a user. It is a part of the token's text and not secret.
    TokenId, "token id"
);

impl AnnounceId {
    /// The announce of `run`. A run has at most one, so both ids share their digits.
    pub fn of(run: RunId) -> AnnounceId {
        AnnounceId(run.0)
    }
}

impl MessageId {
    /// The answer of a model call, whose id is known before it is stored, so that a client that
    /// reads the stream can match it with the stored entry. A step has at most one answer, so both
    /// ids share their digits.
    pub fn answer_of(step: StepId) -> MessageId {
        MessageId(step.0)
    }
}

/// True for 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter or digit.
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The name of an agent: 1 to 64 letters, digits, `.`, `_` or `-`, starting with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId(String);

impl AgentId {
    /// Parses a name; fails if it does not match the pattern.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if is_name(text) {
            Ok(AgentId(text.to_owned()))
        } else {
            Err(InvalidId::new(
                "agent name",
                text,
                "1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit",
            ))
        }
    }

    /// A name as given by a caller or model: surrounding white space is dropped, and `None` for an
    /// empty name.
    pub fn given(text: &str) -> Option<&str> {
        Some(text.trim()).filter(|name| !name.is_empty())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The address of a session: names separated by `:`, such as `agent:build:main`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey(String);

impl SessionKey {
    /// Parses a key of at most 256 characters whose parts are all names.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if text.len() <= 256 && text.split(':').all(is_name) {
            Ok(SessionKey(text.to_owned()))
        } else {
            Err(InvalidId::new(
                "session key",
                text,
                "names of letters, digits, '.', '_', '-' separated by ':', at most 256 characters",
            ))
        }
    }

    /// The key of a subagent's own session.
    pub fn child(agent: &AgentId, id: SessionId) -> Self {
        SessionKey(format!("agent:{}:subagent:{id}", agent.as_str()))
    }

    /// The default key of a root session.
    pub fn root(agent: &AgentId, id: SessionId) -> Self {
        SessionKey(format!("agent:{}:{id}", agent.as_str()))
    }

    /// The default key of a client-owned session.
    pub fn client(id: SessionId) -> Self {
        SessionKey(format!("client:{id}"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                $name::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, InvalidId> {
                $name::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

text_id!(AgentId);
text_id!(SessionKey);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g10_5_ids_are_checked_by_pattern() {
        for bad in [
            "",
            "../x",
            "a/b",
            "agent:",
            ":a",
            "a::b",
            "a b",
            "-a",
            "ä",
            "a\0b",
            &"x".repeat(65),
            &"a:".repeat(200),
        ] {
            assert!(SessionKey::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["main", "agent:build:main", "bot.42:chat-7", "A_1"] {
            assert!(SessionKey::parse(good).is_ok(), "{good:?}");
        }
        assert!(AgentId::parse("a:b").is_err());
    }

    #[test]
    fn one_id_has_one_text() {
        let text = "01936f0e-0000-7000-8000-000000000001";
        let id: RunId = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        assert!("01936f0e000070008000000000000001".parse::<RunId>().is_err());
        assert!(format!("{{{text}}}").parse::<RunId>().is_err());
    }

    #[test]
    fn d1_child_key_has_the_seeds_shape() {
        let id: SessionId = "01936f0e-0000-7000-8000-000000000001".parse().unwrap();
        let key = SessionKey::child(&AgentId::parse("explore").unwrap(), id);
        assert_eq!(key.as_str(), format!("agent:explore:subagent:{id}"));
        assert!(SessionKey::parse(key.as_str()).is_ok());
    }
}
