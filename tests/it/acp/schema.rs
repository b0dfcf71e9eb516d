//! The protocol's published schema: every message of the agent is compared with it. Without network
//! the messages are not compared, and the test that looks at this says so.

use std::cell::RefCell;
use std::fs;
use std::path::PathBuf;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Map, Value, json};

use crate::harness::peers;

/// The folder with the packages from outside.
pub(crate) fn peers() -> Result<PathBuf, String> {
    peers::node("clients")
}

/// The compiled schemas, by the name of their definition.
struct Published {
    schemas: Schemas,
    compiler: Compiler,
    /// By method and role (`params` or `result`), the name of the definition.
    names: Vec<(String, &'static str, String)>,
    compiled: Map<String, Value>,
    indices: Vec<SchemaIndex>,
}

const URL: &str = "mem:///acp.json";
/// The schema with the features that are not part of the protocol yet.
const UNSTABLE_URL: &str = "mem:///acp.unstable.json";
/// The updates that only it has.
const UNSTABLE: &[&str] = &["subagent_update"];

thread_local! {
    static PUBLISHED: RefCell<Option<Published>> = RefCell::new(published().ok());
}

fn published() -> Result<Published, String> {
    let file = peers()?.join("node_modules/@agentclientprotocol/sdk/schema/v1/schema.json");
    let document: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let mut names = Vec::new();
    for (name, definition) in document["$defs"].as_object().unwrap() {
        let Some(method) = definition["x-method"].as_str() else {
            continue;
        };
        let role = match name {
            name if name.ends_with("Request") || name.ends_with("Notification") => "params",
            _ => "result",
        };
        names.push((method.to_owned(), role, name.clone()));
    }
    let mut compiler = Compiler::new();
    compiler.add_resource(URL, document).unwrap();
    let file =
        peers()?.join("node_modules/@agentclientprotocol/sdk/schema/v1/schema.unstable.json");
    let unstable: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    compiler.add_resource(UNSTABLE_URL, unstable).unwrap();
    Ok(Published {
        schemas: Schemas::new(),
        compiler,
        names,
        compiled: Map::new(),
        indices: Vec::new(),
    })
}

impl Published {
    /// Compares a value with the definition of this name in a schema.
    fn compare(&mut self, schema: &str, name: &str, value: &Value) {
        let url = format!("{schema}#/$defs/{name}");
        let at = match self.compiled.get(&url) {
            Some(at) => usize::try_from(at.as_u64().unwrap()).unwrap(),
            None => {
                let index = self.compiler.compile(&url, &mut self.schemas).unwrap();
                self.indices.push(index);
                self.compiled.insert(url, json!(self.indices.len() - 1));
                self.indices.len() - 1
            }
        };
        if let Err(error) = self.schemas.validate(value, self.indices[at]) {
            panic!("not a {name}: {error:#}\n{value:#}");
        }
    }
}

/// Compares a message of the agent; `method` is its own, or that of the request which it answers.
pub(crate) fn check(method: &str, message: &Value) {
    PUBLISHED.with_borrow_mut(|published| {
        let Some(published) = published else { return };
        if let Some(error) = message.get("error") {
            return published.compare(URL, "Error", error);
        }
        let role = match message.get("method") {
            Some(_) => "params",
            None => "result",
        };
        let mut names = published.names.iter();
        let found = names.find(|(of, is, _)| of == method && *is == role);
        let Some((_, _, name)) = found.cloned() else {
            panic!("the protocol has no {role} of {method}: {message}");
        };
        let update = message["params"]["update"]["sessionUpdate"].as_str();
        let schema = match update {
            Some(update) if UNSTABLE.contains(&update) => UNSTABLE_URL,
            _ => URL,
        };
        published.compare(schema, &name, &message[role]);
    });
}

/// True if messages are compared.
pub(crate) fn is_there() -> bool {
    PUBLISHED.with_borrow(Option::is_some)
}
