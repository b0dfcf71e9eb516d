//! Reads back from the transcript what was already searched, and the results in the form in
//! which the tools write them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kernel::message::{Block, Message, Role};

/// The tool calls of one answer, in call order.
pub(super) struct Round {
    pub calls: Vec<Call>,
}

/// One tool call and what came out.
pub(super) struct Call {
    pub tool: String,
    /// Empty where the call failed: a failed search has found nothing.
    pub text: String,
    /// Why it failed.
    pub failure: Option<String>,
}

/// The rounds in `messages`, which begin after the input.
pub(super) fn rounds(messages: &[Arc<Message>]) -> Vec<Round> {
    let mut rounds = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        if message.role != Role::Assistant {
            continue;
        }
        let results: BTreeMap<&str, (&str, bool)> = messages[index + 1..]
            .iter()
            .take_while(|message| message.role == Role::Tool)
            .flat_map(|message| &message.content)
            .filter_map(|block| match block {
                Block::ToolResult {
                    tool_call_id,
                    text,
                    is_error,
                } => Some((tool_call_id.as_str(), (text.as_str(), *is_error))),
                _ => None,
            })
            .collect();
        let calls: Vec<Call> = message
            .content
            .iter()
            .filter_map(|block| match block {
                Block::ToolCall { id, name, .. } => {
                    let found = results.get(id.as_str());
                    let (text, is_error) = found.copied().unwrap_or(("no result", true));
                    Some(Call {
                        tool: name.clone(),
                        text: if is_error {
                            String::new()
                        } else {
                            text.to_owned()
                        },
                        failure: is_error.then(|| text.to_owned()),
                    })
                }
                _ => None,
            })
            .collect();
        if !calls.is_empty() {
            rounds.push(Round { calls });
        }
    }
    rounds
}

/// A line that `grep` found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub path: String,
    pub line: usize,
    pub text: String,
}

/// Reads `path:line: text` lines.
pub(super) fn found_lines(result: &str) -> Vec<Found> {
    result.lines().filter_map(found_line).collect()
}

fn found_line(line: &str) -> Option<Found> {
    // The first `:number: ` parts path and text; a path with that in it is not worth a rule.
    for (at, _) in line.match_indices(':') {
        let rest = &line[at + 1..];
        let Some((number, text)) = rest.split_once(':') else {
            break;
        };
        if let (Ok(number), Some(text)) = (number.parse(), text.strip_prefix(' ')) {
            return Some(Found {
                path: line[..at].to_owned(),
                line: number,
                text: text.to_owned(),
            });
        }
    }
    None
}

/// Reads `path: count` lines.
pub(super) fn file_counts(result: &str) -> Vec<(String, usize)> {
    result
        .lines()
        .filter_map(|line| {
            let (path, count) = line.rsplit_once(": ")?;
            Some((path.to_owned(), count.parse().ok()?))
        })
        .collect()
}

/// Reads the summary of `grep`: files with a match, files searched.
pub(super) fn totals(result: &str) -> Option<(usize, usize)> {
    result.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once(" matching lines in ")?;
        let (matched, rest) = rest.split_once(" of ")?;
        let searched = rest.strip_suffix(" text files")?;
        Some((matched.parse().ok()?, searched.parse().ok()?))
    })
}

/// Reads the paths that `glob` found.
pub(super) fn paths(result: &str) -> Vec<String> {
    // The last line is the summary, and one that begins with … is a note.
    let mut lines: Vec<&str> = result.lines().collect();
    lines.pop();
    lines
        .into_iter()
        .filter(|line| !line.starts_with('…'))
        .map(str::to_owned)
        .collect()
}

/// What `grep` says of files that it did not search.
pub(super) fn notes(result: &str) -> impl Iterator<Item = String> {
    let is_note = |line: &&str| line.ends_with(" passed over") || line.starts_with("… looked at ");
    let lines = result.lines().filter(is_note);
    lines.map(|line| line.trim_start_matches("… ").to_owned())
}

/// What `read` showed of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shown {
    pub path: String,
    pub lines: Vec<(usize, String)>,
}

/// Reads a numbered file.
pub(super) fn shown_file(result: &str) -> Option<Shown> {
    let (head, body) = result.split_once('\n')?;
    let (path, _) = head.rsplit_once(": lines ")?;
    let lines = body
        .lines()
        .filter_map(|line| {
            let (number, text) = line.split_once('\t')?;
            Some((number.parse().ok()?, text.to_owned()))
        })
        .collect();
    Some(Shown {
        path: path.to_owned(),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_back() {
        let found = found_lines(
            "a b.rs:12: let x: u8 = 1;\n… 3 more\n4 matching lines in 1 of 2 text files",
        );
        assert_eq!(
            found,
            [Found {
                path: "a b.rs".to_owned(),
                line: 12,
                text: "let x: u8 = 1;".to_owned()
            }]
        );
        let files = "a.rs: 2\nb: c.rs: 1\n… 3 more\n3 matching lines in 2 of 9 text files";
        let counts = [("a.rs".to_owned(), 2), ("b: c.rs".to_owned(), 1)];
        assert_eq!(file_counts(files), counts);
        assert_eq!(totals(files), Some((2, 9)));
        let partial =
            "a.rs: 1\n1 matching lines in 1 of 9 text files\n2 files over 7 bytes passed over";
        assert_eq!(totals(partial), Some((1, 9)));
        assert_eq!(
            notes(partial).collect::<Vec<_>>(),
            ["2 files over 7 bytes passed over"]
        );
        assert_eq!(paths("a.rs\n… 1 more\n2 of 5 files match"), ["a.rs"]);
        let shown = shown_file("a.rs: lines 3-4 of 9\n3\tx\n4\t\ty\n… 5 more lines").unwrap();
        assert_eq!(shown.path, "a.rs");
        assert_eq!(shown.lines, [(3, "x".to_owned()), (4, "\ty".to_owned())]);
    }
}
