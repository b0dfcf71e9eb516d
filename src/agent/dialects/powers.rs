//! Permissions without a list of tools: Roo's `groups`, a field named like a tool (`bash: deny`,
//! `edit: false`), and `can_write: false`.

use serde_json::{Value, json};

use super::names::{NamedTool, entry, key};
use super::permission::listed;
use super::{DialectReader, switch};
use crate::agent::names::derived;
use crate::agent::values::text;
use crate::kernel::policy::gate::Decision;

/// The tool groups of Roo Code and Kilo Code, and the equivalent tools here.
const GROUPS: &[(&str, &[&str])] = &[
    ("read", &["read", "list", "glob", "grep"]),
    ("edit", &["write", "edit"]),
    ("browser", &["fetch"]),
    ("command", &["shell"]),
    ("mcp", &["*__*"]),
    ("modes", &["task"]),
];
/// The tools that their agents always have.
const ALWAYS: &[&str] = &["ask", "todo"];

/// The verbs after `can_`, `may_` and `allow_`, and the tools for them, including commands that
/// could do the same.
const VERBS: &[(&[&str], &[&str])] = &[
    (
        &[
            "write",
            "writefiles",
            "edit",
            "editfiles",
            "modify",
            "modifyfiles",
            "create",
            "delete",
        ],
        &["write", "edit", "shell"],
    ),
    (
        &[
            "execute",
            "exec",
            "run",
            "runcommands",
            "executecommands",
            "shell",
            "bash",
            "usebash",
            "useshell",
        ],
        &["shell"],
    ),
    (
        &["read", "readfiles"],
        &["read", "list", "glob", "grep", "shell"],
    ),
    (
        &["delegate", "spawn", "usesubagents", "callagents"],
        &["task", "sessions_spawn"],
    ),
    (
        &[
            "fetch",
            "browse",
            "network",
            "accessnetwork",
            "accessinternet",
            "internet",
            "useinternet",
            "web",
            "useweb",
        ],
        &["fetch", "shell"],
    ),
];

impl DialectReader {
    /// Restricts the tools to groups, such as `groups: [read, command]`.
    pub(super) fn groups(&mut self, value: &Value) -> Result<(), String> {
        let expected = "a list of read, edit, browser, command, mcp and modes is expected; the restriction \
                        of a group (fileRegex) has no counterpart here: use gate";
        let items = value.as_array().ok_or(expected)?;
        let mut tools: Vec<&str> = ALWAYS.to_vec();
        for item in items {
            let name = item.as_str().ok_or(expected)?;
            let (_, own) = GROUPS
                .iter()
                .find(|(known, _)| *known == key(name))
                .ok_or(expected)?;
            tools.extend(*own);
        }
        self.allow(&json!(tools))
    }

    /// Restricts delegation to `agents: [a, b]`; `*` = any agent.
    pub(super) fn callees(&mut self, value: &Value) -> Result<(), String> {
        let names = match value {
            // A name may contain blanks.
            Value::Array(items) => items.iter().map(text).collect::<Result<_, _>>()?,
            list => listed(list)?,
        };
        if !names.iter().any(|name| name == "*") {
            self.narrowing
                .only_agents(names.iter().map(|name| derived(name)).collect());
        }
        Ok(())
    }

    /// Translates a field that permits or denies one tool or verb. Returns `false` if it is no such
    /// field.
    pub(super) fn power(&mut self, written: &str, value: &Value) -> Result<bool, String> {
        let name = key(written);
        let able = ["can", "may", "allow"]
            .iter()
            .find_map(|start| name.strip_prefix(start));
        let verb = VERBS
            .iter()
            .find(|(verbs, _)| able.is_some_and(|able| verbs.contains(&able)));
        if let Some((_, tools)) = verb {
            if !switch(value)? {
                self.narrowing.all(tools, Decision::Deny);
            }
            return Ok(true);
        }
        let is_tool = matches!(entry(written, false), NamedTool::Tool(tool) if !tool.contains('*'))
            || matches!(name.as_str(), "task" | "agent");
        if !is_tool {
            return Ok(false);
        }
        let decided = match value {
            Value::Bool(true) => json!("allow"),
            Value::Bool(false) => json!("deny"),
            Value::String(word) => match word.trim().to_lowercase().as_str() {
                "allow" | "allowed" | "true" | "yes" | "on" | "enabled" => json!("allow"),
                "ask" | "confirm" | "prompt" => json!("ask"),
                "deny" | "denied" | "false" | "no" | "off" | "none" | "never" | "disabled"
                | "disallow" | "forbidden" | "blocked" => json!("deny"),
                // Free text.
                _ => return Ok(false),
            },
            Value::Object(rules) if rules.values().all(Value::is_string) => value.clone(),
            _ => return Ok(false),
        };
        let mut map = serde_json::Map::new();
        map.insert(written.to_owned(), decided);
        self.narrowing.permission(&Value::Object(map))?;
        Ok(true)
    }
}
