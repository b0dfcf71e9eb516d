//! Parses a provider's error from whatever form it has: JSON of several shapes, nested JSON, plain
//! text or a web page. Used by `failure` and `verdict`, which judge it, and by `adapt`, which
//! searches it for field names.

use std::time::Duration;

use serde_json::Value;

use super::wait::in_words;
use crate::kernel::text::{prefix, preview};

/// Maximum characters of the provider's message that are repeated in a failure.
const MESSAGE_LIMIT: usize = 500;
/// Maximum bytes of the message that are searched.
const READ_LIMIT: usize = 16 << 10;
/// Maximum nesting: proxies wrap errors in each other.
const DEPTH: u32 = 16;

/// A provider's error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    /// The response status, or the one named by an error within a stream.
    pub status: Option<u16>,
    /// The message, shortened to [`MESSAGE_LIMIT`].
    pub text: String,
    /// The message in lower case, up to [`READ_LIMIT`].
    words: String,
    /// Error names (types, codes), in lower case.
    names: Vec<String>,
    /// The request field named as the cause.
    param: Option<String>,
    /// The wait requested in the body; `None` if it names none.
    pub wait: Option<Duration>,
}

impl Refusal {
    /// Parses the body of a response with this status.
    pub(super) fn read(status: u16, body: &str) -> Self {
        let mut refusal = match serde_json::from_str::<Value>(body) {
            Ok(value) => Refusal::of(&value),
            Err(_) => {
                let mut refusal = Refusal::default();
                refusal.take_texts(&[body.to_owned()]);
                refusal
            }
        };
        refusal.status = Some(status);
        refusal
    }

    /// Parses an error in JSON.
    pub(super) fn of(error: &Value) -> Self {
        let mut refusal = Refusal::default();
        let mut texts = Vec::new();
        refusal.gather(error, DEPTH, &mut texts);
        refusal.take_texts(&texts);
        if refusal.text.is_empty() && !error.is_null() {
            let inner = error.get("error").unwrap_or(error);
            refusal.text = preview(&inner.to_string(), MESSAGE_LIMIT);
        }
        refusal
    }

    fn take_texts(&mut self, texts: &[String]) {
        let whole = texts.join(": ");
        self.text = preview(&whole, MESSAGE_LIMIT);
        self.words = prefix(&whole, READ_LIMIT).to_lowercase();
        self.wait = self.wait.or_else(|| in_words(&self.words));
    }

    fn gather(&mut self, value: &Value, depth: u32, texts: &mut Vec<String>) {
        if depth == 0 {
            return;
        }
        match value {
            Value::String(text) => {
                let wrapped = text.trim_start().starts_with(['{', '[']);
                match serde_json::from_str::<Value>(text).ok().filter(|_| wrapped) {
                    Some(inner) => self.gather(&inner, depth - 1, texts),
                    None if !text.trim().is_empty() && !texts.contains(text) => {
                        texts.push(text.clone());
                    }
                    None => {}
                }
            }
            Value::Array(items) => {
                for item in items.iter().take(8) {
                    self.gather(item, depth - 1, texts);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.gather_field(name, value, depth, texts);
                }
            }
            _ => {}
        }
    }

    fn gather_field(&mut self, name: &str, value: &Value, depth: u32, texts: &mut Vec<String>) {
        match name {
            "error" | "errors" | "detail" | "details" | "message" | "msg" | "error_message"
            | "error_msg" | "error_description" | "status_msg" | "metadata" | "raw" | "cause"
            | "base_resp" | "Message" => self.gather(value, depth - 1, texts),
            "type" | "code" | "status" | "reason" | "error_code" | "status_code" | "@type"
            | "__type" => match value {
                Value::String(name) => {
                    if let Ok(status) = name.parse() {
                        self.take_status(status);
                    }
                    self.names.push(name.to_lowercase());
                }
                Value::Number(number) => {
                    if let Some(status) = number.as_u64() {
                        self.take_status(status);
                    }
                    self.names.push(number.to_string());
                }
                _ => {}
            },
            "param" => self.param = value.as_str().map(str::to_owned),
            "loc" => {
                let parts = value.as_array().into_iter().flatten();
                let parts: Vec<&str> = parts.filter_map(Value::as_str).collect();
                self.param = parts.last().map(|part| (*part).to_owned());
            }
            "retryDelay" | "retry_after" => {
                self.wait = match value {
                    Value::String(text) => super::wait::duration(text),
                    other => other
                        .as_f64()
                        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
                };
            }
            _ => {}
        }
    }

    fn take_status(&mut self, status: u64) {
        if let Some(status) = u16::try_from(status)
            .ok()
            .filter(|status| (400..600).contains(status))
        {
            self.status.get_or_insert(status);
        }
    }

    /// Whether the error has exactly this name.
    pub(super) fn names(&self, word: &str) -> bool {
        self.names.iter().any(|name| name == word)
    }

    /// Whether one of the error's names contains all of these words.
    pub(super) fn names_with(&self, words: &[&str]) -> bool {
        let has = |name: &String| words.iter().all(|word| name.contains(word));
        self.names.iter().any(has)
    }

    /// Whether the message contains this text, given in lower case.
    pub(super) fn says(&self, words: &str) -> bool {
        self.words.contains(words)
    }

    /// Whether the message contains one of these texts.
    pub(super) fn says_any(&self, words: &[&str]) -> bool {
        words.iter().any(|words| self.says(words))
    }

    /// Whether one sentence has a word that begins with one of `some` and also contains one of
    /// `others`.
    pub(super) fn says_both(&self, some: &[&str], others: &[&str]) -> bool {
        let mut sentences = self.words.split(['.', ';', '!', '?', '\n', '。']);
        sentences.any(|sentence| {
            let begins = |word: &&str| {
                sentence.match_indices(*word).any(|(at, _)| {
                    let before = sentence[..at].chars().next_back();
                    !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
                })
            };
            some.iter().any(begins) && others.iter().any(|words| sentence.contains(words))
        })
    }

    /// Whether the message contains this word as a whole word.
    pub(super) fn says_word(&self, word: &str) -> bool {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        self.words.match_indices(word).any(|(at, found)| {
            let before = self.words[..at].chars().next_back();
            let behind = self.words[at + found.len()..].chars().next();
            !before.is_some_and(part) && !behind.is_some_and(part)
        })
    }

    /// Whether the message consists only of these words and of numbers.
    pub(super) fn has_only(&self, words: &[&str]) -> bool {
        let mut own = self.text.split(|c: char| !c.is_alphanumeric());
        own.all(|word| {
            let is_number = word.chars().all(|c| c.is_ascii_digit());
            is_number || words.contains(&word.to_lowercase().as_str())
        })
    }

    /// Whether this field is the cause: the named one, or one mentioned in the message if none is
    /// named.
    pub(super) fn is_about(&self, field: &str) -> bool {
        match &self.param {
            Some(param) => param.split(['.', '[']).any(|part| part == field),
            None => self.says_word(field),
        }
    }

    /// Whether this request field is mentioned, as the cause or in the message.
    pub(super) fn names_field(&self, field: &str) -> bool {
        self.is_about(field) || self.says_word(field)
    }

    /// Whether something is not supported at all, as opposed to having a wrong value.
    pub(super) fn says_unsupported(&self) -> bool {
        self.says_any(&[
            "unsupported",
            "not support",
            "n't support",
            "unknown",
            "unrecognized",
            "unrecognised",
            "unexpected",
            "extra input",
            "extra field",
            "extra_forbidden",
            "not permitted",
            "not allowed",
            "not accept",
            "deprecated",
            "only the default",
            "must be verified to stream",
            "no longer",
            "not available",
            "instead",
            "cannot be used",
            "no such",
            "may only be",
            "is not valid for",
        ]) || self.names_with(&["unsupported"])
            || self.names_with(&["unknown"])
            || self.names_with(&["extra_forbidden"])
    }

    /// The whole numbers in the message, except those that are parts of names (`gpt-4`).
    pub(super) fn numbers(&self) -> Vec<u64> {
        numbers_in(&self.words)
    }

    /// The first number within 24 bytes after this word, which is given in lower case.
    pub(super) fn number_behind(&self, word: &str) -> Option<u64> {
        let near = |at: usize| prefix(&self.words[at + word.len()..], 24);
        let mut places = self.words.match_indices(word);
        places.find_map(|(at, _)| numbers_in(near(at)).first().copied())
    }
}

fn numbers_in(words: &str) -> Vec<u64> {
    let mut numbers = Vec::new();
    let bytes = words.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let begin = at;
        let mut digits = String::new();
        while at < bytes.len() {
            let grouped = matches!(bytes[at], b',' | b'_')
                && bytes[at + 1..].len() >= 3
                && bytes[at + 1..at + 4].iter().all(u8::is_ascii_digit)
                && !bytes.get(at + 4).is_some_and(u8::is_ascii_digit);
            match bytes[at] {
                digit if digit.is_ascii_digit() => digits.push(char::from(digit)),
                _ if grouped => {}
                _ => break,
            }
            at += 1;
        }
        let before = begin.checked_sub(1).map(|before| bytes[before]);
        let is_part = before.is_some_and(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
            || bytes.get(at).is_some_and(u8::is_ascii_alphabetic);
        if let (false, Ok(number)) = (is_part, digits.parse()) {
            numbers.push(number);
        }
    }
    numbers
}

#[cfg(test)]
#[path = "refusal_tests.rs"]
mod tests;
