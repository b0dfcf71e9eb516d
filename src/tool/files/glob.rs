//! The tool `glob`: finds files by a pattern of their name or path.

use globset::GlobBuilder;
use serde_json::Value;

use super::walk::walk;
use crate::contract::BoxFuture;
use crate::kernel::run::step::Effect;
use crate::tool::arguments::{Arguments, Parameter, Shape, schema};
use crate::tool::blocking::blocking;
use crate::tool::output::Lines;
use crate::tool::{Aim, Tool, ToolOutput, Workspace};

const DEFAULT_RESULTS: usize = 100;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "pattern",
        shape: Shape::Text,
        required: true,
        description: "The pattern, such as *.rs or src/**/*_test.go. Without a slash it is \
                      matched against file names, otherwise against paths relative to the workspace folder.",
    },
    Parameter {
        name: "path",
        shape: Shape::Text,
        required: false,
        description: "Only files in this folder and its subfolders. Default: the workspace folder.",
    },
    Parameter {
        name: "ignore_case",
        shape: Shape::Flag,
        required: false,
        description: "Ignore case. Default false.",
    },
    Parameter {
        name: "max_results",
        shape: Shape::Count { min: 1, max: 2_000 },
        required: false,
        description: "The maximum number of files to show. Default 100.",
    },
];

/// The tool `glob`.
pub(crate) struct Glob;

impl Tool for Glob {
    fn name(&self) -> &'static str {
        "glob"
    }

    fn description(&self) -> &'static str {
        "Finds files by a pattern of their name or path, sorted by path. Files that git ignores, and \
         folders of dependencies or build output, are left out."
    }

    fn parameters(&self) -> Value {
        schema(PARAMETERS)
    }

    fn misfit(&self, arguments: &Value) -> Option<String> {
        Arguments::misfit(PARAMETERS, arguments)
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn aim(&self) -> Aim {
        Aim::Trees(&["path"])
    }

    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput> {
        blocking(move |stop| {
            let arguments = Arguments::check(PARAMETERS, arguments)?;
            let pattern = arguments.text("pattern").unwrap_or_default();
            let matcher = FilePattern::new(pattern, arguments.flag("ignore_case"))
                .map_err(|error| format!("pattern: {error}"))?;
            let start = workspace.resolve(arguments.text("path").unwrap_or("."))?;
            let most = arguments.count("max_results").unwrap_or(DEFAULT_RESULTS);
            let mut lines = Lines::default();
            let (mut files, mut total) = (0, 0);
            let walked = walk(&workspace, &start, None, stop, |entry| {
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
        })
    }
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
