//! How tool calls look in an editor: kind, title, places in files, and changes of files.

use std::path::Path;

use serde_json::Value;

use crate::acp_protocol::update::{Location, ToolContent, ToolKind};
use crate::contract::linked;
use crate::kernel::text::preview;

/// Maximum number of characters of a title.
const TITLE: usize = 120;

/// Kind of a tool.
pub(super) fn kind(tool: &str) -> ToolKind {
    match tool {
        "read" | "skill" | "sessions_history" => ToolKind::Read,
        "list" | "glob" | "grep" | "memory_search" => ToolKind::Search,
        "write" | "edit" => ToolKind::Edit,
        "shell" | "command" => ToolKind::Execute,
        "fetch" => ToolKind::Fetch,
        tool if linked::delegates(tool) || tool.starts_with("sessions_") => ToolKind::Think,
        _ => ToolKind::Other,
    }
}

/// Title of a call with these arguments, on one line.
pub(super) fn title(tool: &str, arguments: &Value) -> String {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let title = match tool {
        "read" => text("path").map(|path| format!("Read {path}")),
        "list" => Some(format!("List {}", text("path").unwrap_or("."))),
        "write" => text("path").map(|path| format!("Write {path}")),
        "edit" => text("path").map(|path| format!("Edit {path}")),
        "glob" => text("pattern").map(|pattern| format!("Find {pattern}")),
        "grep" => text("pattern").map(|pattern| match text("path") {
            Some(path) => format!("Search {path} for {pattern}"),
            None => format!("Search for {pattern}"),
        }),
        "shell" => text("command").map(str::to_owned),
        "fetch" => text("url").map(|url| format!("Fetch {url}")),
        "skill" => text("name").map(|name| format!("Load the skill {name}")),
        "task" => text("description").map(|task| format!("Task: {task}")),
        "sessions_spawn" => text("task").map(|task| format!("Spawn: {task}")),
        _ => ["message", "task_summary", "task"]
            .into_iter()
            .find_map(text)
            .map(|task| format!("{tool}: {task}")),
    };
    let title = title.unwrap_or_else(|| match arguments {
        Value::Object(given) if !given.is_empty() => format!("{tool} {arguments}"),
        _ => tool.to_owned(),
    });
    preview(&title, TITLE)
}

/// Title of a call of which only a summary is known.
pub(super) fn short_title(tool: &str, summary: Option<&str>) -> String {
    match summary {
        Some(summary) => preview(&format!("{tool} {summary}"), TITLE),
        None => tool.to_owned(),
    }
}

/// The files that a call concerns. `folder` is the working folder of the session.
pub(super) fn locations(tool: &str, arguments: &Value, folder: &str) -> Vec<Location> {
    if !matches!(tool, "read" | "write" | "edit" | "list" | "grep") {
        return Vec::new();
    }
    let path = arguments.get("path").and_then(Value::as_str);
    let line = arguments.get("offset").filter(|_| tool == "read");
    path.map(|path| Location {
        path: absolute(path, folder),
        line: line
            .and_then(Value::as_u64)
            .and_then(|line| u32::try_from(line).ok()),
    })
    .into_iter()
    .collect()
}

/// The change that a call makes to a file.
pub(super) fn change(tool: &str, arguments: &Value, folder: &str) -> Vec<ToolContent> {
    let text = |name: &str| arguments.get(name).and_then(Value::as_str);
    let (old, new) = match tool {
        "write" => (None, "content"),
        "edit" => (Some("old_text"), "new_text"),
        _ => return Vec::new(),
    };
    let (Some(path), Some(new)) = (text("path"), text(new)) else {
        return Vec::new();
    };
    vec![ToolContent::Diff {
        path: absolute(path, folder),
        old_text: old.and_then(text).map(str::to_owned),
        new_text: new.to_owned(),
    }]
}

/// The output of a call. Output of programs and files is no Markdown, so it is fenced.
pub(super) fn output(tool: &str, text: &str) -> ToolContent {
    let is_plain = matches!(
        tool,
        "read" | "list" | "glob" | "grep" | "shell" | "command"
    );
    match is_plain && !text.is_empty() {
        true => ToolContent::text(fenced(text)),
        false => ToolContent::text(text),
    }
}

/// The text between fences that it does not contain.
pub(super) fn fenced(text: &str) -> String {
    let mut longest = 2;
    let mut run = 0;
    for ch in text.chars() {
        run = if ch == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}")
}

fn absolute(path: &str, folder: &str) -> String {
    Path::new(folder).join(path).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_fence_is_longer_than_every_one_inside() {
        assert_eq!(fenced("a"), "```\na\n```");
        assert_eq!(fenced("```\nb\n````\n"), "`````\n```\nb\n````\n`````");
    }

    #[test]
    fn paths_are_absolute_and_titles_short() {
        let arguments = json!({ "path": "src/a.rs", "offset": 7 });
        let [place] = &locations("read", &arguments, "/work")[..] else {
            panic!("one place");
        };
        assert_eq!(
            (place.path.as_str(), place.line),
            ("/work/src/a.rs", Some(7))
        );
        assert_eq!(title("read", &arguments), "Read src/a.rs");
        assert_eq!(title("list", &json!({})), "List .");
        let long = title("shell", &json!({ "command": "x\ny".repeat(99) }));
        assert!(
            long.chars().count() <= TITLE + 1 && !long.contains('\n'),
            "{long}"
        );
    }
}
