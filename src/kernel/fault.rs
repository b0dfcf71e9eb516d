//! The error type that every module returns for refusals and failures. The wire's table maps a kind
//! to its RPC code and exit code.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of a fault; clients branch on its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The message is not JSON.
    ParseError,
    /// It is JSON, but not a JSON-RPC request.
    InvalidRequest,
    /// No method has that name.
    UnknownMethod,
    /// A parameter is missing, unknown or of the wrong shape.
    InvalidParams,
    /// A defect of this program; the daemon continues.
    Internal,
    /// The token is missing or wrong.
    Unauthorized,
    /// The policy or the caller's scope does not allow it.
    Forbidden,
    /// Nothing has that id.
    NotFound,
    /// It conflicts with the current state.
    Conflict,
    /// The request has too many bytes.
    TooLarge,
    /// A configured limit is reached.
    Limit,
    /// Too many attempts; a retry may succeed later.
    RateLimited,
    /// The daemon is starting, draining or out of disk space; a retry may succeed later.
    Unavailable,
    /// The daemon is overloaded; a retry may succeed soon.
    Busy,
    /// The events after this cursor are past their retention.
    CursorExpired,
    /// The event cursor belongs to another store.
    CursorUnknown,
}

impl Kind {
    /// Every kind, in declaration order.
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

    /// The text sent in `data.kind`.
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
    /// The kind that clients branch on.
    pub kind: Kind,
    /// One sentence: what happened, and what was kept where that is not obvious.
    pub message: String,
    /// One sentence: what to do about it.
    pub hint: Option<String>,
    /// Further fields for programs (`path`, `limit`, `value`, …). Boxed, so that a `Result` with a
    /// fault stays small.
    pub data: Box<Map<String, Value>>,
}

impl Fault {
    /// A fault with neither a hint nor data.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Fault {
            kind,
            message: message.into(),
            hint: None,
            data: Box::default(),
        }
    }

    /// Sets the hint, which says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a data field for programs.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// The fault for an id that nothing has; `what` names the kind of thing.
    pub fn not_found(what: &str, id: impl fmt::Display) -> Self {
        let id = id.to_string();
        Fault::new(Kind::NotFound, format!("no {what} {id}")).with("id", id)
    }

    /// The fault for an invalid parameter; `path` names it.
    pub fn params(path: &str, message: impl fmt::Display) -> Self {
        Fault::new(Kind::InvalidParams, format!("{path}: {message}")).with("path", path)
    }

    /// The fault for a defect of this program.
    pub fn internal(message: impl fmt::Display) -> Self {
        Fault::new(Kind::Internal, message.to_string())
            .hint("this is a defect; the daemon keeps running, and its log has the details")
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
        // Deserializing an unknown kind fails with an error that lists every known kind.
        let refusal = serde_json::from_str::<Kind>("\"none\"")
            .unwrap_err()
            .to_string();
        let known = refusal.split_once("expected one of ").unwrap().1;
        let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let listed: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(known, listed);
    }
}
