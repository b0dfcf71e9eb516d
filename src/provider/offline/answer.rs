//! Writes the final text: a short ranked list of quotations, each with its location and the reason
//! for choosing it.

use std::fmt::Write as _;

use super::DISCLAIMER;
use super::search::{Passage, Survey};
use super::transcript::FileLine;
use super::words::list;
use crate::kernel::text::{prefix, preview};

/// Maximum bytes of a quoted line: less than the tools show of a line, so that their truncation
/// mark is never quoted as part of the file.
const LINE_LIMIT: usize = 390;

/// The answer to a successful search: the best passages, or the files whose names match if there
/// are no passages.
pub(super) fn answer(best: &[Passage], files: &[String], survey: &Survey) -> String {
    let mut out = format!(
        "{DISCLAIMER}\nSearched {} text files for {}.",
        survey.searched,
        list(&survey.terms)
    );
    if !survey.absent.is_empty() {
        let _ = write!(out, " Not found in them: {}.", list(&survey.absent));
    }
    write_notes(&mut out, &survey.notes);
    if best.is_empty() {
        out.push_str(" No line matches; the names of these files do:\n\n");
        for path in files {
            let _ = writeln!(out, "- {path}");
        }
    } else {
        out.push_str(" The best matches, best first:\n");
    }
    for (index, passage) in best.iter().enumerate() {
        let (path, line, reason) = (&passage.path, &passage.line, &passage.reason);
        let _ = writeln!(out, "\n{}. {path}:{} ({reason})", index + 1, line.number);
        quote(&mut out, line);
    }
    out.truncate(out.trim_end_matches('\n').len());
    out
}

/// The answer to a search without results: what was searched for, or why the search failed.
pub(super) fn nothing_found(survey: &Survey) -> String {
    if let (0, Some(failure)) = (survey.searched, survey.notes.first()) {
        let failure = preview(failure, 400);
        return format!("{DISCLAIMER}\nThe search failed: {failure}.");
    }
    let mut out = format!(
        "{DISCLAIMER}\nNothing was found. Neither file names nor the contents of {} text files \
         match any of: {}.",
        survey.searched,
        list(&survey.terms)
    );
    write_notes(&mut out, &survey.notes);
    out.push_str(" Ask with words that are likely to be in the files, or for another folder.");
    out
}

/// Adds what the tools noted about failed searches and skipped files.
pub(super) fn write_notes(out: &mut String, notes: &[String]) {
    for note in notes {
        let _ = write!(out, " Note: {}.", preview(note, 200));
    }
}

/// One quoted line with its number.
pub(super) fn quote(out: &mut String, line: &FileLine) {
    let kept = prefix(&line.text, LINE_LIMIT);
    let cut = if kept.len() < line.text.len() {
        "…"
    } else {
        ""
    };
    let _ = writeln!(out, "   {:>5} | {kept}{cut}", line.number);
}
