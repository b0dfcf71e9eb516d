//! Takes values out of what a run says, before anybody sees or stores it: `[secret:NAME]` stands
//! in their place. Used where outcomes are written, where pieces of text are passed on, and by
//! the log.

use std::borrow::Cow;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use super::secret::Secret;

/// A shorter value would be found in words that are none.
const SHORTEST: usize = 8;

/// Knows the values of a run that nobody is to see. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Known>>);

struct Known {
    finder: AhoCorasick,
    patterns: Vec<String>,
    instead: Vec<String>,
}

impl Redactor {
    /// Takes these out, by name. Values of fewer than eight characters are left where they are.
    pub fn new<'a>(secrets: impl IntoIterator<Item = (&'a str, &'a Secret)>) -> Self {
        let mut patterns = Vec::new();
        let mut instead = Vec::new();
        for (name, secret) in secrets {
            for form in forms(secret.expose()) {
                patterns.push(form);
                instead.push(format!("[secret:{name}]"));
            }
        }
        if patterns.is_empty() {
            return Redactor(None);
        }
        let finder = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&patterns);
        // It fails for gigabytes of patterns; values have a limit.
        Redactor(finder.ok().map(|finder| {
            Arc::new(Known {
                finder,
                patterns,
                instead,
            })
        }))
    }

    /// Is there nothing to take out?
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// `text` without the values.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(known) if known.finder.is_match(text) => {
                Cow::Owned(known.finder.replace_all(text, &known.instead))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// Takes the values out of `text`.
    pub fn in_place(&self, text: &mut String) {
        if let Cow::Owned(without) = self.text(text) {
            *text = without;
        }
    }

    /// Takes the values out of every text in `value`, keys of objects included.
    pub fn in_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => self.in_place(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.in_value(item)),
            Value::Object(fields) => {
                let before = std::mem::take(fields);
                for (name, mut value) in before {
                    self.in_value(&mut value);
                    fields.insert(self.text(&name).into_owned(), value);
                }
            }
            _ => {}
        }
    }

    /// How much of `text` may be passed on before more of it is known: behind it may stand the
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
        // What reaches over that point is not cut.
        let over = known.finder.find_iter(text);
        let mut over = over.filter(|found| found.start() < settled && found.end() > settled);
        over.next().map_or(settled, |found| found.start())
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}

/// A value as it may be written: as it is, without the blanks at its ends, and within JSON.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), value.trim().to_owned()];
    let json = Value::from(value.trim()).to_string();
    forms.push(json[1..json.len() - 1].to_owned());
    forms.sort_unstable();
    forms.dedup();
    forms.retain(|form| form.chars().count() >= SHORTEST);
    forms
}

/// Takes values out of a text that comes in pieces, also where one is cut between two.
#[derive(Default)]
pub struct Pieces {
    redactor: Redactor,
    held: String,
}

impl Pieces {
    /// Nothing has come yet.
    pub fn new(redactor: Redactor) -> Self {
        Pieces {
            redactor,
            held: String::new(),
        }
    }

    /// What may be passed on with this piece.
    pub fn more(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let settled = self.redactor.settled(&self.held);
        let held = self.held.split_off(settled);
        let passed = std::mem::replace(&mut self.held, held);
        self.redactor.text(&passed).into_owned()
    }

    /// What was held back: no more will come.
    pub fn rest(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.redactor.text(&held).into_owned()
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
    fn the_longer_of_two_values_is_found_where_one_begins_the_other() {
        let redactor = redactor(&[("A", "canary-1"), ("B", "canary-1-and-more")]);
        assert_eq!(redactor.text("canary-1-and-more"), "[secret:B]");
        assert_eq!(redactor.text("canary-1-and"), "[secret:A]-and");
    }

    proptest! {
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
            prop_assert_eq!(&passed, &redactor.text(&text));
            prop_assert!(!passed.contains("canary-1"));
        }
    }
}
