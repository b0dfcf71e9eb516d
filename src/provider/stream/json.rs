//! Parses JSON as servers and models write it: lone surrogates are marked (see `surrogates`), and a
//! key that occurs twice in an object is reported instead of silently dropped.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::surrogates::{joined, marked};

/// A parsed JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::provider) struct ParsedJson {
    /// The value; its strings may hold surrogate marks until [`settle`] is called.
    pub(in crate::provider) value: Value,
    /// The first key that occurs twice in an object. The later value is kept.
    pub(in crate::provider) duplicate_key: Option<String>,
}

/// Parses one JSON value that spans all of `text`.
pub(in crate::provider) fn read(text: &str) -> Result<ParsedJson, serde_json::Error> {
    let text = marked(text);
    let mut source = serde_json::Deserializer::from_str(&text);
    let mut read = ParsedJson::default();
    read.value = JsonVisitor(&mut read.duplicate_key).deserialize(&mut source)?;
    source.end()?;
    Ok(read)
}

/// Parses the JSON values that follow each other in `text`, with all surrogate marks resolved.
pub(super) fn read_all(text: &str) -> Result<Vec<ParsedJson>, serde_json::Error> {
    let text = marked(text);
    let mut values = serde_json::Deserializer::from_str(&text).into_iter::<ParsedJson>();
    let mut all = Vec::new();
    while let Some(one) = values.next().transpose()? {
        let mut one = one;
        settle(&mut one.value);
        all.push(one);
    }
    Ok(all)
}

/// Joins the surrogate marks in all strings of `value`.
pub(in crate::provider) fn settle(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(whole) = joined(text) {
                *text = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(settle),
        Value::Object(fields) => settle_fields(fields),
        _ => {}
    }
}

/// Joins the surrogate marks in all strings and keys of `fields`.
pub(in crate::provider) fn settle_fields(fields: &mut Map<String, Value>) {
    fields.values_mut().for_each(settle);
    if fields
        .keys()
        .any(|name| matches!(joined(name), Cow::Owned(_)))
    {
        let settled = std::mem::take(fields).into_iter();
        *fields = settled
            .map(|(name, value)| (joined(&name).into_owned(), value))
            .collect();
    }
}

impl<'de> serde::Deserialize<'de> for ParsedJson {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        let mut read = ParsedJson::default();
        read.value = JsonVisitor(&mut read.duplicate_key).deserialize(source)?;
        Ok(read)
    }
}

/// Parses a value and records the first duplicate key.
struct JsonVisitor<'a>(&'a mut Option<String>);

impl<'de> DeserializeSeed<'de> for JsonVisitor<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonVisitor<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(JsonVisitor(self.0))? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let value = entries.next_value_seed(JsonVisitor(self.0))?;
            if fields.contains_key(&name) {
                self.0.get_or_insert_with(|| joined(&name).into_owned());
            }
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_key_that_is_given_twice_is_noticed_at_every_depth() {
        for (text, twice) in [
            (r#"{"a": 1, "b": 2}"#, None),
            (r#"{"a": 1, "a": 1}"#, Some("a")),
            (r#"[{"b": {"c": 1, "d": 2, "c": 3}}]"#, Some("c")),
            (r#"{"a": {"x": 1}, "b": {"x": 1}}"#, None),
            (r#"{"\u0061": 1, "a": 1}"#, Some("a")),
        ] {
            assert_eq!(
                read(text).unwrap().duplicate_key.as_deref(),
                twice,
                "{text}"
            );
        }
    }

    #[test]
    fn values_in_a_row_are_read_one_by_one() {
        let all = read_all(r#"{"a": 1}{"a": 2} [] "x\ud83d""#).unwrap();
        let values: Vec<Value> = all.into_iter().map(|one| one.value).collect();
        assert_eq!(
            values,
            [
                json!({"a": 1}),
                json!({"a": 2}),
                json!([]),
                json!("x\u{FFFD}")
            ]
        );
        assert!(read_all(r#"{"a": 1}{"a""#).is_err());
        assert!(read("{} {}").is_err());
    }

    #[test]
    fn names_and_texts_are_settled() {
        let mut value = read(r#"{"k\ud83d": [{"x": "\ud83d"}], "y": "\ud83d\ude00"}"#)
            .unwrap()
            .value;
        settle(&mut value);
        assert_eq!(value, json!({"k\u{FFFD}": [{"x": "\u{FFFD}"}], "y": "😀"}));
    }

    proptest! {
        /// Without duplicate keys, the value is the same as from any other parser.
        #[test]
        fn any_json_is_read_as_by_the_usual_parser(text in "[\\[\\]{}\",:a-c0-9.eE \\-ntrufals\\\\]{0,30}") {
            let usual = serde_json::from_str::<Value>(&text);
            match (read(&text), usual) {
                (Ok(mut read), Ok(usual)) => {
                    settle(&mut read.value);
                    prop_assert_eq!(read.value, usual);
                }
                (Ok(_), Err(error)) => prop_assert!(error.to_string().contains("surrogate")
                    || error.to_string().contains("hex escape")),
                (Err(_), usual) => prop_assert!(usual.is_err()),
            }
        }
    }
}
