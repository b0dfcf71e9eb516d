//! What a command works in: the transaction, the time, and what it leaves to be done after
//! the commit.

use serde_json::{Value, json};

use super::record_outcome::SUMMARY;
use super::usage::Thresholds;
use crate::clock::Clock;
use crate::kernel::action::EventKind;
use crate::kernel::breaker::BreakerPolicy;
use crate::kernel::budget::Budget;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionId, SessionKey};
use crate::kernel::limits::SpawnLimits;
use crate::kernel::message::{Message, NewMessage};
use crate::kernel::policy::Policy;
use crate::kernel::recover::{Loss, RecoveryPolicy};
use crate::kernel::run::{Lane, Outcome, Run, RunOrigin, RunState, Usage};
use crate::kernel::session::Session;
use crate::kernel::text::preview;
use crate::kernel::time::{Moment, Timestamp};
use crate::store::boots::Sequence;
use crate::store::events::{Circumstances, NewEvent};
use crate::store::tx::{DbError, Tx};
use crate::store::{db_fault, events, messages, steps};

/// Settings that commands obey.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits of spawning.
    pub limits: SpawnLimits,
    /// What becomes of open runs after a kill.
    pub recovery: RecoveryPolicy,
    /// What sessions may do with each other.
    pub policy: Policy,
    /// The most turns of an exchange of replies after the first answer.
    pub max_ping_pong: u32,
    /// When calls of an agent are let through no more.
    pub breaker: BreakerPolicy,
    /// What a run that nobody's run has asked for may use at most, with all runs below it.
    pub tree_budget: Budget,
    /// So many audit rows are kept, the newest.
    pub audit_rows: u32,
    /// So many memories a name space may have.
    pub max_memories: u32,
    /// What is told of when it is passed.
    pub thresholds: Thresholds,
}

/// A run that wants a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The run.
    pub run: RunId,
    /// Its session: one turn at a time.
    pub session: SessionId,
    /// Levels below a root session. A called run has the turn of a higher one in its session.
    pub depth: u32,
    /// It is called: in the turn of this run, by this step of it.
    pub called_by: Option<(RunId, u32)>,
    /// Slots are shared out fairly between these.
    pub root_session: SessionId,
    /// Within a root session, between these.
    pub requester: SessionId,
    /// Its queue.
    pub lane: Lane,
    /// It held a slot before, or brings announces: it goes before new work.
    pub first: bool,
    /// It is in the middle of its session's turn: nobody else has one there before it goes on.
    pub in_turn: bool,
    /// Not before this point.
    pub not_before: Option<Timestamp>,
}

impl Ticket {
    /// The ticket of a queued run; `in_turn`: it is in the middle of a turn.
    pub fn of(run: &Run, in_turn: bool) -> Ticket {
        let step = run.delegated.as_ref().map(|of| of.step);
        Ticket {
            run: run.id,
            session: run.session,
            depth: run.depth,
            called_by: run.parent_run.zip(step).filter(|_| run.is_called()),
            root_session: run.root_session,
            requester: run
                .requester
                .as_ref()
                .map_or(run.session, |requester| requester.session),
            lane: run.lane,
            in_turn,
            first: run.started_at.is_some()
                || run.origin == RunOrigin::Wake
                // Part of a turn that goes on.
                || run.is_called(),
            not_before: run.not_before,
        }
    }
}

/// A time for which an outcome from elsewhere is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// Of this step of a run.
    Step(RunId, u32),
    /// Of a client's call that has made this run.
    Call(RunId),
}

/// That a run has another one do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The run that does it.
    pub run: RunId,
    /// The run that has asked for it.
    pub parent: RunId,
    /// The trace of both.
    pub trace: String,
    /// Who carries it out.
    pub agent: AgentId,
    /// For whom.
    pub supervisor: AgentId,
    /// By which tool; `spawn` where its caller does not wait.
    pub face: &'static str,
    /// The start of what is to be done.
    pub task: String,
}

/// How a run ended that another run had asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The run.
    pub run: RunId,
    /// The run that had asked for it.
    pub parent: RunId,
    /// The trace of both.
    pub trace: String,
    /// Who carried it out.
    pub agent: AgentId,
    /// By which tool it was asked for; `spawn` where its caller did not wait.
    pub face: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long after it was accepted, milliseconds.
    pub lived_ms: u64,
    /// Tool calls that it made.
    pub tool_calls: u32,
    /// What it used.
    pub usage: Usage,
    /// The start of its result, or why it has none.
    pub said: String,
}

impl Delegation {
    /// How this run ended, if it has and another one had asked for it.
    pub fn of(run: &Run) -> Option<Delegation> {
        let (RunState::Ended(outcome), Some(parent)) = (run.state, run.parent_run) else {
            return None;
        };
        let error = run.error.as_ref().map(|error| error.message.as_str());
        let said = run.result.as_deref().or(error).unwrap_or_default();
        let ended = run.ended_at.unwrap_or(run.created_at);
        Some(Delegation {
            run: run.id,
            parent,
            trace: run.trace_id.clone(),
            agent: run.agent.clone(),
            face: Self::face(run),
            outcome,
            lived_ms: ended.since(run.created_at),
            tool_calls: run.tool_calls,
            usage: run.usage,
            said: preview(said, SUMMARY),
        })
    }

    /// By which tool a run was asked for; `spawn` where its caller did not wait.
    pub fn face(run: &Run) -> &'static str {
        match &run.delegated {
            Some(delegated) => delegated.face.as_str(),
            None => run.origin.as_str(),
        }
    }
}

/// What the log of an earlier life may lack of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untold {
    /// That it begins.
    Begin,
    /// How it ended.
    End,
}

/// What the registry must do after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The run wants a slot.
    Enqueue(Ticket),
    /// Its executor must stop.
    StopExecutor(RunId),
    /// A step of it that waited may be carried out now, by whoever holds it.
    Released(RunId),
    /// It is settling, or holds still while its time counts, and has so much of its limit left.
    Settling(RunId, Option<u64>),
    /// It holds still in the middle of this session's turn, which stays its own; so many levels
    /// below a root session.
    Paused(RunId, SessionId, u32),
    /// The window is over at this point.
    Window(Window, Timestamp),
    /// Nobody waits for the window any more.
    WindowClosed(Window),
    /// A turn that answers another session has ended, and what follows is due.
    Exchange(RunId),
    /// It has ended.
    Ended(RunId),
    /// It has ended, and programs may still carry its environment.
    Carried(RunId),
    /// It has ended so, and so many milliseconds after it was accepted.
    Outcome(RunId, Outcome, u64),
    /// A run has another do something.
    DelegationBegun(Box<Begun>),
    /// What a run had another do is over.
    DelegationOver(Box<Delegation>),
    /// The daemon may have been killed before this was said of the run.
    Untold(RunId, Untold),
    /// Stored agents or trusted projects have changed.
    AgentsChanged,
    /// It is to be recovered once it is clear how old it is.
    Doubted(RunId, Loss),
    /// Something waits to be told to this session, and no turn is going on there.
    Deliverable(SessionId),
    /// A deleted session has left something that is to be taken away.
    Purge(SessionId),
}

/// What a command works in.
pub struct Context<'a> {
    /// The transaction.
    pub tx: &'a mut dyn Tx,
    /// Mints ids.
    pub clock: &'a Clock,
    /// The time of this command.
    pub now: Moment,
    /// Settings that commands obey.
    pub settings: &'a Settings,
    sequence: &'a mut Sequence,
    events: Vec<NewEvent>,
    /// What is known already of the sessions and runs of these events.
    keys: Vec<(SessionId, Option<String>)>,
    trees: Vec<(RunId, Circumstances)>,
    effects: Vec<Effect>,
}

impl<'a> Context<'a> {
    /// A context for one command.
    pub fn new(
        tx: &'a mut dyn Tx,
        clock: &'a Clock,
        settings: &'a Settings,
        sequence: &'a mut Sequence,
    ) -> Self {
        Context {
            tx,
            clock,
            now: clock.moment(),
            settings,
            sequence,
            events: Vec::new(),
            keys: Vec::new(),
            trees: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Writes the events of this command; what is left to do after the commit.
    pub fn finish(mut self) -> Result<Vec<Effect>, Fault> {
        let told = std::mem::take(&mut self.events);
        if !told.is_empty() {
            let count = told.len() as i64;
            let first = self.sequence.take(self.tx, count).map_err(db_fault)?;
            for (cursor, event) in (first..).zip(&told) {
                let about = self.circumstances(event).map_err(db_fault)?;
                events::insert(self.tx, cursor, event, &about, self.now.wall).map_err(db_fault)?;
            }
        }
        Ok(self.effects)
    }

    /// What an event says of its session and run beside their ids. Most commands have their
    /// rows in hand and read nothing here.
    fn circumstances(&mut self, event: &NewEvent) -> Result<Circumstances, DbError> {
        let mut about = Circumstances::default();
        if let Some(run) = event.run {
            let known = self.trees.iter().find(|(id, _)| *id == run);
            about = match known {
                Some((_, known)) => known.clone(),
                None => {
                    let read = events::tree_of(self.tx, run)?.unwrap_or_default();
                    self.trees.push((run, read.clone()));
                    read
                }
            };
        }
        if let Some(session) = event.session {
            let known = self.keys.iter().find(|(id, _)| *id == session);
            about.session_key = match known {
                Some((_, known)) => known.clone(),
                None => {
                    let read = events::key_of(self.tx, session)?;
                    self.keys.push((session, read.clone()));
                    read
                }
            };
        }
        Ok(about)
    }

    /// The key of a session whose row may be gone by the end of the command.
    pub fn knows_key(&mut self, session: SessionId, key: &SessionKey) {
        if self.keys.iter().all(|(id, _)| *id != session) {
            self.keys.push((session, Some(key.to_string())));
        }
    }

    /// A number that nobody had before.
    pub fn take_seq(&mut self) -> Result<i64, Fault> {
        self.sequence.take(self.tx, 1).map_err(db_fault)
    }

    /// A fresh message id.
    pub fn message_id(&self) -> MessageId {
        MessageId(self.clock.new_id())
    }

    /// Leaves `effect` to be done after the commit.
    pub fn effect(&mut self, effect: Effect) {
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }

    /// Asks for a slot for `run` after the commit.
    pub fn enqueue(&mut self, run: &Run) -> Result<(), Fault> {
        let in_turn = steps::is_in_turn(self.tx, run).map_err(db_fault)?;
        self.effect(Effect::Enqueue(Ticket::of(run, in_turn)));
        Ok(())
    }

    /// An event about `run`.
    pub fn emit(&mut self, kind: EventKind, run: &Run, data: Value) {
        self.knows_key(run.session, &run.session_key);
        if self.trees.iter().all(|(id, _)| *id != run.id) {
            let tree = Circumstances {
                session_key: None,
                parent_run: run.parent_run,
                root_run: Some(run.root_run),
                trace_id: Some(run.trace_id.clone()),
            };
            self.trees.push((run.id, tree));
        }
        self.events.push(NewEvent {
            kind,
            org: run.org.clone(),
            session: Some(run.session),
            run: Some(run.id),
            parent_run: run.parent_run,
            data,
        });
    }

    /// An event about a session.
    pub fn emit_session(&mut self, kind: EventKind, session: &Session, data: Value) {
        self.knows_key(session.id, &session.key);
        self.events.push(NewEvent {
            kind,
            org: session.org.clone(),
            session: Some(session.id),
            run: None,
            parent_run: None,
            data,
        });
    }

    /// An event about telling the end of `run` to the session `target`.
    pub fn emit_announce(
        &mut self,
        kind: EventKind,
        org: &str,
        run: RunId,
        target: SessionId,
        data: Value,
    ) {
        self.events.push(NewEvent {
            kind,
            org: org.to_owned(),
            session: Some(target),
            run: Some(run),
            parent_run: None,
            data,
        });
    }

    /// An event about a tenant's own things.
    pub fn emit_org(&mut self, kind: EventKind, org: &str, data: Value) {
        self.events.push(NewEvent {
            kind,
            org: org.to_owned(),
            session: None,
            run: None,
            parent_run: None,
            data,
        });
    }

    /// An event about the daemon itself.
    pub fn emit_gateway(&mut self, kind: EventKind, data: Value) {
        self.events.push(NewEvent {
            kind,
            org: String::new(),
            session: None,
            run: None,
            parent_run: None,
            data,
        });
    }

    /// An event that a person should look at; `about`: the session and the run that it is a
    /// matter of, if it is one of such.
    pub fn alert(&mut self, about: (Option<SessionId>, Option<RunId>), data: Value) {
        self.events.push(NewEvent {
            kind: EventKind::AlertRaised,
            org: String::new(),
            session: about.0,
            run: about.1,
            parent_run: None,
            data,
        });
    }

    /// Appends messages to a transcript and says so in the event log.
    pub fn append(
        &mut self,
        org: &str,
        session: SessionId,
        generation: i64,
        new: Vec<NewMessage>,
    ) -> Result<Vec<Message>, Fault> {
        let appended =
            messages::append(self.tx, session, generation, new, self.now.wall).map_err(db_fault)?;
        // Nobody outside is told of an answer that has nothing to say.
        for message in appended.iter().filter(|message| !message.silent) {
            self.added(
                org,
                session,
                message.run,
                message.id,
                message.seq,
                message.kind.as_str(),
            );
        }
        Ok(appended)
    }

    /// Appends messages of `run` to its session's transcript, and says so in the event log.
    pub fn append_of(
        &mut self,
        run: &Run,
        mut new: Vec<NewMessage>,
    ) -> Result<Vec<Message>, Fault> {
        if run.is_called() {
            for message in &mut new {
                message.child_run = Some(run.id);
            }
        }
        self.append(&run.org, run.session, run.generation, new)
    }

    /// Says in the event log that a transcript has a new entry.
    pub fn added(
        &mut self,
        org: &str,
        session: SessionId,
        run: Option<RunId>,
        message: MessageId,
        seq: i64,
        kind: &str,
    ) {
        self.events.push(NewEvent {
            kind: EventKind::MessageAdded,
            org: org.to_owned(),
            session: Some(session),
            run,
            parent_run: None,
            data: json!({ "messageId": message, "seq": seq, "kind": kind }),
        });
    }
}
