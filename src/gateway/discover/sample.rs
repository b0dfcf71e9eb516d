//! Generates a minimal value for a schema, as the example result of a method. Used by `discover`.

use serde_json::{Map, Value, json};

/// Id used in all examples of the document.
const ID: &str = "01936f0e-0000-7000-8000-000000000001";
/// Maximum nesting depth; only a recursive schema exceeds it.
const DEEPEST: u32 = 32;

/// A minimal value for `schema`; `schemas` are the shared schemas it may refer to by name.
pub(crate) fn sample(schema: &Value, schemas: &Map<String, Value>) -> Value {
    of(schema, schemas, DEEPEST)
}

fn of(schema: &Value, schemas: &Map<String, Value>, depth: u32) -> Value {
    let Some(deeper) = depth.checked_sub(1) else {
        return Value::Null;
    };
    let next = |schema: &Value| of(schema, schemas, deeper);
    if let Some(place) = schema["$ref"].as_str() {
        let name = place.rsplit('/').next().unwrap_or(place);
        return schemas.get(name).map_or(Value::Null, next);
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    for list in ["examples", "enum"] {
        if let Some(first) = schema[list].as_array().and_then(|all| all.first()) {
            return first.clone();
        }
    }
    for list in ["anyOf", "oneOf"] {
        if let Some(choices) = schema[list].as_array() {
            let may_be_null = choices.iter().any(|one| one["type"] == "null");
            let first = choices.first().filter(|_| !may_be_null);
            return first.map_or(Value::Null, next);
        }
    }
    let mut made = match kind(schema) {
        "object" => object(schema, next),
        "array" => match schema["minItems"].as_u64() {
            Some(1..) => json!([next(&schema["items"])]),
            _ => json!([]),
        },
        "string" => match schema["format"].as_str() {
            Some("uuid") => json!(ID),
            _ => json!("text"),
        },
        "integer" | "number" => schema.get("minimum").cloned().unwrap_or(json!(1)),
        "boolean" => json!(true),
        _ => Value::Null,
    };
    for part in schema["allOf"].as_array().into_iter().flatten() {
        match (&mut made, next(part)) {
            (Value::Object(made), Value::Object(more)) => made.extend(more),
            (made, more) => *made = more,
        }
    }
    made
}

/// The type of the schema; `null` if it allows null.
fn kind(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(one) => one,
        Value::Array(several) => {
            let mut several = several.iter().filter_map(Value::as_str);
            let first = several.clone().next().unwrap_or("null");
            several.find(|one| *one == "null").unwrap_or(first)
        }
        _ if schema.get("properties").is_some() => "object",
        _ => "null",
    }
}

/// An object with only its required fields.
fn object(schema: &Value, next: impl Fn(&Value) -> Value) -> Value {
    let required = schema["required"].as_array().into_iter().flatten();
    let names = required.filter_map(Value::as_str);
    let fields = names.map(|name| (name.to_owned(), next(&schema["properties"][name])));
    Value::Object(fields.collect())
}
