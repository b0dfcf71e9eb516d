//! What `abide top` knows: runs as trees, what waits for a person, how the daemon is, and where the
//! person is in all of it. Nothing here reads, asks or draws.

use std::collections::HashSet;

use uuid::Uuid;

use super::act::Outcome;
use super::detail::Detail;
use crate::cli::asked::Asked;
use crate::cli::tree;
use crate::kernel::ids::RunId;
use crate::wire::gateway::Status;
use crate::wire::shapes::Run;

/// The most ended runs that are shown beside those that are open.
pub(super) const ENDED: u32 = 20;

/// All of it.
#[derive(Default)]
pub(super) struct Model {
    /// How the daemon is; `None` before it was asked.
    pub(super) status: Option<Status>,
    /// The runs in the order in which they are shown, each with its level in the tree.
    pub(super) runs: Vec<(usize, Run)>,
    /// There are more open runs than are shown.
    pub(super) more: bool,
    /// What waits for a person, oldest first.
    pub(super) waiting: Vec<Waits>,
    /// Where the person is.
    pub(super) at: At,
    /// What lies over the lists.
    pub(super) over: Over,
    /// What was said last to the person.
    pub(super) message: Option<String>,
    /// Why the picture may be old: the daemon is looked for.
    pub(super) lost: bool,
}

/// Something that waits for a person.
pub(super) enum Waits {
    /// An approval, a question or a value, which can be answered here.
    For(Box<Asked>),
    /// A run with calls that may have happened.
    Review(Box<Run>),
}

impl Waits {
    /// Which one.
    pub(super) fn id(&self) -> Uuid {
        match self {
            Waits::For(asked) => asked.id(),
            Waits::Review(run) => run.run_id.0,
        }
    }

    /// The run that waits.
    pub(super) fn run(&self) -> RunId {
        match self {
            Waits::For(asked) => asked.run(),
            Waits::Review(run) => run.run_id,
        }
    }
}

/// What is selected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    /// The first thing that there is.
    #[default]
    First,
    /// Something that waits.
    Waiting(Uuid),
    /// A run.
    Run(RunId),
}

/// What lies over the lists.
#[derive(Default)]
pub(super) enum Over {
    /// Nothing.
    #[default]
    Nothing,
    /// The keys; scrolled by so many lines.
    Help(usize),
    /// Something that waits, whole.
    Detail(Box<Detail>),
    /// A line for this run is typed.
    Steer(RunId, String),
    /// Whether this run is to be cancelled.
    Cancel(RunId),
}

impl Model {
    /// Takes over the runs as they are now: trees with the newest first, each run below the one
    /// that has asked for it.
    pub(super) fn take_runs(&mut self, mut runs: Vec<Run>, more: bool) {
        self.more = more;
        let known: HashSet<RunId> = runs.iter().map(|run| run.run_id).collect();
        runs.sort_by_key(|run| (run.created_at, run.run_id));
        let is_top = |run: &Run| {
            run.parent_run_id
                .is_none_or(|parent| !known.contains(&parent))
        };
        let (mut tops, below): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(is_top);
        // What goes on comes before what has ended.
        tops.sort_by_key(|run| std::cmp::Reverse((!tree::is_ended(&run.state), run.created_at)));
        self.runs.clear();
        // By the loop and not by recursion: how deep trees are is the daemon's to say.
        let mut open: Vec<(usize, Run)> = tops.into_iter().rev().map(|run| (0, run)).collect();
        let mut below: Vec<Option<Run>> = below.into_iter().map(Some).collect();
        while let Some((level, run)) = open.pop() {
            let id = run.run_id;
            let children = below
                .iter_mut()
                .rev()
                .filter_map(|one| one.take_if(|one| one.parent_run_id == Some(id)))
                .map(|child| (level + 1, child));
            open.extend(children);
            self.runs.push((level, run));
        }
    }

    /// Takes over what approvals and questions wait; what runs lack is known from them. Says which
    /// detail had to be closed.
    pub(super) fn take_asked(&mut self, asked: Vec<Asked>) {
        let reviews = self.runs.iter().filter(|(_, run)| run.needs_review);
        let reviews: Vec<Waits> = reviews
            .map(|(_, run)| Waits::Review(Box::new(run.clone())))
            .collect();
        let values: Vec<Waits> = self
            .runs
            .iter()
            .filter_map(|(_, run)| Asked::value_of(run))
            .map(|value| Waits::For(Box::new(value)))
            .collect();
        self.waiting = asked
            .into_iter()
            .map(|one| Waits::For(Box::new(one)))
            .collect();
        self.waiting.extend(values);
        self.waiting.extend(reviews);
        let Over::Detail(detail) = &mut self.over else {
            return;
        };
        match self.waiting.iter().find(|one| one.id() == detail.id()) {
            Some(Waits::For(now)) => {
                if detail.refresh(now) {
                    self.message =
                        Some("the file has changed; this is what the call would do now".to_owned());
                }
            }
            Some(Waits::Review(_)) => {}
            None => {
                self.over = Over::Nothing;
                self.message = Some("it was decided elsewhere, or its time ran out".to_owned());
            }
        }
    }

    /// Takes over what came of what the person has done.
    pub(super) fn acted(&mut self, outcome: Outcome) {
        self.message = Some(outcome.message);
        // It is read and decided again, unless the person looks at something else already.
        if let (Some(asked), Over::Nothing) = (outcome.again, &self.over) {
            self.over = Over::Detail(Box::new(Detail::of(asked)));
        }
    }

    /// Everything that can be selected, in order.
    fn places(&self) -> Vec<At> {
        let waiting = self.waiting.iter().map(|one| At::Waiting(one.id()));
        let runs = self.runs.iter().map(|(_, run)| At::Run(run.run_id));
        waiting.chain(runs).collect()
    }

    /// What is selected now; `None`: there is nothing.
    pub(super) fn selected(&self) -> Option<At> {
        let places = self.places();
        match places.contains(&self.at) {
            true => Some(self.at),
            false => places.first().copied(),
        }
    }

    /// Moves by so many places, and no further than to the first or last.
    pub(super) fn go(&mut self, by: isize) {
        let places = self.places();
        let Some(last) = places.len().checked_sub(1) else {
            return;
        };
        let now = self.selected();
        let now = places.iter().position(|place| Some(*place) == now);
        let next = now.unwrap_or(0).saturating_add_signed(by).min(last);
        self.at = places[next];
    }

    /// Moves from what waits to the runs, or back.
    pub(super) fn go_over(&mut self) {
        let first_run = self.runs.first().map(|(_, run)| At::Run(run.run_id));
        let first_waiting = self.waiting.first().map(|one| At::Waiting(one.id()));
        let next = match self.selected() {
            Some(At::Waiting(_)) => first_run,
            _ => first_waiting,
        };
        self.at = next.unwrap_or(self.at);
    }

    /// What waits that is selected.
    pub(super) fn selected_waiting(&self) -> Option<&Waits> {
        let Some(At::Waiting(id)) = self.selected() else {
            return None;
        };
        self.waiting.iter().find(|one| one.id() == id)
    }

    /// The run that is selected, or the one of what waits.
    pub(super) fn selected_run(&self) -> Option<RunId> {
        match self.selected()? {
            At::Run(run) => Some(run),
            At::Waiting(_) => self.selected_waiting().map(Waits::run),
            At::First => None,
        }
    }

    /// The row of a run, if it is shown.
    pub(super) fn run(&self, id: RunId) -> Option<&Run> {
        self.runs
            .iter()
            .map(|(_, run)| run)
            .find(|run| run.run_id == id)
    }
}
