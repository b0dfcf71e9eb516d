//! The tool `glob`: finds files by a pattern of their name or path.

use globset::GlobBuilder;
use schemars::JsonSchema;
use serde::Deserialize;

use super::walk::walk;
use crate::tool::Workspace;
use crate::tool::arguments::{BoundedCount, NonEmptyText};
use crate::tool::blocking::StopFlag;
use crate::tool::output::ResultLines;

const DEFAULT_RESULTS: usize = 100;

/// Finds files by a pattern of their name or path, sorted by path. Files that git ignores, and
/// folders of dependencies or build output, are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GlobToolArgs {
    /// The pattern, such as *.rs or src/**/*_test.go. Without a slash it is matched against file
    /// names, otherwise against paths relative to the workspace folder.
    pattern: NonEmptyText,
    /// Only files in this folder and its subfolders. Default: the workspace folder.
    path: Option<NonEmptyText>,
    /// Ignore case. Default false.
    #[serde(default)]
    ignore_case: bool,
    /// The maximum number of files to show. Default 100.
    max_results: Option<BoundedCount<1, 2_000>>,
}

/// Answers a call of the tool.
pub(crate) fn glob(
    given: GlobToolArgs,
    workspace: &Workspace,
    stop: &StopFlag,
) -> Result<String, String> {
    let matcher = FilePattern::new(&given.pattern, given.ignore_case)
        .map_err(|error| format!("pattern: {error}"))?;
    let start = workspace.resolve(given.path.as_deref().unwrap_or("."))?;
    let most = given.max_results.map_or(DEFAULT_RESULTS, usize::from);
    let mut lines = ResultLines::default();
    let (mut files, mut total) = (0, 0);
    let walked = walk(workspace, &start, None, stop, |entry| {
        if entry.is_folder {
            return Ok(());
        }
        files += 1;
        let shown = workspace.shown(&entry.path);
        if matcher.matches(&shown) {
            total += 1;
            if total <= most {
                lines.push(&shown);
            }
        }
        Ok(())
    })?;
    let mut notes = Vec::new();
    let left_out = total.saturating_sub(most) + lines.left_out();
    if left_out > 0 {
        notes.push(format!("… {left_out} more"));
    }
    notes.push(format!("{total} of {files} files match"));
    notes.extend(walked.notes());
    Ok(lines.finish(&notes))
}

/// A file pattern of `glob` and `grep`.
pub(crate) struct FilePattern {
    matcher: globset::GlobMatcher,
    names_only: bool,
}

impl FilePattern {
    pub(crate) fn new(pattern: &str, ignore_case: bool) -> Result<Self, globset::Error> {
        let matcher = GlobBuilder::new(pattern)
            .literal_separator(true)
            .case_insensitive(ignore_case)
            .build()?
            .compile_matcher();
        Ok(FilePattern {
            matcher,
            names_only: !pattern.contains('/'),
        })
    }

    /// True if the pattern matches the file shown as `path`.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        self.matcher
            .is_match(if self.names_only { name } else { path })
    }
}
