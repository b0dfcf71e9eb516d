//! Why something was refused or failed, as every room says it. The wire's table maps a kind
//! to its RPC code and exit code.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What kind of fault; clients switch on its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The message is not JSON.
    ParseError,
    /// JSON, but no JSON-RPC request.
    InvalidRequest,
    /// No method of that name.
    UnknownMethod,
    /// A parameter is missing, unknown or of the wrong shape.
    InvalidParams,
    /// A defect of this program; the daemon goes on.
    Internal,
    /// No token, or not the right one.
    Unauthorized,
    /// Policy or scope does not allow it.
    Forbidden,
    /// Nothing has that id.
    NotFound,
    /// It contradicts what is there.
    Conflict,
    /// Too many bytes.
    TooLarge,
    /// A configured limit is reached.
    Limit,
    /// Too many tries; later it may work.
    RateLimited,
    /// Starting, draining or out of disk space; later it may work.
    Unavailable,
    /// Too much at once; in a moment it may work.
    Busy,
    /// What came after an event cursor is not kept any more.
    CursorExpired,
    /// An event cursor of another store.
    CursorUnknown,
}

impl Kind {
    /// Every kind.
    pub const ALL: &'static [Kind] = &[
        Kind::ParseError,
        Kind::InvalidRequest,
        Kind::UnknownMethod,
        Kind::InvalidParams,
        Kind::Internal,
        Kind::Unauthorized,
        Kind::Forbidden,
        Kind::NotFound,
        Kind::Conflict,
        Kind::TooLarge,
        Kind::Limit,
        Kind::RateLimited,
        Kind::Unavailable,
        Kind::Busy,
        Kind::CursorExpired,
        Kind::CursorUnknown,
    ];

    /// The text that stands in `data.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::ParseError => "parse_error",
            Kind::InvalidRequest => "invalid_request",
            Kind::UnknownMethod => "unknown_method",
            Kind::InvalidParams => "invalid_params",
            Kind::Internal => "internal",
            Kind::Unauthorized => "unauthorized",
            Kind::Forbidden => "forbidden",
            Kind::NotFound => "not_found",
            Kind::Conflict => "conflict",
            Kind::TooLarge => "too_large",
            Kind::Limit => "limit",
            Kind::RateLimited => "rate_limited",
            Kind::Unavailable => "unavailable",
            Kind::Busy => "busy",
            Kind::CursorExpired => "cursor_expired",
            Kind::CursorUnknown => "cursor_unknown",
        }
    }
}

/// A refusal or failure: what happened, what to do, and data for programs.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What kind it is.
    pub kind: Kind,
    /// One sentence: what happened, and what was kept where that is not plain.
    pub message: String,
    /// One sentence: what to do.
    pub hint: Option<String>,
    /// Further fields for programs (`path`, `limit`, `value`, …).
    /// Boxed, so that a `Result` with a fault in it stays small.
    pub data: Box<Map<String, Value>>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            hint: None,
            data: Box::default(),
        }
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a field for programs.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// Nothing has that id.
    pub fn not_found(what: &str, id: impl fmt::Display) -> Self {
        let id = id.to_string();
        Fault::new(Kind::NotFound, format!("no {what} {id}")).with("id", id)
    }

    /// A parameter that cannot be taken; `path` names it.
    pub fn params(path: &str, message: impl fmt::Display) -> Self {
        Fault::new(Kind::InvalidParams, format!("{path}: {message}")).with("path", path)
    }

    /// A defect of this program.
    pub fn internal(message: impl fmt::Display) -> Self {
        Fault::new(Kind::Internal, message.to_string())
            .hint("this is a defect; the daemon goes on, its log has the details")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_kinds_has_every_kind() {
        // The message of a word that is none lists all that there are.
        let refusal = serde_json::from_str::<Kind>("\"none\"")
            .unwrap_err()
            .to_string();
        let known = refusal.split_once("expected one of ").unwrap().1;
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let listed: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(known, listed);
    }
}
