//! Replaces secret values in the output of a run with `[secret:NAME]` before it is shown or stored.
//! Used where outcomes are written, where pieces of text are streamed, and by the log.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use crate::kernel::secret::Secret;

/// Minimum characters of a value; shorter ones would match within ordinary words.
const SHORTEST: usize = 8;
/// Minimum characters of a part that is redacted where a value was cut.
const SHORTEST_PART: usize = 4;
/// Marks the place where a text was cut; the rest of a value beside it is only a part.
const CUT: char = '…';
/// The beginning of every mask.
pub const MASK: &str = "[secret:";

/// Knows the secret values of a run. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<SecretFinder>>);

struct SecretFinder {
    finder: AhoCorasick,
    patterns: Vec<String>,
    instead: Vec<String>,
}

impl Redactor {
    /// Redacts these values, given by name. Values of fewer than eight characters are not redacted.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Self {
        let mut patterns = Vec::new();
        let mut instead = Vec::new();
        for (name, secret) in secrets {
            for form in forms(secret.expose()) {
                patterns.push(form);
                instead.push(format!("{MASK}{name}]"));
            }
        }
        if patterns.is_empty() {
            return Redactor(None);
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns);
        // This fails only for gigabytes of patterns; the size of values is limited.
        Redactor(finder.ok().map(|finder| {
            Arc::new(SecretFinder {
                finder,
                patterns,
                instead,
            })
        }))
    }

    /// True if there are no values to redact.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Redacts a `text` that was not cut: a `…` in it was written by its author, and the text
    /// beside it is not treated as part of a value.
    pub fn whole<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(known) if known.finder.is_match(text) => {
                Cow::Owned(known.finder.replace_all(text, &known.instead))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Redacts values and also the parts of values that a cut left; a cut is marked by `…`, at the
    /// end of a line or within it.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let Some(known) = &self.0 else {
            return Cow::Borrowed(text);
        };
        let parts = known.parts(text);
        if parts.is_empty() && !known.finder.is_match(text) {
            return Cow::Borrowed(text);
        }
        let mut without = String::with_capacity(text.len());
        let mut from = 0;
        for (part, number) in parts {
            let before = &text[from..part.start];
            without.push_str(&known.finder.replace_all(before, &known.instead));
            without.push_str(&known.instead[number]);
            from = part.end;
        }
        without.push_str(&known.finder.replace_all(&text[from..], &known.instead));
        Cow::Owned(without)
    }

    /// As [`Redactor::text`], in place.
    pub fn in_place(&self, text: &mut String) {
        if let Cow::Owned(without) = self.text(text) {
            *text = without;
        }
    }

    /// As [`Redactor::whole`], in place.
    pub fn in_whole(&self, text: &mut String) {
        if let Cow::Owned(without) = self.whole(text) {
            *text = without;
        }
    }

    /// Redacts every string and object key in `value`, none of which was cut.
    pub fn in_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.in_whole(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.in_value(item)),
            Value::Object(fields) => {
                let before = std::mem::take(fields);
                for (name, mut value) in before {
                    self.in_value(&mut value);
                    fields.insert(self.whole(&name).into_owned(), value);
                }
            }
            _ => {}
        }
    }

    /// True if [`Redactor::in_value`] would change it.
    pub fn is_in(&self, value: &Value) -> bool {
        let Some(known) = &self.0 else {
            return false;
        };
        match value {
            Value::String(text) => known.finder.is_match(text),
            Value::Array(items) => items.iter().any(|item| self.is_in(item)),
            Value::Object(fields) => fields
                .iter()
                .any(|(name, value)| known.finder.is_match(name) || self.is_in(value)),
            _ => false,
        }
    }

    /// True if a text contains the mask of one of the values.
    pub fn is_named_in(&self, text: &str) -> bool {
        let Some(known) = &self.0 else {
            return false;
        };
        text.contains(MASK) && known.instead.iter().any(|mask| text.contains(mask))
    }

    /// The byte ranges of values in a text that was not cut, each with its mask, in order.
    pub fn places(&self, text: &str) -> Vec<(Range<usize>, &str)> {
        let Some(known) = &self.0 else {
            return Vec::new();
        };
        let found = known.finder.find_iter(text);
        found
            .map(|one| {
                (
                    one.range(),
                    known.instead[one.pattern().as_usize()].as_str(),
                )
            })
            .collect()
    }

    /// The number of occurrences of each value in a text, by its mask.
    pub fn counts(&self, text: &str) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for (_, mask) in self.places(text) {
            *counts.entry(mask).or_default() += 1;
        }
        counts
    }

    /// Equal for redactors of the same values and names.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for known in self.0.iter() {
            (&known.patterns, &known.instead).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Masks the coverage of a remembered decision without making two texts equal, so that an
    /// approval for a literal `[secret:NAME]` does not cover the value itself.
    pub fn covering(&self, text: &str) -> String {
        let escaped = |text: &str| {
            let text = text.replace("[literal:", "[literal:literal:");
            text.replace(MASK, "[literal:secret:")
        };
        let Some(known) = &self.0 else {
            return escaped(text);
        };
        let mut out = String::with_capacity(text.len());
        let mut from = 0;
        for found in known.finder.find_iter(text) {
            out.push_str(&escaped(&text[from..found.start()]));
            out.push_str(&known.instead[found.pattern().as_usize()]);
            from = found.end();
        }
        out.push_str(&escaped(&text[from..]));
        out
    }

    /// The number of bytes of `text` that may be passed on before more arrives: the rest may be the
    /// beginning of a value.
    fn settled(&self, text: &str) -> usize {
        let Some(known) = &self.0 else {
            return text.len();
        };
        let longest = known.patterns.iter().map(String::len).max().unwrap_or(0);
        let from = text.len().saturating_sub(longest.saturating_sub(1));
        let begins = |at: &usize| {
            text.is_char_boundary(*at) && {
                let rest = &text[*at..];
                let starts = |one: &String| one.len() > rest.len() && one.starts_with(rest);
                known.patterns.iter().any(starts)
            }
        };
        let settled = (from..text.len()).find(begins).unwrap_or(text.len());
        // A value that crosses that point is not split.
        let over = known.finder.find_iter(text);
        let mut over = over.filter(|found| found.start() < settled && found.end() > settled);
        over.next().map_or(settled, |found| found.start())
    }
}

impl SecretFinder {
    /// The parts of values that cuts have left, in order, each with the index of its pattern: the
    /// beginning of a value before a `…`, the end of one after it.
    fn parts(&self, text: &str) -> Vec<(Range<usize>, usize)> {
        let mut parts: Vec<(Range<usize>, usize)> = Vec::new();
        let mut whole: Option<Vec<Range<usize>>> = None;
        for (at, mark) in text.match_indices(CUT) {
            let before = &text[..at];
            let before = before.strip_suffix('\n').unwrap_or(before);
            let behind = &text[at + mark.len()..];
            let behind = behind.strip_prefix('\n').unwrap_or(behind);
            let (end, start) = (before.len(), text.len() - behind.len());
            let is_known = |edge: Option<&str>| {
                edge.is_some_and(|edge| self.patterns.iter().any(|one| one.contains(edge)))
            };
            // Hardly any `…` is next to a value, which the nearest characters already show.
            let beside = |edge| is_known(edge).then_some(());
            let begun = beside(last_characters(before)).and_then(|()| {
                self.longest(|pattern, at| {
                    let (begun, rest) = (&pattern[..at], &pattern[at..]);
                    (!rest.is_empty() && before.ends_with(begun)).then_some(begun)
                })
            });
            let ended = beside(first_characters(behind)).and_then(|()| {
                self.longest(|pattern, at| {
                    let (begun, rest) = (&pattern[..at], &pattern[at..]);
                    (!begun.is_empty() && behind.starts_with(rest)).then_some(rest)
                })
            });
            let begun = begun.map(|(length, number)| (end - length..end, number));
            let ended = ended.map(|(length, number)| (start..start + length, number));
            for (part, number) in begun.into_iter().chain(ended) {
                let whole = whole.get_or_insert_with(|| {
                    let found = self.finder.find_iter(text);
                    found.map(|one| one.range()).collect()
                });
                let part = with_whole(whole, part);
                let from = parts.last().map_or(0, |(last, _)| last.end).max(part.start);
                if from < part.end {
                    parts.push((from..part.end, number));
                }
            }
        }
        parts
    }

    /// The length and pattern index of the longest part of a value that `is_there` returns over all
    /// positions where the value may be cut.
    fn longest<'a>(
        &'a self,
        is_there: impl Fn(&'a str, usize) -> Option<&'a str>,
    ) -> Option<(usize, usize)> {
        let patterns = self.patterns.iter().enumerate();
        let parts = patterns.flat_map(|(number, pattern)| {
            let cuts = pattern.char_indices().map(|(at, _)| at);
            let found = cuts.filter_map(|at| is_there(pattern, at));
            found
                .filter(|part| part.chars().count() >= SHORTEST_PART)
                .map(move |part| (part.len(), number))
        });
        parts.max_by_key(|(length, _)| *length)
    }
}

/// Extends a part to the whole values that overlap it; `whole` is in order.
fn with_whole(whole: &[Range<usize>], part: Range<usize>) -> Range<usize> {
    let first = whole.partition_point(|one| one.end <= part.start);
    let over = whole[first..].iter().take_while(|one| one.start < part.end);
    over.fold(part.clone(), |part, one| {
        part.start.min(one.start)..part.end.max(one.end)
    })
}

/// The last [`SHORTEST_PART`] characters of a text; `None` if it is shorter.
fn last_characters(text: &str) -> Option<&str> {
    let (at, _) = text.char_indices().rev().nth(SHORTEST_PART - 1)?;
    Some(&text[at..])
}

fn first_characters(text: &str) -> Option<&str> {
    let (at, last) = text.char_indices().nth(SHORTEST_PART - 1)?;
    Some(&text[..at + last.len_utf8()])
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

/// The forms in which a value may be written: unchanged, trimmed, and escaped in JSON.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), value.trim().to_owned()];
    let json = Value::from(value.trim()).to_string();
    forms.push(json[1..json.len() - 1].to_owned());
    forms.sort_unstable();
    forms.dedup();
    forms.retain(|form| form.chars().count() >= SHORTEST);
    forms
}

/// Redacts a text that arrives in pieces, including values that span two of them.
#[derive(Default)]
pub struct Pieces {
    redactor: Redactor,
    held: String,
}

impl Pieces {
    /// Starts with no text held back.
    pub fn new(redactor: Redactor) -> Self {
        Pieces {
            redactor,
            held: String::new(),
        }
    }

    /// Takes the next piece and returns the redacted text that may be passed on now.
    pub fn more(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let settled = self.redactor.settled(&self.held);
        let held = self.held.split_off(settled);
        let passed = std::mem::replace(&mut self.held, held);
        self.redactor.text(&passed).into_owned()
    }

    /// Returns the text that was held back, after the last piece. It is unknown whether the text
    /// was cut here, so it is treated as cut.
    pub fn rest(&mut self) -> String {
        let mut held = std::mem::take(&mut self.held);
        held.push(CUT);
        self.redactor.in_place(&mut held);
        held.pop();
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn redactor(secrets: &[(&str, &str)]) -> Redactor {
        let secrets: Vec<(&str, Secret)> = secrets
            .iter()
            .map(|(name, value)| (*name, Secret::new(*value)))
            .collect();
        Redactor::new(secrets.iter().map(|(name, value)| (*name, value)))
    }

    #[test]
    fn what_nobody_cut_keeps_its_dots_and_what_stands_beside_them() {
        let redactor = redactor(&[("TOKEN", "ghp_16C7e42F292c6912E7")]);
        let written = "GH_TOKEN=ghp_… and ghp_16C7e42F292c6912E7";
        assert_eq!(redactor.whole(written), "GH_TOKEN=ghp_… and [secret:TOKEN]");
        let mut arguments = json!({ "text": "GH_TOKEN=ghp_…" });
        redactor.in_value(&mut arguments);
        assert_eq!(arguments, json!({ "text": "GH_TOKEN=ghp_…" }));
        assert_eq!(redactor.text("out: ghp_…"), "out: [secret:TOKEN]…");
    }

    #[test]
    fn a_long_text_full_of_cuts_is_gone_through_once() {
        let redactor = redactor(&[("TOKEN", "ghp_16C7e42F292c6912E7")]);
        // Scanned anew for each part it would take minutes.
        let text = "a line with ghp_… in it\n".repeat(200_000);
        let without = redactor.text(&text);
        assert_eq!(without.matches("[secret:TOKEN]").count(), 200_000);
    }

    #[test]
    fn values_are_taken_out_of_texts_and_trees_and_short_ones_are_left() {
        let redactor = redactor(&[
            ("A_KEY", "canary-1"),
            ("PIN", "1234"),
            ("CERT", "line \"one\"\n"),
        ]);
        assert_eq!(redactor.text("x canary-1 1234"), "x [secret:A_KEY] 1234");
        assert_eq!(
            redactor.text(r#"{"a":"line \"one\""}"#),
            r#"{"a":"[secret:CERT]"}"#
        );
        let mut value = json!({ "a canary-1": ["canary-1", 1, { "b": "is canary-1." }] });
        redactor.in_value(&mut value);
        assert_eq!(
            value,
            json!({ "a [secret:A_KEY]": ["[secret:A_KEY]", 1, { "b": "is [secret:A_KEY]." }] })
        );
        assert!(super::Redactor::default().is_empty());
        assert!(self::redactor(&[("PIN", "1234")]).is_empty());
    }

    #[test]
    fn leave_for_a_text_with_a_mask_in_it_is_none_for_the_value() {
        let redactor = redactor(&[("A", "canary-1")]);
        let covers = |text: &str| redactor.covering(text);
        let with_value = covers("send canary-1");
        assert_eq!(with_value, "send [secret:A]");
        for literal in [
            "send [secret:A]",
            "send [literal:secret:A]",
            "send [literal:[secret:A]",
        ] {
            let covered = covers(literal);
            assert!(!covered.contains("canary-1"));
            assert_ne!(covered, with_value, "{literal}");
        }
        assert_ne!(covers("[secret:A]"), covers("[literal:secret:A]"));
        // The same without secrets, since a remembered decision also applies to other runs.
        let plain = Redactor::default();
        assert_eq!(plain.covering("send [secret:A]"), covers("send [secret:A]"));
        assert_eq!(plain.covering("git push"), "git push");
    }

    #[test]
    fn a_value_is_found_wherever_it_is_in_a_tree() {
        let redactor = redactor(&[("A", "canary-1")]);
        for (value, is_in) in [
            (json!({ "a": ["x", { "canary-1": 1 }] }), true),
            (json!({ "a": "is canary-1." }), true),
            (json!({ "a": "[secret:A]" }), false),
        ] {
            assert_eq!(redactor.is_in(&value), is_in, "{value}");
        }
        assert!(redactor.is_named_in("x [secret:A]") && !redactor.is_named_in("x [secret:B]"));
    }

    #[test]
    fn what_a_cut_leaves_of_a_value_is_taken_out_on_both_sides_of_it() {
        let redactor = redactor(&[("A", "canary-1"), ("B", "1-and-more")]);
        for (text, without) in [
            ("x cana…", "x [secret:A]…"),
            (
                "x canary-\n… 7 bytes left out …\nary-1 y",
                "x [secret:A]\n… 7 bytes left out …\n[secret:A] y",
            ),
            ("…more", "…[secret:B]"),
            // Too short to identify a value.
            ("x can…", "x can…"),
            ("…ore", "…ore"),
            // One value ends within the other.
            ("canary-1-an…", "[secret:B]…"),
            ("…anary-1-and-more", "…[secret:A]"),
            ("…canary-1…", "…[secret:A]…"),
            // No cut.
            ("x cana", "x cana"),
            ("äcana …", "äcana …"),
        ] {
            assert_eq!(redactor.text(text), without, "{text}");
        }
    }

    #[test]
    fn the_longer_of_two_values_is_found_where_one_begins_the_other() {
        let redactor = redactor(&[("A", "canary-1"), ("B", "canary-1-and-more")]);
        assert_eq!(redactor.text("canary-1-and-more"), "[secret:B]");
        assert_eq!(redactor.text("canary-1-and"), "[secret:A]-and");
    }

    proptest! {
        /// For any surrounding text and any position of the cut.
        #[test]
        fn no_cut_leaves_four_characters_of_a_value(
            before in "[x-zä ]{0,12}", behind in "[x-zä ]{0,12}", from in 0usize..40, to in 0usize..40
        ) {
            let redactor = redactor(&[("A", "cäbaöcäbaü")]);
            let text: Vec<char> = format!("{before}cäbaöcäbaü{behind}").chars().collect();
            let (from, to) = (from.min(text.len()), to.min(text.len()));
            prop_assume!(from <= to);
            let head: String = text[..from].iter().collect();
            let tail: String = text[to..].iter().collect();
            let value: Vec<char> = "cäbaöcäbaü".chars().collect();
            let begun = before.chars().count();
            let gap = redactor.text(&format!("{head}\n…\n{tail}")).into_owned();
            if from > begun + 3 {
                let left: String = value[..(from - begun).min(value.len())].iter().collect();
                prop_assert!(!gap.contains(&left), "{} {}", gap, left);
            }
            if to < begun + value.len() - 3 && to >= begun {
                let left: String = value[to - begun..].iter().collect();
                prop_assert!(!gap.contains(&left), "{} {}", gap, left);
            }
        }

        #[test]
        fn a_text_in_pieces_is_the_text_as_a_whole(
            parts in prop::collection::vec(
                prop::sample::select(vec!["canary-1", "canary-1-and-more", "can", "ary", "ä€", " ", "-1"]),
                0..12),
            cut in prop::collection::vec(1usize..7, 1..20),
        ) {
            let redactor = redactor(&[("A", "canary-1"), ("B", "canary-1-and-more")]);
            let text = parts.concat();
            let mut pieces = Pieces::new(redactor.clone());
            let mut passed = String::new();
            let characters: Vec<char> = text.chars().collect();
            let mut left = characters.as_slice();
            for size in cut.iter().cycle() {
                if left.is_empty() { break; }
                let (now, later) = left.split_at((*size).min(left.len()));
                passed.push_str(&pieces.more(&now.iter().collect::<String>()));
                left = later;
            }
            passed.push_str(&pieces.rest());
            prop_assert!(!passed.contains("canary-1"));
            passed.push(CUT);
            let whole = format!("{text}{CUT}");
            prop_assert_eq!(&passed, &redactor.text(&whole));
        }
    }
}
