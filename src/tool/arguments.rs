//! Declares the arguments of a tool once; the schema for models and the check of calls are both
//! derived from it. Values are never clamped, guessed or ignored.

use serde_json::{Map, Value, json};

use crate::contract::allow::AGENT_FORMAT;
use crate::contract::linked::HELPER_FORMAT;

/// The declaration of one argument.
pub(super) struct Parameter {
    /// The name of the argument.
    pub name: &'static str,
    /// The values that it accepts.
    pub shape: Shape,
    /// Whether it must be given.
    pub required: bool,
    /// The meaning of the argument, for models.
    pub description: &'static str,
}

/// The values that an argument accepts.
pub(super) enum Shape {
    /// A non-empty text.
    Text,
    /// Any text; models send an empty text for an optional value.
    AnyText,
    /// The name of an agent. The schema lists the names at preparation; the registry checks the
    /// name when the call is made.
    Agent,
    /// The name of an agent for spawned work; checked like [`Shape::Agent`].
    Helper,
    /// A list of non-empty texts.
    Texts,
    /// A whole number within these bounds, inclusive.
    Count { min: usize, max: usize },
    /// A boolean.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl Shape {
    fn schema(&self) -> Value {
        match self {
            Shape::Text | Shape::AnyText => json!({"type": "string"}),
            Shape::Agent => json!({"type": "string", "format": AGENT_FORMAT}),
            Shape::Helper => json!({"type": "string", "format": HELPER_FORMAT}),
            Shape::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Shape::Count { min, max } => {
                json!({"type": "integer", "minimum": min, "maximum": max})
            }
            Shape::Flag => json!({"type": "boolean"}),
            Shape::Choice(words) => json!({"type": "string", "enum": words}),
        }
    }

    /// The expected value, if `value` does not fit; otherwise `None`.
    fn misfit(&self, value: &Value) -> Option<String> {
        let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        match self {
            Shape::Text | Shape::Helper => (!is_text(value)).then(|| "a non-empty text".to_owned()),
            Shape::AnyText | Shape::Agent => (!value.is_string()).then(|| "a text".to_owned()),
            Shape::Texts => {
                let fits = value
                    .as_array()
                    .is_some_and(|items| items.iter().all(is_text));
                (!fits).then(|| "a list of non-empty texts".to_owned())
            }
            Shape::Count { min, max } => {
                let fits = count(value).is_some_and(|number| (*min..=*max).contains(&number));
                (!fits).then(|| format!("a whole number from {min} to {max}"))
            }
            Shape::Flag => (!value.is_boolean()).then(|| "true or false".to_owned()),
            Shape::Choice(words) => {
                let fits = value.as_str().is_some_and(|text| words.contains(&text));
                (!fits).then(|| format!("one of {}", words.join(", ")))
            }
        }
    }
}

fn count(value: &Value) -> Option<usize> {
    value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok())
}

/// The JSON Schema of these parameters.
pub(super) fn schema(parameters: &[Parameter]) -> Value {
    let mut properties = Map::new();
    for parameter in parameters {
        let mut one = parameter.shape.schema();
        one["description"] = parameter.description.into();
        properties.insert(parameter.name.to_owned(), one);
    }
    let required: Vec<&str> = parameters
        .iter()
        .filter(|parameter| parameter.required)
        .map(|parameter| parameter.name)
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// Arguments that were checked against their parameters.
pub(super) struct Arguments(Map<String, Value>);

impl Arguments {
    /// Checks `value` against `parameters`; the error names the argument and the expected value.
    pub(super) fn check(parameters: &[Parameter], value: Value) -> Result<Self, String> {
        let Value::Object(mut given) = value else {
            return Err(format!(
                "arguments: expected an object with {}",
                names(parameters)
            ));
        };
        // Models send null for an argument that is not given.
        given.retain(|_, value| !value.is_null());
        for (name, value) in &given {
            let Some(parameter) = parameters.iter().find(|one| one.name == name) else {
                return Err(format!(
                    "unknown argument {name:?}; the arguments are {}",
                    names(parameters)
                ));
            };
            if let Some(expected) = parameter.shape.misfit(value) {
                let shown = crate::kernel::text::preview(&value.to_string(), 80);
                return Err(format!("{name}: expected {expected}, got {shown}"));
            }
        }
        for parameter in parameters {
            if parameter.required && !given.contains_key(parameter.name) {
                return Err(format!(
                    "{}: missing; {}",
                    parameter.name, parameter.description
                ));
            }
        }
        Ok(Arguments(given))
    }

    /// The error of [`Arguments::check`], if `value` does not fit `parameters`.
    pub(super) fn misfit(parameters: &[Parameter], value: &Value) -> Option<String> {
        Self::check(parameters, value.clone()).err()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(super) fn texts(&self, name: &str) -> Vec<&str> {
        let items = self.0.get(name).and_then(Value::as_array);
        items.map_or_else(Vec::new, |items| {
            items.iter().filter_map(Value::as_str).collect()
        })
    }

    pub(super) fn count(&self, name: &str) -> Option<usize> {
        self.0.get(name).and_then(count)
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }
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
        let shown = || crate::kernel::text::preview(&value.to_string(), 80);
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
            let allowed = crate::kernel::text::preview(&property["enum"].to_string(), 200);
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

fn names(parameters: &[Parameter]) -> String {
    let names: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARAMETERS: &[Parameter] = &[
        Parameter {
            name: "path",
            shape: Shape::Text,
            required: true,
            description: "Where.",
        },
        Parameter {
            name: "limit",
            shape: Shape::Count { min: 1, max: 9 },
            required: false,
            description: "How many.",
        },
        Parameter {
            name: "output",
            shape: Shape::Choice(&["lines", "files"]),
            required: false,
            description: "What.",
        },
    ];

    fn refusal(value: Value) -> String {
        match Arguments::check(PARAMETERS, value.clone()) {
            Ok(_) => panic!("taken: {value}"),
            Err(text) => text,
        }
    }

    #[test]
    fn a_misfit_is_refused_by_name() {
        assert!(refusal(json!({"path": "a", "pth": 1})).contains("\"pth\""));
        assert!(refusal(json!({})).starts_with("path: missing"));
        assert!(refusal(json!({"path": null})).starts_with("path: missing"));
        assert!(refusal(json!({"path": ""})).starts_with("path:"));
        assert!(refusal(json!({"path": ["a"]})).starts_with("path:"));
        for limit in [json!(0), json!(10), json!(-1), json!(1.5), json!("3")] {
            let text = refusal(json!({"path": "a", "limit": limit}));
            assert!(
                text.starts_with("limit: expected a whole number from 1 to 9"),
                "{text}"
            );
        }
        assert!(refusal(json!({"path": "a", "output": "x"})).contains("lines, files"));
        assert!(refusal(json!("path")).contains("expected an object"));
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
        let taken = Arguments::check(PARAMETERS, json!({"path": "a", "limit": null}));
        assert_eq!(taken.ok().and_then(|taken| taken.count("limit")), None);
    }

    proptest! {
        #[test]
        fn any_arguments_are_taken_or_refused_in_words(text in "\\PC{0,40}") {
            let value: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            if let Err(words) = Arguments::check(PARAMETERS, value) {
                prop_assert!(!words.is_empty());
            }
        }
    }
}
