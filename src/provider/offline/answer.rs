//! Writes the final text: a short ranked list of quotations, each with its location and the reason
//! for choosing it.

use std::fmt::Write as _;

use super::DISCLAIMER;
use super::files::defined_name;
use super::passages::Passage;
use super::survey::{Survey, words};
use super::transcript::Shown;
use super::words::Term;
use crate::kernel::text::{prefix, preview};

/// Maximum bytes of a quoted line: less than the tools show of a line, so that their truncation
/// mark is never quoted as part of the file.
const LINE_LIMIT: usize = 390;

/// Maximum lines quoted after a passage.
const LINES_AFTER: usize = 2;

/// The answer to a successful search: the best passages with the lines read around them, or the
/// files whose names match if there are no passages.
pub(super) fn answer(
    best: &[Passage],
    shown: &[Shown],
    files: &[String],
    survey: &Survey,
) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nSearched {} text files for {}.",
        survey.searched,
        words(&survey.terms)
    );
    if !survey.absent.is_empty() {
        let _ = write!(out, " Not found in them: {}.", words(&survey.absent));
    }
    write_notes(&mut out, survey);
    if best.is_empty() {
        out.push_str(" No line matches; the names of these files do:\n\n");
        for path in files {
            let _ = writeln!(out, "- {path}");
        }
    } else {
        out.push_str(" The best matches, best first:\n");
        for (index, passage) in best.iter().enumerate() {
            quote(&mut out, index + 1, passage, shown);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The answer to a search without results: what was searched for, or why the search failed.
pub(super) fn nothing_found(terms: &[Term], survey: &Survey) -> String {
    if let (0, Some(failure)) = (survey.searched, survey.notes.first()) {
        let failure = preview(failure, 400);
        return format!("{DISCLAIMER}\nThe search failed: {failure}.");
    }
    let mut out = format!(
        "{DISCLAIMER}\nNothing was found. Neither file names nor the contents of {} text files \
         match any of: {}; similar words were tried too.",
        survey.searched,
        words(terms)
    );
    write_notes(&mut out, survey);
    out.push_str(" Ask with words that are likely to be in the files, or for another folder.");
    out
}

fn write_notes(out: &mut String, survey: &Survey) {
    for note in &survey.notes {
        let _ = write!(out, " Note: {}.", preview(note, 200));
    }
}

fn quote(out: &mut String, number: usize, passage: &Passage, shown: &[Shown]) {
    // The lines read from the file, if they include the passage.
    let window = shown.iter().find_map(|file| {
        let at = file
            .lines
            .iter()
            .position(|(line, _)| *line == passage.line)?;
        (file.path == passage.path).then(|| file.lines.split_at(at))
    });
    let (before, from) = window.unwrap_or_default();
    let mut reasons = passage.reasons.clone();
    if passage.is_definition {
        reasons.push("a definition".to_owned());
    } else if let Some(head) = enclosing(before, passage) {
        reasons.push(format!("inside `{head}`"));
    }
    let (path, reasons) = (&passage.path, reasons.join("; "));
    let _ = writeln!(out, "\n{number}. {path}:{} ({reasons})", passage.line);
    quoted_line(out, passage.line, &passage.text);
    let after: Vec<&(usize, String)> = from.iter().skip(1).take(LINES_AFTER).collect();
    let last = after.iter().rposition(|(_, text)| !text.trim().is_empty());
    for (line, text) in after.iter().take(last.map_or(0, |last| last + 1)) {
        quoted_line(out, *line, text);
    }
}

/// One quoted line with its number.
pub(super) fn quoted_line(out: &mut String, line: usize, text: &str) {
    let kept = prefix(text, LINE_LIMIT);
    let cut = if kept.len() < text.len() { "…" } else { "" };
    let _ = writeln!(out, "   {line:>5} | {kept}{cut}");
}

/// The head of the definition that encloses a passage, if the lines before it show one.
fn enclosing(before: &[(usize, String)], passage: &Passage) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut depth = indent(&passage.text);
    for (_, text) in before.iter().rev() {
        if text.trim().is_empty() || indent(text) >= depth {
            continue;
        }
        depth = indent(text);
        if defined_name(&passage.path, text).is_some() {
            let head = text.split(['{', '=']).next().unwrap_or(text).trim();
            return Some(preview(head.trim_end_matches([':', '(', ';']), 80));
        }
    }
    None
}
