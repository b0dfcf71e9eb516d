//! Cancels a run, a session or a conversation with every open descendant, in one transaction. From
//! then on the kernel refuses new steps, slots and timers of these runs, also after a restart.
//! Until new work begins in their sessions, the end of a run wakes no agent there.

use super::context::Context;
use super::moves::{load, move_in_cascade};
use super::remove::tree_of;
use super::stop;
use super::subtree::{Subtree, is_within};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::{CancelRequest, Outcome, Run, RunState};
use crate::kernel::session::Session;
use crate::store::tables::{runs, sessions};

/// The target of a cancel; its descendants are cancelled with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelTarget {
    /// A run.
    Run(RunId),
    /// Every run of a session.
    Session(SessionKey),
    /// All work of a session and its descendants, including answers that it requested from other
    /// sessions, and including sessions without open runs.
    Conversation(SessionKey),
}

/// A cancel command.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The tenant.
    pub org: String,
    /// What to cancel.
    pub target: CancelTarget,
    /// The actor, recorded on the runs.
    pub by: String,
    /// True if a user, or a client acting for one, cancels; false if an agent does.
    pub by_person: bool,
    /// The reason, shown to users.
    pub reason: Option<String>,
}

/// The result of a cancel command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Runs that have ended through it.
    pub cancelled: Vec<RunId>,
    /// The named run, if it had ended before.
    pub already_ended: Vec<RunId>,
    /// Runs that end when their executors have stopped.
    pub stopping: Vec<RunId>,
}

/// Once this returns, every open run of the target and its descendants is marked. Those without an
/// executor have ended; the others end when theirs stops. Announces that no turn has seen have
/// become `inbox` announces.
pub fn cancel(context: &mut Context<'_>, cancel: Cancel) -> Result<Cancelled, Fault> {
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
            let mut done = cascade(context, &run, &request)?;
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
    Ok(done)
}

fn named(context: &mut Context<'_>, org: &str, key: &SessionKey) -> Result<Session, Fault> {
    sessions::by_key(context.tx, org, key)?.ok_or_else(|| Fault::not_found("session", key))
}

/// Maximum number of sessions that a cancel of a conversation covers.
const LARGEST_TREE: usize = 10_000;

/// The actor of a cancel that cascades from the end of the parent run.
const PARENT_ENDED: &str = "parent_ended";

/// The cancel request for descendants of a run that has ended.
pub fn parent_ended(context: &Context<'_>) -> CancelRequest {
    CancelRequest {
        by: PARENT_ENDED.to_owned(),
        at: context.now.wall,
        reason: None,
        inherited: true,
        by_person: false,
    }
}

/// Once this returns, `run` and its open descendants are marked to end or have ended.
pub fn cascade(
    context: &mut Context<'_>,
    run: &Run,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let mut scope = Scope {
        below: Subtree::of_run(run),
        top: run.session,
        // A called run works in its caller's session, which continues without it.
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

/// Once this returns, open runs of `session` and its descendants are marked to end or have ended.
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

/// Once this returns, all work of `session` and its descendant sessions is marked or ended.
fn clear_all(
    context: &mut Context<'_>,
    session: &Session,
    request: &CancelRequest,
) -> Result<Cancelled, Fault> {
    let tree = tree_of(context, session, LARGEST_TREE)?;
    let mut scope = Scope::of(session, tree.iter().map(|one| one.id).collect());
    let mut open = scope.open(context, session.root)?;
    for one in &tree {
        // A client requested it on behalf of the session, so no run of the session is its ancestor.
        for answer in runs::live_answers_to(context.tx, one.id)? {
            if open.iter().all(|known| known.id != answer.id) {
                open.push(answer);
            }
        }
    }
    let inherits = |one: &Run| one.session != session.id;
    mark(context, &mut scope, open, request, inherits)
}

/// The scope of a cancel.
struct Scope {
    /// The runs.
    below: Subtree,
    /// The topmost session; only answers that it requested from other sessions lie outside its
    /// tree.
    top: SessionId,
    /// Sessions in which the cancel comes into force.
    stops: Vec<SessionId>,
}

impl Scope {
    fn of(session: &Session, stops: Vec<SessionId>) -> Self {
        Scope {
            below: Subtree::of_session(session),
            top: session.id,
            stops,
        }
    }

    fn open(&mut self, context: &mut Context<'_>, root: SessionId) -> Result<Vec<Run>, Fault> {
        self.below.open(context.tx, root).map_err(Fault::from)
    }
}

/// Marks these runs, ancestors first, so that no settling run in between ends as if its child had
/// ended normally. The cancel then comes into force in the scope's sessions without other open work;
/// in all other sessions, announces of this scope become `inbox` announces.
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
        // An earlier step of this command may have ended it as a descendant.
        let run = load(context, run.id)?;
        if !run.is_called() {
            let within = is_within(context.tx, run.session, scope.top)?;
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
        let run = move_in_cascade(context, &run, RunEvent::CancelRequested(request))?;
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
