//! The first round: which files contain the terms in their names or their lines, and how rare
//! each term is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::files::{file_name, file_weight};
use super::transcript::{Round, file_counts, notes, paths, totals};
use super::words::Term;

/// The number of terms that get a search of their own; the others share one.
const OWN_SEARCHES: usize = 5;

/// The maximum number of files that are looked into.
const FILE_LIMIT: usize = 8;

/// What the first round found.
pub(super) struct Survey {
    /// How much each term counts: the rarer, the more.
    pub weights: Vec<f64>,
    /// Terms that are in no line of the searched files.
    pub absent: Vec<String>,
    /// The number of text files searched.
    pub searched: usize,
    /// What the tools say of failed searches and of files that were passed over.
    pub notes: Vec<String>,
    /// Lines with the terms of each search, by file.
    files: BTreeMap<String, Vec<usize>>,
}

/// The terms of each search: one each for the first, one for all others together.
fn searches(terms: &[Term]) -> impl Iterator<Item = &[Term]> {
    let (own, shared) = terms.split_at(OWN_SEARCHES.min(terms.len()));
    own.chunks(1).chain((!shared.is_empty()).then_some(shared))
}

/// The calls of the first round.
pub(super) fn calls(terms: &[Term]) -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    let names = terms.iter().flat_map(|term| &term.names);
    let mut names: Vec<String> = names
        .filter(|name| name.len() >= 3 && !name.contains(' '))
        .map(|name| escaped(name))
        .collect();
    names.dedup();
    if !names.is_empty() {
        let pattern = format!("*{{{}}}*", names.join(","));
        calls.push((
            "glob",
            json!({"pattern": pattern, "ignore_case": true, "max_results": 200}),
        ));
    }
    calls.extend(searches(terms).map(|terms| {
        let arguments = json!({
            "pattern": patterns(terms),
            "output": "files",
            "max_results": 300,
            "note": format!("which files have {}", words(terms)),
        });
        ("grep", arguments)
    }));
    calls
}

/// One regular expression for all terms.
pub(super) fn patterns(terms: &[Term]) -> String {
    let all: Vec<&str> = terms.iter().map(|term| term.pattern.as_str()).collect();
    all.join("|")
}

/// The words of the terms, for people.
pub(super) fn words(terms: &[Term]) -> String {
    let words: Vec<&str> = terms.iter().map(|term| term.word.as_str()).collect();
    words.join(", ")
}

/// A text as a file pattern that matches just it; a path counts by its file name.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for ch in file_name(text).chars() {
        if "*?[]{}\\,!".contains(ch) {
            out.push('\\');
        }
        out.push(ch);
    }
    out
}

impl Survey {
    /// Reads the results of [`calls`] for the same terms.
    pub(super) fn read(round: &Round, terms: &[Term]) -> Survey {
        let mut survey = Survey {
            weights: terms.iter().map(|term| term.worth).collect(),
            absent: Vec::new(),
            searched: 0,
            notes: Vec::new(),
            files: BTreeMap::new(),
        };
        let greps = round.calls.iter().filter(|call| call.tool == "grep");
        let mut first = 0;
        for (call, part) in greps.zip(searches(terms)) {
            for (path, count) in file_counts(&call.text) {
                let counts = survey.files.entry(path);
                counts.or_insert_with(|| vec![0; terms.len()])[first] = count;
            }
            if let Some((matched, searched)) = totals(&call.text) {
                survey.searched = survey.searched.max(searched);
                let rarity = (searched as f64 + 1.0) / (matched as f64 + 1.0);
                for weight in &mut survey.weights[first..first + part.len()] {
                    *weight *= 0.4 + rarity.ln().max(0.0);
                }
                if matched == 0 {
                    let words = part.iter().map(|term| term.word.clone());
                    survey.absent.extend(words);
                }
            }
            first += part.len();
        }
        for call in &round.calls {
            survey.notes.extend(call.failure.clone());
            survey.notes.extend(notes(&call.text));
            if call.tool == "glob" {
                for path in paths(&call.text) {
                    let counts = survey.files.entry(path);
                    counts.or_insert_with(|| vec![0; terms.len()]);
                }
            }
        }
        survey.notes.dedup();
        survey
    }

    /// Did the round find no file?
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files most worth a look, the best first.
    pub(super) fn best_files(&self, terms: &[Term], tests: bool) -> Vec<String> {
        let mut scored: Vec<(f64, &String)> = self
            .files
            .iter()
            .map(|(path, counts)| (self.score(path, counts, terms, tests), path))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let best = scored.first().map_or(0.0, |one| one.0);
        scored
            .into_iter()
            .take(FILE_LIMIT)
            .take_while(|(score, _)| *score >= best * 0.2)
            .map(|(_, path)| path.clone())
            .collect()
    }

    fn score(&self, path: &str, counts: &[usize], terms: &[Term], tests: bool) -> f64 {
        let mut score = 0.0;
        let mut different = 0;
        for ((count, weight), term) in counts.iter().zip(&self.weights).zip(terms) {
            if *count > 0 {
                different += 1;
                score += weight * (1.0 + (*count as f64).ln().min(2.5));
            }
            if term.is_in(file_name(path)) {
                score += weight * 0.8;
            } else if term.is_in(path) {
                score += weight * 0.3;
            }
        }
        // Different words in one file say more than one word many times.
        score * (1.0 + 0.5 * f64::from(different)) * file_weight(path, tests)
    }
}
