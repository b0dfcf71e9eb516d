//! How long a provider asks to wait, in every form in which providers say it: headers, fields of
//! an error, and words.

use std::time::Duration;

use http::HeaderMap;

use crate::kernel::time::Timestamp;

/// The headers that say when a used-up allowance comes back, and those that say what is left of
/// it.
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

/// `retry-after-ms`, or `Retry-After` in seconds or as a date.
pub(super) fn asked(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
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
    // A date in the past asks for no wait at all.
    Some(at.saturating_sub(since_epoch(now)?))
}

/// When the allowance comes back that is used up: of several the last one. Without a count of
/// what is left every one counts.
pub(super) fn until_allowed(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let resets = ALLOWANCES.iter().filter_map(|(reset, remaining)| {
        let left = text(headers, remaining).and_then(|left| left.parse::<f64>().ok());
        let is_used_up = left.is_none_or(|left| left <= 0.0);
        moment(text(headers, reset)?, now).filter(|_| is_used_up)
    });
    resets.max()
}

/// `try again in 1m30.5s`, `retry after 20 seconds`: `words` are in small letters.
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

/// A span as providers write it, at the beginning of a text: `20`, `1m30.951s`, `20 seconds`,
/// `350ms`. A number without a unit is of seconds.
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

/// A point in time (seconds or milliseconds since the epoch, or as text), or a span.
fn moment(text: &str, now: Timestamp) -> Option<Duration> {
    /// Larger numbers are no spans of seconds.
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
