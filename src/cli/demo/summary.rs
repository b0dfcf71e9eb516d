//! What the demo has shown, at its end.

use serde_json::{Value, json};

use super::findings::Finding;
use crate::cli::failure::Failure;
use crate::cli::print;
use crate::cli::text::{COLUMNS, clean, line, span};

/// What one run found.
pub(super) struct Answer {
    /// The run's name.
    pub(super) label: &'static str,
    /// What it was asked.
    pub(super) task: &'static str,
    /// The places it named, all checked.
    pub(super) found: Vec<Finding>,
}

/// What the demo has shown.
pub(super) struct Summary {
    /// From the first start to the last stop, milliseconds.
    pub(super) took_ms: u64,
    /// The daemon that was killed, and the one after it.
    pub(super) pids: (u32, u32),
    /// Steps that were finished before the kill and were not done again.
    pub(super) kept_steps: usize,
    /// What the runs found.
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
    /// The findings as the answer, the verdict as a note; all as one object for programs.
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
            "\n✓ {} runs survived kill -9 of daemon {} and went on in daemon {}:\n  \
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
