//! The second round: the lines of the best files, ranked. A line counts for the words on it,
//! for words close by, for being a definition and for the file it stands in.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::line::{LineKind, begins_tests, defined_name, file_name, file_weight, kind};
use super::survey::Survey;
use super::terms::Term;
use super::transcript::{Found, Round, found_lines};

/// How far apart two lines may stand and still speak of the same thing.
const NEAR: usize = 5;

/// Lines at most this far apart are one quote.
const JOINED: usize = 3;

/// The most quotes of one answer, and of one file.
const QUOTE_LIMIT: usize = 8;
const QUOTES_PER_FILE: usize = 3;

/// A line worth quoting.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hit {
    pub path: String,
    pub line: usize,
    pub text: String,
    /// The words on the line or close by, as asked.
    pub on_line: Vec<String>,
    pub near: Vec<String>,
    /// Words that only a relative of stands there for.
    pub by_kin: Vec<String>,
    pub in_name: Vec<String>,
    pub is_definition: bool,
    score: f64,
}

/// A term that tells less than this share of the most telling one is not searched by itself:
/// it would fill the result with lines that say nothing.
const TELLING: f64 = 0.25;

/// The call of the second round.
pub(super) fn calls(
    terms: &[Term],
    survey: &Survey,
    files: &[String],
) -> Vec<(&'static str, Value)> {
    let most = survey.weights.iter().copied().fold(0.0, f64::max);
    let telling = || {
        let weighed = terms.iter().zip(&survey.weights);
        weighed.filter(|(_, weight)| **weight >= most * TELLING)
    };
    let mut patterns: Vec<String> = telling().map(|(term, _)| term.pattern(true)).collect();
    let words: Vec<&str> = telling().map(|(term, _)| term.word.as_str()).collect();
    // Where a file's own tests begin, everything below counts less.
    patterns.push("^\\s*mod tests?\\b".to_owned());
    vec![(
        "grep",
        json!({
            "pattern": patterns.join("|"),
            "paths": files,
            "max_per_file": 60,
            "max_results": 480,
            "note": format!("lines with {} in the best {} files", words.join(", "), files.len()),
        }),
    )]
}

/// The best lines, the best first; few of one file, and only those that come near the best.
pub(super) fn best(round: &Round, terms: &[Term], survey: &Survey, tests: bool) -> Vec<Hit> {
    let mut files: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for call in &round.calls {
        for found in found_lines(&call.text) {
            files.entry(found.path.clone()).or_default().push(found);
        }
    }
    let mut hits: Vec<Hit> = files
        .iter()
        .flat_map(|(path, found)| in_file(path, found, terms, survey, tests))
        .collect();
    hits.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then_with(|| a.path.cmp(&b.path))
            .then_with(|| a.line.cmp(&b.line))
    });
    choose(hits)
}

fn choose(mut hits: Vec<Hit>) -> Vec<Hit> {
    let mut chosen: Vec<Hit> = Vec::new();
    let best = hits.first().map_or(0.0, |hit| hit.score);
    while chosen.len() < QUOTE_LIMIT && !hits.is_empty() {
        // Each further quote of a file must be better by itself, so that several files speak.
        let worth = |hit: &Hit| {
            let of_file = chosen.iter().filter(|one| one.path == hit.path).count();
            hit.score * 0.75_f64.powi(i32::try_from(of_file).unwrap_or(i32::MAX))
        };
        let mut top = 0;
        for index in 1..hits.len() {
            if worth(&hits[index]) > worth(&hits[top]) {
                top = index;
            }
        }
        if worth(&hits[top]) < best * 0.4 {
            break;
        }
        let hit = hits.remove(top);
        hits.retain(|one| one.path != hit.path || one.line.abs_diff(hit.line) > JOINED);
        chosen.push(hit);
        let full: Vec<String> = chosen.iter().map(|one| one.path.clone()).collect();
        hits.retain(|one| full.iter().filter(|path| **path == one.path).count() < QUOTES_PER_FILE);
    }
    chosen
}

fn in_file(path: &str, found: &[Found], terms: &[Term], survey: &Survey, tests: bool) -> Vec<Hit> {
    let strengths: Vec<Vec<f64>> = found
        .iter()
        .map(|one| terms.iter().map(|term| term.strength(&one.text)).collect())
        .collect();
    let name = file_name(path);
    let in_name: Vec<String> = terms
        .iter()
        .filter(|term| term.names(name))
        .map(|term| term.word.clone())
        .collect();
    let tests_from = found
        .iter()
        .find(|one| begins_tests(&one.text))
        .map_or(usize::MAX, |one| one.line);
    let file = file_weight(path, tests) * (1.0 + 0.2 * in_name.len() as f64);
    let mut hits = Vec::new();
    for (index, one) in found.iter().enumerate() {
        let mut hit = Hit {
            path: path.to_owned(),
            line: one.line,
            text: one.text.clone(),
            on_line: Vec::new(),
            near: Vec::new(),
            by_kin: Vec::new(),
            in_name: in_name.clone(),
            is_definition: false,
            score: 0.0,
        };
        let mut different = 0;
        for (at, term) in terms.iter().enumerate() {
            let here = strengths[index][at];
            let close = nearby(found, &strengths, index, at);
            if here >= 1.0 {
                hit.on_line.push(term.word.clone());
            } else if close >= 1.0 {
                hit.near.push(term.word.clone());
            } else if here > 0.0 {
                hit.by_kin.push(term.word.clone());
            }
            different += u8::from(here.max(close) > 0.0);
            hit.score += survey.weights[at] * here.max(close * 0.5);
        }
        if strengths[index].iter().all(|strength| *strength == 0.0) {
            continue;
        }
        let mut kind = kind(path, &one.text);
        if kind == LineKind::Definition && !names_a_term(&one.text, terms) {
            kind = LineKind::Plain;
        }
        hit.is_definition = kind == LineKind::Definition;
        hit.score *= kind.weight() * file * (1.0 + 0.4 * f64::from(different - 1));
        if one.line >= tests_from && !tests {
            hit.score *= 0.3;
        }
        hits.push(hit);
    }
    hits
}

/// Is it one of the words that the line defines, and not merely a type it mentions?
fn names_a_term(line: &str, terms: &[Term]) -> bool {
    defined_name(line).is_some_and(|name| terms.iter().any(|term| term.strength(name) > 0.0))
}

/// The best match of a term on the lines around.
fn nearby(found: &[Found], strengths: &[Vec<f64>], index: usize, term: usize) -> f64 {
    let line = found[index].line;
    let close = |at: &usize| found[*at].line.abs_diff(line) <= NEAR;
    let before = (0..index).rev().take_while(close);
    let after = (index + 1..found.len()).take_while(close);
    before
        .chain(after)
        .map(|at| strengths[at][term])
        .fold(0.0, f64::max)
}
