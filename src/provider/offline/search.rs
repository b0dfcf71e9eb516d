//! The rounds of a search, replayed from the transcript: what is there already is read back,
//! the first thing that is not there yet comes next.

use serde_json::{Value, json};

use super::Reply;
use super::answer::{answer, nothing_found};
use super::hits::{self, Hit};
use super::survey::{self, Survey};
use super::terms::Term;
use super::transcript::{Round, Shown, shown_file};

/// The most files that are read.
const READ_LIMIT: usize = 3;

/// Lines read above and in all around a hit.
const READ_ABOVE: usize = 30;
const READ_LINES: usize = 44;

/// What comes next in the search for `asked`, after the rounds `done`.
pub(super) fn next(asked: Vec<Term>, done: &[Round]) -> Reply {
    let tests = asked.iter().any(|term| term.word.starts_with("test"));
    let mut done = done.iter();
    let mut terms = asked;
    let Some(round) = done.next() else {
        return Reply::Calls(survey::calls(&terms));
    };
    let mut survey = Survey::read(round, &terms);
    if survey.is_empty() {
        terms = terms.iter().map(Term::loosened).collect();
        let Some(round) = done.next() else {
            return Reply::Calls(survey::calls(&terms));
        };
        survey = Survey::read(round, &terms);
        if survey.is_empty() {
            return Reply::Text(nothing_found(&terms, &survey));
        }
    }
    let files = survey.best_files(&terms, tests);
    let Some(round) = done.next() else {
        return Reply::Calls(hits::calls(&terms, &survey, &files));
    };
    let best = hits::best(round, &terms, &survey, tests);
    let Some(round) = done.next() else {
        return Reply::Calls(reads(&best, &files));
    };
    let shown: Vec<Shown> = round
        .calls
        .iter()
        .filter_map(|call| shown_file(&call.text))
        .collect();
    Reply::Text(answer(&best, &shown, &terms, &survey))
}

/// Reads around the best hit of each of the best files; of files that only have a fitting
/// name, the beginning.
fn reads(best: &[Hit], files: &[String]) -> Vec<(&'static str, Value)> {
    let mut places: Vec<(&str, usize)> = Vec::new();
    for hit in best {
        if !places.iter().any(|(path, _)| *path == hit.path) {
            places.push((&hit.path, hit.line.saturating_sub(READ_ABOVE).max(1)));
        }
    }
    if places.is_empty() {
        places.extend(files.iter().map(|path| (path.as_str(), 1)));
    }
    places
        .into_iter()
        .take(READ_LIMIT)
        .map(|(path, offset)| {
            (
                "read",
                json!({"path": path, "offset": offset, "limit": READ_LINES}),
            )
        })
        .collect()
}
