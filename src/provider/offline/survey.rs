//! The first rounds: finds the files whose names or lines contain the terms, and how rare each term
//! is.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::files::{file_name, file_weight};
use super::transcript::{Call, file_counts, notes, paths, totals};
use super::words::Term;

/// Maximum number of files whose contents are searched in the next round.
const FILE_LIMIT: usize = 8;

/// What the first rounds found.
#[derive(Default)]
pub(super) struct Survey {
    /// The terms; the rarer a term is in the files, the larger its weight.
    pub terms: Vec<Term>,
    /// Terms that occur in no line of the searched files.
    pub absent: Vec<Term>,
    /// Number of text files searched.
    pub searched: usize,
    /// Notes of the tools about failed searches and skipped files.
    pub notes: Vec<String>,
    /// Number of lines with each term, by file and index in `terms`.
    files: BTreeMap<String, BTreeMap<usize, usize>>,
}

/// The calls of a round: one search of file names, and one content search per term.
pub(super) fn calls(terms: &[Term]) -> Vec<(&'static str, Value)> {
    let names = terms.iter().map(|term| term.name.as_str());
    // Quotations may have characters that do not occur in file names or are special in glob
    // patterns.
    let in_names = |ch: char| ch.is_alphanumeric() || "_-.".contains(ch);
    let names = names.filter(|name| name.len() >= 3 && name.chars().all(in_names));
    let names: Vec<&str> = names.collect();
    let glob = (!names.is_empty()).then(|| {
        let pattern = format!("*{{{}}}*", names.join(","));
        (
            "glob",
            json!({"pattern": pattern, "ignore_case": true, "max_results": 200}),
        )
    });
    let greps = terms.iter().map(|term| {
        let arguments = json!({
            "pattern": term.regex.as_str(),
            "output": "files",
            "max_results": 300,
            "note": format!("which files have {}", term.word),
        });
        ("grep", arguments)
    });
    glob.into_iter().chain(greps).collect()
}

/// The terms' words, separated by commas, for notes and answers.
pub(super) fn words<'a>(terms: impl IntoIterator<Item = &'a Term>) -> String {
    let words: Vec<&str> = terms.into_iter().map(|term| term.word.as_str()).collect();
    words.join(", ")
}

impl Survey {
    /// Adds the results of [`calls`] for the same terms.
    pub(super) fn add(&mut self, round: &[Call], terms: Vec<Term>) {
        let greps = round.iter().filter(|call| call.tool == "grep");
        for (call, mut term) in greps.zip(terms) {
            for (path, count) in file_counts(&call.text) {
                let counts = self.files.entry(path.to_owned()).or_default();
                counts.insert(self.terms.len(), count);
            }
            let (matched, searched) = totals(&call.text).unwrap_or((0, 0));
            self.searched = self.searched.max(searched);
            if matched > 0 {
                let rarity = (searched as f64 + 1.0) / (matched as f64 + 1.0);
                term.weight *= 0.4 + rarity.ln().max(0.0);
            } else if searched > 0 {
                self.absent.push(term.clone());
            }
            self.terms.push(term);
        }
        for call in round.iter().filter(|call| call.tool == "glob") {
            for path in paths(&call.text) {
                self.files.entry(path).or_default();
            }
        }
        self.notes.extend(notes(round));
        self.notes.dedup();
    }

    /// Whether the task is about tests.
    pub(super) fn tests(&self) -> bool {
        self.terms.iter().any(|term| term.word.starts_with("test"))
    }

    /// Was no file found?
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The most promising files, best first.
    pub(super) fn best_files(&self) -> Vec<String> {
        let scored = self
            .files
            .iter()
            .map(|(path, counts)| (self.score(path, counts), path));
        let mut scored: Vec<(f64, &String)> = scored.collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let best = scored.first().map_or(0.0, |one| one.0);
        scored.truncate(FILE_LIMIT);
        scored.retain(|(score, _)| *score >= best * 0.2);
        scored.into_iter().map(|(_, path)| path.clone()).collect()
    }

    fn score(&self, path: &str, counts: &BTreeMap<usize, usize>) -> f64 {
        let mut score = 0.0;
        for (at, term) in self.terms.iter().enumerate() {
            if let Some(count) = counts.get(&at) {
                score += term.weight * (1.0 + (*count as f64).ln().min(2.5));
            }
            if term.is_in(file_name(path)) {
                score += term.weight * 0.8;
            } else if term.is_in(path) {
                score += term.weight * 0.3;
            }
        }
        // Different terms in one file count more than many occurrences of one term.
        score * (1.0 + 0.5 * counts.len() as f64) * file_weight(path, self.tests())
    }
}
