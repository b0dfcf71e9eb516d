//! Validates JSON against the schemas of `rpc.discover`. Used by the tests of that document and by
//! the checker that every kill scenario ends with.

use std::collections::HashMap;
use std::sync::LazyLock;

use abide::kernel::event::EventKind;
use boon::{Compiler, SchemaIndex, Schemas};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The document with a validator for each of its methods.
pub(crate) struct Document {
    /// The raw document from the daemon.
    pub(crate) whole: Value,
    params: HashMap<String, Validator>,
    results: HashMap<String, Validator>,
    events: HashMap<String, Validator>,
}

impl Document {
    pub(crate) fn new(whole: Value) -> Document {
        let mut strict = whole.clone();
        close(&mut strict);
        let components = &strict["components"];
        let mut document = Document {
            params: HashMap::new(),
            results: HashMap::new(),
            events: HashMap::new(),
            whole,
        };
        for method in strict["methods"].as_array().unwrap() {
            let name = method["name"].as_str().unwrap();
            let params = params_schema(method);
            document
                .params
                .insert(name.to_owned(), checker(&params, components));
            document.results.insert(
                name.to_owned(),
                checker(&method["result"]["schema"], components),
            );
        }
        for event in strict["x-events"].as_array().unwrap() {
            document.events.insert(
                event["kind"].as_str().unwrap().to_owned(),
                checker(&event["data"], components),
            );
        }
        document
    }

    /// The names of its methods.
    pub(crate) fn methods(&self) -> Vec<String> {
        let methods = self.whole["methods"].as_array().unwrap();
        methods
            .iter()
            .map(|method| method["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The description of a method.
    pub(crate) fn method(&self, name: &str) -> &Value {
        let methods = self.whole["methods"].as_array().unwrap();
        methods
            .iter()
            .find(|method| method["name"] == name)
            .unwrap_or_else(|| panic!("{name} is not in the document"))
    }

    /// Why the parameters do not match the method's schema; empty if they do.
    pub(crate) fn faults_of_params(&self, method: &str, params: &Value) -> Vec<String> {
        faults(&self.params[method], params)
    }

    /// Checks that the answer matches the method's schema, without unknown fields.
    pub(crate) fn assert_result(&self, method: &str, result: &Value) {
        let faults = faults(&self.results[method], result);
        assert!(
            faults.is_empty(),
            "{method} answered {result:#}\n{faults:#?}"
        );
    }

    /// Checks that the data matches the schema of this kind of event.
    pub(crate) fn assert_event(&self, kind: &str, data: &Value) {
        let faults = faults(&self.events[kind], data);
        assert!(faults.is_empty(), "{kind} holds {data:#}\n{faults:#?}");
    }
}

/// Checks that the data matches the schema of this kind of event, as compiled into the binary.
pub(crate) fn assert_event(kind: &str, data: &Value) {
    static CHECKERS: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
        let settings = SchemaSettings::draft07()
            .for_serialize()
            .with(|settings| settings.definitions_path = "/components/schemas".into());
        let mut generator = settings.into_generator();
        let shapes: Vec<(String, Value)> = EventKind::ALL
            .iter()
            .map(|kind| {
                (
                    kind.to_string(),
                    kind.data_schema(&mut generator).to_value(),
                )
            })
            .collect();
        let mut components = json!({ "schemas": generator.take_definitions(true) });
        close(&mut components);
        shapes
            .into_iter()
            .map(|(kind, shape)| (kind, checker(&shape, &components)))
            .collect()
    });
    let checker = CHECKERS.get(kind);
    let checker = checker.unwrap_or_else(|| panic!("{kind} has no shape"));
    let faults = faults(checker, data);
    assert!(faults.is_empty(), "{kind} holds {data:#}\n{faults:#?}");
}

/// The parameters of a method as the schema of one object.
fn params_schema(method: &Value) -> Value {
    let params = method["params"].as_array().unwrap();
    let properties: Map<String, Value> = params
        .iter()
        .map(|param| {
            (
                param["name"].as_str().unwrap().to_owned(),
                param["schema"].clone(),
            )
        })
        .collect();
    let required: Vec<&Value> = params
        .iter()
        .filter(|param| param["required"] == true)
        .map(|param| &param["name"])
        .collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn checker(schema: &Value, components: &Value) -> Validator {
    let whole = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [schema],
        "components": components,
    });
    let place = "whole.json";
    let mut compiler = Compiler::new();
    compiler.enable_format_assertions();
    compiler.add_resource(place, whole).unwrap();
    let mut schemas = Schemas::new();
    let root = compiler
        .compile(place, &mut schemas)
        .unwrap_or_else(|fault| panic!("{schema:#}: {fault:#}"));
    Validator { schemas, root }
}

/// A compiled schema.
struct Validator {
    schemas: Schemas,
    root: SchemaIndex,
}

/// Every violation with its location in the value.
fn faults(checker: &Validator, value: &Value) -> Vec<String> {
    match checker.schemas.validate(value, checker.root) {
        Ok(()) => Vec::new(),
        // The first line names the schema, each further line a location.
        Err(fault) => fault
            .to_string()
            .lines()
            .skip(1)
            .map(str::to_owned)
            .collect(),
    }
}

/// Is it a JSON Schema of 2020-12?
pub(crate) fn is_schema(schema: &Value) -> bool {
    static META: LazyLock<Validator> = LazyLock::new(|| {
        let mut schemas = Schemas::new();
        let meta = "https://json-schema.org/draft/2020-12/schema";
        let root = Compiler::new().compile(meta, &mut schemas).unwrap();
        Validator { schemas, root }
    });
    META.schemas.validate(schema, META.root).is_ok()
}

/// Clients accept unknown fields, but this program's own answers must have only fields that its
/// schemas name.
fn close(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("properties") && fields.get("type") == Some(&json!("object")) {
                fields.entry("additionalProperties").or_insert(json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}
