//! Interprets a provider's error by its names, status, message, the numbers in it, and the size of
//! the request; no provider gives all of these. Called by `failure`.

use super::refusal::Refusal;

/// The size of the refused request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    /// Bytes of its body.
    pub bytes: u64,
    /// Maximum tokens of a request according to the settings; 0 if unknown.
    pub window: u64,
}

/// The meaning of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalKind {
    /// The conversation is longer than the model accepts.
    TooLong,
    /// The account has no credit or quota left; waiting does not help.
    NoCredit,
    /// This one request exceeds the account's whole rate allowance.
    OverAllowance,
    /// The provider accepts no requests now, in general or with this key.
    Busy,
    /// None of these.
    Other,
}

/// Approximate bytes per token.
const BYTES_A_TOKEN: u64 = 4;
/// Smaller numbers are not conversation lengths.
const LEAST_LENGTH: u64 = 256;

/// Error names that mean that there is no credit.
const CREDIT_NAMES: [&str; 12] = [
    "insufficient_quota",
    "insufficient_balance",
    "insufficient_credits",
    "insufficient_funds",
    "exceeded_current_quota_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "payment_required",
    "budget_exceeded",
    "arrearage",
    // GLM's code for an account without money.
    "1113",
];

/// Phrases that mean no credit, whatever the status.
const CREDIT_WORDS: [&str; 22] = [
    "credit balance",
    "insufficient balance",
    "insufficient credit",
    "insufficient fund",
    "insufficient account balance",
    "not enough credit",
    "not enough balance",
    "out of credit",
    "no credit",
    "more credits",
    "add credits",
    "purchase credits",
    "credits exhausted",
    "payment required",
    "billing details",
    "billing hard limit",
    "recharge",
    "spending limit",
    "spend limit",
    "usage limits",
    "budget has been exceeded",
    "余额不足",
];

/// What an account may lack; counts together with a word of [`LACKS`] …
const MEANS: [&str; 14] = [
    "credit",
    "balance",
    "fund",
    "quota",
    "billing",
    "payment",
    "prepaid",
    "subscription",
    "free trial",
    "trial",
    "free tier",
    "allowance",
    "invoice",
    "account is",
];

/// … which says that it is lacking.
const LACKS: [&str; 27] = [
    "insufficient",
    "not sufficient",
    "not enough",
    "too low",
    "negative",
    "exhaust",
    "deplet",
    "run out",
    "ran out",
    "used up",
    "no credit",
    "no remaining",
    "none left",
    "left on",
    "exceeded",
    "expired",
    "has ended",
    "is over",
    "overdue",
    "past due",
    "arrear",
    "unpaid",
    "outstanding",
    "suspended",
    "failed",
    "zero",
    "below",
];

/// Words that mean unpaid debt by themselves.
const DEBT_WORDS: [&str; 7] = [
    "arrear", "top up", "top-up", "topup", "unpaid", "past due", "overdue",
];

/// Words that mean no credit if the status refuses access (403 or 429).
const ACCOUNT_WORDS: [&str; 8] = [
    "quota", "billing", "credit", "balance", "top up", "top-up", "prepaid", "欠费",
];

/// Words of rate limits, which count requests or tokens per time span.
const RATE_WORDS: [&str; 21] = [
    "per day",
    "per minute",
    "per hour",
    "per second",
    "(tpm)",
    "(rpm)",
    "(tpd)",
    "(rpd)",
    "rate limit",
    "rate-limit",
    "rate_limit",
    "ratelimit",
    "throttl",
    "too many requests",
    "too many concurrent",
    "please wait",
    "requests per",
    "slow down",
    "daily limit",
    "限流",
    "速率",
];

/// Words of an overloaded provider.
const BUSY_WORDS: [&str; 6] = [
    "overloaded",
    "at capacity",
    "over capacity",
    "temporarily unavailable",
    "server is busy",
    "currently unavailable",
];

/// Phrases that mean only that a conversation is too long.
const LENGTH_WORDS: [&str; 34] = [
    "prompt is too long",
    "prompt too long",
    "prompt exceeds",
    "prompt length",
    "prompt tokens",
    "prompt token count",
    "prompt contains",
    "input is too long",
    "input too long",
    "input length",
    "input token count",
    "input tokens exceed",
    "input exceeds",
    "maximum context",
    "max context",
    "context length",
    "context window",
    "context size",
    "context limit",
    "context_length",
    "max_model_len",
    "model token limit",
    "too large for model",
    "too many tokens",
    "maximum number of tokens",
    "max length",
    "reduce the length of the messages",
    "reduce the length of your",
    "conversation is too long",
    "messages are too long",
    "sequence length",
    "上下文",
    "超长",
    "长度超",
];

/// What may be too long; counts together with a phrase of [`EXCESSES`] …
const SUBJECTS: [&str; 9] = [
    "context",
    "token",
    "prompt",
    "input",
    "conversation",
    "messages",
    "request",
    "length",
    "body",
];

/// … which says that it is.
const EXCESSES: [&str; 11] = [
    "too long",
    "too large",
    "too big",
    "exceed",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "over the limit",
    "maximum",
    "does not fit",
];

/// A message of only these words carries no information.
const EMPTY_WORDS: [&str; 9] = [
    "bad",
    "request",
    "invalid",
    "error",
    "http",
    "unprocessable",
    "entity",
    "a",
    "the",
];

/// Interprets the refusal of a request of that size.
pub(super) fn judge(refusal: &Refusal, size: Size) -> RefusalKind {
    let status = refusal.status;
    let may_be_length = matches!(status, None | Some(400 | 413 | 422 | 500));
    if may_be_length && names_length(refusal) {
        return RefusalKind::TooLong;
    }
    if status == Some(402) || CREDIT_NAMES.iter().any(|name| refusal.names(name)) {
        return RefusalKind::NoCredit;
    }
    if is_rate(refusal) {
        return match asks_for_too_much(refusal) {
            true => RefusalKind::OverAllowance,
            false => RefusalKind::Busy,
        };
    }
    if is_about_credit(refusal) {
        return RefusalKind::NoCredit;
    }
    if matches!(status, Some(429 | 503 | 529)) || is_busy(refusal) {
        return RefusalKind::Busy;
    }
    if may_be_length && is_length(refusal, size) {
        return RefusalKind::TooLong;
    }
    RefusalKind::Other
}

fn names_length(refusal: &Refusal) -> bool {
    let named: [&[&str]; 7] = [
        &["context", "exceed"],
        &["context", "length"],
        &["context", "window"],
        &["prompt", "exceed"],
        &["prompt", "too_long"],
        &["input", "too_long"],
        &["request_too_large"],
    ];
    named.iter().any(|words| refusal.names_with(words))
        // GLM's code for it, which other servers may use for something else.
        || (refusal.names("1261") && refusal.says_any(&["prompt", "length", "长"]))
}

/// Whether it is about a rate limit. A message about a request that is too long mentions no time
/// span.
fn is_rate(refusal: &Refusal) -> bool {
    if matches!(refusal.status, Some(401 | 404)) {
        return false;
    }
    refusal.says_any(&RATE_WORDS)
        || refusal.wait.is_some()
        || refusal.names_with(&["rate", "limit"])
        || refusal.names_with(&["throttl"])
        || refusal.names("too_many_requests")
}

/// Whether this single request exceeds the whole limit: `Limit 30000, Requested 45000`.
fn asks_for_too_much(refusal: &Refusal) -> bool {
    let behind = |word: &str| refusal.number_behind(word);
    match (behind("limit"), behind("requested")) {
        (Some(limit), Some(requested)) => requested > limit,
        _ => false,
    }
}

fn is_about_credit(refusal: &Refusal) -> bool {
    match refusal.status {
        Some(404 | 413) => false,
        Some(401 | 422) => refusal.says_both(&MEANS, &LACKS),
        Some(403 | 429) => refusal.says_any(&CREDIT_WORDS) || refusal.says_any(&ACCOUNT_WORDS),
        _ => {
            let names = ["quota", "billing", "balance", "credit", "arrear", "payment"];
            refusal.says_any(&CREDIT_WORDS)
                || refusal.says_both(&MEANS, &LACKS)
                || refusal.says_both(&DEBT_WORDS, &[""])
                || names.iter().any(|name| refusal.names_with(&[name]))
        }
    }
}

fn is_busy(refusal: &Refusal) -> bool {
    let by_status = matches!(refusal.status, None | Some(400 | 403 | 500 | 502));
    refusal.names_with(&["overloaded"])
        || refusal.names("unavailable")
        || (by_status && refusal.says_any(&BUSY_WORDS))
}

fn is_length(refusal: &Refusal, size: Size) -> bool {
    if refusal.says_any(&LENGTH_WORDS) || refusal.status == Some(413) {
        return true;
    }
    let about = size.bytes / BYTES_A_TOKEN;
    let speaks = refusal.says_any(&SUBJECTS) && refusal.says_any(&EXCESSES);
    if speaks && (has_own_length(refusal, size) || (size.window > 0 && about >= size.window / 2)) {
        return true;
    }
    // The message is uninformative, and the request is about as long as allowed.
    let says_nothing = matches!(refusal.status, Some(400 | 422)) && refusal.has_only(&EMPTY_WORDS);
    says_nothing && size.window > 0 && about >= size.window / 5 * 4
}

/// Whether the message has two lengths: a larger one that may be this request's own, in tokens or
/// characters, and a smaller one that would be the limit.
fn has_own_length(refusal: &Refusal, size: Size) -> bool {
    let own = size.bytes / 12..=size.bytes + size.bytes / 5;
    let numbers: Vec<u64> = refusal
        .numbers()
        .into_iter()
        .filter(|number| *number >= LEAST_LENGTH)
        .collect();
    let limit = numbers.iter().min();
    let largest = numbers.iter().filter(|number| own.contains(number)).max();
    limit.zip(largest).is_some_and(|(limit, own)| limit < own)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
