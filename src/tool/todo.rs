//! The tool `todo`: the to-do list of a run. The list is stored as the arguments of the call in the
//! journal; the latest call is in effect.

use std::future::ready;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::arguments::parse;
use super::built_in::{BuiltIn, ToolAction};
use crate::kernel::run::step::EffectClass;
use crate::kernel::text::{in_quotes, preview};

/// The maximum number of entries.
const MAX_ITEMS: usize = 100;
/// The maximum number of characters of an entry.
const LONGEST: usize = 500;

/// Records the to-do list and its progress, for yourself and for people. Give the whole list each
/// time; the latest one is in effect.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TodoToolArgs {
    /// All entries in the order of execution, including the done ones.
    #[schemars(length(max = MAX_ITEMS))]
    items: Vec<TodoEntry>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TodoEntry {
    /// The work to do, in one sentence.
    text: String,
    /// The progress of the entry.
    status: TodoStatus,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum TodoStatus {
    Open,
    InProgress,
    Done,
}

/// The tool `todo`.
pub(super) fn tool() -> BuiltIn {
    let call = ToolAction::Workspace(Arc::new(|_, arguments| {
        Box::pin(ready(written(arguments).into()))
    }));
    BuiltIn {
        misfit: |arguments| written(arguments.clone()).err(),
        ..BuiltIn::new::<TodoToolArgs>("todo", EffectClass::Read, call)
    }
}

fn written(arguments: Value) -> Result<String, String> {
    let list: TodoToolArgs = parse(arguments)?;
    if list.items.len() > MAX_ITEMS {
        return Err(format!(
            "items: {} entries; {MAX_ITEMS} at most",
            list.items.len()
        ));
    }
    let long = |item: &&TodoEntry| item.text.chars().count() > LONGEST;
    if let Some(item) = list.items.iter().find(long) {
        let shown = in_quotes(&item.text, 40);
        return Err(format!(
            "items: {shown} is longer than {LONGEST} characters"
        ));
    }
    if list.items.is_empty() {
        return Ok("the list is empty".to_owned());
    }
    let lines = list.items.iter().map(|item| {
        let mark = match item.status {
            TodoStatus::Open => "[ ]",
            TodoStatus::InProgress => "[>]",
            TodoStatus::Done => "[x]",
        };
        format!("{mark} {}", preview(&item.text, LONGEST))
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        let schema = tool().schema["parameters"].clone();
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
