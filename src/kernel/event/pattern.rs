//! Patterns of event kinds, as clients and settings select events with.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A kind of event (`run.ended`), or a prefix of kinds that ends with a star (`run.*`, `*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindPattern {
    text: String,
    is_prefix: bool,
}

impl KindPattern {
    /// Parses a pattern; `None` if the text is not a valid pattern.
    pub fn parse(text: &str) -> Option<KindPattern> {
        let (text, is_prefix) = match text.strip_suffix('*') {
            Some(prefix) => (prefix, true),
            None => (text, false),
        };
        let is_kind = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._".contains(&b);
        let fits = text.bytes().all(is_kind) && (is_prefix || !text.is_empty());
        fits.then(|| KindPattern {
            text: text.to_owned(),
            is_prefix,
        })
    }

    /// True if the pattern selects events of this kind.
    pub fn fits(&self, kind: &str) -> bool {
        match self.is_prefix {
            true => kind.starts_with(&self.text),
            false => kind == self.text,
        }
    }
}

impl Serialize for KindPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let star = if self.is_prefix { "*" } else { "" };
        serializer.collect_str(&format_args!("{}{star}", self.text))
    }
}

impl<'de> Deserialize<'de> for KindPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        KindPattern::parse(&text).ok_or_else(|| serde::de::Error::custom("no kind of events"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_kind_or_the_beginning_of_one() {
        let fits = |pattern: &str, kind| KindPattern::parse(pattern).unwrap().fits(kind);
        assert!(fits("run.*", "run.ended") && !fits("run.*", "runs"));
        assert!(fits("run.ended", "run.ended") && !fits("run.end", "run.ended"));
        assert!(fits("*", "sub_agent.call_start"));
        for wrong in ["", "r*n", "**", "Run.*", "run ended", "run.?", "*run"] {
            assert!(KindPattern::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_is_stored_as_it_is_written() {
        for text in ["run.*", "*", "run.ended"] {
            let json = serde_json::to_string(&KindPattern::parse(text).unwrap()).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(
                serde_json::from_str::<KindPattern>(&json).ok(),
                KindPattern::parse(text)
            );
        }
    }
}
