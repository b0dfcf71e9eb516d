//! Errors on the wire. One table gives each error kind its RPC code, CLI exit code and
//! retryability.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::kernel::fault::{Fault, Kind};

/// Properties of an error kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// JSON-RPC error code.
    pub code: i32,
    /// Exit code of the command line.
    pub exit: u8,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// What to do, used if the fault has no hint of its own.
    pub hint: &'static str,
}

/// Properties of each error kind. Standard faults keep the standard codes. The other codes are
/// outside the range that JSON-RPC reserves, where libraries and other protocols collide.
pub const fn row(kind: Kind) -> Row {
    let (code, exit, retryable, hint) = match kind {
        Kind::ParseError => (
            -32700,
            2,
            false,
            "send JSON: one object, or an array of them",
        ),
        Kind::InvalidRequest => (
            -32600,
            2,
            false,
            "send {\"jsonrpc\": \"2.0\", \"id\", \"method\", \"params\"}",
        ),
        Kind::UnknownMethod => (-32601, 2, false, "gateway.hello lists the methods"),
        Kind::InvalidParams => (-32602, 2, false, "correct the parameter and send it again"),
        Kind::Internal => (
            -32603,
            1,
            false,
            "this is a defect; the daemon's log has the details",
        ),
        Kind::Unauthorized => (
            401,
            11,
            false,
            "send the header Authorization: Bearer with the token from the state folder",
        ),
        Kind::Forbidden => (403, 9, false, "use a principal that has the required right"),
        Kind::NotFound => (404, 3, false, "check the id"),
        Kind::Conflict => (409, 9, false, "read the current state, then decide"),
        Kind::TooLarge => (413, 9, false, "request or send less at once"),
        Kind::Limit => (429, 9, false, "free some room, or raise the limit"),
        Kind::RateLimited => (429, 9, true, "wait before the next attempt"),
        Kind::Unavailable => (503, 9, true, "try again in a moment"),
        Kind::Busy => (
            503,
            9,
            true,
            "try again in a moment, with fewer calls at once",
        ),
        Kind::CursorExpired => (
            410,
            9,
            false,
            "subscribe without since: the snapshot shows what is live",
        ),
        Kind::CursorUnknown => (
            410,
            9,
            false,
            "subscribe without since: cursors and ids of another store are not valid here",
        ),
    };
    Row {
        code,
        exit,
        retryable,
        hint,
    }
}

/// Error object of a JSON-RPC response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireError {
    /// Error code of the kind, see [`row`].
    pub code: i32,
    /// One sentence: what happened and, where it is not obvious, what was kept.
    pub message: String,
    /// `kind`, `hint`, `retryable`, and details of the kind (`path`, `limit`, …).
    #[serde(default)]
    pub data: Map<String, Value>,
}

impl WireError {
    /// Error kind; `None` for a kind that this version does not know.
    pub fn kind(&self) -> Option<Kind> {
        Kind::deserialize(self.data.get("kind")?).ok()
    }

    /// What to do; `None` if the error has no hint.
    pub fn hint(&self) -> Option<&str> {
        self.data.get("hint")?.as_str()
    }

    /// Exit code of the command line; 1 for an unknown kind.
    pub fn exit(&self) -> u8 {
        self.kind().map_or(1, |kind| row(kind).exit)
    }
}

impl From<Fault> for WireError {
    fn from(fault: Fault) -> Self {
        let row = row(fault.kind);
        let mut data = Map::with_capacity(fault.data.len() + 3);
        data.insert("kind".to_owned(), fault.kind.as_str().into());
        let hint = fault.hint.unwrap_or_else(|| row.hint.to_owned());
        data.insert("hint".to_owned(), hint.into());
        data.insert("retryable".to_owned(), row.retryable.into());
        data.extend(*fault.data);
        WireError {
            code: row.code,
            message: fault.message,
            data,
        }
    }
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match self.hint() {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for WireError {}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 16] = [
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

    #[test]
    fn every_kind_survives_the_way_to_a_client() {
        for kind in KINDS {
            let error = WireError::from(Fault::new(kind, "what happened").with("path", "a"));
            let text = serde_json::to_string(&error).unwrap();
            let read: WireError = serde_json::from_str(&text).unwrap();
            assert_eq!(read, error);
            assert_eq!(read.kind(), Some(kind));
            assert_eq!(read.exit(), row(kind).exit);
            assert_eq!(read.data["retryable"], row(kind).retryable);
            assert_eq!(read.data["path"], "a");
            assert!(read.hint().is_some_and(|hint| !hint.is_empty()), "{kind:?}");
        }
    }

    #[test]
    fn own_codes_lie_outside_the_reserved_range() {
        let standard = [-32700, -32600, -32601, -32602, -32603];
        for kind in KINDS {
            let code = row(kind).code;
            assert!(
                standard.contains(&code) || !(-32768..=-32000).contains(&code),
                "{kind:?} {code}"
            );
            assert_ne!(row(kind).exit, 0, "{kind:?}");
        }
    }

    #[test]
    fn a_faults_own_hint_goes_before_the_tables() {
        let error = WireError::from(Fault::new(Kind::Busy, "full").hint("mine"));
        assert_eq!(error.hint(), Some("mine"));
    }

    #[test]
    fn an_unknown_kind_is_other() {
        let error: WireError =
            serde_json::from_str(r#"{"code": 499, "message": "m", "data": {"kind": "new"}}"#)
                .unwrap();
        assert_eq!(error.kind(), None);
        assert_eq!(error.exit(), 1);
    }
}
