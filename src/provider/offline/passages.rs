//! The second round: the lines of the best files, ranked. A line counts for the terms in it,
//! for terms nearby, for being a definition and for its file.

use serde_json::{Value, json};

use super::files::{begins_tests, file_name, file_weight, line_weight};
use super::survey::{Survey, words};
use super::transcript::{Call, Found, found_lines};
use super::words::Term;

/// How far apart two lines may be and still count as nearby.
const NEAR: usize = 5;

/// Lines at most this far apart are one quotation.
const JOINED: usize = 3;

/// The maximum number of quotations of one answer.
const QUOTE_LIMIT: usize = 8;

/// What the passages of one file count: each further one must be better by itself, so that
/// several files are quoted.
const IN_ONE_FILE: [f64; 3] = [1.0, 0.75, 0.56];

/// A term that weighs less than this share of the heaviest one is not searched for: it would
/// fill the result with lines that say nothing.
const SIGNIFICANT: f64 = 0.25;

/// A line worth quoting.
pub(super) struct Passage {
    pub path: String,
    pub line: usize,
    pub text: String,
    /// Why it was chosen, for people.
    pub reasons: Vec<String>,
    pub is_definition: bool,
    score: f64,
}

/// The call of the second round.
pub(super) fn calls(survey: &Survey, files: &[String]) -> Vec<(&'static str, Value)> {
    let weights = survey.terms.iter().map(|term| term.weight);
    let heaviest = weights.fold(0.0, f64::max);
    let is_significant = |term: &&Term| term.weight >= heaviest * SIGNIFICANT;
    let terms: Vec<&Term> = survey.terms.iter().filter(is_significant).collect();
    let patterns: Vec<&str> = terms.iter().map(|term| term.regex.as_str()).collect();
    let arguments = json!({
        // Where a file's own tests begin, the lines after it count less.
        "pattern": format!("{}|(?m:^)\\s*mod tests?\\b", patterns.join("|")),
        "paths": files,
        "max_per_file": 60,
        "max_results": 480,
        "note": format!("lines with {} in the best {} files", words(terms), files.len()),
    });
    vec![("grep", arguments)]
}

/// The best passages, the best first: few of one file, and only those near the best score.
pub(super) fn best(round: &[Call], survey: &Survey) -> Vec<Passage> {
    let mut all: Vec<Passage> = Vec::new();
    for (path, found) in found_lines(round) {
        let mut chosen: Vec<Passage> = Vec::new();
        for mut passage in sorted(in_file(path, &found, survey)) {
            let is_quoted = chosen
                .iter()
                .any(|one| one.line.abs_diff(passage.line) <= JOINED);
            if let (false, Some(share)) = (is_quoted, IN_ONE_FILE.get(chosen.len())) {
                passage.score *= share;
                chosen.push(passage);
            }
        }
        all.extend(chosen);
    }
    let mut all = sorted(all);
    let enough = all.first().map_or(0.0, |best| best.score * 0.4);
    all.retain(|passage| passage.score >= enough);
    all.truncate(QUOTE_LIMIT);
    all
}

fn sorted(mut passages: Vec<Passage>) -> Vec<Passage> {
    passages.sort_by(|a, b| {
        let places = (&a.path, a.line).cmp(&(&b.path, b.line));
        b.score.total_cmp(&a.score).then(places)
    });
    passages
}

fn in_file(path: &str, found: &[Found], survey: &Survey) -> Vec<Passage> {
    let terms = &survey.terms;
    let in_name: Vec<&Term> = terms
        .iter()
        .filter(|term| term.is_in(file_name(path)))
        .collect();
    let file = file_weight(path, survey.tests()) * (1.0 + 0.2 * in_name.len() as f64);
    let tests = found
        .iter()
        .find(|one| begins_tests(&one.text))
        .map(|one| one.line);
    let has = |one: &Found| terms.iter().map(|term| term.is_in(&one.text)).collect();
    let lines: Vec<(&Found, Vec<bool>)> = found.iter().map(|one| (one, has(one))).collect();
    let mut passages = Vec::new();
    for (one, own) in &lines {
        // Of a very long line `grep` shows only the beginning.
        let is_cut = one.text.ends_with(" bytes more)");
        if !own.contains(&true) && !is_cut {
            continue;
        }
        let (mut here, mut near) = (Vec::new(), Vec::new());
        for (at, term) in terms.iter().enumerate() {
            let mut nearby = lines
                .iter()
                .filter(|(other, _)| other.line.abs_diff(one.line) <= NEAR);
            if own[at] {
                here.push(term);
            } else if nearby.any(|(_, has)| has[at]) {
                near.push(term);
            }
        }
        let weight = |terms: &[&Term]| terms.iter().map(|term| term.weight).sum::<f64>();
        let (kind, is_definition) = line_weight(path, &one.text, terms);
        let mut score = (weight(&here).max(0.5) + weight(&near) * 0.4)
            * (0.6 + 0.4 * (here.len() + near.len()) as f64)
            * kind
            * file;
        if tests.is_some_and(|from| one.line >= from) && !survey.tests() {
            score *= 0.3;
        }
        let mut reasons = Vec::new();
        for (what, terms) in [("has", &here), ("near", &near), ("file name has", &in_name)] {
            if !terms.is_empty() {
                reasons.push(format!("{what} {}", words(terms.iter().copied())));
            }
        }
        if is_cut && !own.contains(&true) {
            reasons.insert(0, "matches further on in a long line".to_owned());
        }
        passages.push(Passage {
            path: path.to_owned(),
            line: one.line,
            text: one.text.clone(),
            reasons,
            is_definition,
            score,
        });
    }
    passages
}
