//! Result of the demo, printed at its end.

use serde_json::{Value, json};

use super::findings::Finding;
use crate::cli::common::failure::Failure;
use crate::cli::output::print;
use crate::cli::output::text::{COLUMNS, clean, line, span};

/// Findings of one run.
pub(super) struct Answer {
    /// Label of the run.
    pub(super) label: &'static str,
    /// Its task text.
    pub(super) task: &'static str,
    /// The places that it named, all verified.
    pub(super) found: Vec<Finding>,
}

/// Result of the demo.
pub(super) struct Summary {
    /// Time from the first start to the last stop, in milliseconds.
    pub(super) took_ms: u64,
    /// Process ids of the killed daemon and of its successor.
    pub(super) pids: (u32, u32),
    /// Number of steps that had ended before the kill and were not repeated.
    pub(super) kept_steps: usize,
    /// Findings of each run.
    pub(super) answers: Vec<Answer>,
}

impl Answer {
    fn json(&self) -> Value {
        let place = |one: &Finding| format!("{}:{}", one.path, one.line);
        let places: Vec<String> = self.found.iter().map(place).collect();
        json!({ "label": self.label, "task": self.task, "places": places })
    }
}

impl Summary {
    /// Prints the findings as the answer and the verdict as a note; with `json`, one object.
    pub(super) fn print(&self, json: bool) -> Result<(), Failure> {
        let quotes: usize = self.answers.iter().map(|answer| answer.found.len()).sum();
        if json {
            let findings: Vec<Value> = self.answers.iter().map(Answer::json).collect();
            return print::object(&json!({
                "event": "summary",
                "ok": true,
                "pids": [self.pids.0, self.pids.1],
                "finishedStepsKept": self.kept_steps,
                "quotesChecked": quotes,
                "findings": findings,
                "tookMs": self.took_ms,
            }));
        }
        for Answer { task, found, .. } in &self.answers {
            print::answer(&format!("\n{}", print::styled(print::HEAD, task)))?;
            for finding in found {
                print::answer(&format!("  {}", line(&finding.text(), COLUMNS - 2)))?;
            }
            if found.is_empty() {
                print::answer("  (nothing in this folder)")?;
            }
        }
        print::note(&clean(&format!(
            "\n✓ {} runs survived kill -9 of daemon {} and resumed in daemon {}:\n  \
             {} finished steps kept and none repeated, each end announced once,\n  \
             {quotes} quotes checked against the files, {} in all",
            self.answers.len(),
            self.pids.0,
            self.pids.1,
            self.kept_steps,
            span(self.took_ms),
        )));
        Ok(())
    }
}
