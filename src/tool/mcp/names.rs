//! What of a server's tools is offered, and under which names: every provider takes letters,
//! digits, `_` and `-`, 64 of them at most, and a model must be able to tell two tools apart.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::Tool;
use serde_json::{Map, Value};

use crate::contract::servers::{Served, ServedTool, Skipped};
use crate::kernel::step::Effect;
use crate::kernel::text::{prefix, storable};

/// The longest name.
const NAME_LIMIT: usize = 64;
/// So many characters of a name that was changed say which tool it was.
const MARK: usize = 8;
/// The most bytes of a description.
const DESCRIPTION_LIMIT: usize = 8 * 1024;
/// The most tools of one server: more would leave a model no room for anything else.
const MOST_TOOLS: usize = 256;

/// What a server offers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Offer {
    /// The tools, by name.
    pub tools: Arc<[ServedTool]>,
    /// Those that are not offered.
    pub skipped: Arc<[Skipped]>,
}

/// The tools of `server` as models see them. Of tools whose names a model could not tell apart
/// none is offered.
pub(super) fn offer(server: &str, local: bool, tools: Vec<Tool>) -> Offer {
    let mut skipped = Vec::new();
    let mut by_name: BTreeMap<String, Vec<ServedTool>> = BTreeMap::new();
    for (index, tool) in tools.into_iter().enumerate() {
        if index >= MOST_TOOLS {
            skipped.push(Skipped {
                tool: tool.name.into_owned(),
                reason: format!("a server has at most {MOST_TOOLS} tools here"),
            });
            continue;
        }
        let tool = served(server, local, tool);
        let slug = tool.name.to_ascii_lowercase();
        by_name.entry(slug).or_default().push(tool);
    }
    let mut offered = Vec::new();
    for mut same in by_name.into_values() {
        if same.len() == 1 {
            offered.append(&mut same);
            continue;
        }
        let names: Vec<String> = same
            .iter()
            .map(|tool| format!("{:?}", tool.served.tool))
            .collect();
        let reason = format!(
            "{} of server {server} would have one name, and a model could not tell them apart: \
             none of them is offered",
            names.join(" and ")
        );
        skipped.extend(same.into_iter().map(|tool| Skipped {
            tool: tool.served.tool,
            reason: reason.clone(),
        }));
    }
    Offer {
        tools: offered.into(),
        skipped: skipped.into(),
    }
}

fn served(server: &str, local: bool, tool: Tool) -> ServedTool {
    let described = tool.description.as_deref().or(tool.title.as_deref());
    ServedTool {
        name: name(server, &tool.name),
        description: storable(prefix(described.unwrap_or_default(), DESCRIPTION_LIMIT)),
        parameters: parameters(&tool.input_schema),
        served: Served {
            server: server.to_owned(),
            effect: effect(&tool),
            local,
            tool: tool.name.into_owned(),
        },
    }
}

/// `server__tool`, as far as providers take it; else what they take of it, and a mark of what it
/// was.
fn name(server: &str, tool: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let whole = format!("{server}__{tool}");
    if !tool.is_empty() && whole.len() <= NAME_LIMIT && whole.chars().all(fits) {
        return whole;
    }
    let plain = whole.replace(|c| !fits(c), "_");
    let mark = blake3::hash(whole.as_bytes()).to_hex();
    let kept = prefix(&plain, NAME_LIMIT - MARK - 1);
    format!("{kept}_{}", &mark[..MARK])
}

/// What a repeat of a call would do. A server that says nothing may do anything.
fn effect(tool: &Tool) -> Effect {
    let hints = tool.annotations.as_ref();
    let says = |hint: Option<bool>| hint == Some(true);
    if hints.is_some_and(|hints| says(hints.read_only_hint)) {
        Effect::Read
    } else if hints.is_some_and(|hints| says(hints.idempotent_hint)) {
        Effect::Idempotent
    } else {
        Effect::Once
    }
}

/// The schema as the server gave it, but for what providers do not take or miss.
fn parameters(schema: &Map<String, Value>) -> Value {
    let mut schema = schema.clone();
    schema.shift_remove("$schema");
    let kind = schema.entry("type").or_insert_with(|| "object".into());
    if kind == "object" {
        schema
            .entry("properties")
            .or_insert_with(|| Value::Object(Map::new()));
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rmcp::model::ToolAnnotations;
    use serde_json::json;

    fn tool(name: &str) -> Tool {
        Tool::new(name.to_owned(), "does it", Map::new())
    }

    proptest! {
        #[test]
        fn every_provider_takes_every_name(tool in "\\PC{0,90}", server in "[a-z][a-z0-9-]{0,31}") {
            let name = name(&server, &tool);
            prop_assert!(name.len() <= NAME_LIMIT, "{name}");
            prop_assert!(name.starts_with(&format!("{server}__")), "{name}");
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            prop_assert!(name.chars().all(fits), "{name}");
        }
    }

    #[test]
    fn a_plain_name_is_kept_and_two_long_ones_stay_two() {
        assert_eq!(name("files", "read_file"), "files__read_file");
        let (one, other) = ("x".repeat(80), "x".repeat(81));
        assert_ne!(name("files", &one), name("files", &other));
        assert_ne!(name("files", "a.b"), name("files", "a/b"));
    }

    #[test]
    fn names_that_cannot_be_told_apart_are_refused_with_both() {
        let offer = offer("a", true, vec![tool("Get"), tool("get"), tool("put")]);
        let names: Vec<&str> = offer.tools.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a__put"]);
        assert_eq!(offer.skipped.len(), 2);
        for skipped in offer.skipped.iter() {
            assert!(
                skipped.reason.contains("\"Get\" and \"get\""),
                "{skipped:?}"
            );
        }
    }

    #[test]
    fn what_a_repeat_does_is_what_the_server_says_and_else_unknown() {
        let hinted = |hints: ToolAnnotations| effect(&tool("x").with_annotations(hints));
        assert_eq!(effect(&tool("x")), Effect::Once);
        assert_eq!(hinted(ToolAnnotations::new().read_only(true)), Effect::Read);
        let idempotent = ToolAnnotations::new().idempotent(true);
        assert_eq!(hinted(idempotent), Effect::Idempotent);
        assert_eq!(
            hinted(ToolAnnotations::new().read_only(false)),
            Effect::Once
        );
    }

    #[test]
    fn a_schema_is_passed_on_whole() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "properties": { "a": { "$ref": "#/$defs/a" } },
            "$defs": { "a": { "type": "string" } },
        });
        let passed = parameters(schema.as_object().unwrap());
        assert_eq!(
            passed,
            json!({
                "properties": { "a": { "$ref": "#/$defs/a" } },
                "$defs": { "a": { "type": "string" } },
                "type": "object",
            })
        );
    }

    #[test]
    fn a_server_does_not_flood_the_context() {
        let many = (0..MOST_TOOLS + 3)
            .map(|one| tool(&format!("t{one}")))
            .collect();
        let offer = offer("a", true, many);
        assert_eq!((offer.tools.len(), offer.skipped.len()), (MOST_TOOLS, 3));
    }
}
