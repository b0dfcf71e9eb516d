//! Agent files of Claude Code (`.claude/agents/*.md`): their fields in our words. What has no
//! counterpart is said, nothing of another program is ever run.

use serde_json::{Value, json};

use super::raw::Raw;
use super::values::texts;

/// Their tools, and ours. Those without a counterpart here are left as they are, so that they
/// are reported as tools that do not exist.
const TOOLS: &[(&str, &str)] = &[
    ("Read", "read"),
    ("Grep", "grep"),
    ("Glob", "glob"),
    ("LS", "list"),
    ("Write", "write"),
    ("Edit", "edit"),
    ("Bash", "shell"),
    ("WebFetch", "fetch"),
    ("TodoWrite", "todo"),
];

/// The names of models that mean nothing outside that program.
const ALIASES: &[&str] = &["inherit", "sonnet", "opus", "haiku", "default"];

/// Turns their fields into ours.
pub(super) fn translate(raw: &mut Raw) {
    let fields = std::mem::take(&mut raw.fields);
    let mut tools = serde_json::Map::new();
    for (name, value) in fields {
        match name.as_str() {
            "tools" => {
                tools.insert("allow".to_owned(), ours(&value));
            }
            "disallowedTools" => {
                tools.insert("deny".to_owned(), ours(&value));
            }
            "maxTurns" => raw
                .fields
                .push(("execution".to_owned(), json!({ "max_loops": value }))),
            "effort" => raw.fields.push(("thinking".to_owned(), value)),
            "mcpServers" => raw.fields.push(("mcp_servers".to_owned(), value)),
            "model" => match value.as_str() {
                Some(alias) if ALIASES.contains(&alias) => {
                    raw.warnings
                        .push(format!("model {alias}: the default model is used"));
                }
                // Their models are all of one provider, ours say which.
                Some(model) if !model.contains('/') => raw
                    .fields
                    .push((name, Value::String(format!("anthropic/{model}")))),
                _ => raw.fields.push((name, value)),
            },
            "hooks" => raw
                .warnings
                .push("hooks are another program's commands: they are never run".to_owned()),
            "permissionMode" | "memory" | "background" | "isolation" | "initialPrompt" => {
                raw.warnings.push(format!("not in force: {name}"))
            }
            // It only colours their screen.
            "color" => {}
            _ => raw.fields.push((name, value)),
        }
    }
    if !tools.is_empty() {
        raw.fields.push(("tools".to_owned(), Value::Object(tools)));
    }
}

/// A list or comma text of their tools as a list of ours; `Bash(git:*)` is the tool before it.
fn ours(value: &Value) -> Value {
    let Ok(names) = texts(value) else {
        // Refused where it is read, with its line.
        return value.clone();
    };
    let names = names.iter().map(|name| {
        let tool = name.split('(').next().unwrap_or(name).trim();
        let known = TOOLS.iter().find(|(theirs, _)| *theirs == tool);
        Value::String(known.map_or(tool, |(_, own)| own).to_owned())
    });
    Value::Array(names.collect())
}
