//! The final text: a short ranked list of quotes, each with its place and why it was chosen.

use std::fmt::Write as _;

use super::DISCLAIMER;
use super::hits::Hit;
use super::line::{LineKind, head, indent, kind};
use super::survey::Survey;
use super::terms::Term;
use super::transcript::Shown;
use crate::kernel::text::{prefix, preview};

/// The most bytes of a quoted line.
const LINE_LIMIT: usize = 200;

/// Quoted lines below a hit.
const LINES_BELOW: usize = 2;

/// The answer to a search that found something.
pub(super) fn answer(best: &[Hit], shown: &[Shown], terms: &[Term], survey: &Survey) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nSearched {} text files for {}.",
        survey.searched,
        words(terms)
    );
    let absent: Vec<&str> = terms
        .iter()
        .zip(&survey.spread)
        .filter(|(_, spread)| **spread == Some(0))
        .map(|(term, _)| term.word.as_str())
        .collect();
    if !absent.is_empty() {
        let _ = write!(out, " Not found anywhere: {}.", absent.join(", "));
    }
    for failure in &survey.failures {
        let _ = write!(out, " One search failed: {}.", preview(failure, 200));
    }
    if best.is_empty() {
        out.push_str(" No line fits; these files have a fitting name:\n");
        for file in shown {
            by_name(&mut out, file);
        }
    } else {
        out.push_str(" The places that fit best, the best first:\n");
        for (index, hit) in best.iter().enumerate() {
            quote(&mut out, index + 1, hit, shown);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// The answer to a search that found nothing: it says so, and what was tried.
pub(super) fn nothing_found(terms: &[Term], survey: &Survey) -> String {
    if let (0, Some(failure)) = (survey.searched, survey.failures.first()) {
        return format!(
            "{DISCLAIMER}\nThe search could not be made: {}.",
            preview(failure, 400)
        );
    }
    let mut out = format!(
        "{DISCLAIMER}\nNothing was found. Neither file names nor the contents of {} text files \
         match any of: {}; shorter forms of these words were tried too.",
        survey.searched,
        words(terms)
    );
    for failure in &survey.failures {
        let _ = write!(out, " One search failed: {}.", preview(failure, 200));
    }
    out.push_str(" Ask with words that may stand in the files, or for another folder.");
    out
}

fn words(terms: &[Term]) -> String {
    let words: Vec<&str> = terms.iter().map(|term| term.word.as_str()).collect();
    words.join(", ")
}

fn quote(out: &mut String, number: usize, hit: &Hit, shown: &[Shown]) {
    let window = shown.iter().find(|file| file.path == hit.path);
    let enclosing = window.and_then(|file| enclosing(file, hit));
    let _ = writeln!(
        out,
        "\n{number}. {}:{} ({})",
        hit.path,
        hit.line,
        why(hit, enclosing.as_deref())
    );
    let around = window.map_or_else(Vec::new, |file| around(file, hit.line));
    if around.is_empty() {
        quoted_line(out, hit.line, &hit.text);
    }
    for (line, text) in around {
        quoted_line(out, line, text);
    }
}

fn by_name(out: &mut String, file: &Shown) {
    let first = file.lines.iter().find(|(_, text)| !text.trim().is_empty());
    if let Some((line, text)) = first {
        let _ = writeln!(out, "\n- {}:{line} (the file name fits)", file.path);
        quoted_line(out, *line, text);
    }
}

fn quoted_line(out: &mut String, line: usize, text: &str) {
    let kept = prefix(text, LINE_LIMIT);
    let cut = if kept.len() < text.len() { "…" } else { "" };
    let _ = writeln!(out, "   {line:>5} | {kept}{cut}");
}

fn why(hit: &Hit, enclosing: Option<&str>) -> String {
    let mut reasons = Vec::new();
    let mut say = |what: &str, words: &[String]| {
        if !words.is_empty() {
            reasons.push(format!("{what} {}", words.join(", ")));
        }
    };
    say("has", &hit.on_line);
    say("close to", &hit.near);
    say("has a related word for", &hit.by_kin);
    say("file name has", &hit.in_name);
    if hit.is_definition {
        reasons.push("a definition".to_owned());
    } else if let Some(head) = enclosing {
        reasons.push(format!("inside `{head}`"));
    }
    reasons.join("; ")
}

/// The lines to quote: the hit and a little below it, without blank lines at the end.
fn around(file: &Shown, line: usize) -> Vec<(usize, &str)> {
    let mut lines: Vec<(usize, &str)> = file
        .lines
        .iter()
        .filter(|(number, _)| (line..=line + LINES_BELOW).contains(number))
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

/// The head of the definition around a hit, if the window shows it.
fn enclosing(file: &Shown, hit: &Hit) -> Option<String> {
    let mut depth = indent(&hit.text);
    let above = file.lines.iter().rev().filter(|(line, _)| *line < hit.line);
    for (_, text) in above {
        if text.trim().is_empty() || indent(text) >= depth {
            continue;
        }
        depth = indent(text);
        if kind(&file.path, text) == LineKind::Definition {
            return Some(preview(head(text), 80));
        }
    }
    None
}
