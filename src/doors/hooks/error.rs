//! Why a delivery starts nothing, with the HTTP status that tells its sender whether to repeat it.

use serde_json::{Value, json};

use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// When a sender may repeat a delivery that met a limit or a hook that cannot start its run.
const REPEAT_AFTER_MS: u64 = 30_000;

/// A delivery that has started nothing.
#[derive(Clone, Debug)]
pub(crate) struct HookError {
    /// HTTP status.
    pub(crate) status: u16,
    error: WireError,
}

impl HookError {
    /// The body is in a form that is not read.
    pub(super) fn wrong_form() -> Self {
        let message = "the Content-Type must be application/json; nothing was started";
        let hint = "let the sender send JSON; with check = \"github\" a form with the field payload \
                    is read, too";
        HookError::of(415, Fault::new(Kind::InvalidRequest, message).hint(hint))
    }

    /// The body has no JSON.
    pub(super) fn not_json(message: String) -> Self {
        let message = format!("{message}; nothing was started");
        let hint = "send one JSON value in UTF-8";
        HookError::of(400, Fault::new(Kind::ParseError, message).hint(hint))
    }

    /// The delivery does not fit the templates; `path` names the field.
    pub(super) fn unfit(path: &str, message: String) -> Self {
        let hint = "correct the templates of the hook, or give the field a default: {field|text}";
        let fault = Fault::new(Kind::InvalidParams, message);
        HookError::of(422, fault.with("path", path).hint(hint))
    }

    /// The hook cannot be used until its settings are corrected. Its sender learns no more than
    /// that; the reason is for the log.
    pub(crate) fn misconfigured(why: &str) -> Self {
        tracing::warn!(why, "a hook cannot be used");
        let fault = Fault::new(
            Kind::Unavailable,
            "this hook cannot be used at present; nothing was started",
        );
        HookError::from(
            fault
                .hint("abide doctor and the daemon's log say why")
                .with("retryAfterMs", REPEAT_AFTER_MS),
        )
    }

    /// The refusal of a request before its delivery was read.
    pub(crate) fn of(status: u16, fault: Fault) -> Self {
        HookError {
            status,
            error: fault.into(),
        }
    }

    /// What happened.
    pub(crate) fn message(&self) -> &str {
        &self.error.message
    }

    /// Seconds after which the delivery may be repeated; `None` if that would not help.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        let ms = self.error.data.get("retryAfterMs").and_then(Value::as_u64);
        match self.status {
            429 | 503 => Some(ms.unwrap_or(REPEAT_AFTER_MS).div_ceil(1000)),
            _ => None,
        }
    }

    /// The body of the answer: `error` as in an answer of the API.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": self.error })
    }
}

impl From<WireError> for HookError {
    fn from(error: WireError) -> Self {
        let status = match error.kind() {
            Some(Kind::Unauthorized) => 401,
            Some(Kind::Conflict) => 409,
            Some(Kind::TooLarge) => 413,
            Some(Kind::InvalidParams) => 422,
            Some(Kind::Limit | Kind::RateLimited) => 429,
            // Its agent is missing or may not run.
            Some(Kind::NotFound | Kind::Forbidden) => {
                return HookError::misconfigured(&error.message);
            }
            Some(Kind::Busy | Kind::Unavailable) => 503,
            Some(Kind::ParseError | Kind::InvalidRequest) => 400,
            Some(
                Kind::Internal | Kind::UnknownMethod | Kind::CursorExpired | Kind::CursorUnknown,
            )
            | None => 500,
        };
        HookError { status, error }
    }
}

impl From<Fault> for HookError {
    fn from(fault: Fault) -> Self {
        WireError::from(fault).into()
    }
}
