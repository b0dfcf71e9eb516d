//! Reads previous searches and their results back from the transcript, in the format in which the
//! tools write them.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use super::files::fixed;
use crate::kernel::session::message::{Block, Message};

/// A tool call and its result.
pub(super) struct CompletedCall {
    pub tool: String,
    /// The result; empty if the call failed, since a failed search has found nothing.
    pub text: String,
    /// The error text of a failed call.
    pub failure: Option<String>,
}

/// The tool calls in `messages`, which begin after the input, grouped by answer.
pub(super) fn rounds(messages: &[Arc<Message>]) -> Vec<Vec<CompletedCall>> {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let result_of = |call: &str| {
        blocks.clone().find_map(|block| match block {
            Block::ToolResult {
                tool_call_id,
                text,
                is_error,
            } if tool_call_id == call => Some((text.as_str(), *is_error)),
            _ => None,
        })
    };
    let call = |block: &Block| {
        let Block::ToolCall { id, name, .. } = block else {
            return None;
        };
        let (text, failed) = result_of(id).unwrap_or(("no result", true));
        Some(CompletedCall {
            tool: name.clone(),
            text: if failed { "" } else { text }.to_owned(),
            failure: failed.then(|| text.to_owned()),
        })
    };
    let calls = |message: &Arc<Message>| message.content.iter().filter_map(call).collect();
    let rounds = messages.iter().map(calls);
    rounds
        .filter(|round: &Vec<CompletedCall>| !round.is_empty())
        .collect()
}

/// A line of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileLine {
    pub number: usize,
    pub text: String,
}

/// Parses the `path:line: text` lines of a round, by file.
pub(super) fn found_lines(round: &[CompletedCall]) -> BTreeMap<&str, Vec<FileLine>> {
    // A path may contain a colon; the first `:NUMBER: ` ends it.
    static LINE: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?m)^(.+?):(\d+):\ (.*)$"));
    let mut files = BTreeMap::<&str, Vec<FileLine>>::new();
    for found in round.iter().flat_map(|call| LINE.captures_iter(&call.text)) {
        let (_, [path, number, text]) = found.extract();
        let text = text.to_owned();
        if let Ok(number) = number.parse() {
            files
                .entry(path)
                .or_default()
                .push(FileLine { number, text });
        }
    }
    files
}

/// Parses `path: count` lines.
pub(super) fn file_counts(result: &str) -> Vec<(&str, usize)> {
    static LINE: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?m)^(.+):\ (\d+)$"));
    let counts = LINE.captures_iter(result).map(|line| line.extract());
    let counts = counts.filter_map(|(_, [path, count])| Some((path, count.parse().ok()?)));
    counts.collect()
}

/// Parses the summary line of `grep`: files with a match, files searched.
pub(super) fn totals(result: &str) -> Option<(usize, usize)> {
    static SUMMARY: LazyLock<Regex> =
        LazyLock::new(|| fixed(r"(?m)\ in\ (\d+)\ of\ (\d+)\ text\ files$"));
    let summary = SUMMARY.captures_iter(result).last()?;
    let (_, [matched, searched]) = summary.extract();
    Some((matched.parse().ok()?, searched.parse().ok()?))
}

/// Parses the paths in the result of `glob`.
pub(super) fn paths(result: &str) -> impl Iterator<Item = &str> {
    // The summary line ends the list, and a line that begins with … is a note.
    let lines = result.lines();
    lines
        .take_while(|line| !line.ends_with(" files match"))
        .filter(|line| !line.starts_with('…'))
}

/// Why calls failed, and the notes of `grep` about files that it did not search.
pub(super) fn notes(round: &[CompletedCall]) -> Vec<String> {
    let is_note =
        |line: &&str| line.ends_with(" bytes skipped") || line.starts_with("… only the first ");
    let failures = round.iter().filter_map(|call| call.failure.clone());
    let lines = round.iter().flat_map(|call| call.text.lines());
    let lines = lines
        .filter(is_note)
        .map(|line| line.trim_start_matches("… ").to_owned());
    let mut notes: Vec<String> = failures.chain(lines).collect();
    notes.dedup();
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_back() {
        let call = |text: &str| CompletedCall {
            tool: "grep".to_owned(),
            text: text.to_owned(),
            failure: None,
        };
        let round = [call(
            "a b.rs:12: let x: u8 = 1;\n… 3 more\n4 matching lines in 1 of 2 text files",
        )];
        let found = FileLine {
            number: 12,
            text: "let x: u8 = 1;".to_owned(),
        };
        assert_eq!(
            found_lines(&round),
            BTreeMap::from([("a b.rs", vec![found])])
        );
        let files = "a.rs: 2\nb: c.rs: 1\n… 3 more\n3 matching lines in 2 of 9 text files";
        let counts = [("a.rs", 2), ("b: c.rs", 1)];
        assert_eq!(file_counts(files), counts);
        assert_eq!(totals(files), Some((2, 9)));
        let partial =
            "a.rs: 1\n1 matching lines in 1 of 9 text files\n2 files over 7 bytes skipped";
        assert_eq!(totals(partial), Some((1, 9)));
        assert_eq!(notes(&[call(partial)]), ["2 files over 7 bytes skipped"]);
        assert!(paths("a.rs\n… 1 more\n2 of 5 files match").eq(["a.rs"]));
    }
}
