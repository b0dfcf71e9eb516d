//! What the demo checks, without the daemon: that no finished step ran again, by a run's journal,
//! and that the quotes of an answer match the files.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use crate::cli::output::text::clean;
use crate::kernel::time::Timestamp;
use crate::wire::shapes::Step;

/// How a run resumed after the kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resumed {
    /// The first step of the second process.
    pub(super) at: u32,
    /// The steps that ended in the first process and were not repeated.
    pub(super) kept: Vec<u32>,
}

impl Resumed {
    /// Finds where the run resumed from its journal; `None` while it has not.
    pub(super) fn judge(now: &[Step], killed_at: Timestamp) -> Option<Resumed> {
        // A step that was open at the kill gets another attempt under the same id; otherwise a new
        // step follows.
        let is_new = |step: &&Step| step.attempts > 1 || step.started_at > killed_at;
        let is_kept =
            |step: &&Step| step.attempts == 1 && step.ended_at.is_some_and(|at| at <= killed_at);
        Some(Resumed {
            at: now.iter().filter(is_new).map(|step| step.seq).min()?,
            kept: now.iter().filter(is_kept).map(|step| step.seq).collect(),
        })
    }

    /// Text for display, such as `resumed at step 4; 1–3 not repeated`.
    pub(super) fn text(&self) -> String {
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        let ranges = kept.chunk_by(|one, next| one + 1 == *next);
        let ranges = ranges.map(|range| match range {
            [first, .., last] => format!("{first}–{last}"),
            _ => range.iter().map(u32::to_string).collect(),
        });
        let kept = ranges.collect::<Vec<String>>().join(", ");
        format!("resumed at step {}; {kept} not repeated", self.at)
    }
}

/// Checks that the steps that had ended before the kill are unchanged: same id and number, same end
/// time, same number of attempts. Returns their count.
pub(super) fn check_kept(before: &[Step], after: &[Step]) -> Result<usize, String> {
    let facts = |step: &Step| (step.step_id, step.seq, step.ended_at, step.attempts);
    let ended = before.iter().filter(|step| step.ended_at.is_some());
    for step in ended.clone() {
        if !after.iter().any(|now| facts(now) == facts(step)) {
            return Err(format!("step {} was repeated or is gone", step.seq));
        }
    }
    Ok(ended.count())
}

/// A line that an answer quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QuotedLine {
    path: String,
    line: usize,
    text: String,
}

impl QuotedLine {
    /// Parses the findings of the search agent's answer, best first.
    pub(super) fn read(answer: &str) -> Vec<QuotedLine> {
        // `3. src/main.rs:12 (why)`, and below it `     12 | text`.
        const PATTERN: &str = r"(?m)^\d+\. (.+?):(\d+) \(.*\n +\d+ \| (.*)$";
        static QUOTE: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(PATTERN).expect("the pattern is a constant"));
        let quotes = QUOTE.captures_iter(answer).map(|quote| quote.extract());
        let findings = quotes.filter_map(|(_, [path, line, text])| {
            Some(QuotedLine {
                path: path.to_owned(),
                line: line.parse().ok()?,
                text: text.to_owned(),
            })
        });
        findings.collect()
    }

    /// `file:line`; the file is relative to the explored folder.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.path, self.line)
    }

    /// The place and the text of its line.
    pub(super) fn text(&self) -> String {
        format!("{}  {}", self.place(), self.text.trim())
    }

    /// Compares the quoted line with the file.
    pub(super) fn check(&self, folder: &Path) -> Result<(), String> {
        let bytes = fs::read(folder.join(&self.path));
        let bytes = bytes.map_err(|error| format!("{}: {error}", self.path))?;
        let text = String::from_utf8_lossy(&bytes);
        let there = text.lines().nth(self.line.saturating_sub(1));
        // A long line is quoted up to an ellipsis.
        let start = clean(self.text.trim_end().trim_end_matches('…'));
        match clean(there.unwrap_or_default()).starts_with(start.trim_end()) {
            true => Ok(()),
            false => Err(format!("{} is not {:?}", self.place(), self.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KILL: Timestamp = Timestamp(10_000);

    fn step(seq: u32, started: i64, ended: Option<i64>, attempts: u32) -> Step {
        serde_json::from_value(json!({
            "stepId": format!("01936f0e-0000-7000-8000-{seq:012}"), "seq": seq, "kind": "tool",
            "tool": "grep", "state": "done", "attempts": attempts,
            "startedAt": Timestamp(started), "endedAt": ended.map(Timestamp),
        }))
        .unwrap()
    }

    #[test]
    fn an_open_step_is_where_it_goes_on() {
        let now = [
            step(1, 1_000, Some(2_000), 1),
            step(2, 2_000, Some(3_000), 1),
            step(3, 9_000, Some(12_000), 2),
            step(4, 9_000, Some(9_500), 1),
            step(5, 12_000, None, 1),
        ];
        let resumed = Resumed::judge(&now, KILL).unwrap();
        assert_eq!(
            resumed,
            Resumed {
                at: 3,
                kept: vec![1, 2, 4]
            }
        );
        assert_eq!(resumed.text(), "resumed at step 3; 1–2, 4 not repeated");
    }

    #[test]
    fn between_two_steps_the_next_one_is() {
        let now = [step(1, 1_000, Some(2_000), 1), step(2, 11_000, None, 1)];
        assert_eq!(
            Resumed::judge(&now, KILL),
            Some(Resumed {
                at: 2,
                kept: vec![1]
            })
        );
    }

    #[test]
    fn a_run_that_has_not_moved_yet_has_no_verdict() {
        let now = [step(1, 1_000, Some(2_000), 1), step(2, 9_000, None, 1)];
        assert_eq!(Resumed::judge(&now, KILL), None);
    }

    #[test]
    fn a_repeated_step_is_found() {
        let before = [step(1, 1_000, Some(2_000), 1), step(2, 9_000, None, 1)];
        let same = [
            step(1, 1_000, Some(2_000), 1),
            step(2, 9_000, Some(12_000), 2),
        ];
        assert_eq!(check_kept(&before, &same), Ok(1));
        let again = [step(1, 1_000, Some(2_000), 2)];
        assert!(check_kept(&before, &again).is_err());
        let later = [step(1, 1_000, Some(2_500), 1)];
        assert!(check_kept(&before, &later).is_err());
        assert!(check_kept(&before, &[]).is_err());
    }

    const ANSWER: &str = "\
This is a search.
Searched 3 text files for main. The best matches, the best first:

1. src/main.rs:2 (has main; a definition)
       2 | fn main() {

2. a b.txt:1 (has main)
       1 | main 1 | thi…
";

    #[test]
    fn an_answer_is_read_back() {
        let found = QuotedLine::read(ANSWER);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].place(), "src/main.rs:2");
        assert_eq!(found[0].text, "fn main() {");
        assert_eq!(found[1].path, "a b.txt");
        assert_eq!(found[1].text, "main 1 | thi…");
    }

    #[test]
    fn a_quote_that_does_not_stand_there_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("src")).unwrap();
        fs::write(folder.path().join("a b.txt"), "main 1 | thing\n").unwrap();
        let file = folder.path().join("src/main.rs");
        let found = QuotedLine::read(ANSWER);
        assert!(found[0].check(folder.path()).is_err(), "no such file");
        fs::write(&file, "//\nfn main() {\n    run(1 | 2)\n}\n").unwrap();
        for finding in &found {
            assert_eq!(finding.check(folder.path()), Ok(()));
        }
        fs::write(&file, "//\nfn other() {\n}\n").unwrap();
        assert!(found[0].check(folder.path()).is_err(), "another line");
        fs::write(&file, "//\n").unwrap();
        assert!(found[0].check(folder.path()).is_err(), "too short");
    }
}
