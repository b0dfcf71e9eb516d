//! The first round: which files have the words in their name or in their lines, and how rare
//! each word is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::line::{file_name, file_weight};
use super::terms::Term;
use super::transcript::{Round, file_counts, paths, totals};

/// The most words that get a search of their own.
const SEARCH_LIMIT: usize = 4;

/// The most files that are looked into.
const FILE_LIMIT: usize = 8;

/// What the first round found.
pub(super) struct Survey {
    /// How much each term tells: the rarer, the more.
    pub weights: Vec<f64>,
    /// In how many files each term stands; `None` where it was not searched by itself.
    pub spread: Vec<Option<usize>>,
    /// Text files searched.
    pub searched: usize,
    files: BTreeMap<String, Vec<usize>>,
    /// Searches that failed, in the tools' words.
    pub failures: Vec<String>,
}

/// The calls of the first round.
pub(super) fn calls(terms: &[Term]) -> Vec<(&'static str, Value)> {
    let mut calls = Vec::new();
    let mut names: Vec<String> = terms
        .iter()
        .flat_map(Term::file_names)
        .map(escaped)
        .collect();
    names.dedup();
    if !names.is_empty() {
        let pattern = format!("*{{{}}}*", names.join(","));
        calls.push((
            "glob",
            json!({"pattern": pattern, "ignore_case": true, "max_results": 200}),
        ));
    }
    for term in terms.iter().take(SEARCH_LIMIT) {
        let pattern = term.pattern(true);
        calls.push((
            "grep",
            json!({
                "pattern": pattern,
                "output": "files",
                "max_results": 300,
                "note": format!("which files have \"{}\"", term.word),
            }),
        ));
    }
    calls
}

/// A text as a file pattern that matches just it; a path counts by its file name.
fn escaped(text: &str) -> String {
    let name = text.rsplit('/').next().unwrap_or(text);
    name.chars()
        .flat_map(|ch| {
            let special = "*?[]{}\\,!".contains(ch);
            special.then_some('\\').into_iter().chain([ch])
        })
        .collect()
}

impl Survey {
    /// Reads the results of [`calls`] for the same terms.
    pub(super) fn read(round: &Round, terms: &[Term]) -> Survey {
        let mut survey = Survey {
            weights: vec![1.0; terms.len()],
            spread: vec![None; terms.len()],
            searched: 0,
            files: BTreeMap::new(),
            failures: Vec::new(),
        };
        survey
            .failures
            .extend(round.calls.iter().filter_map(|call| call.failure.clone()));
        let searches = round.calls.iter().filter(|call| call.tool == "grep");
        for (index, call) in searches.enumerate().take(terms.len()) {
            for (path, count) in file_counts(&call.text) {
                let counts = survey.files.entry(path);
                counts.or_insert_with(|| vec![0; terms.len()])[index] = count;
            }
            if let Some((matched, searched)) = totals(&call.text) {
                survey.searched = survey.searched.max(searched);
                survey.spread[index] = Some(matched);
                let rarity = (searched as f64 + 1.0) / (matched as f64 + 1.0);
                survey.weights[index] = 0.4 + rarity.ln().max(0.0);
            }
        }
        for (weight, term) in survey.weights.iter_mut().zip(terms) {
            *weight *= term.worth;
        }
        for call in round.calls.iter().filter(|call| call.tool == "glob") {
            for path in paths(&call.text) {
                survey
                    .files
                    .entry(path)
                    .or_insert_with(|| vec![0; terms.len()]);
            }
        }
        survey
    }

    /// Was nothing found at all?
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
            if term.names(file_name(path)) {
                score += weight * 0.8;
            } else if term.names(path) {
                score += weight * 0.3;
            }
        }
        // Different words in one file say more than one word many times.
        score * (1.0 + 0.5 * f64::from(different)) * file_weight(path, tests)
    }
}
