//! Removes a provider's key from the provider's messages: the key, parts of it, masked forms and
//! values derived from it, with any separators, and reversed. A provider has seen the key, and its
//! errors are stored, logged and shown. Called by `remote` for each failure, before the message is
//! used anywhere else.
//!
//! At most four characters of a key remain in one message. Only letters and digits count: other
//! characters between them are treated as separators.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName};
use ring::digest;

use crate::kernel::secret::Secret;
use crate::kernel::text::redact::Redactor;
use md5::{Digest as _, Md5};

/// The shortest sequence of key (or derived) characters that is removed.
const PART: usize = 5;
/// Shorter values are not treated as keys: their parts would occur in ordinary words.
const SHORTEST_KEY: usize = 8;
/// Minimum number of characters at either end of a key that identify it.
const END: usize = 2;
/// Minimum length of a hexadecimal (digits) or base64 (letters) string that is removed in a message
/// about keys, whatever it encodes: not every digest can be computed here.
const DIGEST_DIGITS: usize = 12;
const DIGEST_LETTERS: usize = 16;
/// The replacement for removed text.
const REPLACEMENT: &str = "[key]";

/// The secrets of one request, prepared for removal.
pub(super) struct RequestSecrets {
    /// Whole values of all sensitive headers.
    values: Redactor,
    /// The keys among them, in lower case.
    keys: Vec<String>,
    /// Letters and digits of each key, forwards and reversed.
    letters: Vec<String>,
    /// Every sequence of [`PART`] bytes of the keys and of values derived from them, in lower case:
    /// as is and with only letters and digits, each also reversed.
    parts: HashSet<[u8; PART]>,
}

impl RequestSecrets {
    /// Collects the secrets in the headers of a request.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let sensitive = headers.iter().filter(|(_, value)| value.is_sensitive());
        let values: Vec<(&HeaderName, Secret)> = sensitive
            .filter_map(|(name, value)| {
                Some((name, Secret::new(without_scheme(value.to_str().ok()?))))
            })
            .collect();
        let mut parts = HashSet::new();
        let mut keys = Vec::new();
        let mut letters = Vec::new();
        for (_, value) in values.iter().filter(|(name, _)| is_of_key(name)) {
            let key = value.expose();
            if key.len() < SHORTEST_KEY {
                continue;
            }
            keys.push(key.to_ascii_lowercase());
            let own = bare_letters(key);
            letters.push(backwards(&own));
            letters.push(own);
            for form in forms(key) {
                let form = form.to_ascii_lowercase();
                let turned = backwards(&form);
                for form in [bare_letters(&form), bare_letters(&turned), form, turned] {
                    parts.extend(form.as_bytes().array_windows::<PART>().copied());
                }
            }
        }
        RequestSecrets {
            values: Redactor::new(values.iter().map(|(name, value)| (name.as_str(), value))),
            keys,
            letters,
            parts,
        }
    }

    /// Replaces all traces of the secrets in `text`.
    pub(super) fn in_place(&self, text: &mut String) {
        self.values.in_place(text);
        if self.keys.is_empty() {
            return;
        }
        let lower = text.to_ascii_lowercase();
        let mut hide = vec![false; lower.len()];
        self.mark_parts(lower.as_bytes(), &mut hide);
        self.mark_masked(&lower, &mut hide);
        for key in &self.letters {
            mark_pieces(&lower, key, &mut hide);
        }
        mark_digests(text, &lower, &mut hide);
        if !hide.contains(&true) {
            return;
        }
        let mut shown = String::with_capacity(text.len());
        let mut was_hidden = false;
        for (at, character) in text.char_indices() {
            match hide[at] {
                true if !was_hidden => shown.push_str(REPLACEMENT),
                true => {}
                false => shown.push(character),
            }
            was_hidden = hide[at];
        }
        *text = shown;
    }

    fn mark_parts(&self, text: &[u8], hide: &mut [bool]) {
        let all = || text.iter().copied().enumerate();
        let letters: Vec<(usize, u8)> = all()
            .filter(|(_, byte)| byte.is_ascii_alphanumeric())
            .collect();
        for text in [all().collect(), letters] {
            for part in text.array_windows::<PART>() {
                if self.parts.contains(&part.map(|(_, byte)| byte)) {
                    hide[part[0].0..=part[PART - 1].0].fill(true);
                }
            }
        }
    }

    /// Marks masked keys such as `sk-a****wxyz`: the text on both sides of a mask together reveals
    /// more of the key.
    fn mark_masked(&self, text: &str, hide: &mut [bool]) {
        let is_mask = |c: char| matches!(c, '*' | '•' | '·' | '…' | '.' | '#' | '●' | 'x');
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let mut from = 0;
        while let Some(begin) = text[from..].find(is_mask).map(|at| at + from) {
            let rest = &text[begin..];
            let length = rest.find(|c| !is_mask(c)).unwrap_or(rest.len());
            let end = begin + length;
            from = end;
            let mask = &text[begin..end];
            if mask.chars().count() < 3 && mask != "…" {
                continue;
            }
            let before = &text[..begin];
            let head = before.len() - before.trim_end_matches(is_word).len();
            let behind = &text[end..];
            let tail = behind.len() - behind.trim_start_matches(is_word).len();
            let head = &before[before.len() - head..];
            let tail = &behind[..tail];
            let is_of_key = self.keys.iter().any(|key| {
                (head.len() >= 2 && key.starts_with(head))
                    || (tail.len() >= 2 && key.ends_with(tail))
            });
            if is_of_key {
                hide[begin - head.len()..end + tail.len()].fill(true);
            }
        }
    }
}

/// Marks short pieces of a key in separate words or at the ends of one word, which together reveal
/// more of it: `sk-Zq [redacted] 6Nb`. `key`: its letters and digits.
fn mark_pieces(text: &str, key: &str, hide: &mut [bool]) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let mut pieces: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
    let mut at = 0;
    for word in text.split(|c| !is_word(c)) {
        let range = at..at + word.len();
        at = range.end;
        at += text[at..].chars().next().map_or(0, char::len_utf8);
        let letters = bare_letters(word);
        let is_hidden = hide[range.clone()].iter().all(|hidden| *hidden);
        if letters.len() < END || is_hidden {
            continue;
        }
        let longest = letters.len().min(PART - 1);
        let head = (END..=longest)
            .rev()
            .find(|many| key.starts_with(&letters[..*many]));
        let tail = (END..=longest)
            .rev()
            .find(|many| key.ends_with(&letters[letters.len() - many..]));
        if letters.len() < PART {
            let is_end = head == Some(letters.len()) || tail == Some(letters.len());
            if is_end || (letters.len() > END && key.contains(&letters)) {
                let found = key.find(&letters).unwrap_or_default();
                pieces.push((&key[found..found + letters.len()], range));
            }
            continue;
        }
        // In a longer word, only what is clearly part of the key.
        let head = head.filter(|many| *many > END);
        let tail = tail.filter(|many| *many > END);
        pieces.extend(head.map(|many| (&key[..many], range.clone())));
        pieces.extend(tail.map(|many| (&key[key.len() - many..], range)));
    }
    let different: HashSet<&str> = pieces.iter().map(|(piece, _)| *piece).collect();
    if different.iter().map(|piece| piece.len()).sum::<usize>() >= PART {
        for (_, range) in pieces {
            hide[range].fill(true);
        }
    }
}

/// Only the letters and digits, in lower case.
fn bare_letters(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
}

/// The secret in a header value, without the scheme (`Bearer`, `Basic`, `Token`).
fn without_scheme(value: &str) -> &str {
    let words = ["Bearer ", "bearer ", "Basic ", "basic ", "Token ", "token "];
    let found = words.iter().find_map(|word| value.strip_prefix(word));
    found.unwrap_or(value).trim()
}

/// Whether the header holds a key. Other headers may be named in errors for good reasons.
fn is_of_key(name: &HeaderName) -> bool {
    let words = ["auth", "key", "token", "secret", "cookie", "password"];
    words.iter().any(|word| name.as_str().contains(word))
}

/// The forms in which a provider may write a key: plain, encoded, and as digests.
fn forms(key: &str) -> Vec<String> {
    let mut forms = vec![
        key.to_owned(),
        form_urlencoded::byte_serialize(key.as_bytes()).collect(),
        hex(key.as_bytes()),
    ];
    forms.extend(base64(key.as_bytes()));
    // Within a longer text, the key begins at one of three offsets of a base64 group.
    for skipped in 0..3 {
        let padded = [&b"\0\0"[..skipped], key.as_bytes()].concat();
        forms.extend(base64(&padded).map(|text| {
            // The first and last groups also encode the text around the key.
            let first = (skipped * 8).div_ceil(6);
            let last = text.trim_end_matches('=').len().saturating_sub(1);
            text[first.min(last)..last].to_owned()
        }));
    }
    for algorithm in [
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        &digest::SHA256,
        &digest::SHA384,
        &digest::SHA512,
    ] {
        let digest = digest::digest(algorithm, key.as_bytes());
        forms.push(hex(digest.as_ref()));
        forms.extend(base64(digest.as_ref()));
    }
    let digests = [
        Md5::digest(key.as_bytes()).to_vec(),
        blake3::hash(key.as_bytes()).as_bytes().to_vec(),
    ];
    for digest in digests {
        forms.push(hex(&digest));
        forms.extend(base64(&digest));
    }
    forms
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Base64 in the standard and in the URL-safe alphabet.
fn base64(bytes: &[u8]) -> [String; 2] {
    const COMMON: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    [b"+/", b"-_"].map(|last| {
        let letter = |index: u32| {
            let index = (index & 63) as usize;
            let byte = COMMON.get(index).copied();
            char::from(byte.unwrap_or_else(|| last[index - COMMON.len()]))
        };
        let groups = bytes.chunks(3).map(|group| {
            let number = (0..3).fold(0_u32, |sum, at| {
                (sum << 8) | u32::from(group.get(at).copied().unwrap_or(0))
            });
            let letters = [18, 12, 6, 0].map(|shift| letter(number >> shift));
            letters[..=group.len()].iter().collect::<String>()
        });
        groups.collect()
    })
}

/// Marks any digest in a text that mentions keys.
fn mark_digests(text: &str, lower: &str, hide: &mut [bool]) {
    let words = [
        "key",
        "token",
        "credential",
        "auth",
        "secret",
        "hash",
        "digest",
        "fingerprint",
    ];
    // A model also counts `tokens`, which is no key.
    let speaks = |word: &&str| {
        let mut found = lower.match_indices(*word);
        found.any(|(at, _)| *word != "token" || !lower[at..].starts_with("tokens"))
    };
    if !words.iter().any(speaks) {
        return;
    }
    let is_digest = |run: &str, before: &str, behind: &str| {
        let is_hex = run.bytes().all(|byte| byte.is_ascii_hexdigit());
        let has = |is: fn(&u8) -> bool| run.bytes().any(|byte| is(&byte));
        let is_mixed = has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic);
        if is_hex {
            return run.len() >= 2 * DIGEST_LETTERS || (run.len() >= DIGEST_DIGITS && is_mixed);
        }
        // Ids also mix upper and lower case; only these are clearly base64.
        let is_base64 = behind.starts_with('=') || run.contains(['+', '/']);
        let is_path = before.ends_with(['/', '.', ':']) || run.starts_with('/');
        is_base64
            && !is_path
            && run.len() >= DIGEST_LETTERS
            && is_mixed
            && has(u8::is_ascii_uppercase)
            && has(u8::is_ascii_lowercase)
    };
    let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '/'));
    let mut at = 0;
    for run in text.split(ends) {
        let end = at + run.len();
        // The last part of a UUID is not a digest.
        let is_id = at > 8 && text[..at].ends_with('-') && text.as_bytes()[at - 6] == b'-';
        if !is_id && is_digest(run, &text[..at], &text[end..]) {
            hide[at..end].fill(true);
        }
        at = end + text[end..].chars().next().map_or(0, char::len_utf8);
    }
}

#[cfg(test)]
#[path = "hide_tests.rs"]
mod tests;
