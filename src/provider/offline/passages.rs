//! The second round: ranks the lines of the best files. A line counts for its terms, for terms
//! nearby, for being a definition and for its file.

use serde_json::{Value, json};

use super::files::{begins_tests, file_name, file_weight, line_weight};
use super::survey::{Survey, words};
use super::transcript::{Call, Found, found_lines};
use super::words::Term;

/// Maximum distance of lines that count as nearby.
const NEAR: usize = 5;

/// Maximum distance of lines that are quoted together.
const JOINED: usize = 3;

/// Maximum number of quotations in one answer.
const QUOTE_LIMIT: usize = 8;

/// Factors for the passages of one file, from best to worst, so that several files are quoted.
const IN_ONE_FILE: [f64; 3] = [1.0, 0.75, 0.56];

/// Terms below this share of the heaviest weight are not searched for: they would fill the result
/// with insignificant lines.
const SIGNIFICANT: f64 = 0.25;

/// A line worth quoting.
pub(super) struct Passage {
    pub path: String,
    pub line: usize,
    pub text: String,
    /// Why it was chosen, as phrases for the answer.
    pub reasons: Vec<String>,
    pub is_definition: bool,
    score: f64,
}

/// The `grep` call of the second round.
pub(super) fn calls(survey: &Survey, files: &[String]) -> Vec<(&'static str, Value)> {
    let weights = survey.terms.iter().map(|term| term.weight);
    let heaviest = weights.fold(0.0, f64::max);
    let is_significant = |term: &&Term| term.weight >= heaviest * SIGNIFICANT;
    let terms: Vec<&Term> = survey.terms.iter().filter(is_significant).collect();
    let patterns: Vec<&str> = terms.iter().map(|term| term.regex.as_str()).collect();
    let arguments = json!({
        // Lines after the start of a file's own tests count less.
        "pattern": format!("{}|(?m:^)\\s*mod tests?\\b", patterns.join("|")),
        "paths": files,
        "max_per_file": 60,
        "max_results": 480,
        "note": format!("lines with {} in the best {} files", words(terms), files.len()),
    });
    vec![("grep", arguments)]
}

/// The best passages, best first: a few per file, and only those near the best score.
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
        // `grep` shows only the beginning of a very long line.
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
