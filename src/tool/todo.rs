//! The tool `todo`: the to-do list of a run. The list is stored as the arguments of the call in the
//! journal; the latest call is in effect.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Tool, ToolOutput, Workspace};
use crate::contract::BoxFuture;
use crate::kernel::run::step::Effect;
use crate::kernel::text::preview;

/// The maximum number of entries.
const MAX_ITEMS: usize = 100;
/// The maximum number of characters of an entry.
const LONGEST: usize = 500;

/// The whole list; it replaces the previous one.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// All entries in the order of execution, including the done ones.
    items: Vec<Item>,
}

#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Item {
    /// The work to do, in one sentence.
    text: String,
    /// The progress of the entry.
    status: Status,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Open,
    InProgress,
    Done,
}

/// The tool `todo`.
pub(super) struct Todo;

impl Tool for Todo {
    fn name(&self) -> &'static str {
        "todo"
    }

    fn description(&self) -> &'static str {
        "Records the to-do list and its progress, for yourself and for people. \
         Give the whole list each time; the latest one is in effect."
    }

    fn parameters(&self) -> Value {
        // Inlined, because some providers accept no references.
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let mut schema = settings.into_generator().into_root_schema_for::<List>();
        for aside in ["title", "description"] {
            schema.remove(aside);
        }
        let mut schema = schema.to_value();
        schema["properties"]["items"]["maxItems"] = json!(MAX_ITEMS);
        schema
    }

    fn misfit(&self, arguments: &Value) -> Option<String> {
        written(arguments.clone()).err()
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn call(&self, _: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput> {
        let told = match written(arguments) {
            Ok(text) => ToolOutput::text(text),
            Err(text) => ToolOutput::error(text),
        };
        Box::pin(std::future::ready(told))
    }
}

fn written(arguments: Value) -> Result<String, String> {
    let list: List = serde_path_to_error::deserialize(arguments).map_err(|error| {
        let path = error.path().to_string();
        format!("{path}: {}", preview(&error.inner().to_string(), 300))
    })?;
    if list.items.len() > MAX_ITEMS {
        return Err(format!(
            "items: {} entries; {MAX_ITEMS} at most",
            list.items.len()
        ));
    }
    let long = |item: &&Item| item.text.chars().count() > LONGEST;
    if let Some(item) = list.items.iter().find(long) {
        let shown = preview(&item.text, 40);
        return Err(format!(
            "items: {shown:?} is longer than {LONGEST} characters"
        ));
    }
    if list.items.is_empty() {
        return Ok("the list is empty".to_owned());
    }
    let lines = list.items.iter().map(|item| {
        let mark = match item.status {
            Status::Open => "[ ]",
            Status::InProgress => "[>]",
            Status::Done => "[x]",
        };
        format!("{mark} {}", preview(&item.text, LONGEST))
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_back_as_it_was_written() {
        let list = json!({ "items": [
            { "text": "look", "status": "done" },
            { "text": "write", "status": "in_progress" },
            { "text": "test", "status": "open" },
        ] });
        assert_eq!(written(list).unwrap(), "[x] look\n[>] write\n[ ] test");
        assert_eq!(
            written(json!({ "items": [] })).unwrap(),
            "the list is empty"
        );
    }

    #[test]
    fn a_misfit_is_named() {
        let item = |status: &str| json!({ "text": "a", "status": status });
        for (list, says) in [
            (json!({ "items": [item("later")] }), "items[0].status"),
            (json!({ "items": [{ "text": "a" }] }), "status"),
            (json!({ "items": [], "more": 1 }), "more"),
            (
                json!({ "items": vec![item("open"); MAX_ITEMS + 1] }),
                "at most",
            ),
            (
                json!({ "items": [{ "text": "a".repeat(LONGEST + 1), "status": "open" }] }),
                "longer",
            ),
        ] {
            let text = written(list.clone()).unwrap_err();
            assert!(text.contains(says), "{list}: {text}");
        }
    }

    #[test]
    fn its_schema_is_one_that_every_provider_takes() {
        let schema = Todo.parameters();
        let text = schema.to_string();
        assert!(
            !text.contains("$ref") && !text.contains("$schema"),
            "{text}"
        );
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["required"], json!(["items"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        let status = &schema["properties"]["items"]["items"]["properties"]["status"];
        assert_eq!(status["enum"], json!(["open", "in_progress", "done"]));
    }
}
