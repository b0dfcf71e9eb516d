//! The answer to a task without a word to search for, such as "what is this project?": what
//! stands at the top, how it describes itself, where it begins.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::transcript::{Round, Shown, paths, shown_file};
use super::{DISCLAIMER, Reply};
use crate::kernel::text::prefix;

/// Files that tell what a tree is, the most telling first, by the beginning of their names.
const TELLING: &[&str] = &[
    "readme",
    "cargo.toml",
    "package.json",
    "pyproject.toml",
    "go.mod",
    "pom.xml",
    "main.",
    "lib.rs",
    "__main__.py",
    "index.",
];

const PATTERN: &str = "{README*,Cargo.toml,package.json,pyproject.toml,go.mod,pom.xml,main.*,lib.rs,__main__.py,index.*}";

const READ_LIMIT: usize = 3;
const READ_LINES: usize = 60;
const QUOTED_LINES: usize = 5;

/// What comes next after the rounds `done`.
pub(super) fn next(done: &[Round]) -> Reply {
    let Some(first) = done.first() else {
        return Reply::Calls(vec![
            ("list", json!({"max_results": 60})),
            (
                "glob",
                json!({"pattern": PATTERN, "ignore_case": true, "max_results": 100}),
            ),
        ]);
    };
    let listing = first.calls.iter().find(|call| call.tool == "list");
    let listing = listing.map_or("", |call| call.text.as_str());
    let telling: Vec<String> = first
        .calls
        .iter()
        .filter(|call| call.tool == "glob")
        .flat_map(|call| paths(&call.text))
        .collect();
    let reads = reads(telling);
    if reads.is_empty() {
        return Reply::Text(text(listing, &[]));
    }
    let Some(second) = done.get(1) else {
        return Reply::Calls(reads);
    };
    let shown: Vec<Shown> = second
        .calls
        .iter()
        .filter_map(|call| shown_file(&call.text))
        .collect();
    Reply::Text(text(listing, &shown))
}

/// The most telling file of each kind, those near the top first.
fn reads(mut files: Vec<String>) -> Vec<(&'static str, Value)> {
    let rank = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path).to_lowercase();
        let kind = TELLING.iter().position(|start| name.starts_with(start));
        kind.unwrap_or(TELLING.len())
    };
    files.sort_by_key(|path| (rank(path), path.matches('/').count(), path.clone()));
    files.dedup_by_key(|path| rank(path));
    files
        .iter()
        .take(READ_LIMIT)
        .map(|path| ("read", json!({"path": path, "limit": READ_LINES})))
        .collect()
}

fn text(listing: &str, shown: &[Shown]) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nThe task names nothing to search for, so this is an overview of the folder."
    );
    let top: Vec<&str> = listing.lines().collect();
    if top.is_empty() {
        out.push_str(" It is empty.");
    } else {
        let _ = write!(out, "\nAt the top: {}\n", top.join(" "));
    }
    for file in shown {
        let told: Vec<&(usize, String)> = file
            .lines
            .iter()
            .filter(|(_, line)| tells(&file.path, line))
            .take(QUOTED_LINES)
            .collect();
        if let Some((line, _)) = told.first() {
            let _ = writeln!(out, "\n- {}:{line} (how it begins)", file.path);
        }
        for (line, text) in told {
            let _ = writeln!(out, "   {line:>5} | {}", prefix(text, 200));
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Does a line near the top say what the file is? Licences and badges do not.
fn tells(path: &str, line: &str) -> bool {
    let line = line.trim();
    let starts = |texts: &[&str]| texts.iter().any(|text| line.starts_with(text));
    if path.ends_with(".toml") || path.ends_with(".json") {
        return starts(&[
            "name",
            "description",
            "version",
            "\"name",
            "\"description",
            "\"version",
        ]);
    }
    let is_badge = starts(&["[!", "![", "<"]);
    let is_licence = starts(&["// ", "/*", "*"]) || line == "//";
    line.contains(char::is_alphanumeric) && !is_badge && !is_licence
}
