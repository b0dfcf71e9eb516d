//! The answer to a task without a word to search for, such as "what is this project?": the
//! entries of the folder, and the first lines of the files that describe it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::answer::quoted_line;
use super::files::file_name;
use super::transcript::{Round, Shown, paths, shown_file};
use super::{DISCLAIMER, READ_LIMIT, Reply};

/// Files that describe a tree, the most useful first.
const DESCRIBING: &[&str] = &[
    "README*",
    "Cargo.toml",
    "package.json",
    "pyproject.toml",
    "go.mod",
    "pom.xml",
    "main.*",
    "lib.rs",
    "__main__.py",
    "index.*",
];

const READ_LINES: usize = 60;
const QUOTED_LINES: usize = 5;

/// The next move after the rounds `done`.
pub(super) fn next(done: &[Round]) -> Reply {
    let Some(first) = done.first() else {
        let pattern = format!("{{{}}}", DESCRIBING.join(","));
        return Reply::Calls(vec![
            ("list", json!({"max_results": 60})),
            (
                "glob",
                json!({"pattern": pattern, "ignore_case": true, "max_results": 100}),
            ),
        ]);
    };
    let text_of = |tool| {
        let call = first.calls.iter().find(|call| call.tool == tool);
        call.map_or("", |call| call.text.as_str())
    };
    let reads = reads(paths(text_of("glob")));
    let shown = match done.get(1) {
        None if !reads.is_empty() => return Reply::Calls(reads),
        None => Vec::new(),
        Some(round) => {
            let texts = round.calls.iter().map(|call| &call.text);
            texts.filter_map(|text| shown_file(text)).collect()
        }
    };
    Reply::Text(text(text_of("list"), &shown))
}

/// The most useful file of each kind, those near the top first.
fn reads(mut files: Vec<String>) -> Vec<(&'static str, Value)> {
    let rank = |path: &str| {
        let name = file_name(path).to_lowercase();
        let mut starts = DESCRIBING.iter().map(|one| one.trim_end_matches('*'));
        starts.position(|start| name.starts_with(&start.to_lowercase()))
    };
    files.sort_by_key(|path| (rank(path), path.matches('/').count(), path.clone()));
    files.dedup_by_key(|path| rank(path));
    let reads = files.iter().take(READ_LIMIT);
    reads
        .map(|path| ("read", json!({"path": path, "limit": READ_LINES})))
        .collect()
}

fn text(listing: &str, shown: &[Shown]) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nThe task names nothing to search for, so this is an overview of the folder."
    );
    if listing.is_empty() {
        out.push_str(" It is empty.");
    } else {
        let entries: Vec<&str> = listing.lines().collect();
        let _ = writeln!(out, "\nAt the top: {}", entries.join(" "));
    }
    for file in shown {
        let lines = file.lines.iter().filter(|(_, line)| describes(line));
        for (index, (line, text)) in lines.take(QUOTED_LINES).enumerate() {
            if index == 0 {
                let _ = writeln!(out, "\n- {}:{line} (the beginning)", file.path);
            }
            quoted_line(&mut out, *line, text);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Does a line near the top describe the project? Licences and badges do not.
fn describes(line: &str) -> bool {
    let line = line.trim();
    let skipped = ["[", "![", "<", "// ", "/*", "*"];
    line.contains(char::is_alphanumeric) && !skipped.iter().any(|start| line.starts_with(start))
}
