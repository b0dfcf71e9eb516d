//! The tool `read`: shows lines of a text file with numbers.

use std::io::Read as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::tool::Workspace;
use crate::tool::arguments::{BoundedCount, NonEmptyText};
use crate::tool::blocking::StopFlag;
use crate::tool::output::{ResultLines, quoted};

/// The maximum size of a file that is read, in bytes.
const FILE_LIMIT: u64 = 8 * 1024 * 1024;

const DEFAULT_LINES: usize = 400;

/// Shows lines of a text file with their numbers. Find the place with grep first, then read around
/// it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadToolArgs {
    /// The file, relative to the workspace folder.
    path: NonEmptyText,
    /// The first line to show, counted from 1. Default 1.
    offset: Option<BoundedCount<1, 10_000_000>>,
    /// The number of lines to show. Default 400.
    limit: Option<BoundedCount<1, 2_000>>,
}

/// Answers a call of the tool.
pub(crate) fn read(
    given: ReadToolArgs,
    workspace: &Workspace,
    _: &StopFlag,
) -> Result<String, String> {
    let path = workspace.resolve(&given.path)?;
    let shown = workspace.shown(&path);
    let bytes = content(workspace, &path, &shown)?;
    let offset = given.offset.map_or(1, usize::from);
    let limit = given.limit.map_or(DEFAULT_LINES, usize::from);
    show(&shown, &bytes, offset, limit)
}

/// The lines from `first`, counted from 1, of a text file, unchanged; at most `count` of them.
pub(crate) fn lines(
    workspace: &Workspace,
    path: &str,
    first: usize,
    count: Option<usize>,
) -> Result<String, String> {
    let path = workspace.resolve(path)?;
    let shown = workspace.shown(&path);
    let bytes = content(workspace, &path, &shown)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8"))?;
    let lines = text.split_inclusive('\n').skip(first.saturating_sub(1));
    Ok(lines.take(count.unwrap_or(usize::MAX)).collect())
}

fn content(workspace: &Workspace, path: &Path, shown: &str) -> Result<Vec<u8>, String> {
    if workspace.is_folder(path)? {
        return Err(format!("{shown} is a folder; use list"));
    }
    let file = workspace.open_file(path)?;
    let mut bytes = Vec::new();
    // One byte more than the limit shows that a file is too large, even if it grows meanwhile.
    file.take(FILE_LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("{shown}: {error}"))?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(format!(
            "{shown} is larger than {FILE_LIMIT} bytes, the maximum for read; use grep"
        ));
    }
    if bytes.iter().take(8 * 1024).any(|byte| *byte == 0) {
        return Err(format!(
            "{shown} is not a text file ({} bytes)",
            bytes.len()
        ));
    }
    Ok(bytes)
}

fn show(shown: &str, bytes: &[u8], offset: usize, limit: usize) -> Result<String, String> {
    if bytes.is_empty() {
        return Ok(format!("{shown}: empty"));
    }
    let total = bytes.split_inclusive(|byte| *byte == b'\n').count();
    if offset > total {
        return Err(format!("offset: {shown} has only {total} lines"));
    }
    let mut lines = ResultLines::default();
    let last = total.min(offset.saturating_add(limit - 1));
    lines.push(&format!("{shown}: lines {offset}-{last} of {total}"));
    let window = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    for (index, line) in window.skip(offset - 1).take(limit) {
        lines.push(&format!("{}\t{}", index + 1, quoted(line)));
    }
    let end = last - lines.left_out();
    let mut notes = Vec::new();
    if end < total {
        notes.push(format!(
            "… {} more lines; continue with offset {}",
            total - end,
            end + 1
        ));
    }
    Ok(lines.finish(&notes))
}
