//! State of `abide top`: runs as trees, open requests, the daemon's status, and the selection.
//! Nothing here reads, requests or draws.

use std::collections::HashSet;

use uuid::Uuid;

use super::act::ActionOutcome;
use super::detail::RequestDetail;
use super::help::Help;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::live::tree;
use crate::kernel::ids::RunId;
use crate::wire::gateway::Status;
use crate::wire::shapes::Run;

/// Maximum number of ended runs that are shown beside the open ones.
pub(super) const ENDED: u32 = 20;

/// The state of the screen.
#[derive(Default)]
pub(super) struct TopModel {
    /// The daemon's status; `None` before it was read.
    pub(super) status: Option<Status>,
    /// The runs in the order of display, each with its level in the tree.
    pub(super) runs: Vec<(usize, Run)>,
    /// True if there are more open runs than are shown.
    pub(super) more: bool,
    /// Requests and reviews that wait for a user, oldest requests first.
    pub(super) waiting: Vec<Waits>,
    /// The selection.
    pub(super) at: At,
    /// The overlay over the lists.
    pub(super) over: TopOverlay,
    /// The last note for the user.
    pub(super) message: Option<String>,
    /// True while the daemon is unreachable, so that the picture may be outdated.
    pub(super) lost: bool,
}

/// Something that waits for a user.
pub(super) enum Waits {
    /// An approval, a question or a value, which can be answered here.
    For(Box<OpenRequest>),
    /// A run with calls whose outcome must be reviewed.
    Review(Box<Run>),
}

impl Waits {
    /// Id of the request, or of the run with the review.
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
    /// The first line, whatever it is.
    #[default]
    First,
    /// A request or review, by its id.
    Waiting(Uuid),
    /// A run.
    Run(RunId),
}

/// The overlay over the lists.
#[derive(Default)]
pub(super) enum TopOverlay {
    /// No overlay.
    #[default]
    Nothing,
    /// The help.
    Help(Help),
    /// The full view of a request.
    Detail(Box<RequestDetail>),
    /// The input of a message that steers this run.
    Steer(RunId, String),
    /// The confirmation for cancelling this run.
    Cancel(RunId),
}

impl TopModel {
    /// Takes over the current runs: trees with the newest first, each run below its parent.
    pub(super) fn take_runs(&mut self, mut runs: Vec<Run>, more: bool) {
        self.more = more;
        let known: HashSet<RunId> = runs.iter().map(|run| run.run_id).collect();
        runs.sort_by_key(|run| (run.created_at, run.run_id));
        let is_top = |run: &Run| {
            run.parent_run_id
                .is_none_or(|parent| !known.contains(&parent))
        };
        let (mut tops, below): (Vec<Run>, Vec<Run>) = runs.into_iter().partition(is_top);
        // Open trees come before ended ones.
        tops.sort_by_key(|run| std::cmp::Reverse((!tree::is_ended(&run.state), run.created_at)));
        self.runs.clear();
        // A loop instead of recursion: the depth of the trees is up to the daemon.
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

    /// Takes over the open approvals and questions; missing values and reviews are taken from the
    /// runs. A detail view whose request is no longer open is closed.
    pub(super) fn take_asked(&mut self, asked: Vec<OpenRequest>) {
        let reviews = self.runs.iter().filter(|(_, run)| run.needs_review);
        let reviews: Vec<Waits> = reviews
            .map(|(_, run)| Waits::Review(Box::new(run.clone())))
            .collect();
        let values: Vec<Waits> = self
            .runs
            .iter()
            .filter_map(|(_, run)| OpenRequest::value_of(run))
            .map(|value| Waits::For(Box::new(value)))
            .collect();
        self.waiting = asked
            .into_iter()
            .map(|one| Waits::For(Box::new(one)))
            .collect();
        self.waiting.extend(values);
        self.waiting.extend(reviews);
        let TopOverlay::Detail(detail) = &mut self.over else {
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
                self.over = TopOverlay::Nothing;
                self.message = Some("it was decided elsewhere, or it expired".to_owned());
            }
        }
    }

    /// Takes over the result of an action.
    pub(super) fn acted(&mut self, outcome: ActionOutcome) {
        self.message = Some(outcome.message);
        // A refused approval is shown again, unless the user already looks at something else.
        if let (Some(asked), TopOverlay::Nothing) = (outcome.again, &self.over) {
            self.over = TopOverlay::Detail(Box::new(RequestDetail::of(asked)));
        }
    }

    /// Everything that can be selected, in order.
    fn places(&self) -> Vec<At> {
        let waiting = self.waiting.iter().map(|one| At::Waiting(one.id()));
        let runs = self.runs.iter().map(|(_, run)| At::Run(run.run_id));
        waiting.chain(runs).collect()
    }

    /// The current selection; `None` if nothing can be selected.
    pub(super) fn selected(&self) -> Option<At> {
        let places = self.places();
        match places.contains(&self.at) {
            true => Some(self.at),
            false => places.first().copied(),
        }
    }

    /// Moves the selection by this number of lines, at most to the first or the last.
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

    /// Moves the selection from the requests to the runs, or back.
    pub(super) fn go_over(&mut self) {
        let first_run = self.runs.first().map(|(_, run)| At::Run(run.run_id));
        let first_waiting = self.waiting.first().map(|one| At::Waiting(one.id()));
        let next = match self.selected() {
            Some(At::Waiting(_)) => first_run,
            _ => first_waiting,
        };
        self.at = next.unwrap_or(self.at);
    }

    /// The selected request or review.
    pub(super) fn selected_waiting(&self) -> Option<&Waits> {
        let Some(At::Waiting(id)) = self.selected() else {
            return None;
        };
        self.waiting.iter().find(|one| one.id() == id)
    }

    /// The selected run, or the run of the selected request.
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
