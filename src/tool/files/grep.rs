//! The tool `grep`: searches the lines of files by a regular expression.

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use serde_json::Value;

use super::glob::FilePattern;
use super::walk::{Entry, Walked, walk};
use crate::contract::BoxFuture;
use crate::kernel::run::step::Effect;
use crate::tool::arguments::{Arguments, Parameter, Shape, schema};
use crate::tool::blocking::blocking;
use crate::tool::output::{Lines, quoted};
use crate::tool::{Aim, Tool, ToolOutput, Workspace};

/// Larger files are skipped, bytes.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// The maximum line length in bytes; a longer line fails its file, so that it cannot fill the
/// memory.
const LINE_HEAP: usize = 8 * 1024 * 1024;

const DEFAULT_RESULTS: usize = 100;

const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "pattern",
        shape: Shape::Text,
        required: true,
        description: "The regular expression; it matches within one line.",
    },
    Parameter {
        name: "path",
        shape: Shape::Text,
        required: false,
        description: "The file or folder to search. Default: the workspace folder.",
    },
    Parameter {
        name: "paths",
        shape: Shape::Texts,
        required: false,
        description: "Several files or folders to search, instead of path.",
    },
    Parameter {
        name: "glob",
        shape: Shape::Text,
        required: false,
        description: "Only files that this pattern matches, such as *.rs.",
    },
    Parameter {
        name: "ignore_case",
        shape: Shape::Flag,
        required: false,
        description: "Ignore case. Default false.",
    },
    Parameter {
        name: "output",
        shape: Shape::Choice(&["lines", "files"]),
        required: false,
        description: "lines: each matching line as path:line: text. files: each file with its \
                      number of matching lines, highest first. Default lines.",
    },
    Parameter {
        name: "max_results",
        shape: Shape::Count { min: 1, max: 2_000 },
        required: false,
        description: "The maximum number of lines or files to show; all are counted. Default 100.",
    },
    Parameter {
        name: "note",
        shape: Shape::Text,
        required: false,
        description: "The purpose of the search in a few words, shown to people.",
    },
    Parameter {
        name: "max_per_file",
        shape: Shape::Count { min: 1, max: 2_000 },
        required: false,
        description: "The maximum number of lines to show of one file. Default: no limit.",
    },
];

/// The tool `grep`.
pub(crate) struct Grep;

impl Tool for Grep {
    fn name(&self) -> &'static str {
        "grep"
    }

    fn description(&self) -> &'static str {
        "Searches file contents by a regular expression, sorted by path. Files that git ignores, \
         folders of dependencies or build output, and files that are not text are left out."
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
        Aim::Trees(&["path", "paths"])
    }

    fn call(&self, workspace: Workspace, arguments: Value) -> BoxFuture<'static, ToolOutput> {
        blocking(move |stop| {
            let arguments = Arguments::check(PARAMETERS, arguments)?;
            let mut search = Search::new(&workspace, &arguments)?;
            let mut walked = Walked::default();
            for start in starts(&workspace, &arguments)? {
                walked.add(walk(&workspace, &start, None, stop, |entry| {
                    if !entry.is_folder {
                        search.file(entry);
                    }
                    Ok(())
                })?);
            }
            Ok(search.finish(&walked))
        })
    }
}

/// The resolved files and folders to search.
fn starts(workspace: &Workspace, arguments: &Arguments) -> Result<Vec<std::path::PathBuf>, String> {
    let mut asked = arguments.texts("paths");
    asked.extend(arguments.text("path"));
    if asked.is_empty() {
        asked.push(".");
    }
    let mut starts = asked
        .into_iter()
        .map(|path| workspace.resolve(path))
        .collect::<Result<Vec<_>, _>>()?;
    starts.sort();
    starts.dedup();
    Ok(starts)
}

/// The settings and the results of one search.
struct Search<'a> {
    workspace: &'a Workspace,
    matcher: RegexMatcher,
    searcher: Searcher,
    glob: Option<FilePattern>,
    by_file: bool,
    most: usize,
    most_per_file: usize,
    lines: Lines,
    shown: usize,
    files: Vec<(String, usize)>,
    matches: usize,
    searched: usize,
    too_large: usize,
}

impl<'a> Search<'a> {
    fn new(workspace: &'a Workspace, arguments: &Arguments) -> Result<Self, String> {
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(arguments.flag("ignore_case"))
            .line_terminator(Some(b'\n'))
            .build(arguments.text("pattern").unwrap_or_default())
            .map_err(|error| format!("pattern: {error}"))?;
        let glob = arguments
            .text("glob")
            .map(|pattern| FilePattern::new(pattern, false))
            .transpose()
            .map_err(|error| format!("glob: {error}"))?;
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_HEAP))
            .build();
        Ok(Search {
            workspace,
            matcher,
            searcher,
            glob,
            by_file: arguments.text("output") == Some("files"),
            most: arguments.count("max_results").unwrap_or(DEFAULT_RESULTS),
            most_per_file: arguments.count("max_per_file").unwrap_or(usize::MAX),
            lines: Lines::default(),
            shown: 0,
            files: Vec::new(),
            matches: 0,
            searched: 0,
            too_large: 0,
        })
    }

    /// Searches one file; one that is not text or cannot be read is skipped.
    fn file(&mut self, entry: &Entry<'_>) {
        let shown = self.workspace.shown(&entry.path);
        if self.glob.as_ref().is_some_and(|glob| !glob.matches(&shown)) {
            return;
        }
        let Ok(file) = entry.open() else {
            return;
        };
        if file.metadata().is_ok_and(|meta| meta.len() > FILE_LIMIT) {
            self.too_large += 1;
            return;
        }
        let room = if self.by_file {
            0
        } else {
            self.most_per_file.min(self.most.saturating_sub(self.shown))
        };
        let mut found = Found {
            room,
            ..Found::default()
        };
        let searched = self.searcher.search_file(&self.matcher, &file, &mut found);
        if searched.is_err() || found.binary {
            return;
        }
        self.searched += 1;
        if found.count == 0 {
            return;
        }
        self.matches += found.count;
        for (number, text) in &found.lines {
            self.lines.push(&format!("{shown}:{number}: {text}"));
            self.shown += 1;
        }
        self.files.push((shown, found.count));
    }

    fn finish(mut self, walked: &Walked) -> String {
        let total = if self.by_file {
            self.files
                .sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            for (path, count) in self.files.iter().take(self.most) {
                self.lines.push(&format!("{path}: {count}"));
                self.shown += 1;
            }
            self.files.len()
        } else {
            self.matches
        };
        let mut notes = Vec::new();
        let left_out = total - self.shown + self.lines.left_out();
        if left_out > 0 {
            notes.push(format!("… {left_out} more"));
        }
        notes.push(format!(
            "{} matching lines in {} of {} text files",
            self.matches,
            self.files.len(),
            self.searched
        ));
        if self.too_large > 0 {
            notes.push(format!(
                "{} files over {FILE_LIMIT} bytes skipped",
                self.too_large
            ));
        }
        notes.extend(walked.notes());
        self.lines.finish(&notes)
    }
}

/// The matches in one file.
#[derive(Default)]
struct Found {
    room: usize,
    lines: Vec<(u64, String)>,
    count: usize,
    binary: bool,
}

impl Sink for Found {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, hit: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        self.count += 1;
        if self.lines.len() < self.room {
            let number = hit.line_number().unwrap_or(0);
            self.lines.push((number, quoted(hit.bytes())));
        }
        Ok(true)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> Result<(), Self::Error> {
        self.binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}
