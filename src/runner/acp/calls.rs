//! The calls of an outside agent, as tools that gates have rules for.

use std::path::{Component, Path};

use serde_json::{Value, json};

use crate::acp_protocol::request::ContentBlock;
use crate::acp_protocol::update::{
    Location, ToolCall, ToolCallUpdate, ToolContent, ToolKind, ToolStatus,
};
use crate::kernel::text::preview;

/// The tool name of calls of no known kind.
pub(super) const OTHER: &str = "tool";

/// Maximum number of characters of a title and of an outcome.
const SHOWN: usize = 200;

/// A call as the agent describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Described {
    pub title: String,
    pub name: String,
    pub kind: ToolKind,
    pub status: ToolStatus,
    pub content: Vec<ToolContent>,
    pub locations: Vec<Location>,
    pub raw_input: Option<Value>,
}

impl Described {
    pub(super) fn new(call: ToolCall) -> Self {
        Described {
            title: call.title,
            name: call.name,
            kind: call.kind,
            status: call.status,
            content: call.content,
            locations: call.locations,
            raw_input: call.raw_input,
        }
    }

    /// Takes over the values that the update has.
    pub(super) fn merge(&mut self, update: ToolCallUpdate) {
        fn put<T>(value: &mut T, new: Option<T>) {
            if let Some(new) = new {
                *value = new;
            }
        }
        put(&mut self.title, update.title);
        put(&mut self.kind, update.kind);
        put(&mut self.status, update.status);
        put(&mut self.content, update.content);
        put(&mut self.locations, update.locations);
        if update.raw_input.is_some() {
            self.raw_input = update.raw_input;
        }
    }

    /// Its title on one line.
    pub(super) fn shown(&self) -> String {
        let title = match self.title.trim() {
            "" => self.name.trim(),
            title => title,
        };
        preview(title, SHOWN)
    }

    /// Its outcome on one line.
    pub(super) fn said(&self) -> String {
        let mut texts = self.content.iter().filter_map(|part| match part {
            ToolContent::Content {
                content: ContentBlock::Text { text },
            } => Some(text.trim()),
            _ => None,
        });
        match texts.rfind(|text| !text.is_empty()) {
            Some(text) => preview(text, SHOWN),
            None => self.shown(),
        }
    }

    /// The tool that it corresponds to, and its arguments.
    pub(super) fn tool(&self) -> (&'static str, Value) {
        match self.kind {
            ToolKind::Execute => match self.command() {
                Some(command) => ("shell", json!({ "command": command })),
                None => ("shell", json!({ "title": self.shown() })),
            },
            ToolKind::Read => ("read", self.paths()),
            ToolKind::Search => ("grep", self.paths()),
            ToolKind::Delete | ToolKind::Move => ("write", self.paths()),
            ToolKind::Edit => self.change(),
            ToolKind::Fetch => match self.text("url") {
                Some(url) => ("fetch", json!({ "url": url })),
                None => ("fetch", json!({ "title": self.shown() })),
            },
            ToolKind::Think => ("think", json!({ "title": self.shown() })),
            ToolKind::Other => (
                OTHER,
                json!({ "title": self.shown(), "input": self.raw_input }),
            ),
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.raw_input.as_ref()?.get(name)?.as_str()
    }

    /// The command line of a program.
    fn command(&self) -> Option<String> {
        let input = self.raw_input.as_ref()?;
        let command = input.get("command").or_else(|| input.get("cmd"))?;
        match command {
            Value::String(line) => Some(line.clone()),
            Value::Array(parts) => {
                let parts: Option<Vec<&str>> = parts.iter().map(Value::as_str).collect();
                let parts = parts?;
                Some(match parts[..] {
                    [shell, "-c" | "-lc", line] if is_shell(shell) => line.to_owned(),
                    _ => parts.into_iter().map(quoted).collect::<Vec<_>>().join(" "),
                })
            }
            _ => None,
        }
    }

    /// The files that it concerns.
    fn paths(&self) -> Value {
        let mut paths: Vec<&str> = self
            .locations
            .iter()
            .map(|place| place.path.as_str())
            .collect();
        for part in &self.content {
            if let ToolContent::Diff { path, .. } = part {
                paths.push(path);
            }
        }
        for name in ["path", "file_path", "abs_path"] {
            paths.extend(self.text(name));
        }
        let mut known: Vec<&str> = Vec::new();
        for path in paths {
            if !known.contains(&path) {
                known.push(path);
            }
        }
        match known[..] {
            [] => json!({ "title": self.shown() }),
            [path] => json!({ "path": path }),
            _ => json!({ "paths": known }),
        }
    }

    /// A change of files: the arguments of the tool that makes the same change, if it is one.
    fn change(&self) -> (&'static str, Value) {
        let diffs = self.content.iter().filter_map(|part| match part {
            ToolContent::Diff {
                path,
                old_text,
                new_text,
            } => Some((path, old_text, new_text)),
            _ => None,
        });
        let diffs: Vec<_> = diffs.collect();
        match diffs[..] {
            [(path, None, new)] => ("write", json!({ "path": path, "content": new })),
            [(path, Some(old), new)] => (
                "edit",
                json!({ "path": path, "old_text": old, "new_text": new }),
            ),
            _ => ("edit", self.paths()),
        }
    }
}

fn is_shell(program: &str) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default();
    ["sh", "bash", "zsh", "dash"]
        .iter()
        .any(|shell| name == *shell)
}

/// A word of a command line, for a shell.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,@%+".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The paths in the arguments of a call.
pub(super) fn paths_in(arguments: &Value) -> Vec<String> {
    let one = arguments.get("path").and_then(Value::as_str);
    let many = arguments.get("paths").and_then(Value::as_array);
    let many = many.into_iter().flatten().filter_map(Value::as_str);
    one.into_iter().chain(many).map(str::to_owned).collect()
}

/// Why a person is asked in any case, because no rule can judge the call; `None` if rules can.
pub(super) fn unknown_target(tool: &str, arguments: &Value, folder: &Path) -> Option<String> {
    let missing = |what: &str| {
        Some(format!(
            "the agent does not say {what}, so no rule can be applied to it"
        ))
    };
    match tool {
        "shell" if arguments.get("command").is_none() => missing("which command it would run"),
        "fetch" if arguments.get("url").is_none() => missing("which address it would fetch"),
        "read" | "grep" | "write" | "edit" => {
            let paths = paths_in(arguments);
            if paths.is_empty() && !matches!(tool, "read" | "grep") {
                return missing("which file it would change");
            }
            let outside = paths.iter().find(|path| !is_inside(path, folder))?;
            Some(format!(
                "{} is outside of the run's folder",
                preview(outside, SHOWN)
            ))
        }
        _ => None,
    }
}

fn is_inside(path: &str, folder: &Path) -> bool {
    let path = folder.join(path);
    let climbs = path.components().any(|part| part == Component::ParentDir);
    !climbs && path.starts_with(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(update: Value) -> Described {
        let mut call = Described::default();
        call.merge(serde_json::from_value(update).unwrap());
        call
    }

    #[test]
    fn a_call_is_the_tool_that_a_rule_names() {
        for (update, tool, arguments) in [
            (
                json!({ "kind": "execute", "rawInput": { "command": ["bash", "-lc", "ls | wc"] } }),
                "shell",
                json!({ "command": "ls | wc" }),
            ),
            (
                json!({ "kind": "execute", "rawInput": { "command": ["rm", "a b"] } }),
                "shell",
                json!({ "command": "rm 'a b'" }),
            ),
            (
                json!({ "kind": "execute", "title": "`ls`" }),
                "shell",
                json!({ "title": "`ls`" }),
            ),
            (
                json!({ "kind": "edit", "content": [
                    { "type": "diff", "path": "/w/a", "oldText": "x", "newText": "y" },
                ] }),
                "edit",
                json!({ "path": "/w/a", "old_text": "x", "new_text": "y" }),
            ),
            (
                json!({ "kind": "edit", "content": [
                    { "type": "diff", "path": "/w/a", "newText": "y" },
                ] }),
                "write",
                json!({ "path": "/w/a", "content": "y" }),
            ),
            (
                json!({ "kind": "delete", "locations": [{ "path": "/w/a" }, { "path": "/w/b" }] }),
                "write",
                json!({ "paths": ["/w/a", "/w/b"] }),
            ),
            (
                json!({ "kind": "switch_mode", "title": "plan" }),
                OTHER,
                json!({ "title": "plan", "input": null }),
            ),
        ] {
            let full = json!({ "toolCallId": "c" });
            let mut full = full.as_object().unwrap().clone();
            full.extend(update.as_object().unwrap().clone());
            let call = described(Value::Object(full));
            assert_eq!(call.tool(), (tool, arguments), "{update}");
        }
    }

    #[test]
    fn what_no_rule_can_judge_is_asked_about() {
        let folder = Path::new("/w");
        for (tool, arguments, is_unknown) in [
            ("shell", json!({ "command": "ls" }), false),
            ("shell", json!({ "title": "ls" }), true),
            ("edit", json!({ "path": "/w/a" }), false),
            ("edit", json!({ "path": "a" }), false),
            ("edit", json!({ "path": "/w/../etc/a" }), true),
            ("edit", json!({ "paths": ["/w/a", "/etc/a"] }), true),
            ("write", json!({ "title": "x" }), true),
            ("grep", json!({ "title": "x" }), false),
        ] {
            let found = unknown_target(tool, &arguments, folder);
            assert_eq!(found.is_some(), is_unknown, "{tool} {arguments}: {found:?}");
        }
    }
}
