//! Takes a provider's key out of what the provider says: the key, parts of it, masked forms, and
//! what can be computed from it, however it is separated, and backwards. A provider has seen the
//! key, and its errors are stored, logged and shown. Called by `remote` for each failure, before
//! anything else sees it.
//!
//! No more than four characters of a key are left in one message. Letters and digits alone count:
//! what stands between them is a way of writing them.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName};
use md5::{Digest as _, Md5};
use ring::digest;

use crate::kernel::redact::Redactor;
use crate::kernel::secret::Secret;

/// So many characters of a key, or of what is derived from it, are taken out; fewer may stay.
const PART: usize = 5;
/// A shorter one is no key; its parts would be found in words.
const SHORTEST_KEY: usize = 8;
/// The least letters of one end of a key that stand for it.
const END: usize = 2;
/// A hexadecimal number of so many digits, or base64 of so many letters, that stands beside a word of
/// keys is taken out whatever it is of: not every digest can be computed here.
const DIGEST_DIGITS: usize = 12;
const DIGEST_LETTERS: usize = 16;
/// What is written for the key.
const INSTEAD: &str = "[key]";

/// Knows what must not be said.
pub(super) struct Hidden {
    /// Whole values of all headers that are configured.
    values: Redactor,
    /// The keys among them, in small letters.
    keys: Vec<String>,
    /// The letters and digits of each, in order and backwards.
    letters: Vec<String>,
    /// Every sequence of [`PART`] bytes of the keys and of what is derived from them, in small
    /// letters: as it is, and of letters and digits alone, each also backwards.
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
        Hidden {
            values: Redactor::new(values.iter().map(|(name, value)| (name.as_str(), value))),
            keys,
            letters,
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
                true if !was_hidden => shown.push_str(INSTEAD),
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

/// Pieces of a key that are short each, in words of their own or at the ends of one word, are more
/// of it together: `sk-Zq [redacted] 6Nb`. `key`: its letters and digits.
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
        // Within a longer word only what is clearly of the key.
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

/// Letters and digits alone, in small letters.
fn bare_letters(text: &str) -> String {
    let letters = text.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

fn backwards(text: &str) -> String {
    text.chars().rev().collect()
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
    // Tokens are also what a model counts.
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
        // Ids have letters of both cases, too; only these are clearly base64.
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
        // The last part of a UUID is no digest.
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
