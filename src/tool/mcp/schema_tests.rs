//! Tests that every converted schema fits providers, and that valid constraints survive.

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use proptest::prelude::*;

use super::*;

/// True if it is a valid JSON Schema of draft 2020-12.
fn is_schema(schema: &Value) -> bool {
    static META: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
        let mut schemas = Schemas::new();
        let meta = "https://json-schema.org/draft/2020-12/schema";
        let root = Compiler::new().compile(meta, &mut schemas).unwrap();
        (schemas, root)
    });
    META.0.validate(schema, META.1).is_ok()
}

fn schema(given: Value) -> Value {
    arguments(&given).unwrap().schema
}

fn refused(given: Value) -> String {
    arguments(&given).unwrap_err()
}

#[test]
fn a_plain_schema_is_passed_on_whole() {
    let given = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "a": { "$ref": "#/$defs/a" },
            "b": { "type": "array", "items": { "type": "integer", "minimum": 1 } },
            "c": { "anyOf": [{ "type": "string" }, { "type": "null" }], "default": null },
        },
        "required": ["a"],
        "additionalProperties": false,
        "$defs": { "a": { "type": "string", "enum": ["x", "y"] } },
    });
    let mut expected = given.clone();
    expected.as_object_mut().unwrap().shift_remove("$schema");
    assert_eq!(schema(given), expected);
}

#[test]
fn what_stands_for_no_arguments_is_an_empty_object() {
    for given in [
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!({ "type": "object" }),
        json!({ "type": ["object", "null"], "properties": [] }),
        json!({ "type": "OBJECT", "properties": null, "required": null }),
    ] {
        assert_eq!(
            schema(given.clone()),
            json!({ "type": "object", "properties": {} }),
            "{given}"
        );
    }
}

#[test]
fn alternatives_at_the_top_become_one_object() {
    for word in ["anyOf", "oneOf"] {
        let made = schema(json!({
            "type": "object",
            "properties": { "id": { "type": "string" } },
            "required": ["id"],
            word: [
                { "properties": { "x": { "type": "string" } }, "required": ["x", "z"] },
                { "properties": { "x": { "type": "integer" }, "y": {} }, "required": ["z"] },
                { "type": "null" },
            ],
        }));
        assert!(made.get(word).is_none(), "{made}");
        assert_eq!(made["required"], json!(["id", "z"]), "{made}");
        let x = json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] });
        assert_eq!(made["properties"]["x"], x, "{made}");
        for name in ["id", "y", "z"] {
            assert!(made["properties"].get(name).is_some(), "{name} in {made}");
        }
    }
    let made = schema(json!({
        "allOf": [
            { "$ref": "#/definitions/base" },
            { "properties": { "b": {} }, "required": ["b"] },
        ],
        "definitions": { "base": { "type": "object", "properties": { "a": {} }, "required": ["a"] } },
    }));
    assert_eq!(made["required"], json!(["a", "b"]), "{made}");
    assert!(made.get("allOf").is_none(), "{made}");
    let made = schema(json!({
        "properties": { "kind": {} },
        "if": { "properties": { "kind": { "const": 1 } } },
        "then": { "properties": { "more": {} }, "required": ["more"] },
    }));
    assert_eq!(made["properties"], json!({ "kind": {}, "more": {} }));
    assert!(
        made.get("required").is_none() && made.get("if").is_none(),
        "{made}"
    );
}

#[test]
fn what_can_be_no_object_is_refused_with_its_reason() {
    assert!(refused(json!({ "type": "string" })).contains("\"string\""));
    assert!(refused(json!("string")).contains("not a JSON object"));
    assert!(refused(json!(false)).contains("not a JSON object"));
    assert!(
        refused(json!({ "anyOf": [{ "type": "string" }, { "type": "null" }] })).contains("type")
    );
    assert!(refused(json!({ "$ref": "https://example.org/a" })).contains("example.org"));
    assert!(refused(json!({ "$ref": "#" })).contains("itself"));
    let words: Vec<String> = (0..10_000).map(|one| format!("word {one}")).collect();
    let large = json!({ "properties": { "a": { "enum": words } } });
    assert!(refused(large).contains("65536"));
}

#[test]
fn keywords_of_the_wrong_kind_are_repaired_or_left_out() {
    let of =
        |given: Value| schema(json!({ "properties": { "a": given } }))["properties"]["a"].clone();
    for (given, expected) in [
        (json!(true), json!({})),
        (json!(null), json!({})),
        (json!("String"), json!({ "type": "string" })),
        (json!({ "type": "any" }), json!({})),
        (json!({ "type": "int" }), json!({ "type": "integer" })),
        (
            json!({ "type": "string", "nullable": true }),
            json!({ "type": ["string", "null"] }),
        ),
        (
            json!({ "type": "array" }),
            json!({ "type": "array", "items": {} }),
        ),
        (
            json!({ "type": "array", "items": [{ "type": "string" }, { "type": "int" }] }),
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, { "type": "integer" }] } }),
        ),
        (
            json!({ "minimum": 1, "exclusiveMinimum": true }),
            json!({ "exclusiveMinimum": 1 }),
        ),
        (
            json!({ "maximum": "9", "minLength": -1, "uniqueItems": "yes" }),
            json!({}),
        ),
        (
            json!({ "enum": [], "anyOf": [], "required": "a", "pattern": 3 }),
            json!({}),
        ),
        (
            json!({ "$ref": "https://example.org/x", "type": "string" }),
            json!({ "type": "string" }),
        ),
        (json!({ "$ref": "#/$defs/none" }), json!({})),
    ] {
        assert_eq!(of(given.clone()), expected, "{given}");
    }
    let made = schema(json!({ "properties": { "a": { "required": true, "type": "string" } } }));
    assert_eq!(made["required"], json!(["a"]), "{made}");
    let made = schema(json!({ "required": ["ghost", 3] }));
    assert_eq!(made["properties"], json!({ "ghost": {} }), "{made}");
}

#[test]
fn a_reference_that_is_no_definition_is_put_in_place_and_a_circle_ends() {
    let made = schema(json!({
        "properties": {
            "a": { "type": "string", "minLength": 1 },
            "b": { "$ref": "#/properties/a" },
            "c": { "type": "object", "properties": { "c": { "$ref": "#/properties/c" } } },
        },
    }));
    assert_eq!(made["properties"]["b"], made["properties"]["a"]);
    assert!(!made["properties"].to_string().contains("$ref"), "{made}");
}

#[test]
fn arguments_get_names_that_every_provider_takes_and_lead_back() {
    let long = "x".repeat(80);
    let ConvertedArguments { schema, renamed } = arguments(&json!({
        "properties": { "$top": {}, "_top": {}, "naïve": {}, "fine.name-1": {}, (long.clone()): {} },
        "required": ["$top", "fine.name-1"],
    }))
    .unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    for name in properties.keys() {
        assert!(name.len() <= 64 && name.chars().all(fits), "{name}");
    }
    assert_eq!(properties.len(), 5);
    let own: BTreeSet<&str> = renamed.values().map(String::as_str).collect();
    assert_eq!(own, BTreeSet::from(["$top", "naïve", long.as_str()]));
    let top = renamed.iter().find(|(_, own)| *own == "$top").unwrap().0;
    assert_eq!(schema["required"], json!([top, "fine.name-1"]));
}

/// Generates schemas of arbitrary shape from the keywords of schemas.
fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        prop_oneof![
            Just("string"),
            Just("object"),
            Just("array"),
            Just("any"),
            Just("#/$defs/a"),
            Just("#/properties/a"),
            Just("#"),
            Just("a"),
            Just("$b c"),
        ]
        .prop_map(Value::from),
    ];
    let word = prop_oneof![
        Just("type"),
        Just("properties"),
        Just("required"),
        Just("items"),
        Just("anyOf"),
        Just("oneOf"),
        Just("allOf"),
        Just("not"),
        Just("enum"),
        Just("const"),
        Just("$ref"),
        Just("$defs"),
        Just("definitions"),
        Just("additionalProperties"),
        Just("a"),
        Just("$b c"),
        Just("minimum"),
        Just("exclusiveMinimum"),
        Just("minLength"),
        Just("pattern"),
        Just("if"),
        Just("then"),
        Just("prefixItems"),
        Just("description"),
        Just("nullable"),
        Just("dependentRequired"),
        Just("patternProperties"),
        Just("propertyNames"),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6).prop_map(|fields| {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value));
                Value::Object(fields.collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_comes_out_is_a_schema_that_providers_take(given in any_schema()) {
        let Ok(made) = arguments(&given) else { return Ok(()) };
        prop_assert!(is_schema(&made.schema), "{given} became {}", made.schema);
        let top = made.schema.as_object().unwrap();
        prop_assert_eq!(&top["type"], "object");
        for word in TOP.iter().chain(&["$ref"]) {
            prop_assert!(!top.contains_key(*word), "{} became {}", given, made.schema);
        }
        let again = arguments(&made.schema).unwrap();
        prop_assert_eq!(&again.schema, &made.schema, "it is made once and for all");
        prop_assert!(again.renamed.is_empty());
    }
}
