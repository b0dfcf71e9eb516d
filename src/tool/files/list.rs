//! The tool `list`: lists the entries of a folder.

use schemars::JsonSchema;
use serde::Deserialize;

use super::walk::walk;
use crate::tool::Workspace;
use crate::tool::arguments::{BoundedCount, NonEmptyText};
use crate::tool::blocking::StopFlag;
use crate::tool::output::ResultLines;

const DEFAULT_RESULTS: usize = 200;

/// Lists a folder, sorted; folders end with a slash. Files that git ignores, and folders of
/// dependencies or build output, are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListToolArgs {
    /// The folder, relative to the workspace folder. Default: the workspace folder.
    path: Option<NonEmptyText>,
    /// The number of levels to show. Default 1.
    depth: Option<BoundedCount<1, 8>>,
    /// The maximum number of entries to show. Default 200.
    max_results: Option<BoundedCount<1, 2_000>>,
}

/// Answers a call of the tool.
pub(crate) fn list(
    given: ListToolArgs,
    workspace: &Workspace,
    stop: &StopFlag,
) -> Result<String, String> {
    let folder = workspace.resolve(given.path.as_deref().unwrap_or("."))?;
    let shown = workspace.shown(&folder);
    if !workspace.is_folder(&folder)? {
        return Err(format!("{shown} is a file; use read"));
    }
    let depth = given.depth.map_or(1, usize::from);
    let most = given.max_results.map_or(DEFAULT_RESULTS, usize::from);
    let mut lines = ResultLines::default();
    let mut total = 0;
    let walked = walk(workspace, &folder, Some(depth), stop, |entry| {
        total += 1;
        if total <= most {
            let slash = if entry.is_folder { "/" } else { "" };
            lines.push(&format!("{}{slash}", workspace.shown(&entry.path)));
        }
        Ok(())
    })?;
    let mut notes = Vec::new();
    if total == 0 {
        notes.push(format!("{shown} is empty"));
    }
    let left_out = total.saturating_sub(most) + lines.left_out();
    if left_out > 0 {
        notes.push(format!("… {left_out} more"));
    }
    notes.extend(walked.notes());
    Ok(lines.finish(&notes))
}
