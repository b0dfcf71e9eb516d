//! Marks a run, a session or a whole conversation to end, with everything open below it, in one
//! transaction. From then on the kernel refuses new steps, slots and timers of these runs, also
//! after a restart, and until new work begins in their sessions no end wakes an agent there.

use super::Reply;
use super::context::Context;
use super::moves::{load, move_in_fall};
use super::remove::tree_of;
use super::stop;
use super::subtree::{Below, is_within};
use crate::kernel::event::RunEvent;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::run::{CancelRequest, Outcome, Run, RunState};
use crate::kernel::session::Session;
use crate::store::{db_fault, runs, sessions};

/// What is to be cancelled, and what below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// A run.
    Run(RunId),
    /// Every run of a session.
    Session(SessionKey),
    /// Everything of a session and of those below it: also what it has asked other sessions, and
    /// sessions in which nothing is open.
    Conversation(SessionKey),
}

/// A cancel.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The tenant.
    pub org: String,
    /// What is to end.
    pub target: CancelTarget,
    /// Who asks.
    pub by: String,
    /// It is a person, or a client that acts for one, and no agent.
    pub by_person: bool,
    /// Why, for people.
    pub reason: Option<String>,
}

/// What a cancel has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// These have ended by it.
    pub cancelled: Vec<RunId>,
    /// The run that was named had ended before.
    pub already_ended: Vec<RunId>,
    /// These end when their executors are gone.
    pub stopping: Vec<RunId>,
}

/// Every open run of the target and below it is marked. Those without an executor have ended;
/// the others end when theirs is gone. What no turn has seen of ends is in the inbox.
pub fn cancel(context: &mut Context<'_>, cancel: Cancel) -> Result<Reply, Fault> {
    let Cancel {
        org,
        target,
        by,
        by_person,
        reason,
    } = cancel;
    let request = CancelRequest {
        by,
        at: context.now.wall,
        reason,
        inherited: false,
        by_person,
    };
    let done = match target {
        CancelTarget::Run(id) => {
            let run = load(context, id)?;
            if run.org != org {
                return Err(Fault::not_found("run", id));
            }
            let mut done = fell(context, &run, &request)?;
            if run.state.is_terminal() {
                done.already_ended.push(id);
            }
            done
        }
        CancelTarget::Session(key) => {
            let session = named(context, &org, &key)?;
            clear(context, &session, &request)?
        }
        CancelTarget::Conversation(key) => {
            let session = named(context, &org, &key)?;
            clear_all(context, &session, &request)?
        }
    };
    Ok(Reply::Cancelled(done))
}

fn named(context: &mut Context<'_>, org: &str, key: &SessionKey) -> Result<Session, Fault> {
    sessions::by_key(context.tx, org, key)
        .map_err(db_fault)?
        .ok_or_else(|| Fault::not_found("session", key))
}

/// So many sessions of one conversation are looked at, at most.
const LARGEST_TREE: usize = 10_000;

/// What a cancel names when a parent's end took its children along.
const PARENT_ENDED: &str = "parent_ended";

/// The cancel of what falls with the end of the run that asked for it.
pub fn parent_ended(context: &Context<'_>) -> CancelRequest {
    CancelRequest {
        by: PARENT_ENDED.to_owned(),
        at: context.now.wall,
        reason: None,
        inherited: true,
        by_person: false,
    }
}

/// Ends what is open of `run` and below it.
pub fn fell(
    context: &mut Context<'_>,
    run: &Run,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let mut scope = Scope {
        below: Below::of_run(run),
        top: run.session,
        // A called run borrows a session that goes on without it.
        stops: (!run.is_called())
            .then_some(run.session)
            .into_iter()
            .collect(),
    };
    let open = scope.open(context, run.root_session)?;
    let done = mark(context, &mut scope, open, request, |one| one.id != run.id)?;
    if run.is_called() {
        stop::quiet(context, run.session, &mut scope.below)?;
    }
    Ok(done)
}

/// Ends what is open in `session` and below it.
pub fn clear(
    context: &mut Context<'_>,
    session: &Session,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let mut scope = Scope::of(session, vec![session.id]);
    let open = scope.open(context, session.root)?;
    let inherits = |one: &Run| one.session != session.id;
    mark(context, &mut scope, open, request, inherits)
}

/// Ends everything of `session` and of those below it.
fn clear_all(
    context: &mut Context<'_>,
    session: &Session,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let tree = tree_of(context, session, LARGEST_TREE)?;
    let mut scope = Scope::of(session, tree.iter().map(|one| one.id).collect());
    let mut open = scope.open(context, session.root)?;
    for one in &tree {
        // Asked by a client in the name of the session: no run of it leads there.
        for answer in runs::live_answers_to(context.tx, one.id).map_err(db_fault)? {
            if open.iter().all(|known| known.id != answer.id) {
                open.push(answer);
            }
        }
    }
    let inherits = |one: &Run| one.session != session.id;
    mark(context, &mut scope, open, request, inherits)
}

/// What a cancel reaches.
struct Scope {
    /// The runs.
    below: Below,
    /// The session that all of it lies in or below, but for answers to what it has asked others.
    top: SessionId,
    /// Sessions whose work is cancelled.
    stops: Vec<SessionId>,
}

impl Scope {
    fn of(session: &Session, stops: Vec<SessionId>) -> Self {
        Scope {
            below: Below::of_session(session),
            top: session.id,
            stops,
        }
    }

    fn open(&mut self, context: &mut Context<'_>, root: SessionId) -> Result<Vec<Run>, Fault> {
        self.below.open(context.tx, root).map_err(db_fault)
    }
}

/// Marks these runs, nearest first, so that no settling run in between takes the end of its
/// child for its own. Then the cancel is in force in the sessions that are within its scope and
/// have no other open work; elsewhere the ends of this scope are in the inbox.
fn mark(
    context: &mut Context<'_>,
    scope: &mut Scope,
    open: Vec<Run>,
    request: &CancelRequest,
    inherits: impl Fn(&Run) -> bool,
) -> Result<Cancelled, Fault> {
    let mut done = Cancelled::default();
    let mut others = Vec::new();
    for run in open {
        let request = CancelRequest {
            inherited: request.inherited || inherits(&run),
            ..request.clone()
        };
        // What ended before in this very command may have taken it along.
        let run = load(context, run.id)?;
        if !run.is_called() {
            let within = is_within(context.tx, run.session, scope.top).map_err(db_fault)?;
            let list = if within {
                &mut scope.stops
            } else {
                &mut others
            };
            if !list.contains(&run.session) {
                list.push(run.session);
            }
        }
        if let RunState::Ended(outcome) = run.state {
            if outcome == Outcome::Cancelled {
                done.cancelled.push(run.id);
            }
            continue;
        }
        let run = move_in_fall(context, &run, RunEvent::CancelRequested(request))?;
        let list: &mut Vec<RunId> = if run.state.is_terminal() {
            &mut done.cancelled
        } else {
            &mut done.stopping
        };
        list.push(run.id);
    }
    for session in scope.stops.clone() {
        if !stop::stop(context, session, request.by_person)? {
            others.push(session);
        }
    }
    for session in others {
        stop::quiet(context, session, &mut scope.below)?;
    }
    Ok(done)
}
