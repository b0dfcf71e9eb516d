//! Reads the arguments of one tool call from the texts in which they arrived. Ambiguous arguments
//! are refused: no tool runs with arguments that the model did not clearly give. Called by `calls`.

use serde_json::{Value, json};

use super::json::{ParsedJson, read_all};
use super::surrogates::joined;

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParsedArguments {
    /// A JSON object; the raw text as a string if the arguments are refused.
    pub value: Value,
    /// The text as the model wrote it, if it parses to `value` as it is.
    pub written: Option<String>,
    /// Why no tool is run with them.
    pub refused: Option<String>,
}

impl ParsedArguments {
    fn refused(text: &str, why: String) -> Self {
        ParsedArguments {
            value: joined(text).into(),
            written: None,
            refused: Some(why),
        }
    }
}

/// Reads the texts of a call: one entry in `versions` for each time the call was begun, each in
/// pieces.
pub(super) fn read(versions: &[Vec<String>]) -> ParsedArguments {
    let all: String = versions.iter().flatten().map(String::as_str).collect();
    // The usual case: one call, cut anywhere.
    let whole = read_text(&all);
    if whole.refused.is_none() {
        return whole;
    }
    if versions.len() > 1 {
        let each = versions.iter().map(|pieces| read_text(&pieces.concat()));
        let each: Vec<ParsedArguments> = each.collect();
        if each.iter().all(|one| one.refused.is_none()) {
            return same(each, &all);
        }
    }
    // Some servers repeat everything so far in every piece.
    let pieces: Vec<&String> = versions.iter().flatten().collect();
    let grows = pieces
        .windows(2)
        .all(|pair| pair[1].starts_with(pair[0].as_str()));
    if let (true, [_, .., last]) = (grows, pieces.as_slice()) {
        let last = read_text(last);
        if last.refused.is_none() {
            return last;
        }
    }
    whole
}

/// The arguments, if all `versions` agree; otherwise they are refused.
fn same(mut versions: Vec<ParsedArguments>, all: &str) -> ParsedArguments {
    let first = versions.swap_remove(0);
    match versions.iter().all(|one| one.value == first.value) {
        true => first,
        false => ParsedArguments::refused(all, differs(versions.len() + 1)),
    }
}

fn differs(count: usize) -> String {
    format!(
        "the call was sent {count} times under one id, and not with the same arguments each time. \
         Repeat the call once"
    )
}

fn read_text(text: &str) -> ParsedArguments {
    if text.trim().is_empty() {
        // Many servers send this for a tool without arguments.
        return ParsedArguments {
            value: json!({}),
            written: None,
            refused: None,
        };
    }
    let refused = |why: &str| {
        let advice = "Give the arguments as one complete, valid JSON object";
        ParsedArguments::refused(text, format!("its arguments {why}. {advice}"))
    };
    let text = joined(text);
    let values = match read_all(&text) {
        Ok(values) => values,
        Err(error) => return refused(&format!("are not valid JSON ({error})")),
    };
    let count = values.len();
    let mut values = values.into_iter();
    let Some(first) = values.next() else {
        return refused("are not valid JSON");
    };
    if let Some(name) = &first.duplicate_key {
        return refused(&format!("contain the key {name:?} twice"));
    }
    if values.any(|other| other != first) {
        return ParsedArguments::refused(&text, differs(count));
    }
    let value = match first.value {
        Value::Null => json!({}),
        Value::Object(fields) => Value::Object(fields),
        // Some servers send the object encoded as a JSON string.
        Value::String(inner) => match read_all(&inner).as_deref() {
            Ok(
                [
                    ParsedJson {
                        duplicate_key: Some(name),
                        ..
                    },
                ],
            ) => {
                return refused(&format!("contain the key {name:?} twice"));
            }
            Ok(
                [
                    ParsedJson {
                        value: Value::Object(fields),
                        ..
                    },
                ],
            ) => Value::Object(fields.clone()),
            _ => return refused("are JSON, but not an object"),
        },
        _ => return refused("are JSON, but not an object"),
    };
    // Servers parse what is sent back to them, so it must be an object that every parser accepts.
    let plain = count == 1 && serde_json::from_str::<Value>(&text).is_ok_and(|own| own == value);
    ParsedArguments {
        written: plain.then(|| text.trim().to_owned()),
        value,
        refused: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(versions: &[&[&str]]) -> ParsedArguments {
        let version = |pieces: &&[&str]| pieces.iter().map(|one| (*one).to_owned()).collect();
        read(&versions.iter().map(version).collect::<Vec<_>>())
    }

    fn good(versions: &[&[&str]]) -> Value {
        let read = of(versions);
        assert_eq!(read.refused, None, "{versions:?}");
        read.value
    }

    fn why(versions: &[&[&str]]) -> String {
        let read = of(versions);
        assert!(read.value.is_string(), "{versions:?}");
        read.refused.unwrap()
    }

    #[test]
    fn only_an_object_is_taken_for_arguments() {
        for text in ["", "  ", "{}", "null", r#""{}""#] {
            assert_eq!(good(&[&[text]]), json!({}), "{text}");
        }
        assert_eq!(good(&[&[r#"{"a"#, r#"": 1}"#]]), json!({"a": 1}));
        assert_eq!(good(&[&[r#""{\"a\": 1}""#]]), json!({"a": 1}));
        for text in [r#"{"a": "#, "a=1", "{} x"] {
            assert!(why(&[&[text]]).contains("not valid JSON"), "{text}");
        }
        for text in ["[1]", "7", r#""a""#, "[]"] {
            assert!(why(&[&[text]]).contains("not an object"), "{text}");
        }
    }

    #[test]
    fn what_the_model_wrote_is_kept_where_every_parser_takes_it() {
        let written = |text: &str| of(&[&[text]]).written;
        assert_eq!(written(r#" {"a": 1.0}"#).as_deref(), Some(r#"{"a": 1.0}"#));
        for other in ["", "null", r#""{}""#, r#"{"a": "\ud83d"}"#, "{}{}"] {
            assert_eq!(written(other), None, "{other}");
        }
        assert_eq!(good(&[&[r#"{"a": "\ud83d"}"#]]), json!({"a": "\u{FFFD}"}));
    }

    #[test]
    fn a_key_that_is_given_twice_is_refused() {
        for text in [
            r#"{"a": 1, "a": 1}"#,
            r#"{"a": {"b": 1, "b": 2}}"#,
            r#""{\"a\": 1, \"a\": 2}""#,
        ] {
            assert!(why(&[&[text]]).contains("twice"), "{text}");
        }
    }

    #[test]
    fn versions_of_one_call_count_once_if_they_are_the_same() {
        let (one, other) = (r#"{"a": 1}"#, r#"{"a": 2}"#);
        let spaced = r#"{ "a":1 }"#;
        for same in [
            &[&[one, one][..]][..],
            &[&[one], &[one]],
            &[&[one], &[spaced]],
        ] {
            assert_eq!(good(same), json!({"a": 1}), "{same:?}");
        }
        for differ in [
            &[&[one, other][..]][..],
            &[&[one], &[other]],
            &[&["{}"], &[one]],
        ] {
            assert!(
                why(differ).contains("not with the same arguments"),
                "{differ:?}"
            );
        }
        // Split over two beginnings, and with everything so far in each piece.
        assert_eq!(good(&[&[r#"{"a""#], &[": 1}"]]), json!({"a": 1}));
        assert_eq!(good(&[&[r#"{"a"#, r#"{"a": 1"#, one]]), json!({"a": 1}));
        // Begun again in the middle, with the pieces of both interleaved.
        assert_eq!(
            good(&[&[r#"{"a"#, r#"": 1}"#], &[r#"{"a"#, r#"": 1}"#]]),
            json!({"a": 1})
        );
    }
}
