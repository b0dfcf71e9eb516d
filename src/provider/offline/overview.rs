//! The answer to a task without search terms, such as "what is this project?": the entries of the
//! folder and the first lines of the files that describe it.

use std::fmt::Write as _;

use serde_json::json;

use super::answer::{quote, write_notes};
use super::files::file_name;
use super::transcript::{CompletedCall, FileLine, found_lines, notes};
use super::{DISCLAIMER, OfflineReply};

/// Prefixes of names of files that describe a project, the most useful first.
const DESCRIBING: &str = "README,readme,Readme,Cargo.toml,package.json,pyproject.toml,go.mod,\
                          pom.xml,main.,lib.rs,__main__.py,index.";

/// Maximum number of files that are quoted, and of lines of each.
const FILE_LIMIT: usize = 3;
const LINE_LIMIT: usize = 5;

/// The next move after the rounds `done`.
pub(super) fn next(done: &[Vec<CompletedCall>]) -> OfflineReply {
    if let [calls, ..] = done {
        return OfflineReply::Text(text(calls));
    }
    let lines = json!({
        // Licences and badges do not describe the project.
        "pattern": r"^\s*(//!|[^\s/*<!\[]).*\w",
        "glob": format!("{{{DESCRIBING}}}*"),
        "max_per_file": 20,
        "max_results": 400,
        "note": "the beginnings of the files that describe the folder",
    });
    OfflineReply::Calls(vec![("list", json!({"max_results": 60})), ("grep", lines)])
}

fn text(calls: &[CompletedCall]) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nThe task names nothing to search for, so this is an overview of the folder."
    );
    write_notes(&mut out, &notes(calls));
    let lists = calls.iter().filter(|call| call.tool == "list");
    let entries: Vec<&str> = lists.flat_map(|call| call.text.lines()).collect();
    let _ = writeln!(out, "\nAt the top: {}", entries.join(" "));
    let rank = |path: &str| {
        let mut starts = DESCRIBING.split(',');
        starts.position(|start| file_name(path).starts_with(start))
    };
    let mut files: Vec<(&str, Vec<FileLine>)> = found_lines(calls).into_iter().collect();
    // The most useful file of each kind, those near the top first.
    files.sort_by_key(|(path, _)| (rank(path), path.matches('/').count()));
    files.retain(|(path, _)| path.matches('/').count() <= 1);
    files.dedup_by_key(|(path, _)| rank(path));
    for (path, lines) in files.iter().take(FILE_LIMIT) {
        for (index, line) in lines.iter().take(LINE_LIMIT).enumerate() {
            if index == 0 {
                let _ = writeln!(out, "\n- {path}:{} (the beginning)", line.number);
            }
            quote(&mut out, line);
        }
    }
    out.truncate(out.trim_end().len());
    out
}
