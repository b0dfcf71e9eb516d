//! The tool `grep`: searches the lines of files by a regular expression.

use std::path::PathBuf;

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;

use super::glob::FilePattern;
use super::walk::{WalkEntry, Walked, walk};
use crate::tool::Workspace;
use crate::tool::arguments::{BoundedCount, NonEmptyText};
use crate::tool::blocking::StopFlag;
use crate::tool::output::{ResultLines, quoted};

/// Larger files are skipped, bytes.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;

/// The maximum line length in bytes; a longer line fails its file, so that it cannot fill the
/// memory.
const LINE_HEAP: usize = 8 * 1024 * 1024;

const DEFAULT_RESULTS: usize = 100;

/// Searches file contents by a regular expression, sorted by path. Files that git ignores, folders
/// of dependencies or build output, and files that are not text are left out.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrepToolArgs {
    /// The regular expression; it matches within one line.
    pattern: NonEmptyText,
    /// The file or folder to search. Default: the workspace folder.
    path: Option<NonEmptyText>,
    /// Several files or folders to search, instead of path.
    #[serde(default)]
    paths: Vec<NonEmptyText>,
    /// Only files that this pattern matches, such as *.rs.
    glob: Option<NonEmptyText>,
    /// Ignore case. Default false.
    #[serde(default)]
    ignore_case: bool,
    /// lines: each matching line as path:line: text. files: each file with its number of matching
    /// lines, highest first. Default lines.
    #[serde(default)]
    output: GrepOutput,
    /// The maximum number of lines or files to show; all are counted. Default 100.
    max_results: Option<BoundedCount<1, 2_000>>,
    /// The purpose of the search in a few words, shown to people.
    #[serde(rename = "note")]
    _note: Option<NonEmptyText>,
    /// The maximum number of lines to show of one file. Default: no limit.
    max_per_file: Option<BoundedCount<1, 2_000>>,
}

#[derive(Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum GrepOutput {
    #[default]
    Lines,
    Files,
}

/// Answers a call of the tool.
pub(crate) fn grep(
    given: GrepToolArgs,
    workspace: &Workspace,
    stop: &StopFlag,
) -> Result<String, String> {
    let mut search = GrepSearch::new(workspace, &given)?;
    let mut walked = Walked::default();
    for start in starts(workspace, &given)? {
        walked.add(walk(workspace, &start, None, stop, |entry| {
            if !entry.is_folder {
                search.file(entry);
            }
            Ok(())
        })?);
    }
    Ok(search.finish(&walked))
}

/// The resolved files and folders to search.
fn starts(workspace: &Workspace, given: &GrepToolArgs) -> Result<Vec<PathBuf>, String> {
    let mut asked: Vec<&str> = given
        .paths
        .iter()
        .chain(&given.path)
        .map(|path| &**path)
        .collect();
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
struct GrepSearch<'a> {
    workspace: &'a Workspace,
    matcher: RegexMatcher,
    searcher: Searcher,
    glob: Option<FilePattern>,
    by_file: bool,
    most: usize,
    most_per_file: usize,
    lines: ResultLines,
    shown: usize,
    files: Vec<(String, usize)>,
    matches: usize,
    searched: usize,
    too_large: usize,
}

impl<'a> GrepSearch<'a> {
    fn new(workspace: &'a Workspace, given: &GrepToolArgs) -> Result<Self, String> {
        let matcher = RegexMatcherBuilder::new()
            .case_insensitive(given.ignore_case)
            .line_terminator(Some(b'\n'))
            .build(&given.pattern)
            .map_err(|error| format!("pattern: {error}"))?;
        let glob = given
            .glob
            .as_deref()
            .map(|pattern| FilePattern::new(pattern, false))
            .transpose()
            .map_err(|error| format!("glob: {error}"))?;
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(LINE_HEAP))
            .build();
        Ok(GrepSearch {
            workspace,
            matcher,
            searcher,
            glob,
            by_file: given.output == GrepOutput::Files,
            most: given.max_results.map_or(DEFAULT_RESULTS, usize::from),
            most_per_file: given.max_per_file.map_or(usize::MAX, usize::from),
            lines: ResultLines::default(),
            shown: 0,
            files: Vec::new(),
            matches: 0,
            searched: 0,
            too_large: 0,
        })
    }

    /// Searches one file; one that is not text or cannot be read is skipped.
    fn file(&mut self, entry: &WalkEntry<'_>) {
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
        let mut found = FileMatches {
            room,
            ..FileMatches::default()
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
struct FileMatches {
    room: usize,
    lines: Vec<(u64, String)>,
    count: usize,
    binary: bool,
}

impl Sink for FileMatches {
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
