//! What went wrong in one try of a model call, and what may be done about it: try again, ask
//! another model, or neither. Used by the adapters and by the loop that tries again.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::kernel::step::TOO_LONG;
use crate::kernel::text::preview;
use crate::kernel::time::Timestamp;

/// The most characters that are repeated of what a provider says about a failure.
const MESSAGE_LIMIT: usize = 500;

/// What may be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It may pass: try again, and after that ask another model.
    Again,
    /// It will not pass here: ask another model. The key is wrong, the model unknown, the
    /// quota used up.
    Elsewhere,
    /// The request itself is wrong: it would be so everywhere.
    Nothing,
}

/// Why a try gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// `provider`, `provider_timeout`, `provider_auth`, `provider_request`, `refused` or
    /// [`TOO_LONG`].
    pub kind: &'static str,
    /// What happened, with the provider's own words.
    pub message: String,
    /// What may be done about it.
    pub remedy: Remedy,
    /// How long the provider asks to wait before the next try.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// One that may pass.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Failure {
            kind: "provider",
            message: message.into(),
            remedy: Remedy::Again,
            retry_after: None,
        }
    }

    /// A time ran out.
    pub(super) fn timeout(message: impl Into<String>) -> Self {
        Failure {
            kind: "provider_timeout",
            ..Failure::passing(message)
        }
    }

    /// One that ends the call, and for which no other model is asked.
    pub(super) fn lasting(kind: &'static str, message: impl Into<String>) -> Self {
        Failure {
            kind,
            remedy: Remedy::Nothing,
            ..Failure::passing(message)
        }
    }

    /// One that will not pass here.
    pub(super) fn elsewhere(kind: &'static str, message: impl Into<String>) -> Self {
        Failure {
            remedy: Remedy::Elsewhere,
            ..Failure::lasting(kind, message)
        }
    }

    /// An answer with a status that is none of success.
    pub(super) fn of_status(
        status: StatusCode,
        headers: &HeaderMap,
        body: &str,
        now: Timestamp,
    ) -> Self {
        let error = Said::read(body);
        let message = match error.text.is_empty() {
            true => format!("HTTP {status}"),
            false => format!("HTTP {status}: {}", error.text),
        };
        let told_not_to = headers
            .get("x-should-retry")
            .is_some_and(|value| value == "false");
        let (kind, remedy) = match status.as_u16() {
            400 | 413 | 422 | 500 if error.is_too_long() => (TOO_LONG, Remedy::Nothing),
            // A quota that is used up does not come back by waiting a little.
            429 if error.names("insufficient_quota") => ("provider", Remedy::Elsewhere),
            408 | 409 | 429 | 500.. if told_not_to => ("provider", Remedy::Elsewhere),
            408 | 409 | 429 | 500.. => ("provider", Remedy::Again),
            401 | 403 => ("provider_auth", Remedy::Elsewhere),
            // No such model, or nobody at that address.
            404 => ("provider", Remedy::Elsewhere),
            300..=399 => ("provider", Remedy::Elsewhere),
            _ if error.names("model_not_found") => ("provider", Remedy::Elsewhere),
            _ => ("provider_request", Remedy::Nothing),
        };
        Failure {
            kind,
            message,
            remedy,
            retry_after: retry_after(headers, now),
        }
    }

    /// An error that came in the middle of a stream whose status was a success. `words` are
    /// the types and codes that say that another try is of no use.
    pub(super) fn in_stream(error: &Value) -> Self {
        let said = Said::of(error);
        let message = match said.text.is_empty() {
            true => "the provider broke off with an error".to_owned(),
            false => format!("the provider broke off: {}", said.text),
        };
        let status = said.status;
        let is = |words: &[&str]| words.iter().any(|word| said.names(word));
        let (kind, remedy) = if said.is_too_long() {
            (TOO_LONG, Remedy::Nothing)
        } else if is(&["authentication_error", "permission_error"])
            || matches!(status, Some(401 | 403))
        {
            ("provider_auth", Remedy::Elsewhere)
        } else if is(&["not_found_error", "model_not_found", "insufficient_quota"])
            || status == Some(404)
        {
            ("provider", Remedy::Elsewhere)
        } else if is(&["invalid_request_error", "request_too_large"])
            || matches!(status, Some(400 | 405 | 406 | 410..=428))
        {
            ("provider_request", Remedy::Nothing)
        } else {
            ("provider", Remedy::Again)
        };
        Failure {
            kind,
            message,
            remedy,
            retry_after: None,
        }
    }
}

/// What a provider says about an error: its words, and the names it gives it.
struct Said {
    text: String,
    names: Vec<String>,
    status: Option<u64>,
}

impl Said {
    /// Out of the body of an answer, whatever that is.
    fn read(body: &str) -> Self {
        match serde_json::from_str::<Value>(body) {
            Ok(value) => match value.get("error") {
                Some(error) => Said::of(error),
                None => Said::of(&value),
            },
            Err(_) => Said {
                text: preview(body, MESSAGE_LIMIT),
                names: Vec::new(),
                status: None,
            },
        }
    }

    fn of(error: &Value) -> Self {
        let field = |name: &str| error.get(name).and_then(Value::as_str);
        let words = match error {
            Value::String(text) => Some(text.as_str()),
            error => field("message").or_else(|| error.get("detail").and_then(Value::as_str)),
        };
        let text = match words {
            Some(words) => preview(words, MESSAGE_LIMIT),
            None if error.is_null() => String::new(),
            None => preview(&error.to_string(), MESSAGE_LIMIT),
        };
        let names = [field("type"), field("code"), field("status")];
        Said {
            text,
            names: names.into_iter().flatten().map(str::to_owned).collect(),
            status: ["code", "status"]
                .iter()
                .find_map(|name| error.get(*name).and_then(Value::as_u64)),
        }
    }

    /// Is it said that the request is longer than the model can take? Few providers have a name
    /// for it; the others say it in words.
    fn is_too_long(&self) -> bool {
        const NAMES: [&str; 3] = [
            "context_length_exceeded",
            "exceed_context_size_error",
            "request_too_large",
        ];
        const WORDS: [&str; 8] = [
            "prompt is too long",
            "maximum context length",
            "context length exceeded",
            "context window",
            "context size",
            "input is too long",
            "input length",
            "too many tokens",
        ];
        let text = self.text.to_ascii_lowercase();
        NAMES.iter().any(|name| self.names(name)) || WORDS.iter().any(|words| text.contains(words))
    }

    fn names(&self, word: &str) -> bool {
        self.names.iter().any(|name| name == word)
    }
}

/// How long the provider asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a
/// date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let seconds = |text: &str| {
        let number: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(number).ok()
    };
    if let Some(wait) = text("retry-after-ms")
        .and_then(|text| text.parse::<f64>().ok())
        .and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok())
    {
        return Some(wait);
    }
    let text = text("retry-after")?;
    if let Some(wait) = seconds(text) {
        return Some(wait);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let at = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    let now = Duration::from_millis(u64::try_from(now.0).ok()?);
    // A date in the past asks for no wait at all.
    Some(at.saturating_sub(now))
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
