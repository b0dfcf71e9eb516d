//! The final text: a short ranked list of quotations, each with its place and why it was
//! chosen.

use std::fmt::Write as _;

use super::DISCLAIMER;
use super::files::defined_name;
use super::passages::Passage;
use super::survey::{Survey, words};
use super::transcript::Shown;
use super::words::Term;
use crate::kernel::text::{prefix, preview};

/// The maximum size of a quoted line, bytes.
const LINE_LIMIT: usize = 200;

/// Lines that are quoted after a passage.
const LINES_AFTER: usize = 2;

/// The answer to a search that found something.
pub(super) fn answer(best: &[Passage], shown: &[Shown], terms: &[Term], survey: &Survey) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nSearched {} text files for {}.",
        survey.searched,
        words(terms)
    );
    if !survey.absent.is_empty() {
        let _ = write!(out, " Not found in them: {}.", survey.absent.join(", "));
    }
    write_notes(&mut out, survey);
    if best.is_empty() {
        out.push_str(" No line matches; the names of these files do:\n");
        for file in shown {
            by_name(&mut out, file);
        }
    } else {
        out.push_str(" The best matches, the best first:\n");
        for (index, passage) in best.iter().enumerate() {
            quote(&mut out, index + 1, passage, shown);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The answer to a search that found nothing: it says so, and what was tried.
pub(super) fn nothing_found(terms: &[Term], survey: &Survey) -> String {
    if let (0, Some(failure)) = (survey.searched, survey.notes.first()) {
        return format!(
            "{DISCLAIMER}\nThe search failed: {}.",
            preview(failure, 400)
        );
    }
    let mut out = format!(
        "{DISCLAIMER}\nNothing was found. Neither file names nor the contents of {} text files \
         match any of: {}; shorter forms of these words were tried too.",
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
    let window = shown.iter().find(|file| file.path == passage.path);
    let reasons = reasons(passage, window.and_then(|file| enclosing(file, passage)));
    let _ = writeln!(
        out,
        "\n{number}. {}:{} ({reasons})",
        passage.path, passage.line
    );
    let lines = window.map_or_else(Vec::new, |file| lines_from(file, passage.line));
    if lines.is_empty() {
        quoted_line(out, passage.line, &passage.text);
    }
    for (line, text) in lines {
        quoted_line(out, line, text);
    }
}

fn by_name(out: &mut String, file: &Shown) {
    let first = file.lines.iter().find(|(_, text)| !text.trim().is_empty());
    if let Some((line, text)) = first {
        let _ = writeln!(out, "\n- {}:{line} (the file's name matches)", file.path);
        quoted_line(out, *line, text);
    }
}

/// One quoted line with its number.
pub(super) fn quoted_line(out: &mut String, line: usize, text: &str) {
    let kept = prefix(text, LINE_LIMIT);
    let cut = if kept.len() < text.len() { "…" } else { "" };
    let _ = writeln!(out, "   {line:>5} | {kept}{cut}");
}

fn reasons(passage: &Passage, enclosing: Option<String>) -> String {
    let mut reasons = Vec::new();
    for (what, words) in [
        ("has", &passage.on_line),
        ("near", &passage.near),
        ("file name has", &passage.in_name),
    ] {
        if !words.is_empty() {
            reasons.push(format!("{what} {}", words.join(", ")));
        }
    }
    if passage.is_definition {
        reasons.push("a definition".to_owned());
    } else if let Some(head) = enclosing {
        reasons.push(format!("inside `{head}`"));
    }
    reasons.join("; ")
}

/// The passage and the lines after it as the file has them, without blank lines at the end.
fn lines_from(file: &Shown, line: usize) -> Vec<(usize, &str)> {
    let lines = file.lines.iter();
    let mut lines: Vec<(usize, &str)> = lines
        .filter(|(number, _)| (line..=line + LINES_AFTER).contains(number))
        .map(|(number, text)| (*number, text.as_str()))
        .collect();
    if lines.first().is_none_or(|(number, _)| *number != line) {
        return Vec::new();
    }
    while lines.last().is_some_and(|(_, text)| text.trim().is_empty()) {
        lines.pop();
    }
    lines
}

/// The head of the definition around a passage, if the lines that were read show it.
fn enclosing(file: &Shown, passage: &Passage) -> Option<String> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut depth = indent(&passage.text);
    let before = file.lines.iter().rev();
    for (_, text) in before.filter(|(line, _)| *line < passage.line) {
        if text.trim().is_empty() || indent(text) >= depth {
            continue;
        }
        depth = indent(text);
        if defined_name(&file.path, text).is_some() {
            let head = text.split(['{', '=']).next().unwrap_or(text).trim();
            return Some(preview(head.trim_end_matches([':', '(', ';']), 80));
        }
    }
    None
}
