//! What went wrong in one try of a model call, and what may be done about it: try again, ask
//! another model, or neither. Used by the adapters and by the loop that tries again.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::refusal::Refusal;
use super::verdict::{Size, Verdict, judge};
use super::wait;
use crate::kernel::step::TOO_LONG;
use crate::kernel::time::Timestamp;

/// What a person can do where an account has nothing left.
const NO_CREDIT: &str = "; the account of this key has no credit or quota left: add some, use \
                         another key, or name other models in fallback_models";
/// What a person can do where a single request is larger than the account's whole allowance.
const OVER_ALLOWANCE: &str = "; this one request is larger than the account's allowance for a \
                              span of time, so waiting does not help: raise the allowance, or name \
                              other models in fallback_models";

/// What may be done about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// It may pass: try again, and after that ask another model.
    Again,
    /// The provider takes no requests now, from any run: ask another model, or wait for it.
    Later,
    /// It will not pass here: ask another model. The key is wrong, the model unknown, the
    /// quota used up.
    Elsewhere,
    /// The request itself is wrong: it would be so everywhere.
    Nothing,
}

/// Why a try gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// `provider`, `provider_timeout`, `provider_auth`, `provider_credit`, `provider_request`,
    /// `refused` or [`TOO_LONG`].
    pub kind: &'static str,
    /// What happened, with the provider's own words.
    pub message: String,
    /// What may be done about it.
    pub remedy: Remedy,
    /// How long the provider asks to wait before the next try.
    pub retry_after: Option<Duration>,
    /// What the provider has said, where it has.
    pub refusal: Option<Box<Refusal>>,
}

impl Failure {
    /// One that may pass.
    pub(super) fn passing(message: impl Into<String>) -> Self {
        Failure {
            kind: "provider",
            message: message.into(),
            remedy: Remedy::Again,
            retry_after: None,
            refusal: None,
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
        let refusal = Refusal::read(status.as_u16(), body);
        let message = match refusal.text.is_empty() {
            true => format!("HTTP {status}"),
            false => format!("HTTP {status}: {}", refusal.text),
        };
        let told_not_to = headers
            .get("x-should-retry")
            .is_some_and(|value| value == "false");
        let asked = wait::asked(headers, now).or(refusal.wait).or_else(|| {
            let is_rate = status == StatusCode::TOO_MANY_REQUESTS;
            is_rate.then(|| wait::until_allowed(headers, now))?
        });
        let mut failure = Failure::judged(refusal, message, Size::default(), |refusal| {
            match status.as_u16() {
                408 | 409 | 500.. if asked.is_some() => ("provider", Remedy::Later),
                408 | 409 | 500.. => ("provider", Remedy::Again),
                401 | 403 => ("provider_auth", Remedy::Elsewhere),
                // No such model, or nobody at that address.
                404 => ("provider", Remedy::Elsewhere),
                300..=399 => ("provider", Remedy::Elsewhere),
                _ if refusal.names("model_not_found") => ("provider", Remedy::Elsewhere),
                _ => ("provider_request", Remedy::Nothing),
            }
        });
        failure.retry_after = asked;
        if told_not_to && matches!(failure.remedy, Remedy::Again | Remedy::Later) {
            failure.remedy = Remedy::Elsewhere;
        }
        failure
    }

    /// An error that came in the middle of a stream whose status was a success.
    pub(super) fn in_stream(error: &Value) -> Self {
        let refusal = Refusal::of(error);
        let message = match refusal.text.is_empty() {
            true => "the provider broke off with an error".to_owned(),
            false => format!("the provider broke off: {}", refusal.text),
        };
        let asked = refusal.wait;
        let mut failure = Failure::judged(refusal, message, Size::default(), |refusal| {
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

    /// By what the refusal means; `other` says what it is where that says nothing.
    fn judged(
        refusal: Refusal,
        mut message: String,
        size: Size,
        other: impl FnOnce(&Refusal) -> (&'static str, Remedy),
    ) -> Self {
        let (kind, remedy) = match judge(&refusal, size) {
            Verdict::TooLong => (TOO_LONG, Remedy::Nothing),
            Verdict::NoCredit => {
                message.push_str(NO_CREDIT);
                ("provider_credit", Remedy::Elsewhere)
            }
            Verdict::OverAllowance => {
                message.push_str(OVER_ALLOWANCE);
                ("provider", Remedy::Elsewhere)
            }
            Verdict::Busy => ("provider", Remedy::Later),
            Verdict::Other => other(&refusal),
        };
        Failure {
            kind,
            message,
            remedy,
            retry_after: None,
            refusal: Some(Box::new(refusal)),
        }
    }

    /// With the address that was asked.
    pub(super) fn at(mut self, address: &str) -> Self {
        self.message.push_str(&format!("; asked was {address}"));
        self
    }

    /// Judged once more, now that the size of the request is known: a refusal without clear words
    /// may be one of its length.
    pub(super) fn sized(mut self, size: Size) -> Self {
        let refusal = self.refusal.as_deref();
        if self.kind == "provider_request"
            && refusal.is_some_and(|refusal| judge(refusal, size) == Verdict::TooLong)
        {
            self.kind = TOO_LONG;
        }
        self
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
