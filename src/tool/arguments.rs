//! The arguments of a tool are one struct: the schema for models and the check of calls are both
//! derived from it. Doc comments are the descriptions that models read: that of the struct
//! describes the tool, that of a field its argument. Values are never clamped, guessed or ignored.

use std::borrow::Cow;
use std::ops::Deref;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use serde_path_to_error::Segment;

use crate::kernel::text::preview;

/// A struct with the arguments of a tool.
pub(super) trait ToolArguments: DeserializeOwned + JsonSchema + Send + 'static {}

impl<A: DeserializeOwned + JsonSchema + Send + 'static> ToolArguments for A {}

/// A non-empty text.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct NonEmptyText(String);

impl TryFrom<Value> for NonEmptyText {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::String(text) if !text.is_empty() => Ok(NonEmptyText(text)),
            _ => Err("expected a non-empty text"),
        }
    }
}

impl From<NonEmptyText> for String {
    fn from(text: NonEmptyText) -> Self {
        text.0
    }
}

impl Deref for NonEmptyText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl JsonSchema for NonEmptyText {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A whole number from `MIN` to `MAX`, both included.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct BoundedCount<const MIN: usize, const MAX: usize>(usize);

impl<const MIN: usize, const MAX: usize> TryFrom<Value> for BoundedCount<MIN, MAX> {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let number = value.as_u64().and_then(|number| number.try_into().ok());
        number
            .filter(|number| (MIN..=MAX).contains(number))
            .map(BoundedCount)
            .ok_or_else(|| format!("expected a whole number from {MIN} to {MAX}"))
    }
}

impl<const MIN: usize, const MAX: usize> From<BoundedCount<MIN, MAX>> for usize {
    fn from(count: BoundedCount<MIN, MAX>) -> Self {
        count.0
    }
}

impl<const MIN: usize, const MAX: usize> JsonSchema for BoundedCount<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("Count_{MIN}_{MAX}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// What models read about the tool `name` with the arguments `A`: `{name, description,
/// parameters}`. Without references and null, which not every provider accepts.
pub(super) fn tool_schema<A: ToolArguments>(name: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<A>();
    let field = |name: &str| schema.get(name).cloned();
    let mut properties = field("properties").unwrap_or_else(|| json!({}));
    if let Some(properties) = properties.as_object_mut() {
        properties.values_mut().for_each(simplify);
    }
    json!({
        "name": name,
        "description": field("description").map_or_else(String::new, |text| one_line(&text)),
        "parameters": {
            "type": "object",
            "properties": properties,
            "required": field("required").unwrap_or_else(|| json!([])),
            "additionalProperties": false,
        },
    })
}

/// An optional argument is left out of a call, so its schema needs neither null nor a default.
fn simplify(property: &mut Value) {
    let Some(property) = property.as_object_mut() else {
        return;
    };
    property.shift_remove("default");
    if let Some(Value::Array(types)) = property.get("type") {
        let first = types.first().cloned();
        property.insert("type".to_owned(), first.into());
    }
    if let Some(Value::Array(words)) = property.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    if let Some(description) = property.shift_remove("description") {
        property.insert("description".to_owned(), one_line(&description).into());
    }
}

/// The text of a doc comment without its line breaks.
fn one_line(text: &Value) -> String {
    text.as_str().unwrap_or_default().replace('\n', " ")
}

/// Decodes the arguments of a call. The error names the argument, what is expected and what was
/// given.
pub(super) fn parse<A: ToolArguments>(mut given: Value) -> Result<A, String> {
    let schema = || tool_schema::<A>("")["parameters"].clone();
    let Some(arguments) = given.as_object_mut() else {
        let names = names(&schema());
        return Err(format!("arguments: expected an object with {names}"));
    };
    // Models send null for an argument that is not given.
    arguments.retain(|_, value| !value.is_null());
    serde_path_to_error::deserialize(&given).map_err(|error| explain(&schema(), &given, &error))
}

fn explain(
    mut schema: &Value,
    mut given: &Value,
    error: &serde_path_to_error::Error<serde_json::Error>,
) -> String {
    let properties = &schema["properties"];
    let mut arguments = given.as_object().into_iter().flat_map(Map::keys);
    if let Some(name) = arguments.find(|name| properties.get(name).is_none()) {
        let names = names(schema);
        return format!("unknown argument {name:?}; the arguments are {names}");
    }
    let required = schema["required"].as_array().into_iter().flatten();
    let mut required = required.filter_map(Value::as_str);
    let path = error.path();
    if path.iter().next().is_none()
        && let Some(name) = required.find(|name| given.get(name).is_none())
    {
        let description = properties[name]["description"].as_str();
        return format!("{name}: missing; {}", description.unwrap_or_default());
    }
    for segment in path {
        (schema, given) = match segment {
            Segment::Map { key } => (&schema["properties"][key], &given[key]),
            Segment::Seq { index } => (&schema["items"], &given[*index]),
            _ => break,
        };
    }
    let message = error.inner().to_string();
    // The types above say what they expect; for those of the standard library the schema does.
    let expected = match message.strip_prefix("expected ") {
        Some(expected) => Some(expected.to_owned()),
        None => expected(schema, given),
    };
    match expected {
        Some(expected) => {
            let shown = preview(&given.to_string(), 80);
            format!("{path}: expected {expected}, got {shown}")
        }
        None => format!("{path}: {}", preview(&message, 300)),
    }
}

/// The names of an object's fields.
fn names(schema: &Value) -> String {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let names: Vec<&str> = properties.map(|(name, _)| name.as_str()).collect();
    names.join(", ")
}

/// What this schema expects in place of `given`; `None` for an object with wrong fields.
fn expected(schema: &Value, given: &Value) -> Option<String> {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return Some(format!("one of {}", words.join(", ")));
    }
    Some(match schema["type"].as_str()? {
        "string" => "a text".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" if schema["items"]["type"] == "string" => "a list of texts".to_owned(),
        "array" => "a list".to_owned(),
        "object" if !given.is_object() => format!("an object with {}", names(schema)),
        _ => return None,
    })
}

/// Why `arguments` do not fit the JSON Schema of a server tool. Only required names, and the types
/// and enum values of top-level properties are checked.
pub fn misfit(schema: &Value, arguments: &Value) -> Option<String> {
    let Value::Object(given) = arguments else {
        return Some("arguments: expected an object".to_owned());
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let mut missing = required.filter_map(Value::as_str);
    if let Some(name) = missing.find(|name| !given.contains_key(*name)) {
        return Some(format!("{name}: missing"));
    }
    given.iter().find_map(|(name, value)| {
        let property = &schema["properties"][name];
        let shown = || preview(&value.to_string(), 80);
        let types: Vec<&str> = match &property["type"] {
            Value::String(one) => vec![one],
            Value::Array(any) => any.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
            return Some(format!(
                "{name}: expected {}, got {}",
                types.join(" or "),
                shown()
            ));
        }
        let allowed = property["enum"].as_array()?;
        (!allowed.contains(value)).then(|| {
            let allowed = preview(&property["enum"].to_string(), 200);
            format!("{name}: expected one of {allowed}, got {}", shown())
        })
    })
}

/// True if `value` has this JSON Schema type; also true for an unknown type.
fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A tool for
    /// tests.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        /// Where.
        path: NonEmptyText,
        /// How many.
        limit: Option<BoundedCount<1, 9>>,
        /// What.
        #[serde(default)]
        output: Output,
        /// Any.
        #[serde(default)]
        ids: Vec<NonEmptyText>,
    }

    #[derive(Debug, Default, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Output {
        #[default]
        Lines,
        Files,
    }

    fn refusal(value: Value) -> String {
        match parse::<Sample>(value.clone()) {
            Ok(_) => panic!("taken: {value}"),
            Err(text) => text,
        }
    }

    #[test]
    fn a_schema_has_what_every_provider_accepts() {
        let expected = json!({
            "name": "sample",
            "description": "A tool for tests.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": { "type": "string", "description": "Where." },
                    "limit": {
                        "type": "integer", "minimum": 1, "maximum": 9, "description": "How many."
                    },
                    "output": {
                        "type": "string", "enum": ["lines", "files"], "description": "What."
                    },
                    "ids": {
                        "type": "array", "items": { "type": "string" }, "description": "Any."
                    },
                },
                "required": ["path"],
                "additionalProperties": false,
            },
        });
        let schema = tool_schema::<Sample>("sample");
        assert_eq!(schema.to_string(), expected.to_string());
    }

    #[test]
    fn a_misfit_is_refused_by_name() {
        assert!(refusal(json!({"path": "a", "pth": 1})).contains("\"pth\""));
        assert!(refusal(json!({})).starts_with("path: missing"));
        assert!(refusal(json!({"path": null})).starts_with("path: missing"));
        assert_eq!(refusal(json!({})), "path: missing; Where.");
        assert_eq!(
            refusal(json!({"path": ""})),
            "path: expected a non-empty text, got \"\""
        );
        assert_eq!(
            refusal(json!({"path": ["a"]})),
            "path: expected a non-empty text, got [\"a\"]"
        );
        assert_eq!(
            refusal(json!({"ids": ["a", ""]})),
            "ids[1]: expected a non-empty text, got \"\""
        );
        assert_eq!(
            refusal(json!({"ids": "a"})),
            "ids: expected a list of texts, got \"a\""
        );
        for limit in [json!(0), json!(10), json!(-1), json!(1.5), json!("3")] {
            let text = refusal(json!({"path": "a", "limit": limit}));
            assert!(
                text.starts_with("limit: expected a whole number from 1 to 9"),
                "{text}"
            );
        }
        assert!(refusal(json!({"path": "a", "output": "x"})).contains("lines, files"));
        assert!(refusal(json!("path")).contains("expected an object"));
        assert!(refusal(json!(["path"])).contains("expected an object"));
    }

    #[test]
    fn a_foreign_schema_is_held_against_what_is_given() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "count": { "type": ["integer", "null"] },
                "mode": { "enum": ["a", 1] },
                "any": true,
            },
            "required": ["path"],
        });
        for fits in [
            json!({"path": ""}),
            json!({"path": "x", "count": null, "mode": 1, "any": [], "unknown": 2}),
            json!({"path": "x", "count": 2.0}),
        ] {
            assert_eq!(misfit(&schema, &fits), None, "{fits}");
        }
        for (other, why) in [
            (json!({}), "path: missing"),
            (json!({"path": 7}), "path: expected string, got 7"),
            (
                json!({"path": "x", "count": 1.5}),
                "count: expected integer or null",
            ),
            (json!({"path": "x", "mode": "b"}), "mode: expected one of"),
            (json!([]), "arguments: expected an object"),
        ] {
            let found = misfit(&schema, &other).unwrap();
            assert!(found.starts_with(why), "{found}");
        }
        // A schema without constraints accepts everything.
        assert_eq!(misfit(&json!(true), &json!({"a": 1})), None);
    }

    #[test]
    fn null_stands_for_not_given() {
        let taken: Sample = parse(json!({"path": "a", "limit": null, "ids": null})).unwrap();
        assert_eq!(&*taken.path, "a");
        assert!(taken.limit.is_none() && taken.ids.is_empty());
        assert!(matches!(taken.output, Output::Lines));
    }

    proptest! {
        #[test]
        fn any_arguments_are_taken_or_refused_in_words(text in "\\PC{0,40}") {
            let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            if let Err(words) = parse::<Sample>(value) {
                prop_assert!(!words.is_empty());
            }
        }
    }
}
