//! `rpc.discover`: the OpenRPC document of all methods and events, generated from the types that
//! are actually decoded and encoded.

pub(crate) mod sample;

use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::CallContext;
use crate::gateway::discover::sample::sample;
use crate::gateway::methods::method::MethodsBuilder;
use crate::gateway::methods::{JsonText, MethodReply, MethodResult};
use crate::kernel::event::EventKind;
use crate::kernel::fault::{Fault, Kind};
use crate::version::version;
use crate::wire::gateway::{Discover, OpenRpc};
use crate::wire::method::{Dispatch, MethodRow};
use crate::wire::methods::METHODS;
use crate::wire::{PROTOCOL, error, events};

/// JSON pointer to the shared schemas in the document.
const SCHEMAS: &str = "/components/schemas";

pub(super) fn register(table: &mut MethodsBuilder) {
    table.method(discover);
}

async fn discover(context: Arc<CallContext>, _: Discover) -> Result<Document, Fault> {
    // Generated on the first request: the schemas would take more time at startup than everything
    // else.
    let document = context
        .document
        .get_or_init(|| Document(openrpc(&context.url).into()));
    Ok(document.clone())
}

/// A serialized OpenRPC document.
#[derive(Clone, Debug)]
pub(super) struct Document(Arc<str>);

impl MethodReply for Document {
    type Shape = OpenRpc;

    fn into_text(self) -> MethodResult {
        Ok(JsonText::json(&self.0))
    }
}

/// Generates the document of all methods, served at `url`.
pub fn openrpc(url: &str) -> String {
    // Separate generators: requests may omit fields that responses always contain.
    let mut takes = generator(SchemaSettings::for_deserialize);
    let mut gives = generator(SchemaSettings::for_serialize);
    let mut rows = METHODS.to_vec();
    rows.sort_unstable_by_key(|row| row.name);
    let mut methods: Vec<Value> = rows
        .into_iter()
        .map(|row| method(row, &mut takes, &mut gives))
        .collect();
    let mut events: Vec<Value> = EventKind::ALL
        .iter()
        .map(|kind| json!({ "kind": kind, "stored": true, "data": kind.data_schema(&mut gives) }))
        .collect();
    for (kind, shape) in events::UNSTORED {
        events.push(json!({ "kind": kind, "stored": false, "data": shape(&mut gives) }));
    }
    let envelope = gives.subschema_for::<events::Event>();
    for method in &mut methods {
        give_results(method, gives.definitions());
    }
    let mut schemas = takes.take_definitions(true);
    schemas.extend(gives.take_definitions(true));
    schemas.sort_keys();
    let document = json!({
        "openrpc": "1.4.1",
        "info": {
            "title": "abide",
            "description": "A durable session daemon with a persistent subagent registry.",
            "version": version(),
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [{ "name": "This daemon", "url": url }],
        "methods": methods,
        "components": { "schemas": schemas, "errors": errors() },
        "x-protocol": PROTOCOL,
        "x-event": envelope,
        "x-events": events,
    });
    document.to_string()
}

/// Adds a result to each example; an example without one would describe a notification.
fn give_results(method: &mut Value, schemas: &Map<String, Value>) {
    let result = sample(&method["result"]["schema"], schemas);
    let examples = method.get_mut("examples").and_then(Value::as_array_mut);
    for example in examples.into_iter().flatten() {
        example["result"] = json!({ "name": "result", "value": result });
    }
}

/// Makes a schema strict draft 7. Number formats are not part of JSON Schema and strict readers
/// refuse them; other readers require `items` for every array.
fn plain(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let is = |object: &Map<String, Value>, kind: &str| match object.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if is(object, "integer") || is(object, "number") {
        object.remove("format");
    }
    if is(object, "array") && !object.contains_key("items") {
        object.insert("items".to_owned(), json!({}));
    }
}

fn generator(contract: fn(SchemaSettings) -> SchemaSettings) -> SchemaGenerator {
    // OpenRPC uses JSON Schema draft 7.
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.definitions_path = SCHEMAS.into();
        settings.meta_schema = None;
        settings
            .transforms
            .push(Box::new(RecursiveTransform(plain)));
    });
    contract(settings).into_generator()
}

fn method(row: &MethodRow, takes: &mut SchemaGenerator, gives: &mut SchemaGenerator) -> Value {
    let mut schema = (row.params)(takes);
    for transform in takes.transforms_mut() {
        transform.transform(&mut schema);
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|of| of == name));
    let mut params: Vec<Value> = properties
        .into_iter()
        .flatten()
        .map(|(name, schema)| {
            let mut param = json!({ "name": name, "required": is_required(name) });
            if let Some(says) = schema.get("description") {
                param["description"] = says.clone();
            }
            param["schema"] = schema.clone();
            param
        })
        .collect();
    // The specification requires that required parameters come first.
    params.sort_by_key(|param| param["required"] != true);
    json!({
        "name": row.name,
        "summary": row.summary,
        "paramStructure": "by-name",
        "params": params,
        "result": { "name": "result", "schema": (row.answer)(gives) },
        "errors": error_references(),
        "x-effect": row.effect,
        "x-scope": row.scope,
        "x-concerns": row.concerns,
        "x-waits": row.dispatch == Dispatch::Waits,
        "examples": [example(row)],
    })
}

fn example(row: &MethodRow) -> Value {
    // A test of the table parses each example.
    let given: Map<String, Value> = serde_json::from_str(row.example).unwrap_or_default();
    let params: Vec<Value> = given
        .into_iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    json!({ "name": row.name, "params": params })
}

/// Error kinds grouped by code: OpenRPC allows one entry per code, and some kinds share a code.
fn by_code() -> Vec<(i32, Vec<Kind>)> {
    let mut codes: Vec<(i32, Vec<Kind>)> = Vec::new();
    for kind in Kind::ALL {
        let code = error::row(*kind).code;
        match codes.iter_mut().find(|(of, _)| *of == code) {
            Some((_, kinds)) => kinds.push(*kind),
            None => codes.push((code, vec![*kind])),
        }
    }
    codes
}

fn error_name(kinds: &[Kind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
    names.join("_or_")
}

fn errors() -> Map<String, Value> {
    let entry = |(code, kinds): (i32, Vec<Kind>)| {
        let says: Vec<String> = kinds
            .iter()
            .map(|kind| format!("{}: {}", kind.as_str(), error::row(*kind).hint))
            .collect();
        let name = error_name(&kinds);
        let error = json!({
            "code": code,
            "message": says.join("; "),
            "data": {
                "kind": kinds,
                "retryable": error::row(kinds[0]).retryable,
            },
        });
        (name, error)
    };
    by_code().into_iter().map(entry).collect()
}

fn error_references() -> Vec<Value> {
    by_code()
        .into_iter()
        .map(|(_, kinds)| json!({ "$ref": format!("#/components/errors/{}", error_name(&kinds)) }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_stands_for_one_entry() {
        let codes = by_code();
        let kinds: usize = codes.iter().map(|(_, kinds)| kinds.len()).sum();
        assert_eq!(kinds, Kind::ALL.len());
        assert_eq!(errors().len(), codes.len());
    }
}
