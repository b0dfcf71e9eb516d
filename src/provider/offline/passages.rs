//! The second round: the lines of the best files, ranked. A line counts for the terms in it,
//! for terms nearby, for being a definition and for its file.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::files::{begins_tests, file_name, file_weight, line_weight};
use super::survey::{Survey, patterns, words};
use super::transcript::{Found, Round, found_lines};
use super::words::Term;

/// How far apart two lines may be and still count as nearby.
const NEAR: usize = 5;

/// Lines at most this far apart are one quotation.
const JOINED: usize = 3;

/// The maximum number of quotations of one answer, and of one file.
const QUOTE_LIMIT: usize = 8;
const QUOTES_PER_FILE: usize = 3;

/// A term that counts less than this share of the rarest one is not searched for: it would
/// fill the result with lines that say nothing.
const SIGNIFICANT: f64 = 0.25;

/// A line worth quoting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Passage {
    pub path: String,
    pub line: usize,
    pub text: String,
    /// The terms in the line, nearby, and in the file's name.
    pub on_line: Vec<String>,
    pub near: Vec<String>,
    pub in_name: Vec<String>,
    pub is_definition: bool,
    score: f64,
}

/// The call of the second round.
pub(super) fn calls(
    terms: &[Term],
    survey: &Survey,
    files: &[String],
) -> Vec<(&'static str, Value)> {
    let highest = survey.weights.iter().copied().fold(0.0, f64::max);
    let weighed = terms.iter().zip(&survey.weights);
    let significant: Vec<Term> = weighed
        .filter(|(_, weight)| **weight >= highest * SIGNIFICANT)
        .map(|(term, _)| term.clone())
        .collect();
    // Where a file's own tests begin, the lines after it count less.
    let pattern = format!("{}|^\\s*mod tests?\\b", patterns(&significant));
    let note = format!(
        "lines with {} in the best {} files",
        words(&significant),
        files.len()
    );
    vec![(
        "grep",
        json!({
            "pattern": pattern,
            "paths": files,
            "max_per_file": 60,
            "max_results": 480,
            "note": note,
        }),
    )]
}

/// The best passages, the best first: few of one file, and only those near the best score.
pub(super) fn best(round: &Round, terms: &[Term], survey: &Survey, tests: bool) -> Vec<Passage> {
    let mut files: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for found in round.calls.iter().flat_map(|call| found_lines(&call.text)) {
        files.entry(found.path.clone()).or_default().push(found);
    }
    let mut all: Vec<Passage> = files
        .iter()
        .flat_map(|(path, found)| in_file(path, found, terms, survey, tests))
        .collect();
    sort(&mut all);
    let mut chosen: Vec<Passage> = Vec::new();
    for mut passage in all {
        let same_file = || chosen.iter().filter(|one| one.path == passage.path);
        let count = same_file().count();
        if count == QUOTES_PER_FILE
            || same_file().any(|one| one.line.abs_diff(passage.line) <= JOINED)
        {
            continue;
        }
        // Each further passage of a file must be better by itself, so that several files are
        // quoted.
        passage.score *= [1.0, 0.75, 0.56][count];
        chosen.push(passage);
    }
    sort(&mut chosen);
    let enough = chosen.first().map_or(0.0, |best| best.score * 0.4);
    chosen.retain(|passage| passage.score >= enough);
    chosen.truncate(QUOTE_LIMIT);
    chosen
}

fn sort(passages: &mut [Passage]) {
    passages.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| (&a.path, a.line).cmp(&(&b.path, b.line)))
    });
}

fn in_file(
    path: &str,
    found: &[Found],
    terms: &[Term],
    survey: &Survey,
    tests: bool,
) -> Vec<Passage> {
    let has: Vec<Vec<bool>> = found
        .iter()
        .map(|one| terms.iter().map(|term| term.is_in(&one.text)).collect())
        .collect();
    let word = |term: &Term| term.word.clone();
    let in_name = terms.iter().filter(|term| term.is_in(file_name(path)));
    let in_name: Vec<String> = in_name.map(word).collect();
    let tests_from = found
        .iter()
        .find(|one| begins_tests(&one.text))
        .map_or(usize::MAX, |one| one.line);
    let file = file_weight(path, tests) * (1.0 + 0.2 * in_name.len() as f64);
    let mut passages = Vec::new();
    for (one, here) in found.iter().zip(&has) {
        if !here.contains(&true) {
            continue;
        }
        let nearby: Vec<&Vec<bool>> = found
            .iter()
            .zip(&has)
            .filter(|(other, _)| other.line.abs_diff(one.line) <= NEAR)
            .map(|(_, has)| has)
            .collect();
        let (mut on_line, mut near, mut score) = (Vec::new(), Vec::new(), 0.0);
        for (at, term) in terms.iter().enumerate() {
            if here[at] {
                on_line.push(word(term));
                score += survey.weights[at];
            } else if nearby.iter().any(|has| has[at]) {
                near.push(word(term));
                score += survey.weights[at] * 0.5;
            }
        }
        let (kind, is_definition) = line_weight(path, &one.text, terms);
        score *= kind * file * (0.6 + 0.4 * (on_line.len() + near.len()) as f64);
        if one.line >= tests_from && !tests {
            score *= 0.3;
        }
        passages.push(Passage {
            path: path.to_owned(),
            line: one.line,
            text: one.text.clone(),
            on_line,
            near,
            in_name: in_name.clone(),
            is_definition,
            score,
        });
    }
    passages
}
