//! Cancels a run, a session or a conversation with every open descendant, in one transaction; and holds
//! sessions: a cancel stays in force there until new work lifts it.

use std::collections::HashMap;

use super::context::Context;
use super::moves::{load, move_in_cascade};
use super::removal::tree_of;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::step::{EffectClass, Step, StepState};
use crate::kernel::run::stop::Initiator;
use crate::kernel::run::{AnnouncePolicy, CancelRequest, Outcome, Run, RunOrigin, RunState, stop};
use crate::kernel::session::Session;
use crate::store::tables::{messages, outbox, runs, sessions, steps, stops};
use crate::store::tx::{DbError, Tx};

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
            let session = named_session(context, &org, &key)?;
            cancel_open_runs(context, &session, &request)?
        }
        CancelTarget::Conversation(key) => {
            let session = named_session(context, &org, &key)?;
            cancel_all_work(context, &session, &request)?
        }
    };
    Ok(done)
}

fn named_session(context: &mut Context<'_>, org: &str, key: &SessionKey) -> Result<Session, Fault> {
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
        send_to_inbox(context, run.session, &mut scope.below)?;
    }
    Ok(done)
}

/// Once this returns, open runs of `session` and its descendants are marked to end or have ended.
pub fn cancel_open_runs(
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
fn cancel_all_work(
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
        let event = match has_program(context, &run)? {
            true => RunEvent::ProgramCancelRequested(request),
            false => RunEvent::CancelRequested(request),
        };
        let run = move_in_cascade(context, &run, event)?;
        let list: &mut Vec<RunId> = if run.state.is_terminal() {
            &mut done.cancelled
        } else {
            &mut done.stopping
        };
        list.push(run.id);
    }
    for session in scope.stops.clone() {
        if !hold_session(context, session, request.by_person)? {
            others.push(session);
        }
    }
    for session in others {
        send_to_inbox(context, session, &mut scope.below)?;
    }
    Ok(done)
}

/// True if a program of the queued run goes on, as after a restart, and no executor follows it.
fn has_program(context: &mut Context<'_>, run: &Run) -> Result<bool, Fault> {
    if run.state != RunState::Queued || run.steps == 0 {
        return Ok(false);
    }
    let open = steps::open(context.tx, run.id)?;
    let goes_on = |step: &Step| {
        step.effect == EffectClass::Kept && step.state == StepState::Started && step.waits.is_none()
    };
    Ok(open.iter().any(goes_on))
}

/// Once this returns `true`, the cancel is in force in the session: announces that no turn has
/// seen, and later ones, go to the inbox. `false` if other work is open there.
pub fn hold_session(
    context: &mut Context<'_>,
    session: SessionId,
    by_person: bool,
) -> Result<bool, Fault> {
    // No agent runs in a client's session, and the session may have been deleted with its runs.
    let answers = sessions::has_agent(context.tx, session)?;
    if !answers {
        return Ok(true);
    }
    if runs::has_uncancelled_in(context.tx, session)? {
        return Ok(false);
    }
    stops::insert(context.tx, session, by_person, context.now.wall)?;
    let seen = messages::seen_at_end(context.tx, session)?;
    outbox::set_unseen_inbox(context.tx, session, seen)?;
    Ok(true)
}

/// Once this returns, unseen announces of runs in `below` are `inbox` announces in this session,
/// regardless of other work there.
pub fn send_to_inbox(
    context: &mut Context<'_>,
    session: SessionId,
    below: &mut Subtree,
) -> Result<(), Fault> {
    let seen = messages::seen_at_end(context.tx, session)?;
    for (seq, ended) in outbox::unseen(context.tx, session, seen)? {
        if below.holds(context.tx, ended)? {
            outbox::set_inbox(context.tx, seq)?;
        }
    }
    Ok(())
}

/// Once this returns, no cancel is in force in the session and work may begin; refused if this
/// beginner may not lift it.
pub fn lift_hold(
    context: &mut Context<'_>,
    session: &Session,
    who: Initiator,
) -> Result<(), Fault> {
    let stop = stops::of(context.tx, session.id)?;
    stop::may_begin(stop, who, session.key.as_str())?;
    match stop {
        Some(_) => stops::remove(context.tx, session.id).map_err(Fault::from),
        None => Ok(()),
    }
}

/// True if a cancel is in force in the session.
pub fn is_held(context: &mut Context<'_>, session: SessionId) -> Result<bool, Fault> {
    let stop = stops::of(context.tx, session)?;
    Ok(stop.is_some())
}

/// The effective announce policy for this session.
pub fn announce_policy(
    context: &mut Context<'_>,
    session: SessionId,
    policy: AnnouncePolicy,
) -> Result<AnnouncePolicy, Fault> {
    let stop = stops::of(context.tx, session)?;
    Ok(stop::announced(stop, policy))
}

/// The open runs of `session` and its descendants, each after the run that requested it.
pub fn open_from_session(context: &mut Context<'_>, session: &Session) -> Result<Vec<Run>, Fault> {
    let mut below = Subtree::of_session(session);
    below.open(context.tx, session.root).map_err(Fault::from)
}

/// True if the session is `top` or one of its descendants.
pub fn is_within(tx: &mut dyn Tx, session: SessionId, top: SessionId) -> Result<bool, DbError> {
    let mut at = Some(session);
    while let Some(id) = at {
        if id == top {
            return Ok(true);
        }
        at = sessions::parent_of(tx, id)?;
    }
    Ok(false)
}

/// A subtree, with a cache of memberships. Every ancestor is older than its descendants, so each
/// look-up terminates.
#[derive(Default)]
pub struct Subtree {
    run: Option<RunId>,
    session: Option<SessionId>,
    runs: HashMap<RunId, bool>,
    sessions: HashMap<SessionId, bool>,
}

impl Subtree {
    /// The subtree of this run, including the run.
    pub fn of_run(run: &Run) -> Self {
        Subtree {
            run: Some(run.id),
            // Only a spawned run owns its session. The session of a turn, or of a called run,
            // continues without the run.
            session: (run.origin == RunOrigin::Spawn && !run.is_called()).then_some(run.session),
            ..Subtree::default()
        }
    }

    /// The runs of this session and its descendants.
    pub fn of_session(session: &Session) -> Self {
        Subtree {
            session: Some(session.id),
            ..Subtree::default()
        }
    }

    /// True if the run is in the subtree.
    pub fn holds(&mut self, tx: &mut dyn Tx, id: RunId) -> Result<bool, DbError> {
        if self.run == Some(id) {
            return Ok(true);
        }
        match runs::line(tx, id)? {
            Some(line) => self.holds_run(tx, id, line),
            None => Ok(false),
        }
    }

    /// The open runs of the subtree, each after the run that requested it. The cost depends on the
    /// open runs of one tree, not on its history.
    pub fn open(&mut self, tx: &mut dyn Tx, root: SessionId) -> Result<Vec<Run>, DbError> {
        let mut found = Vec::new();
        // Oldest first, because the requester of a run is older than the run.
        for run in runs::live_in_tree(tx, root)? {
            if self.holds_run(tx, run.id, runs::Links::of(&run))? {
                found.push(run);
            }
        }
        Ok(found)
    }

    fn holds_run(
        &mut self,
        tx: &mut dyn Tx,
        id: RunId,
        line: runs::Links,
    ) -> Result<bool, DbError> {
        if self.run == Some(id) {
            return Ok(true);
        }
        if let Some(known) = self.runs.get(&id) {
            return Ok(*known);
        }
        let mut holds = self.holds_session(tx, line.session)?;
        if let (false, Some(parent)) = (holds, line.parent_run) {
            holds = self.holds(tx, parent)?;
        }
        // The root of a wake run is older than it, like every other ancestor.
        if let (false, Some(root)) = (holds, line.woken_for.filter(|root| *root != id)) {
            holds = self.holds(tx, root)?;
        }
        if let (false, Some(requester)) = (holds, line.requester) {
            holds = self.holds_session(tx, requester)?;
        }
        self.runs.insert(id, holds);
        Ok(holds)
    }

    fn holds_session(&mut self, tx: &mut dyn Tx, id: SessionId) -> Result<bool, DbError> {
        if self.session == Some(id) {
            return Ok(true);
        }
        if let Some(known) = self.sessions.get(&id) {
            return Ok(*known);
        }
        let mut holds = false;
        if let Some(parent) = sessions::parent_of(tx, id)? {
            holds = self.holds_session(tx, parent)?;
            // It may have been created by an ended run, in a session that continues.
            if !holds && let Some(maker) = runs::requesting_run_of(tx, id)? {
                holds = self.holds(tx, maker)?;
            }
        }
        self.sessions.insert(id, holds);
        Ok(holds)
    }
}
