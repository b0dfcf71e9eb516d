//! Identities as types. Ids are UUID v7: sortable by creation, safe as clustered keys.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An id or key that does not have the shape it must have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} is not valid: {rule}")]
pub struct InvalidId {
    /// What kind of id was expected.
    pub what: &'static str,
    /// The text that was given, cut to 80 bytes.
    pub text: String,
    /// The rule that it breaks.
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
                // Only the hyphenated form: one id has one text.
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
    /// One conversation; its key may be given to another session after a delete, its id never.
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
    /// One life of the daemon process.
    BootId, "boot id"
);
uuid_id!(
    /// The telling of one run's end. Derived from the run id, so that a repeated delivery is
    /// recognised by whoever receives it.
    AnnounceId, "announce id"
);

uuid_id!(
    /// A question of a run to a person. The step that asks it has the same digits, so that a
    /// repeated step asks once.
    QuestionId, "question id"
);
uuid_id!(
    /// A person's leave for one call of a tool. The step that is the call has the same digits,
    /// so that a repeated step asks once.
    ApprovalId, "approval id"
);
uuid_id!(
    /// One thing in the long-term memory. The step that has kept it by a tool has the same
    /// digits, so that a repeated step keeps it once.
    MemoryId, "memory id"
);

impl AnnounceId {
    /// The announce of `run`. A run has at most one, so the two share their digits.
    pub fn of(run: RunId) -> AnnounceId {
        AnnounceId(run.0)
    }
}

impl MessageId {
    /// The answer of a model call, which has its id before it is stored: whoever hears it come
    /// knows it again. A step has at most one, so the two share their digits.
    pub fn answer_of(step: StepId) -> MessageId {
        MessageId(step.0)
    }
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=64).contains(&bytes.len())
        && bytes[0].is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// The name of an agent: letters, digits, `.`, `_`, `-`; 1 to 64 of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId(String);

impl AgentId {
    /// Checks `text` against the pattern.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if is_name(text) {
            Ok(AgentId(text.to_owned()))
        } else {
            Err(InvalidId::new(
                "agent name",
                text,
                "1 to 64 letters, digits, '.', '_' or '-', first a letter or digit",
            ))
        }
    }

    /// A name as callers and models give it: blanks around it do not count, and what is empty
    /// then names no agent.
    pub fn given(text: &str) -> Option<&str> {
        Some(text.trim()).filter(|name| !name.is_empty())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The address of a session: names parted by `:`, such as `agent:build:main`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionKey(String);

impl SessionKey {
    /// Checks `text` against the pattern: at most 256 characters, each part a name.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if text.len() <= 256 && text.split(':').all(is_name) {
            Ok(SessionKey(text.to_owned()))
        } else {
            Err(InvalidId::new(
                "session key",
                text,
                "names of letters, digits, '.', '_', '-' parted by ':', 256 characters at most",
            ))
        }
    }

    /// The key of a subagent's own session.
    pub fn child(agent: &AgentId, id: SessionId) -> Self {
        SessionKey(format!("agent:{}:subagent:{id}", agent.as_str()))
    }

    /// The key of a root session that was not given one.
    pub fn root(agent: &AgentId, id: SessionId) -> Self {
        SessionKey(format!("agent:{}:{id}", agent.as_str()))
    }

    /// The key of a client-owned session that was not given one.
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
