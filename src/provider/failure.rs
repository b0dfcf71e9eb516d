//! Why one attempt of a model call failed, and the remedy: retry, use another model, or neither.
//! Used by the adapters and by the retry loop in `remote`.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::refusal::Refusal;
use super::verdict::{RefusalKind, Size, judge};
use super::wait;
use crate::kernel::run::step::TOO_LONG;
use crate::kernel::time::Timestamp;

/// Advice appended to the error when the account has no credit left.
const NO_CREDIT: &str = "; the account of this key has no credit or quota left: add some, use \
                         another key, or name other models in fallback_models";
/// Advice appended to the error when a single request exceeds the account's whole rate allowance.
const OVER_ALLOWANCE: &str = "; this one request exceeds the account's whole \
                              rate limit, so waiting does not help: raise the limit, or name \
                              other models in fallback_models";

/// What can be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Transient: retry, then use another model.
    Again,
    /// The provider accepts no requests from any run now: use another model, or wait for it.
    Later,
    /// Permanent with this provider: use another model. The key is wrong, the model unknown or the
    /// quota used up.
    Elsewhere,
    /// The request itself is invalid and would be with every provider.
    Nothing,
}

/// Why an attempt gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptFailure {
    /// Error kind: `provider`, `provider_timeout`, `provider_auth`, `provider_credit`,
    /// `provider_request`, `answer_too_large`, `refused` or [`TOO_LONG`].
    pub kind: &'static str,
    /// What happened, including the provider's own message.
    pub message: String,
    /// What can be done about it.
    pub remedy: Remedy,
    /// How long the provider asks to wait before the next attempt.
    pub retry_after: Option<Duration>,
    /// The provider's parsed error; `None` if the failure has another cause.
    pub refusal: Option<Box<Refusal>>,
}

impl AttemptFailure {
    /// A transient failure of kind `provider`.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        AttemptFailure {
            kind: "provider",
            message: message.into(),
            remedy: Remedy::Again,
            retry_after: None,
            refusal: None,
        }
    }

    /// A transient failure of kind `provider_timeout`.
    pub(super) fn timeout(message: impl Into<String>) -> Self {
        AttemptFailure {
            kind: "provider_timeout",
            ..AttemptFailure::passing(message)
        }
    }

    /// A final failure: no retry and no other model.
    pub(super) fn lasting(kind: &'static str, message: impl Into<String>) -> Self {
        AttemptFailure {
            kind,
            remedy: Remedy::Nothing,
            ..AttemptFailure::passing(message)
        }
    }

    /// A failure that is permanent with this provider; another model may be used.
    pub(super) fn elsewhere(kind: &'static str, message: impl Into<String>) -> Self {
        AttemptFailure {
            remedy: Remedy::Elsewhere,
            ..AttemptFailure::lasting(kind, message)
        }
    }

    /// The failure for a response with a non-success status.
    pub(super) fn of_status(
        status: StatusCode,
        headers: &HeaderMap,
        body: &str,
        now: Timestamp,
    ) -> Self {
        let refusal = Refusal::read(status.as_u16(), body);
        let message = match refusal.text.is_empty() {
            true => format!("HTTP {status}"),
            false => format!("HTTP {status}: {}", refusal.text),
        };
        let is_retry_forbidden = headers
            .get("x-should-retry")
            .is_some_and(|value| value == "false");
        let asked = wait::requested(headers, now).or(refusal.wait).or_else(|| {
            let is_rate = status == StatusCode::TOO_MANY_REQUESTS;
            is_rate.then(|| wait::until_allowed(headers, now))?
        });
        let mut failure = AttemptFailure::judged(refusal, message, Size::default(), |refusal| {
            match status.as_u16() {
                408 | 409 | 500.. if asked.is_some() => ("provider", Remedy::Later),
                408 | 409 | 500.. => ("provider", Remedy::Again),
                401 | 403 => ("provider_auth", Remedy::Elsewhere),
                // No such model, or the wrong address.
                404 => ("provider", Remedy::Elsewhere),
                300..=399 => ("provider", Remedy::Elsewhere),
                _ if refusal.names("model_not_found") => ("provider", Remedy::Elsewhere),
                _ => ("provider_request", Remedy::Nothing),
            }
        });
        failure.retry_after = asked;
        if is_retry_forbidden && matches!(failure.remedy, Remedy::Again | Remedy::Later) {
            failure.remedy = Remedy::Elsewhere;
        }
        failure
    }

    /// The failure for an error event within a stream whose status was a success.
    pub(super) fn in_stream(error: &Value) -> Self {
        let refusal = Refusal::of(error);
        let message = match refusal.text.is_empty() {
            true => "the provider ended the stream with an error".to_owned(),
            false => format!(
                "the provider ended the stream with an error: {}",
                refusal.text
            ),
        };
        let asked = refusal.wait;
        let mut failure = AttemptFailure::judged(refusal, message, Size::default(), |refusal| {
            let is = |words: &[&str]| words.iter().any(|word| refusal.names(word));
            let status = refusal.status;
            if is(&["authentication_error", "permission_error"])
                || matches!(status, Some(401 | 403))
            {
                ("provider_auth", Remedy::Elsewhere)
            } else if is(&["not_found_error", "model_not_found"]) || status == Some(404) {
                ("provider", Remedy::Elsewhere)
            } else if is(&["invalid_request_error", "request_too_large"])
                || matches!(status, Some(400 | 405 | 406 | 410..=428))
            {
                ("provider_request", Remedy::Nothing)
            } else {
                ("provider", Remedy::Again)
            }
        });
        failure.retry_after = asked;
        failure
    }

    /// Judges the refusal; `other` decides kind and remedy where the verdict is inconclusive.
    fn judged(
        refusal: Refusal,
        mut message: String,
        size: Size,
        other: impl FnOnce(&Refusal) -> (&'static str, Remedy),
    ) -> Self {
        let (kind, remedy) = match judge(&refusal, size) {
            RefusalKind::TooLong => (TOO_LONG, Remedy::Nothing),
            RefusalKind::NoCredit => {
                message.push_str(NO_CREDIT);
                ("provider_credit", Remedy::Elsewhere)
            }
            RefusalKind::OverAllowance => {
                message.push_str(OVER_ALLOWANCE);
                ("provider", Remedy::Elsewhere)
            }
            RefusalKind::Busy => ("provider", Remedy::Later),
            RefusalKind::Other => other(&refusal),
        };
        AttemptFailure {
            kind,
            message,
            remedy,
            retry_after: None,
            refusal: Some(Box::new(refusal)),
        }
    }

    /// Appends the requested address to the message.
    pub(super) fn at(mut self, address: &str) -> Self {
        self.message
            .push_str(&format!("; requested address: {address}"));
        self
    }

    /// Judges the refusal again with the size of the request: one without a clear message may mean
    /// that the request is too long.
    pub(super) fn sized(mut self, size: Size) -> Self {
        let refusal = self.refusal.as_deref();
        if self.kind == "provider_request"
            && refusal.is_some_and(|refusal| judge(refusal, size) == RefusalKind::TooLong)
        {
            self.kind = TOO_LONG;
        }
        self
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
