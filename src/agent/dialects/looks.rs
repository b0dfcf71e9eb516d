//! Detects unknown fields that look like a restriction, by name or by value. Such a field is never
//! ignored: the agent would get more rights than its file states.

use serde_json::Value;

use super::names::{NamedTool, entry, key};
use crate::agent::names::nearest;

/// Parts of names, lowercase without `-` and `_`.
#[rustfmt::skip]
const PARTS: &[&str] = &[
    "permission", "allow", "deny", "denied", "forbid", "block", "restrict", "exclude", "sandbox",
    "readonly", "approv", "policy", "gate", "guard", "whitelist", "blacklist", "tool", "network",
    "isolat", "confirm", "disable", "maxturn", "maxstep", "maxloop", "maxiter", "maxspawn",
    "maxdepth", "maxtoken", "timeout", "timelimit", "ratelimit", "budget", "protected", "writable",
    "noshell", "nowrite", "nonetwork", "offline", "fileregex", "safemode", "safety", "dryrun",
    "strict", "untrusted", "confine", "jail", "privilege", "prohibit", "quota", "limit",
];
/// Parts of names for what an agent can do or access. Such a field counts as a restriction unless
/// its value is `true` or free text.
#[rustfmt::skip]
const POWERS: &[&str] = &[
    "internet", "web", "filesystem", "file", "path", "folder", "director", "glob", "regex", "domain",
    "host", "group", "access", "scope", "shell", "bash", "command", "exec", "terminal", "http",
    "browse", "mcp", "server", "agent", "spawn", "delegat", "rights", "secret", "modes", "editable",
];
/// The same for the first word of a name.
const ABLE: &[&str] = &["can", "may", "only", "no", "max"];
/// Values that restrict something when they are the whole text.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "deny", "denied", "denyall", "forbid", "forbidden", "block", "blocked", "disallow", "disallowed",
    "prohibited", "restricted", "readonly", "never", "ask", "confirm", "approval", "none",
    "norights", "noaccess", "notallowed", "disabled", "off", "no",
];
/// Switches for how an agent is displayed or chosen, which restrict nothing.
#[rustfmt::skip]
const SHOWN: &[&str] = &[
    "background", "proactive", "infer", "userinvocable", "userinvokable", "hidden", "memory",
    "stream", "streaming", "verbose", "debug", "cache", "featured", "draft", "published", "beta",
    "experimental", "deprecated", "default", "builtin", "custom", "template", "color", "alwaysapply",
    "internal", "private", "public", "optional", "required", "reviewed", "visible", "recommended",
    "thinking", "reasoning", "reasoningeffort", "license", "icon", "emoji", "version", "author", "category",
    "status", "tags", "icon",
];

/// Fields of this format that restrict something.
const OURS: &[&str] = &[
    "tools",
    "gate",
    "write_scope",
    "mcp_servers",
    "skills",
    "allow_agents",
    "linked_agents",
    "max_spawn_depth",
    "max_tokens",
    "execution",
    "active",
    "node",
    "on_uncertain",
];
/// The same for fields of other programs.
const THEIRS: &[&str] = &[
    "permission",
    "permissions",
    "permission_mode",
    "allowed_tools",
    "disallowed_tools",
    "read_only",
    "sandbox_mode",
    "max_turns",
    "approval_policy",
    "isolation",
];
/// The same inside `execution` and `linked_agents`.
const INSIDE: &[&str] = &["max_loops", "timeout", "write_scope"];

/// The name here of a field that is spelled differently, such as `allowAgents` or `write-scope`.
pub(in crate::agent) fn ours(name: &str) -> Option<&'static str> {
    OURS.iter().find(|own| key(own) == key(name)).copied()
}

/// True if the field looks like a restriction.
pub(in crate::agent) fn restricts(name: &str, value: &Value) -> bool {
    if names_a_restriction(name) {
        return true;
    }
    let plain = key(name);
    if SHOWN.contains(&plain.as_str()) {
        return false;
    }
    let is_able = ABLE.iter().any(|able| begins_with(name, able));
    let speaks = is_able || speaks_of_power(name);
    match value {
        Value::Bool(false) => true,
        Value::Bool(true) | Value::Null => false,
        Value::String(text) => {
            let word = key(text.trim());
            WORDS.contains(&word.as_str())
                || word == "false"
                || (speaks_of_power(name) && is_pattern(text))
        }
        Value::Number(_) => is_able,
        Value::Array(items) => speaks || items.iter().any(|item| within(name, item)),
        Value::Object(fields) => speaks || fields.iter().any(|(inner, value)| inside(inner, value)),
    }
}

/// True if the text is a list or a pattern, and not a sentence or URL.
fn is_pattern(text: &str) -> bool {
    let mut parts = text.split(',').map(str::trim);
    let is_list = text.contains([',', '*', '/', '\\', '^', '$']);
    is_list && !text.contains("://") && parts.all(|part| !part.contains(char::is_whitespace))
}

/// True if the name refers to what an agent can do or access, or is the name of a tool.
pub(super) fn speaks_of_power(name: &str) -> bool {
    let plain = key(name);
    POWERS.iter().any(|power| plain.contains(power))
        || matches!(
            entry(name, false),
            NamedTool::Tool(_) | NamedTool::Agents(_)
        )
}

/// True if the name begins with this word: `canWrite` and `can_write`, but not `candidate`.
fn begins_with(name: &str, word: &str) -> bool {
    let head = name.get(..word.len());
    let next = name.chars().nth(word.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(word))
        && next.is_none_or(|c| !c.is_ascii_lowercase())
}

/// Applies [`restricts`] to a list item, if it is a list or map itself.
fn within(name: &str, item: &Value) -> bool {
    match item {
        Value::Object(_) | Value::Array(_) => restricts(name, item),
        _ => false,
    }
}

/// Applies [`restricts`] inside a field whose own name is neutral; there, `false` counts only under
/// a name that refers to a power or a restriction.
fn inside(name: &str, value: &Value) -> bool {
    match value == &Value::Bool(false) {
        true => speaks_of_power(name) || names_a_restriction(name),
        false => restricts(name, value),
    }
}

/// True if the name alone indicates a restriction.
pub(in crate::agent) fn names_a_restriction(name: &str) -> bool {
    let plain = key(name);
    PARTS.iter().any(|part| plain.contains(part))
        || [OURS, THEIRS, INSIDE]
            .iter()
            .any(|known| near(&plain, known).is_some())
}

/// The name in `known` of which this is a misspelling.
fn near<'a>(plain: &str, known: &[&'a str]) -> Option<&'a str> {
    let found = nearest(plain, known)?;
    let wanted = key(found);
    let most = if wanted.len() <= 6 { 1 } else { 2 };
    let is_near = strsim::levenshtein(plain, &wanted) <= most;
    (is_near && plain.chars().next() == wanted.chars().next()).then_some(found)
}

/// The error message for such a field.
pub(in crate::agent) fn refusal(name: &str) -> String {
    let hint = match nearest(&name.to_lowercase(), &[OURS, INSIDE].concat()) {
        Some(near) => format!("did you mean {near:?}?"),
        None => "use tools, gate or write_scope instead, or remove it".to_owned(),
    };
    format!(
        "it looks like a restriction and is not understood, so the agent cannot be used ({hint})"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_that_takes_something_away_is_told_from_what_only_describes() {
        for (name, value) in [
            ("zebra", json!("deny")),
            ("zebra", json!("Read-Only")),
            ("zebra", json!(false)),
            ("can_fly", json!(false)),
            ("canFly", json!("no")),
            ("paths", json!(["src/**"])),
            ("allowed_paths", json!("src")),
            ("scopes", json!(["a"])),
            ("paths", json!("src/**, docs/**")),
            ("read", json!(["src"])),
            ("fileRegex", json!("\\.md$")),
            ("groups", json!(["x"])),
            ("settings", json!({ "bash": "deny" })),
            ("settings", json!({ "deep": { "internet": false } })),
            ("rules", json!([{ "action": "deny" }])),
            ("mode_limits", json!(3)),
            ("web", json!("off")),
        ] {
            assert!(restricts(name, &value), "{name}: {value}");
        }
        for (name, value) in [
            ("zebra", json!(1)),
            ("zebra", json!(true)),
            ("tags", json!(["deny", "security"])),
            ("examples", json!(["Say no to it"])),
            ("keywords", json!("deny lists, allow lists")),
            ("background", json!(false)),
            ("proactive", json!(false)),
            ("memory", json!("none")),
            (
                "metadata",
                json!({ "version": "1.0", "stable": false, "author": "a" }),
            ),
            ("candidates", json!(["a"])),
            ("homepage", json!("https://example.org")),
            ("webhook", json!("https://example.org/a,b")),
            ("scope", json!("project")),
            ("agent_notes", json!("Reads files, and writes none")),
            ("models", json!(["a", "b"])),
            ("copyright", json!(2024)),
            ("whenToUse", json!("When a file is read")),
            ("slug", json!("architect")),
            ("roleDefinition", json!("You never write.")),
            ("priority", json!(3)),
            ("notes", json!(["a", "b"])),
        ] {
            assert!(!restricts(name, &value), "{name}: {value}");
        }
    }

    #[test]
    fn what_looks_like_a_restriction_is_told_from_what_does_not() {
        for name in [
            "toools",
            "Tools",
            "alowed_tools",
            "dissallowedTools",
            "permisions_policy",
            "write_scop",
            "mcp-server",
            "gat",
            "max_loop",
            "noNetwork",
            "approval",
            "toolsSettings",
            "sandbox_workspace_write",
            "denyRules",
        ] {
            assert!(names_a_restriction(name), "{name}");
        }
        for name in [
            "modell",
            "zebra",
            "tags",
            "date",
            "author",
            "version",
            "capabilities",
            "category",
            "color",
            "icon",
            "examples",
            "triggers",
            "role",
            "license",
            "priority",
        ] {
            assert!(!restricts(name, &json!("some text")), "{name}");
        }
    }
}
