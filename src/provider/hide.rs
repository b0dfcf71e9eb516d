//! Takes a provider's key out of what the provider says: the key, parts of it, masked forms, and
//! what can be computed from it. A provider has seen the key, and its errors are stored, logged and
//! shown. Called by `remote` for each failure, before anything else sees it.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName};
use ring::digest;

use crate::kernel::redact::Redactor;
use crate::kernel::secret::Secret;

/// So many characters of a key, or of what is derived from it, are taken out; fewer may stay.
const PART: usize = 5;
/// A shorter one is no key; its parts would be found in words.
const SHORTEST_KEY: usize = 8;
/// Hexadecimal digests are this long at least (MD5). One that stands beside a word of keys is taken
/// out whatever it is of: not every digest can be computed here.
const DIGEST_DIGITS: usize = 32;
/// What is written for the key.
const INSTEAD: &str = "[key]";

/// Knows what must not be said.
pub(super) struct Hidden {
    /// Whole values of all headers that are configured.
    values: Redactor,
    /// The keys among them, in small letters.
    keys: Vec<String>,
    /// Every sequence of [`PART`] bytes of the keys and of what is derived from them, in small
    /// letters.
    parts: HashSet<[u8; PART]>,
}

impl Hidden {
    /// What the headers of a request hold.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let sensitive = headers.iter().filter(|(_, value)| value.is_sensitive());
        let values: Vec<(&HeaderName, Secret)> = sensitive
            .filter_map(|(name, value)| Some((name, Secret::new(bare(value.to_str().ok()?)))))
            .collect();
        let mut parts = HashSet::new();
        let mut keys = Vec::new();
        for (_, value) in values.iter().filter(|(name, _)| is_of_key(name)) {
            let key = value.expose();
            if key.len() < SHORTEST_KEY {
                continue;
            }
            keys.push(key.to_ascii_lowercase());
            for form in forms(key) {
                let form = form.to_ascii_lowercase();
                parts.extend(form.as_bytes().array_windows::<PART>().copied());
            }
        }
        Hidden {
            values: Redactor::new(values.iter().map(|(name, value)| (name.as_str(), value))),
            keys,
            parts,
        }
    }

    /// Takes the key out of `text`.
    pub(super) fn in_place(&self, text: &mut String) {
        self.values.in_place(text);
        if self.keys.is_empty() {
            return;
        }
        let lower = text.to_ascii_lowercase();
        let mut hide = vec![false; lower.len()];
        self.mark_parts(lower.as_bytes(), &mut hide);
        self.mark_masked(&lower, &mut hide);
        mark_digests(&lower, &mut hide);
        if !hide.contains(&true) {
            return;
        }
        let mut shown = String::with_capacity(text.len());
        let mut was_hidden = false;
        for (at, character) in text.char_indices() {
            match hide[at] {
                true if !was_hidden => shown.push_str(INSTEAD),
                true => {}
                false => shown.push(character),
            }
            was_hidden = hide[at];
        }
        *text = shown;
    }

    fn mark_parts(&self, text: &[u8], hide: &mut [bool]) {
        for (at, part) in text.array_windows::<PART>().enumerate() {
            if self.parts.contains(part) {
                hide[at..at + PART].fill(true);
            }
        }
    }

    /// `sk-a****wxyz`: what stands on both sides of a mask is more of the key than either.
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

/// The secret of a header: without the word that says what it is.
fn bare(value: &str) -> &str {
    let words = ["Bearer ", "bearer ", "Basic ", "basic ", "Token ", "token "];
    let found = words.iter().find_map(|word| value.strip_prefix(word));
    found.unwrap_or(value).trim()
}

/// Does the header hold a key? Others are named in errors for good reasons.
fn is_of_key(name: &HeaderName) -> bool {
    let words = ["auth", "key", "token", "secret", "cookie", "password"];
    words.iter().any(|word| name.as_str().contains(word))
}

/// A key as a provider may write it: as it is, encoded, and as a digest.
fn forms(key: &str) -> Vec<String> {
    let mut forms = vec![
        key.to_owned(),
        form_urlencoded::byte_serialize(key.as_bytes()).collect(),
        hex(key.as_bytes()),
    ];
    forms.extend(base64(key.as_bytes()));
    // Within a longer text the key begins at one of three places of a base64 group.
    for skipped in 0..3 {
        let padded = [&b"\0\0"[..skipped], key.as_bytes()].concat();
        forms.extend(base64(&padded).map(|text| {
            // What comes before and behind the key is part of the first and last groups.
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
    forms.push(blake3::hash(key.as_bytes()).to_hex().to_string());
    forms
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// In the usual alphabet and in that of addresses.
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

/// Digests of whatever kind in a text that speaks of keys.
fn mark_digests(text: &str, hide: &mut [bool]) {
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
    if !words.iter().any(|word| text.contains(word)) {
        return;
    }
    let mut at = 0;
    for run in text.split(|c: char| !c.is_ascii_hexdigit()) {
        if run.len() >= DIGEST_DIGITS {
            hide[at..at + run.len()].fill(true);
        }
        let behind = text[at + run.len()..].chars().next();
        at += run.len() + behind.map_or(0, char::len_utf8);
    }
}

#[cfg(test)]
#[path = "hide_tests.rs"]
mod tests;
