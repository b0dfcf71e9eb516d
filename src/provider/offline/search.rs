//! Searches for the terms of a task: first which files have them and how rare each one is, then
//! the lines of the best files, which are ranked. A line counts for its terms, for terms nearby,
//! for being a definition and for its file.

use std::collections::BTreeMap;

use serde_json::json;

use super::answer::{answer, nothing_found};
use super::files::{file_name, file_weight, line_weight};
use super::transcript::{CompletedCall, FileLine, file_counts, found_lines, notes, paths, totals};
use super::words::{Term, list};
use super::{OfflineReply, Request};

/// Maximum number of files whose lines are ranked.
const FILE_LIMIT: usize = 8;

/// Maximum number of quotations in one answer.
const QUOTE_LIMIT: usize = 8;

/// Maximum distance of lines that count as nearby.
const NEAR: usize = 5;

/// Maximum distance of lines of which only one is quoted.
const JOINED: usize = 3;

/// Factors for the passages of one file, from best to worst, so that several files are quoted.
const IN_ONE_FILE: [f64; 3] = [1.0, 0.75, 0.56];

/// Terms below this share of the heaviest weight are not searched for: they would fill the result
/// with insignificant lines.
const SIGNIFICANT: f64 = 0.25;

/// The next move of the search for `terms`: each round is read back from `done`, and the first one
/// missing there is requested.
pub(super) fn next(terms: Vec<Term>, done: &[Vec<CompletedCall>]) -> OfflineReply {
    let Some(round) = done.first() else {
        return OfflineReply::Calls(files_with(&terms));
    };
    let survey = Survey::read(round, terms);
    let files = survey.best_files();
    if files.is_empty() {
        return OfflineReply::Text(nothing_found(&survey));
    }
    match done.get(1) {
        None => OfflineReply::Calls(vec![lines_in(&files, &survey)]),
        Some(round) => OfflineReply::Text(answer(&best_passages(round, &survey), &files, &survey)),
    }
}

/// One search of file names, and one content search per term.
fn files_with(terms: &[Term]) -> Vec<Request> {
    // Quotations may have characters that do not occur in file names or are special in glob
    // patterns.
    let in_names = |ch: char| ch.is_alphanumeric() || "_-.".contains(ch);
    let names = terms.iter().map(|term| term.name.as_str());
    let names: Vec<&str> = names
        .filter(|name| name.len() >= 3 && name.chars().all(in_names))
        .collect();
    let pattern = format!("*{{{}}}*", names.join(","));
    let glob = json!({"pattern": pattern, "ignore_case": true, "max_results": 200});
    let glob = (!names.is_empty()).then_some(("glob", glob));
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

/// What the first round found.
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
    /// Each file with the number of its terms and the sum of their weights.
    files: BTreeMap<String, (usize, f64)>,
}

impl Survey {
    /// Reads the results of [`files_with`] for these terms.
    fn read(round: &[CompletedCall], terms: Vec<Term>) -> Self {
        let mut survey = Survey::default();
        let greps = round.iter().filter(|call| call.tool == "grep");
        for (call, mut term) in greps.zip(terms) {
            let (matched, searched) = totals(&call.text).unwrap_or((0, 0));
            survey.searched = survey.searched.max(searched);
            if matched > 0 {
                let rarity = (searched as f64 + 1.0) / (matched as f64 + 1.0);
                term.weight *= 0.4 + rarity.ln().max(0.0);
            } else if searched > 0 {
                survey.absent.push(term.clone());
            }
            for (path, count) in file_counts(&call.text) {
                let (terms, weight) = survey.files.entry(path.to_owned()).or_default();
                *terms += 1;
                *weight += term.weight * (1.0 + (count as f64).ln().min(2.5));
            }
            survey.terms.push(term);
        }
        for call in round.iter().filter(|call| call.tool == "glob") {
            for path in paths(&call.text) {
                survey.files.entry(path.to_owned()).or_default();
            }
        }
        survey.notes = notes(round);
        survey
    }

    /// The most promising files, best first; empty if no file was found.
    fn best_files(&self) -> Vec<String> {
        let scored = self.files.iter().map(|(path, (terms, weight))| {
            let in_path = self.terms.iter().map(|term| match term.is_in(path) {
                true if term.is_in(file_name(path)) => term.weight * 0.8,
                true => term.weight * 0.3,
                false => 0.0,
            });
            // Different terms in one file count more than many occurrences of one term.
            let score = (weight + in_path.sum::<f64>()) * (1.0 + 0.5 * *terms as f64);
            (score * self.weight_of(path), path)
        });
        let mut scored: Vec<(f64, &String)> = scored.collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        let best = scored.first().map_or(0.0, |one| one.0);
        scored.truncate(FILE_LIMIT);
        scored.retain(|(score, _)| *score >= best * 0.2);
        scored.into_iter().map(|(_, path)| path.clone()).collect()
    }

    /// The weight of a file by its kind; tests count only if the task is about them.
    fn weight_of(&self, path: &str) -> f64 {
        let about_tests = |term: &Term| term.word.starts_with("test");
        file_weight(path, self.terms.iter().any(about_tests))
    }
}

/// One search for the lines with a significant term.
fn lines_in(files: &[String], survey: &Survey) -> Request {
    let weights = survey.terms.iter().map(|term| term.weight);
    let least = weights.fold(0.0, f64::max) * SIGNIFICANT;
    let terms = survey.terms.iter().filter(|term| term.weight >= least);
    let patterns: Vec<&str> = terms.clone().map(|term| term.regex.as_str()).collect();
    let arguments = json!({
        "pattern": patterns.join("|"),
        "paths": files,
        "max_per_file": 60,
        "max_results": 480,
        "note": format!("lines with {} in the best {} files", list(terms), files.len()),
    });
    ("grep", arguments)
}

/// A line worth quoting.
pub(super) struct Passage {
    pub path: String,
    pub line: FileLine,
    /// Why it was chosen.
    pub reason: String,
    score: f64,
}

/// The best passages, best first: a few per file, and only those near the best score.
fn best_passages(round: &[CompletedCall], survey: &Survey) -> Vec<Passage> {
    let best_first = |a: &Passage, b: &Passage| b.score.total_cmp(&a.score);
    let mut all: Vec<Passage> = Vec::new();
    for (path, found) in found_lines(round) {
        let passages = found.iter().map(|line| passage(path, line, &found, survey));
        let mut passages: Vec<Passage> = passages.collect();
        passages.sort_by(best_first);
        let mut chosen: Vec<Passage> = Vec::new();
        for mut passage in passages {
            let distance = |one: &Passage| one.line.number.abs_diff(passage.line.number);
            if chosen.iter().all(|one| distance(one) > JOINED)
                && let Some(share) = IN_ONE_FILE.get(chosen.len())
            {
                passage.score *= share;
                chosen.push(passage);
            }
        }
        all.extend(chosen);
    }
    all.sort_by(best_first);
    let enough = all.first().map_or(0.0, |best| best.score * 0.4);
    all.retain(|passage| passage.score >= enough);
    all.truncate(QUOTE_LIMIT);
    all
}

/// Scores one of the lines `found` in a file.
fn passage(path: &str, line: &FileLine, found: &[FileLine], survey: &Survey) -> Passage {
    let nearby = found
        .iter()
        .filter(|other| other.number.abs_diff(line.number) <= NEAR);
    let is_near = |term: &&Term| nearby.clone().any(|other| term.is_in(&other.text));
    let terms = &survey.terms;
    let (here, others): (Vec<&Term>, Vec<&Term>) =
        terms.iter().partition(|term| term.is_in(&line.text));
    let near: Vec<&Term> = others.into_iter().filter(is_near).collect();
    let weight = |terms: &[&Term]| terms.iter().map(|term| term.weight).sum::<f64>();
    let (kind, is_definition) = line_weight(path, &line.text, terms);
    let mut reason = match here[..] {
        // `grep` shows only the beginning of a very long line.
        [] => "matches further on in a long line".to_owned(),
        _ => format!("has {}", list(here.iter().copied())),
    };
    if !near.is_empty() {
        reason += &format!("; near {}", list(near.iter().copied()));
    }
    if is_definition {
        reason += "; a definition";
    }
    Passage {
        path: path.to_owned(),
        line: line.clone(),
        reason,
        score: (weight(&here).max(0.5) + weight(&near) * 0.4)
            * (0.6 + 0.4 * (here.len() + near.len()) as f64)
            * survey.weight_of(path)
            * kind,
    }
}
