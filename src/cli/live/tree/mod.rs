//! Wording for the state of runs, used by every list, and the live tree of runs. This file has the
//! tree's state; `hear.rs` applies events, `draw.rs` draws lines, and `view.rs` reads rows for it
//! and shows it. Nothing here reads or prints.

mod apply;
mod draw;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};

use anstyle::Style;
use uuid::Uuid;

pub(crate) use draw::DrawOptions;

use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::output::print::{BAD, BUSY, GOOD, styled};
use crate::cli::output::text::{line, short, span};
use crate::clock::Clock;
use crate::kernel::ids::{MessageId, RunId, StepId};
use crate::kernel::time::Timestamp;
use crate::wire::shapes::{Run, Step};

/// Followed runs, each with its work so far.
#[derive(Default)]
pub(crate) struct RunTree {
    runs: Vec<Followed>,
    /// The run that the view is about, if it is about a single one.
    about: Option<RunId>,
    /// Open requests of these runs and their descendants.
    asked: Vec<OpenRequest>,
    /// The request that the user is answering; it is shown above the tree.
    prompted: Option<Uuid>,
    /// Runs whose rows must be read, because events did not carry everything.
    unread: BTreeSet<RunId>,
    /// The run whose text is printed above the tree, and its calls that are printed there.
    printed: Option<(RunId, HashSet<StepId>)>,
}

/// A followed run: its row and its journal, updated by later events.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// The row of the run.
    pub(crate) run: Run,
    /// Its steps, oldest first.
    pub(crate) steps: Vec<Step>,
    /// The message that is being written, with its text so far.
    partial_message: Option<(MessageId, String)>,
    /// Time of the last text.
    heard_at: Option<Timestamp>,
}

impl RunTree {
    /// The runs, each after its parent run.
    pub(crate) fn runs(&self) -> &[Followed] {
        &self.runs
    }

    /// The open requests.
    pub(crate) fn asked(&self) -> &[OpenRequest] {
        &self.asked
    }

    /// Replaces the open requests.
    pub(crate) fn asks(&mut self, asked: Vec<OpenRequest>) {
        self.asked = asked;
    }

    /// Sets the request that is shown above the tree and not listed in it.
    pub(crate) fn set_prompted(&mut self, request: Option<Uuid>) {
        self.prompted = request;
    }

    /// The open requests that are listed in the tree.
    fn listed(&self) -> impl Iterator<Item = &OpenRequest> {
        let is_listed = |one: &&OpenRequest| Some(one.id()) != self.prompted;
        self.asked.iter().filter(is_listed)
    }

    /// Sets the run that the view is about: its work stays visible, also beside later runs.
    pub(crate) fn set_focus(&mut self, run: RunId) {
        self.about = Some(run);
    }

    /// Records that the text of a run and these ended calls are printed above the tree.
    pub(crate) fn set_printed(&mut self, run: RunId, calls: &HashSet<StepId>) {
        self.printed = Some((run, calls.clone()));
    }

    /// True if the text of this run is printed above the tree.
    fn is_printed(&self, run: RunId) -> bool {
        self.printed.as_ref().is_some_and(|(told, _)| *told == run)
    }

    /// True if this call is printed above the tree.
    fn has_printed(&self, call: StepId) -> bool {
        let told = self.printed.as_ref();
        told.is_some_and(|(_, calls)| calls.contains(&call))
    }

    /// Takes over a row; `steps` is the complete journal, if it was read.
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
                partial_message: None,
                heard_at: None,
            }),
        }
    }

    /// Removes all runs but these and their descendants.
    pub(crate) fn keep(&mut self, runs: &BTreeSet<RunId>) {
        let is_kept = |run: &Run| runs.contains(&run.run_id) || runs.contains(&run.root_run_id);
        self.runs.retain(|one| is_kept(&one.run));
    }

    /// True if a row has more than is known of the run, so that its journal must be read.
    pub(crate) fn is_behind(&self, run: &Run) -> bool {
        let known = self.runs.iter().find(|one| one.run.run_id == run.run_id);
        known.is_none_or(|known| {
            self.unread.contains(&run.run_id)
                || known.run.last_activity_at != run.last_activity_at
                || known.run.state != run.state
        })
    }

    /// Takes the runs whose rows are to be read; each is returned only once.
    pub(crate) fn unread(&mut self) -> BTreeSet<RunId> {
        std::mem::take(&mut self.unread)
    }

    fn find(&mut self, id: RunId) -> Option<&mut Followed> {
        self.runs.iter_mut().find(|one| one.run.run_id == id)
    }

    fn has(&self, id: RunId) -> bool {
        self.runs.iter().any(|one| one.run.run_id == id)
    }

    /// The run that executes this call of `caller`.
    fn child_of(&self, caller: &Run, call: &Step) -> Option<&Followed> {
        self.runs.iter().find(|one| {
            let carries = one.run.delegated.as_ref();
            one.run.parent_run_id == Some(caller.run_id)
                && (call.child_run_id == Some(one.run.run_id)
                    || carries.is_some_and(|carried| carried.step == call.seq))
        })
    }
}

/// Colour of a state in a list; normal states have none.
pub(crate) fn colour(state: &str) -> Style {
    match state {
        "queued" | "ok" => Style::new(),
        state if is_ended(state) => BAD,
        _ => BUSY,
    }
}

/// True for a final state; an unknown state counts as open.
pub(crate) fn is_ended(state: &str) -> bool {
    matches!(
        state,
        "ok" | "error" | "timeout" | "cancelled" | "interrupted"
    )
}

/// Name of a run for display: its label, else its agent.
pub(crate) fn name(run: &Run) -> &str {
    run.label.as_deref().unwrap_or(run.agent.as_str())
}

/// A number of tool calls, in words.
pub(crate) fn calls(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 tool call".to_owned(),
        count => format!("{count} tool calls"),
    }
}

/// Why a run is paused, and what a user can do about it.
pub(crate) fn pause(run: &Run) -> String {
    match run.pause_reason.as_deref() {
        Some("child") => "waits for a child run".to_owned(),
        Some("provider") => provider_wait(run),
        Some("reply") => "waits for a reply".to_owned(),
        Some("approval") => "waits for approval".to_owned(),
        Some("review") => format!("needs a review: abide review {}", short(run.run_id)),
        Some("input") if run.env.iter().any(|one| one.missing.is_some()) => {
            format!("lacks a value; provide it: abide env {}", short(run.run_id))
        }
        Some("input") => "has a question; answer it: abide answer".to_owned(),
        Some(other) => format!("paused: {other}"),
        None => "paused".to_owned(),
    }
}

/// Text for a run whose provider takes no requests.
fn provider_wait(run: &Run) -> String {
    let now = Clock::system().now();
    match &run.provider_wait {
        Some(wait) => format!(
            "paused: provider, retried in {} ({})",
            span(wait.until.since(now)),
            line(&wait.reason, 160)
        ),
        None => "paused: provider".to_owned(),
    }
}

/// Formats a step on one line: its tool, arguments and outcome.
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

/// Outcome of a step, if it has any text: a model that calls tools often writes nothing else.
fn outcome(step: &Step) -> Option<&str> {
    let out = step.error.as_ref().or(step.result_summary.as_ref());
    out.map(String::as_str).filter(|out| !out.trim().is_empty())
}

/// Static mark of a step's state.
pub(crate) fn mark(step: &Step) -> String {
    match &*step.state {
        "done" => styled(GOOD, "✓"),
        "failed" => styled(BAD, "✗"),
        "uncertain" => styled(BAD, "?"),
        _ => styled(BUSY, "…"),
    }
}
