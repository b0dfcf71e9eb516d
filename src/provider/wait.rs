//! Reads how long a provider asks to wait, from response headers, error fields and text. Used by
//! `failure` and `refusal`.

use std::time::Duration;

use http::HeaderMap;

use crate::kernel::time::Timestamp;

/// Headers with the reset time of a rate limit, each with the header of its remaining allowance.
const ALLOWANCES: [(&str, &str); 10] = [
    (
        "x-ratelimit-reset-requests",
        "x-ratelimit-remaining-requests",
    ),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("x-rate-limit-reset", "x-rate-limit-remaining"),
    (
        "anthropic-ratelimit-requests-reset",
        "anthropic-ratelimit-requests-remaining",
    ),
    (
        "anthropic-ratelimit-tokens-reset",
        "anthropic-ratelimit-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-input-tokens-reset",
        "anthropic-ratelimit-input-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-output-tokens-reset",
        "anthropic-ratelimit-output-tokens-remaining",
    ),
    (
        "anthropic-ratelimit-unified-reset",
        "anthropic-ratelimit-unified-remaining",
    ),
];

/// The wait requested by `retry-after-ms`, or by `Retry-After` in seconds or as a date.
pub(super) fn requested(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let number = |name: &str| text(headers, name)?.parse::<f64>().ok();
    let ms = number("retry-after-ms").and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
    if ms.is_some() {
        return ms;
    }
    if let Some(seconds) = number("retry-after") {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text(headers, "retry-after")?).ok()?;
    let at = date.duration_since(std::time::UNIX_EPOCH).ok()?;
    // A date in the past means no wait at all.
    Some(at.saturating_sub(since_epoch(now)?))
}

/// Time until the used-up rate limits reset, the latest if there are several. A limit without a
/// remaining count is taken as used up.
pub(super) fn until_allowed(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let resets = ALLOWANCES.iter().filter_map(|(reset, remaining)| {
        let left = text(headers, remaining).and_then(|left| left.parse::<f64>().ok());
        let is_used_up = left.is_none_or(|left| left <= 0.0);
        moment(text(headers, reset)?, now).filter(|_| is_used_up)
    });
    resets.max()
}

/// A wait within a message in lower case: `try again in 1m30.5s`, `retry after 20 seconds`.
pub(super) fn in_words(words: &str) -> Option<Duration> {
    let markers = [
        "again in ",
        "again after ",
        "retry in ",
        "retry after ",
        "retrying in ",
    ];
    markers.iter().find_map(|marker| {
        let (_, behind) = words.split_once(marker)?;
        let behind = behind
            .trim_start_matches(['~', ' '])
            .trim_start_matches("about ");
        duration(behind)
    })
}

/// A duration at the beginning of a text, as providers write it: `20`, `1m30.951s`, `20 seconds`,
/// `350ms`. A number without a unit means seconds.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut seconds = None;
    while rest.starts_with(|c: char| c.is_ascii_digit()) {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, behind) = rest.split_at(end.unwrap_or(rest.len()));
        let number: f64 = number.trim_end_matches('.').parse().ok()?;
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_ascii_alphabetic());
        let (unit, behind) = behind.split_at(end.unwrap_or(behind.len()));
        let factor = match unit {
            "ms" | "millisecond" | "milliseconds" => 0.001,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => break,
        };
        *seconds.get_or_insert(0.0) += number * factor;
        rest = behind.trim_start();
        if unit.is_empty() {
            break;
        }
    }
    Duration::try_from_secs_f64(seconds?).ok()
}

/// Time until a point in time (seconds or milliseconds since the epoch, or RFC 3339), or a
/// duration.
fn moment(text: &str, now: Timestamp) -> Option<Duration> {
    /// Numbers from here on are a point in time, not a number of seconds to wait.
    const EPOCH_SECONDS: f64 = 1e9;
    const EPOCH_MS: f64 = 1e12;
    let now = since_epoch(now)?;
    if let Ok(number) = text.parse::<f64>() {
        let at = match number {
            number if number >= EPOCH_MS => number / 1000.0,
            number if number >= EPOCH_SECONDS => number,
            number => return Duration::try_from_secs_f64(number).ok(),
        };
        return Some(Duration::try_from_secs_f64(at).ok()?.saturating_sub(now));
    }
    match humantime::parse_rfc3339(text) {
        Ok(at) => {
            let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(at.saturating_sub(now))
        }
        Err(_) => duration(text),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

fn since_epoch(now: Timestamp) -> Option<Duration> {
    Some(Duration::from_millis(u64::try_from(now.0).ok()?))
}

#[cfg(test)]
#[path = "wait_tests.rs"]
mod tests;
