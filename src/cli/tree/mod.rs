//! How runs are told of: the words for how one stands, used by every list, and the picture of
//! runs that go on. Here is what the picture knows; `hear.rs` takes events in, `draw.rs` gives
//! lines out, and `view.rs` reads rows for it and shows it. Nothing here reads or prints.

mod draw;
mod hear;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};

use anstyle::Style;

pub(crate) use draw::Look;

use super::asked::Asked;
use super::print::{BAD, BUSY, GOOD, styled};
use super::text::{line, short, span};
use crate::clock::Clock;
use crate::kernel::ids::{MessageId, RunId, StepId};
use crate::kernel::time::Timestamp;
use crate::wire::shapes::{Run, Step};

/// Runs that go on, each with what it has done so far.
#[derive(Default)]
pub(crate) struct Tree {
    runs: Vec<Followed>,
    /// The run that all of it is about, if it is about one.
    about: Option<RunId>,
    /// What people are asked by these runs and those below them.
    asked: Vec<Asked>,
    /// Runs of which the rows say more than the events have said.
    unread: BTreeSet<RunId>,
    /// The text of this run stands above the picture, and so do these calls.
    told: Option<(RunId, HashSet<StepId>)>,
}

/// A run that is followed: its row, its journal, and what events have said of both since.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// The run.
    pub(crate) run: Run,
    /// Its steps, oldest first.
    pub(crate) steps: Vec<Step>,
    /// The message that is coming, as far as it has come.
    coming: Option<(MessageId, String)>,
    /// When text of it came last.
    heard_at: Option<Timestamp>,
}

impl Tree {
    /// The runs, each after the one that it came from.
    pub(crate) fn runs(&self) -> &[Followed] {
        &self.runs
    }

    /// What people are asked.
    pub(crate) fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// Takes over what people are asked now.
    pub(crate) fn asks(&mut self, asked: Vec<Asked>) {
        self.asked = asked;
    }

    /// All of it is about this run: what it has done stays, also beside what comes after it.
    pub(crate) fn is_about(&mut self, run: RunId) {
        self.about = Some(run);
    }

    /// The text of a run is shown above the picture, and so are its calls that have ended.
    pub(crate) fn is_told(&mut self, run: RunId, calls: &HashSet<StepId>) {
        self.told = Some((run, calls.clone()));
    }

    /// Does the text of this run stand above the picture?
    fn is_told_of(&self, run: RunId) -> bool {
        self.told.as_ref().is_some_and(|(told, _)| *told == run)
    }

    /// Does this call stand above the picture?
    fn has_told(&self, call: StepId) -> bool {
        let told = self.told.as_ref();
        told.is_some_and(|(_, calls)| calls.contains(&call))
    }

    /// Takes over a row; `steps` is the whole journal, where it was read.
    pub(crate) fn take(&mut self, run: Run, steps: Option<Vec<Step>>) {
        self.unread.remove(&run.run_id);
        match self.find(run.run_id) {
            Some(known) => {
                known.run = run;
                if let Some(steps) = steps {
                    known.steps = steps;
                }
            }
            None => self.runs.push(Followed {
                run,
                steps: steps.unwrap_or_default(),
                coming: None,
                heard_at: None,
            }),
        }
    }

    /// Forgets all runs but these and those below them.
    pub(crate) fn keep(&mut self, runs: &BTreeSet<RunId>) {
        let is_kept = |run: &Run| runs.contains(&run.run_id) || runs.contains(&run.root_run_id);
        self.runs.retain(|one| is_kept(&one.run));
    }

    /// Does a row say more of a run than is known, so that its journal must be read?
    pub(crate) fn is_behind(&self, run: &Run) -> bool {
        let known = self.runs.iter().find(|one| one.run.run_id == run.run_id);
        known.is_none_or(|known| {
            self.unread.contains(&run.run_id)
                || known.run.last_activity_at != run.last_activity_at
                || known.run.state != run.state
        })
    }

    /// The runs whose rows are to be read; they are not named twice.
    pub(crate) fn unread(&mut self) -> BTreeSet<RunId> {
        std::mem::take(&mut self.unread)
    }

    fn find(&mut self, id: RunId) -> Option<&mut Followed> {
        self.runs.iter_mut().find(|one| one.run.run_id == id)
    }

    fn has(&self, id: RunId) -> bool {
        self.runs.iter().any(|one| one.run.run_id == id)
    }

    /// The run that carries out this call of `caller`'s.
    fn child_of(&self, caller: &Run, call: &Step) -> Option<&Followed> {
        self.runs.iter().find(|one| {
            let carries = one.run.delegated.as_ref();
            one.run.parent_run_id == Some(caller.run_id)
                && (call.child_run_id == Some(one.run.run_id)
                    || carries.is_some_and(|carried| carried.step == call.seq))
        })
    }
}

/// The colour of a state in a list: what is as it should be has none.
pub(crate) fn colour(state: &str) -> Style {
    match state {
        "queued" | "ok" => Style::new(),
        state if is_ended(state) => BAD,
        _ => BUSY,
    }
}

/// Has a run in this state ended? A state that this program does not know goes on.
pub(crate) fn is_ended(state: &str) -> bool {
    matches!(
        state,
        "ok" | "error" | "timeout" | "cancelled" | "interrupted"
    )
}

/// The name under which people know a run.
pub(crate) fn name(run: &Run) -> &str {
    run.label.as_deref().unwrap_or(run.agent.as_str())
}

/// So many tool calls, in words.
pub(crate) fn calls(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 tool call".to_owned(),
        count => format!("{count} tool calls"),
    }
}

/// Why a run holds still, and what to do where a person can do something.
pub(crate) fn pause(run: &Run) -> String {
    match run.pause_reason.as_deref() {
        Some("child") => "waits for a run that it asked for".to_owned(),
        Some("provider") => provider_wait(run),
        Some("reply") => "waits for a reply".to_owned(),
        Some("approval") => "waits for approval".to_owned(),
        Some("review") => format!("needs a review: abide review {}", short(run.run_id)),
        Some("input") if run.env.iter().any(|one| one.missing.is_some()) => {
            format!("lacks a value; give it: abide env {}", short(run.run_id))
        }
        Some("input") => "asks something; answer it: abide answer".to_owned(),
        Some(other) => format!("holds still: {other}"),
        None => "holds still".to_owned(),
    }
}

/// What a run waits for whose provider takes no requests.
fn provider_wait(run: &Run) -> String {
    let now = Clock::system().now();
    match &run.provider_wait {
        Some(wait) => format!(
            "paused: provider, asked again in {} ({})",
            span(wait.until.since(now)),
            line(&wait.reason, 160)
        ),
        None => "paused: provider".to_owned(),
    }
}

/// A step on one line: what was asked and what came out.
pub(crate) fn describe(step: &Step) -> String {
    let what = step.tool.as_deref().unwrap_or(&step.kind);
    let mut text = what.to_owned();
    if let Some(params) = &step.params_summary {
        text.push(' ');
        text.push_str(params);
    }
    if let Some(out) = outcome(step) {
        text.push_str(" → ");
        text.push_str(out);
    }
    text
}

/// What came out of a step, if that says anything: a model that calls tools has often nothing
/// to say besides.
fn outcome(step: &Step) -> Option<&str> {
    let out = step.error.as_ref().or(step.result_summary.as_ref());
    out.map(String::as_str).filter(|out| !out.trim().is_empty())
}

/// How a step stands, as a mark that does not move.
pub(crate) fn mark(step: &Step) -> String {
    match &*step.state {
        "done" => styled(GOOD, "✓"),
        "failed" => styled(BAD, "✗"),
        "uncertain" => styled(BAD, "?"),
        _ => styled(BUSY, "…"),
    }
}
