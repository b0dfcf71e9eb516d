//! Spawns: limits, child session, first message and queued run in one command.

use super::context::Context;
use super::delegation::PendingCall;
use super::new_run::{accept, new_run, refuse_taken_id, repeated};
use super::waiting::acting;
use super::{Accepted, NewRun, StepRef, cancel, delegation, run_end, session};
use crate::contract::allow::check_allowed;
use crate::kernel::delegation::{DelegationMode, Stream};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AgentId, MessageId, SessionId, SessionKey};
use crate::kernel::run::limits::{SpawnCounts, check_depth, check_spawn};
use crate::kernel::run::step::Step;
use crate::kernel::run::stop::{Initiator, may_call_again};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::run::{AnnouncePolicy, Requester, Run, RunOrigin, Usage};
use crate::kernel::session::message::NewMessage;
use crate::kernel::session::{Cleanup, Fork, Owner, Session, SessionMode};
use crate::store::tables::{bundles, messages, outbox, runs, sessions};

/// A spawned run with a session of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Spawn {
    /// The tenant.
    pub org: String,
    /// The run.
    pub run: NewRun,
    /// Id of the child session.
    pub session: SessionId,
    /// Id of the first message.
    pub message: MessageId,
    /// The task, as the first message.
    pub task: String,
    /// The session that requests the run and gets its announce.
    pub parent: Option<SessionKey>,
    /// How the end is announced; if unset, by the kind of the requester's owner.
    pub announce: Option<AnnouncePolicy>,
    /// Working folder of its tools; the parent session's if unset.
    pub cwd: Option<String>,
    /// The run that spawns it, if it is not a client; its session is then the parent.
    pub by: Option<SpawnedBy>,
    /// The requested thinking level, kept for later turns of its session.
    pub thinking: Option<Thinking>,
    /// How long its session accepts messages.
    pub mode: SessionMode,
    /// Whether its session is kept or deleted after the announce.
    pub cleanup: Cleanup,
    /// How its transcript begins.
    pub begins: Begins,
    /// Permission bundle of its runs as JSON; the parent session's if unset.
    pub bundle: Option<String>,
}

/// How the transcript of a spawned session begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begins {
    /// With the task alone.
    #[default]
    Isolated,
    /// With the parent's transcript as it is now.
    Fork,
    /// With the same part of the transcript as an earlier fork.
    At(Fork),
}

/// The run that spawns another one.
#[derive(Clone, Debug, PartialEq)]
pub struct SpawnedBy {
    /// The step of the spawn.
    pub step: StepRef,
    /// The agents that its agent may spawn.
    pub allowed: Vec<AgentId>,
    /// The depth limit of its agent; `None` for the general limit.
    pub max_depth: Option<u32>,
    /// Set if the step waits for the result of the spawned run.
    pub awaits: Option<Awaits>,
}

/// How a step waits for the result of the run that it spawns.
#[derive(Clone, Debug, PartialEq)]
pub struct Awaits {
    /// The delegation mode.
    pub mode: DelegationMode,
    /// How a called run's text is streamed to the caller; `None` if it is not called.
    pub stream: Option<Stream>,
    /// The child session to continue, instead of a new one.
    pub goes_on: Option<SessionKey>,
}

/// Who requests a spawn.
struct Requested {
    /// The run and step that spawn; `None` for a client.
    caller: Option<(Run, Step)>,
    /// How that step waits for the result, if it does.
    awaits: Option<Awaits>,
    /// The session that requests the run; `None`: the new session is a root session.
    parent: Option<Session>,
    /// Levels below a root session. A called run is one level deeper than the session that it
    /// works in.
    depth: u32,
    /// Display name of the agent.
    agent_name: String,
}

impl Requested {
    fn of(context: &mut Context<'_>, spawn: &mut Spawn) -> Result<Requested, Fault> {
        let caller = match &spawn.by {
            Some(by) => Some(acting(context, by.step)?),
            None => None,
        };
        let own = caller.as_ref().map(|(run, _)| &run.session_key);
        let parent = match spawn.parent.as_ref().or(own) {
            None => None,
            Some(key) => Some(
                sessions::by_key(context.tx, &spawn.org, key)?.ok_or_else(|| {
                    Fault::not_found("session", key).hint(
                        "the parent session must exist first; create one with sessions.create",
                    )
                })?,
            ),
        };
        let above = caller.as_ref().map(|(run, _)| run.depth);
        let above = above.or(parent.as_ref().map(|parent| parent.depth));
        Ok(Requested {
            depth: above.map_or(0, |above| above + 1),
            awaits: spawn.by.as_mut().and_then(|by| by.awaits.take()),
            agent_name: spawn.run.agent.name().to_owned(),
            caller,
            parent,
        })
    }

    fn caller(&self) -> Option<&Run> {
        self.caller.as_ref().map(|(run, _)| run)
    }

    /// The call that the run carries out, if a step waits for its result.
    fn call(&self) -> Option<PendingCall<'_>> {
        let (caller, step) = self.caller.as_ref()?;
        Some(PendingCall {
            caller,
            step,
            awaits: self.awaits.as_ref()?,
            agent_name: &self.agent_name,
        })
    }
}

/// Once this returns, the child session, its first message and the queued run are stored.
pub fn spawn(context: &mut Context<'_>, mut spawn: Spawn) -> Result<Accepted, Fault> {
    // A known key is answered before any limit is checked.
    if let Some(accepted) = repeated(context, spawn.run.key.as_ref())? {
        return Ok(accepted);
    }
    refuse_taken_id(context, spawn.run.id)?;
    let requested = Requested::of(context, &mut spawn)?;
    let mut warnings = check_limits(context, &spawn, &requested)?;
    may_begin(context, &spawn, &requested)?;
    let (announce, warning) = match &requested.awaits {
        // The step gets the result in the transaction of the run's end.
        Some(_) => (AnnouncePolicy::None, None),
        None => announce_policy(&spawn, requested.parent.as_ref())?,
    };
    warnings.extend(warning);
    if let (Some(call), Some(parent)) = (requested.call(), &requested.parent)
        && call.awaits.mode == DelegationMode::Called
    {
        return delegation::spawn_called(context, spawn, call, parent);
    }

    let (session, is_new) = take_session(context, &mut spawn, &requested)?;
    let mut row = new_run(context, &spawn.org, spawn.run, &session, RunOrigin::Spawn);
    row.run.announce = announce;
    row.run.requester = requested.parent.as_ref().map(|parent| Requester {
        session: parent.id,
        key: parent.key.clone(),
        generation: parent.generation,
    });
    row.run.warnings.extend(warnings);
    if let Some(caller) = requested.caller() {
        set_parent(&mut row.run, caller);
    }
    if let Some(call) = requested.call() {
        delegation::bind_run(context, &mut row.run, call);
    }
    let mut task = NewMessage::user(spawn.message, &spawn.task);
    task.run = Some(row.run.id);
    let run = row.run.id;
    let accepted = accept(context, row, None, is_new)?;
    if let Some(caller) = requested.caller() {
        let mode = requested.awaits.as_ref().map(|awaits| awaits.mode);
        delegation::log_begun(context, caller, (run, &accepted.agent), mode, &spawn.task);
    }
    append_task(context, &session, is_new, task)?;
    if let Some(call) = requested.call() {
        if call.awaits.mode == DelegationMode::Planned {
            delegation::show_planned(context, call, run, &accepted.agent);
        }
        delegation::wait_for_child(context, call, run)?;
    }
    Ok(accepted)
}

/// Refuses a spawn over a limit of its parent session; returns warnings about limits that are near.
fn check_limits(
    context: &mut Context<'_>,
    spawn: &Spawn,
    requested: &Requested,
) -> Result<Vec<String>, Fault> {
    let Some(parent) = &requested.parent else {
        return Ok(Vec::new());
    };
    session::refuse_while_clearing(context, parent.id)?;
    let mut limits = context.settings.limits;
    if let (Some(by), Some(caller)) = (&spawn.by, requested.caller()) {
        limits.max_depth = by.max_depth.unwrap_or(limits.max_depth);
        check_depth(&limits, requested.depth)?;
        check_allowed(&caller.agent, &spawn.run.agent.id, &by.allowed)?;
    }
    let tx = &mut *context.tx;
    let total = match requested.caller() {
        Some(caller) => Some(runs::count_descendants(tx, caller.root_run)?),
        None => None,
    };
    let children = runs::count_live_children(tx, parent.id)?;
    // A client acknowledges its inbox; an agent sees pending announces in its next turn.
    let backlog = match parent.owner {
        Owner::Client => outbox::count_unacked(tx, parent.id),
        Owner::Agent => outbox::count_pending_for(tx, parent.id),
    }?;
    let capped = |count| u32::try_from(count).unwrap_or(u32::MAX);
    let counts = SpawnCounts {
        depth: requested.depth,
        children: capped(children),
        total: total.map(capped),
        backlog: capped(backlog),
        client_owned: parent.owner == Owner::Client,
    };
    Ok(Vec::from_iter(check_spawn(&limits, &counts)?))
}

/// Refuses a spawn whose agent keeps failing, whose caller has no budget left, or whose work was
/// cancelled; a client's request lifts a cancel that is in force in its parent session.
fn may_begin(context: &mut Context<'_>, spawn: &Spawn, requested: &Requested) -> Result<(), Fault> {
    let mode = requested.awaits.as_ref().map(|awaits| awaits.mode);
    if mode.is_some() {
        run_end::refuse_failing_agent(context, &spawn.org, &spawn.run.agent)?;
    }
    if let Some(caller) = requested.caller()
        && let Some(used_up) = runs::used_up(context.tx, caller)?
    {
        return Err(used_up.refuses());
    }
    match (requested.caller(), &requested.parent, mode) {
        // These modes name no session, so a cancel applies to calls of the agent.
        (
            Some(caller),
            _,
            Some(DelegationMode::Called | DelegationMode::Sealed | DelegationMode::Planned),
        ) => {
            let agent = &spawn.run.agent.id;
            let was_cancelled = runs::was_call_cancelled(context.tx, caller.id, agent)?;
            may_call_again(was_cancelled, agent.as_str())
        }
        // A client's request starts work whose end the parent session must see.
        (None, Some(parent), _) => cancel::lift_hold(context, parent, Initiator::Person),
        _ => Ok(()),
    }
}

/// The session of the run, with the permission bundle of its runs, and whether it is a new one.
fn take_session(
    context: &mut Context<'_>,
    spawn: &mut Spawn,
    requested: &Requested,
) -> Result<(Session, bool), Fault> {
    let parent = requested.parent.as_ref();
    let goes_on = requested.awaits.as_ref();
    let goes_on = goes_on.and_then(|awaits| awaits.goes_on.as_ref());
    let (session, is_new) = match goes_on.zip(parent) {
        Some((key, parent)) => {
            let session = delegation::continued_session(context, key, parent, spawn)?;
            (session, false)
        }
        None => {
            let fork = fork(spawn, parent)?;
            let session = child_session(context, spawn, parent, requested.depth, fork);
            session::insert_session(context, &session)?;
            (session, true)
        }
    };
    let bundle = match (spawn.bundle.take(), parent) {
        (None, Some(parent)) => bundles::get(context.tx, parent.id)?,
        (own, _) => own,
    };
    if !is_new {
        // The bundle of the present request replaces the earlier one.
        bundles::remove(context.tx, session.id)?;
    }
    if let Some(bundle) = bundle {
        bundles::insert(context.tx, session.id, &bundle)?;
    }
    Ok((session, is_new))
}

/// Appends the task to the session's transcript. A new session's row already counts it.
fn append_task(
    context: &mut Context<'_>,
    session: &Session,
    is_new: bool,
    task: NewMessage,
) -> Result<(), Fault> {
    if !is_new {
        context.append(&session.org, session.id, session.generation, vec![task])?;
        return Ok(());
    }
    let (now, first) = (context.now.wall, session.messages);
    let task = task.at(first, session.generation, now);
    messages::insert(context.tx, session.id, &task)?;
    context.added(
        &session.org,
        session.id,
        task.run,
        task.id,
        first,
        task.kind,
    );
    Ok(())
}

/// Makes the run a child of `caller`, in the same tree, trace and user.
pub fn set_parent(run: &mut Run, caller: &Run) {
    run.parent_run = Some(caller.id);
    run.root_run = caller.root_run;
    run.trace_id.clone_from(&caller.trace_id);
    run.user.clone_from(&caller.user);
}

/// The session of a spawned run. Its message count includes the task.
fn child_session(
    context: &Context<'_>,
    spawn: &Spawn,
    parent: Option<&Session>,
    depth: u32,
    fork: Option<Fork>,
) -> Session {
    let agent = spawn.run.agent.id.clone();
    Session {
        id: spawn.session,
        org: spawn.org.clone(),
        key: SessionKey::child(&agent, spawn.session),
        generation: 1,
        owner: Owner::Agent,
        agent,
        parent: parent.map(|parent| parent.id),
        parent_key: parent.map(|parent| parent.key.clone()),
        root: parent.map_or(spawn.session, |parent| parent.root),
        depth,
        label: spawn.run.label.clone(),
        title: Some(spawn.run.title.clone()),
        model: None,
        thinking: spawn.thinking,
        cwd: spawn
            .cwd
            .clone()
            .or_else(|| parent.and_then(|parent| parent.cwd.clone())),
        // The task follows the forked part.
        messages: fork.map_or(0, |fork| fork.seq) + 1,
        fork,
        mode: spawn.mode,
        cleanup: spawn.cleanup,
        archived_at: None,
        usage: Usage::default(),
        created_at: context.now.wall,
        updated_at: context.now.wall,
        ver: 1,
    }
}

/// The forked part of the child's transcript: a reference to the parent's, so that the cost does
/// not depend on its length. The parent is kept as long as its children are.
fn fork(spawn: &Spawn, parent: Option<&Session>) -> Result<Option<Fork>, Fault> {
    match (spawn.begins, parent) {
        (Begins::Isolated, _) => Ok(None),
        (_, None) => Err(Fault::params("context", "fork needs a parent session")),
        (Begins::Fork, Some(parent)) => Ok(Some(Fork {
            of: parent.id,
            generation: parent.generation,
            seq: parent.messages,
        })),
        (Begins::At(fork), Some(_)) => Ok(Some(fork)),
    }
}

/// How the end is announced, with a warning if that differs from the request.
fn announce_policy(
    spawn: &Spawn,
    parent: Option<&Session>,
) -> Result<(AnnouncePolicy, Option<String>), Fault> {
    let Some(parent) = parent else {
        return match spawn.announce {
            None | Some(AnnouncePolicy::None) => Ok((AnnouncePolicy::None, None)),
            Some(policy) => Err(Fault::params(
                "announce",
                format!("{policy} needs a parent session to announce to"),
            )
            .hint("pass parent, or omit announce")),
        };
    };
    Ok(match (parent.owner, spawn.announce) {
        (Owner::Client, Some(policy)) if policy.wakes() => (
            AnnouncePolicy::Inbox,
            Some(format!(
                "announce {policy} became inbox: session {} is owned by a client, so no agent can be woken in it",
                parent.key
            )),
        ),
        (_, Some(policy)) => (policy, None),
        (Owner::Client, None) => (AnnouncePolicy::Inbox, None),
        (Owner::Agent, None) => (AnnouncePolicy::Wake, None),
    })
}
