//! The context of a command: its transaction, its time, and the effects for after the commit.

use serde_json::{Value, json};

use super::record_outcome::SUMMARY;
use super::usage::Thresholds;
use crate::clock::Clock;
use crate::kernel::delegation::breaker::BreakerPolicy;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionId, SessionKey};
use crate::kernel::policy::Policy;
use crate::kernel::run::action::EventKind;
use crate::kernel::run::budget::Budget;
use crate::kernel::run::limits::SpawnLimits;
use crate::kernel::run::recover::{Loss, RecoveryPolicy};
use crate::kernel::run::{Lane, Outcome, Run, RunOrigin, RunState, Usage};
use crate::kernel::session::Session;
use crate::kernel::session::message::{Message, NewMessage};
use crate::kernel::text::preview;
use crate::kernel::time::{Moment, Timestamp};
use crate::store::tables::boots::Sequence;
use crate::store::tables::events::{Circumstances, NewEvent};
use crate::store::tables::{events, messages, steps};
use crate::store::tx::{DbError, Tx};

/// Settings that commands apply.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits of spawning.
    pub limits: SpawnLimits,
    /// How open runs are recovered after a kill.
    pub recovery: RecoveryPolicy,
    /// What sessions may do with each other.
    pub policy: Policy,
    /// Maximum number of turns of a reply exchange after the first answer.
    pub max_ping_pong: u32,
    /// When calls of a failing agent are refused.
    pub breaker: BreakerPolicy,
    /// Budget of a run without a parent run, shared with its descendants.
    pub tree_budget: Budget,
    /// Maximum number of audit rows; the newest are kept.
    pub audit_rows: u32,
    /// Maximum number of memories per namespace.
    pub max_memories: u32,
    /// Thresholds that raise a usage alert.
    pub thresholds: Thresholds,
}

/// A run that waits for a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The run.
    pub run: RunId,
    /// Its session, which has one turn at a time.
    pub session: SessionId,
    /// Levels below a root session. A called run has a greater depth than its caller in the same
    /// session.
    pub depth: u32,
    /// For a called run: the run whose turn it leases, and that run's step.
    pub called_by: Option<(RunId, u32)>,
    /// Slots are shared fairly between root sessions.
    pub root_session: SessionId,
    /// Within a root session, slots are shared fairly between requesters.
    pub requester: SessionId,
    /// Its lane.
    pub lane: Lane,
    /// It held a slot before, delivers announces, or is a called run; it goes before new work.
    pub first: bool,
    /// It is in the middle of its session's turn, so no other turn may begin there first.
    pub in_turn: bool,
    /// Earliest start time; used for recovery backoff.
    pub not_before: Option<Timestamp>,
}

impl Ticket {
    /// The ticket of a queued run; `in_turn` says whether it is in the middle of a turn.
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
                // It is part of a turn under way.
                || run.is_called(),
            not_before: run.not_before,
        }
    }
}

/// A pending wait with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PendingWait {
    /// The wait of a run's step.
    Step(RunId, u32),
    /// The wait of a client's call for the reply of this run.
    Call(RunId),
}

/// The start of a delegation, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The child run.
    pub run: RunId,
    /// The parent run.
    pub parent: RunId,
    /// The trace id of both.
    pub trace: String,
    /// The agent that carries it out.
    pub agent: AgentId,
    /// The agent of the parent run.
    pub supervisor: AgentId,
    /// The delegation mode; `spawn` if the parent does not wait.
    pub face: &'static str,
    /// The beginning of the task.
    pub task: String,
}

/// The end of a delegation, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The child run.
    pub run: RunId,
    /// The parent run.
    pub parent: RunId,
    /// The trace id of both.
    pub trace: String,
    /// The agent that carried it out.
    pub agent: AgentId,
    /// The delegation mode; `spawn` if the parent did not wait.
    pub face: &'static str,
    /// The child run's outcome.
    pub outcome: Outcome,
    /// Milliseconds from accepted to ended.
    pub lived_ms: u64,
    /// Number of tool calls that it made.
    pub tool_calls: u32,
    /// Model usage of the run.
    pub usage: Usage,
    /// The beginning of its result, or of its error.
    pub said: String,
}

impl Delegation {
    /// The end of this run's delegation; `None` if it is open or has no parent run.
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

    /// The delegation mode of a run; its origin (such as `spawn`) if no step waits for it.
    pub fn face(run: &Run) -> &'static str {
        match &run.delegated {
            Some(delegated) => delegated.mode.as_str(),
            None => run.origin.as_str(),
        }
    }
}

/// The log line that the previous process may not have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedLog {
    /// The line about the start.
    Begin,
    /// The line about the end.
    End,
}

/// Work for the registry after the commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The run waits for a slot.
    Enqueue(Ticket),
    /// The run's executor must stop.
    StopExecutor(RunId),
    /// A waiting step of the run may be carried out now by its drive task.
    Released(RunId),
    /// The run is settling, or paused while its time counts, with this many milliseconds left of
    /// its limit.
    Settling(RunId, Option<u64>),
    /// The run is paused in the middle of this session's turn and keeps the turn; the number is its
    /// depth.
    Paused(RunId, SessionId, u32),
    /// The wait has this deadline.
    Window(PendingWait, Timestamp),
    /// The wait is over and needs no timer.
    WindowClosed(PendingWait),
    /// A turn that answered another session has ended, and its follow-up is due.
    Exchange(RunId),
    /// The run has ended.
    Ended(RunId),
    /// The run has ended, and processes may still hold its environment.
    Carried(RunId),
    /// The run has ended with this outcome, this many milliseconds after it was accepted.
    Outcome(RunId, Outcome, u64),
    /// A delegation has started.
    DelegationBegun(Box<Begun>),
    /// A delegation has ended.
    DelegationOver(Box<Delegation>),
    /// A kill may have prevented this log line of the run.
    Untold(RunId, MissedLog),
    /// Stored agents or trusted projects have changed.
    AgentsChanged,
    /// The run must be recovered once its age can be determined.
    AgeUnknown(RunId, Loss),
    /// The session has undelivered announces and no turn under way.
    Deliverable(SessionId),
    /// A deleted session has rows to purge.
    Purge(SessionId),
}

/// The context of one command.
pub struct Context<'a> {
    /// The transaction.
    pub tx: &'a mut dyn Tx,
    /// Source of ids.
    pub clock: &'a Clock,
    /// The time of this command.
    pub now: Moment,
    /// Settings that commands apply.
    pub settings: &'a Settings,
    sequence: &'a mut Sequence,
    events: Vec<NewEvent>,
    /// Cache of the session keys and run trees for these events.
    keys: Vec<(SessionId, Option<String>)>,
    trees: Vec<(RunId, Circumstances)>,
    effects: Vec<Effect>,
}

impl<'a> Context<'a> {
    /// Creates the context of one command.
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

    /// Writes the events of this command and returns its effects.
    pub fn finish(mut self) -> Result<Vec<Effect>, Fault> {
        let told = std::mem::take(&mut self.events);
        if !told.is_empty() {
            let count = told.len() as i64;
            let first = self.sequence.take(self.tx, count)?;
            for (cursor, event) in (first..).zip(&told) {
                let about = self.circumstances(event)?;
                events::insert(self.tx, cursor, event, &about, self.now.wall)?;
            }
        }
        Ok(self.effects)
    }

    /// The session key and run tree of an event. Most commands have cached them, so nothing is
    /// read.
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

    /// Caches the key of a session whose row may be gone by the end of the command.
    pub fn knows_key(&mut self, session: SessionId, key: &SessionKey) {
        if self.keys.iter().all(|(id, _)| *id != session) {
            self.keys.push((session, Some(key.to_string())));
        }
    }

    /// Takes a new sequence number, unique in the store.
    pub fn take_seq(&mut self) -> Result<i64, Fault> {
        self.sequence.take(self.tx, 1).map_err(Fault::from)
    }

    /// Generates a message id.
    pub fn message_id(&self) -> MessageId {
        MessageId(self.clock.new_id())
    }

    /// Adds an effect for after the commit; duplicates are dropped.
    pub fn effect(&mut self, effect: Effect) {
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }

    /// Requests a slot for `run` after the commit.
    pub fn enqueue(&mut self, run: &Run) -> Result<(), Fault> {
        let in_turn = steps::is_in_turn(self.tx, run)?;
        self.effect(Effect::Enqueue(Ticket::of(run, in_turn)));
        Ok(())
    }

    /// Adds an event about `run`.
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

    /// Adds an event about a session.
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

    /// Adds an event about the announce of `run` to the session `target`.
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

    /// Adds an event about a tenant.
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

    /// Adds an event about the daemon itself.
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

    /// Adds an alert for operators; `about` is the session and run concerned, if any.
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

    /// Appends messages to a transcript, with an event for each.
    pub fn append(
        &mut self,
        org: &str,
        session: SessionId,
        generation: i64,
        new: Vec<NewMessage>,
    ) -> Result<Vec<Message>, Fault> {
        let appended = messages::append(self.tx, session, generation, new, self.now.wall)?;
        // Silent answers get no event.
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

    /// Appends messages of `run` to its session's transcript, with an event for each.
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

    /// Adds an event about a new transcript entry.
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
