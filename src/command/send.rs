//! Messages to sessions: checks, the message chain, the turn that answers, and the step that waits
//! for it.

use serde_json::json;

use super::context::Context;
use super::new_run::{accept, new_run, refuse_taken_id, repeated};
use super::waiting::{acting, begin, until};
use super::{Accepted, NewRun, StepRef, cancel};
use crate::contract::commit::{CommitEffect, PendingWait};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::policy::{PolicyTarget, Relation, Right, Who};
use crate::kernel::run::limits::{check_queued_turns, check_total};
use crate::kernel::run::step::{Step, StepWait, WaitKind};
use crate::kernel::run::stop::Initiator;
use crate::kernel::run::{Lane, Run, RunOrigin};
use crate::kernel::session::message::{NewMessage, Origin};
use crate::kernel::session::{Owner, Session, send};
use crate::kernel::text::storable;
use crate::store::tables::columns::to_json;
use crate::store::tables::sends::State;
use crate::store::tables::{idempotency, runs, sends, sessions, waits};
use crate::store::tx::Tx;

/// Maximum number of runs or sessions followed in a chain; message chains cannot be longer.
const FOLLOWED: usize = 16;

/// The sender of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Sender {
    /// A client without a session; only its call gets the reply.
    Client,
    /// A client on behalf of a session that it owns, which gets a late reply.
    Session(SessionKey),
    /// A run on behalf of its session, which gets a late reply.
    Step(StepRef),
}

/// A message to a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SendMessage {
    /// The tenant.
    pub org: String,
    /// The run of the turn that answers.
    pub run: NewRun,
    /// The target session.
    pub target: SessionId,
    /// The message text.
    pub message: String,
    /// The sender.
    pub from: Sender,
    /// Maximum time to wait for the reply, in milliseconds; 0 means not to wait.
    pub window_ms: u64,
}

/// The sender, resolved from the rows.
struct Speaker {
    /// The sending run and its step.
    by: Option<(Run, Step)>,
    /// The session that it sends for.
    session: Option<Session>,
    /// The sessions that the message chain has passed through so far.
    chain: Vec<SessionId>,
}

/// Once this returns, the message is queued as a turn in the target's session, or is in its
/// transcript if a client owns it. A step that wants the reply waits for it.
pub fn send(context: &mut Context<'_>, message: SendMessage) -> Result<Accepted, Fault> {
    if let Some(accepted) = repeated(context, message.run.key.as_ref())? {
        return Ok(accepted);
    }
    refuse_taken_id(context, message.run.id)?;
    let target = sessions::by_id(context.tx, message.target)?
        .filter(|target| target.org == message.org)
        .ok_or_else(|| Fault::not_found("session", message.target))?;
    let speaker = speaker(context, &message, &target)?;
    let chain = send::extend_chain(&speaker.chain, target.id, &target.key)?;
    if target.owner == Owner::Client {
        return append_to_client(context, message, &target, &speaker);
    }
    let queued = runs::count_waiting_turns(context.tx, target.id)?;
    check_queued_turns(&context.settings.limits, queued)?;
    if message.window_ms > 0
        && let Some(own) = &speaker.session
        && waits_for(context.tx, target.id, own.id)?
    {
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "session {} already waits for a reply of this session: if both wait for each other, \
                 neither can answer. Nothing was sent",
                target.key
            ),
        )
        .hint("Send without waiting, or end your turn: your final text is the reply it waits for.")
        .with("sessionKey", target.key.as_str()));
    }
    let who = match &speaker.by {
        Some(_) => Initiator::Agent,
        None => Initiator::Person,
    };
    cancel::lift_hold(context, &target, who)?;
    let accepted = queue(context, &message, &target, &speaker, chain)?;
    if message.window_ms > 0 {
        let until = until(context, message.window_ms);
        match &speaker.by {
            Some((run, step)) => {
                let kind = WaitKind::Reply;
                let wait = StepWait {
                    kind,
                    until: Some(until),
                };
                begin(context, run, step, wait, &[accepted.run.0])?;
            }
            None if speaker.session.is_some() => {
                context.effect(CommitEffect::Window(PendingWait::Call(accepted.run), until));
            }
            None => {}
        }
    }
    Ok(accepted)
}

/// Resolves the sender and checks that it may send.
fn speaker(
    context: &mut Context<'_>,
    message: &SendMessage,
    target: &Session,
) -> Result<Speaker, Fault> {
    let by_session = |session: &Session| vec![session.id];
    match &message.from {
        Sender::Client => Ok(Speaker {
            by: None,
            session: None,
            chain: Vec::new(),
        }),
        Sender::Session(key) => {
            let session = sessions::by_key(context.tx, &message.org, key)?
                .ok_or_else(|| Fault::not_found("session", key))?;
            if session.owner != Owner::Client {
                return Err(Fault::new(
                    Kind::Forbidden,
                    format!(
                        "session {key} belongs to agent {}: only its own runs may send from it",
                        session.agent
                    ),
                )
                .hint("omit from, or pass a session that a client owns"));
            }
            Ok(Speaker {
                by: None,
                chain: by_session(&session),
                session: Some(session),
            })
        }
        Sender::Step(by) => {
            let (run, step) = acting(context, *by)?;
            let session = sessions::by_id(context.tx, run.session)?
                .ok_or_else(|| Fault::not_found("session", run.session))?;
            let relation = relation(context.tx, session.id, target)?;
            // A called run works in its caller's session, so the run's own agent counts here.
            let who = Who::Session {
                agent: &run.agent,
                depth: run.depth,
            };
            let aim = PolicyTarget {
                key: &target.key,
                agent: &target.agent,
                relation,
            };
            context.settings.policy.may(Right::Send, who, aim)?;
            let below = runs::count_descendants(context.tx, run.root_run)?;
            check_total(
                &context.settings.limits,
                u32::try_from(below).unwrap_or(u32::MAX),
            )?;
            if let Some(used_up) = runs::used_up(context.tx, &run)? {
                return Err(used_up.refuses());
            }
            let mut chain = chain_of(context.tx, &run)?;
            if !chain.contains(&session.id) {
                chain.push(session.id);
            }
            Ok(Speaker {
                by: Some((run, step)),
                session: Some(session),
                chain,
            })
        }
    }
}

/// The relation of `target` to the session `own`.
pub fn relation(tx: &mut dyn Tx, own: SessionId, target: &Session) -> Result<Relation, Fault> {
    if target.id == own {
        return Ok(Relation::Same);
    }
    let mut parent = target.parent;
    for _ in 0..target.depth {
        match parent {
            Some(id) if id == own => return Ok(Relation::Descendant),
            Some(id) => {
                let above = sessions::by_id(tx, id)?;
                parent = above.and_then(|above| above.parent);
            }
            None => break,
        }
    }
    Ok(Relation::Other)
}

/// The sessions whose messages led to this run: its own chain, or that of its nearest ancestor with
/// one.
fn chain_of(tx: &mut dyn Tx, run: &Run) -> Result<Vec<SessionId>, Fault> {
    let mut id = Some(run.id);
    for _ in 0..FOLLOWED {
        let Some(at) = id else { break };
        if let Some(send) = sends::get(tx, at)? {
            return Ok(send.chain);
        }
        id = runs::get(tx, at)?.and_then(|run| run.parent_run);
    }
    Ok(Vec::new())
}

/// True if a turn under way in `target` waits for a reply of `own`, directly or through other
/// sessions.
fn waits_for(tx: &mut dyn Tx, target: SessionId, own: SessionId) -> Result<bool, Fault> {
    let mut seen = vec![target];
    let mut next = vec![target];
    while let Some(at) = next.pop() {
        if seen.len() > FOLLOWED {
            break;
        }
        for run in runs::live_in(tx, at)? {
            for awaited in waits::of_run(tx, run.id)? {
                let Some(other) = runs::get(tx, RunId(awaited))? else {
                    continue;
                };
                if other.session == own {
                    return Ok(true);
                }
                if !seen.contains(&other.session) {
                    seen.push(other.session);
                    next.push(other.session);
                }
            }
        }
    }
    Ok(false)
}

/// Queues the turn that answers in the target's session.
fn queue(
    context: &mut Context<'_>,
    message: &SendMessage,
    target: &Session,
    speaker: &Speaker,
    chain: Vec<SessionId>,
) -> Result<Accepted, Fault> {
    let text = storable(&message.message);
    let mut row = new_run(
        context,
        &message.org,
        message.run.clone(),
        target,
        RunOrigin::Send,
    );
    row.run.lane = Lane::Nested;
    if let Some((by, _)) = &speaker.by {
        row.run.parent_run = Some(by.id);
        row.run.root_run = by.root_run;
        row.run.trace_id.clone_from(&by.trace_id);
        row.run.user.clone_from(&by.user);
    }
    if let Some(model) = &target.model {
        row.run.model.clone_from(model);
    }
    let id = row.run.id;
    let is_call = speaker.by.is_none() && speaker.session.is_some();
    let send = sends::Send {
        run: id,
        first: id,
        turn: 0,
        from: named(speaker.session.as_ref()),
        asker: speaker
            .session
            .as_ref()
            .map(|session| (session.id, session.generation)),
        chain,
        window_until: (is_call && message.window_ms > 0).then(|| until(context, message.window_ms)),
        state: State::Open,
    };
    let accepted = accept(context, row, Some(&text), false)?;
    sends::insert(context.tx, &send)?;
    Ok(accepted)
}

fn named(session: Option<&Session>) -> Option<(SessionId, SessionKey)> {
    session.map(|session| (session.id, session.key.clone()))
}

/// Appends the message to the transcript of a client-owned session.
fn append_to_client(
    context: &mut Context<'_>,
    message: SendMessage,
    target: &Session,
    speaker: &Speaker,
) -> Result<Accepted, Fault> {
    let from = named(speaker.session.as_ref());
    let said = received_message(
        context,
        &message.message,
        from.as_ref().map(|from| &from.1),
        0,
    );
    let id = said.id;
    context.append(&target.org, target.id, target.generation, vec![said])?;
    let accepted = Accepted {
        run: RunId(id.0),
        session: target.key.clone(),
        agent: target.agent.clone(),
        model: String::new(),
        depth: target.depth,
        created: false,
        warnings: Vec::new(),
        message: Some(id),
    };
    if let Some(key) = message.run.key {
        let used = idempotency::Used {
            digest: key.digest,
            run: accepted.run,
            answer: to_json(&accepted),
        };
        let now = context.now.wall;
        idempotency::insert(context.tx, &key.scope, &key.key, &used, now)?;
    }
    Ok(accepted)
}

/// The message as a transcript entry of its receiver, marked with the sending session if there is
/// one.
pub fn received_message(
    context: &Context<'_>,
    text: &str,
    from: Option<&SessionKey>,
    turn: u32,
) -> NewMessage {
    let mut message = NewMessage::user(context.message_id(), text);
    if let Some(from) = from {
        message.origin = Origin::Session;
        message.metadata = Some(json!({ "from": from, "exchange": turn }));
    }
    message
}
