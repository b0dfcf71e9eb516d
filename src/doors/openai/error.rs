//! Errors in the form of the OpenAI API.

use serde_json::{Value, json};

use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::wire::error::WireError;

/// An error of a request.
#[derive(Clone, Debug)]
pub(crate) struct OpenAiError {
    /// HTTP status.
    pub(crate) status: u16,
    /// Class of the error, such as `invalid_request_error`.
    pub(crate) class: &'static str,
    /// Stable name of the error.
    pub(crate) code: String,
    /// What happened and what to do.
    pub(crate) message: String,
    /// The field of the request that is wrong.
    pub(crate) param: Option<String>,
    /// Whether the same request may succeed later.
    pub(crate) retryable: bool,
    /// Milliseconds until then, if they are known.
    pub(crate) retry_after_ms: Option<u64>,
}

impl OpenAiError {
    /// A field of the request that is wrong or not supported.
    pub(super) fn field(param: &str, code: &str, message: impl Into<String>) -> Self {
        OpenAiError {
            status: 400,
            class: "invalid_request_error",
            code: code.to_owned(),
            message: message.into(),
            param: Some(param.to_owned()),
            retryable: false,
            retry_after_ms: None,
        }
    }

    /// The model names no agent.
    pub(super) fn no_model(model: &str) -> Self {
        let model = crate::kernel::text::prefix(model, 80);
        OpenAiError {
            status: 404,
            class: "invalid_request_error",
            code: "model_not_found".to_owned(),
            message: format!("there is no model {model:?}; GET /v1/models lists them"),
            param: Some("model".to_owned()),
            retryable: false,
            retry_after_ms: None,
        }
    }

    /// The daemon stops before a run has ended, which continues after the restart.
    pub(super) fn stopping(run: RunId) -> Self {
        let why = format!(
            "the daemon stops; run {run} continues after the restart, see: abide logs {run}"
        );
        OpenAiError::from(Fault::new(Kind::Unavailable, why))
    }

    /// The run of the request was started: without an idempotency key the same request would start
    /// another one.
    pub(super) fn after_start(self, is_keyed: bool) -> Self {
        OpenAiError {
            retryable: self.retryable && is_keyed,
            ..self
        }
    }

    /// The body of the response.
    pub(crate) fn body(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.class,
            "param": self.param,
            "code": self.code,
        }})
    }
}

impl From<WireError> for OpenAiError {
    fn from(error: WireError) -> Self {
        let kind = error.kind();
        let (status, class) = match kind {
            Some(Kind::Unauthorized) => (401, "authentication_error"),
            Some(Kind::Forbidden) => (403, "permission_error"),
            Some(Kind::NotFound | Kind::UnknownMethod) => (404, "not_found_error"),
            Some(Kind::Conflict) => (409, "conflict_error"),
            Some(Kind::TooLarge) => (413, "invalid_request_error"),
            Some(Kind::Limit | Kind::RateLimited) => (429, "rate_limit_error"),
            Some(Kind::Busy | Kind::Unavailable) => (503, "server_error"),
            Some(Kind::Internal) | None => (500, "server_error"),
            Some(
                Kind::ParseError
                | Kind::InvalidRequest
                | Kind::InvalidParams
                | Kind::CursorExpired
                | Kind::CursorUnknown,
            ) => (400, "invalid_request_error"),
        };
        let param = error.data.get("path").and_then(Value::as_str);
        OpenAiError {
            status,
            class,
            code: kind.map_or("other", Kind::as_str).to_owned(),
            message: error.to_string(),
            param: param.map(str::to_owned),
            retryable: error.data.get("retryable") == Some(&Value::Bool(true)),
            retry_after_ms: error.data.get("retryAfterMs").and_then(Value::as_u64),
        }
    }
}

impl From<Fault> for OpenAiError {
    fn from(fault: Fault) -> Self {
        WireError::from(fault).into()
    }
}
