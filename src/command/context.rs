//! The context of a command: its transaction, its time, and the effects for after the commit.

use crate::clock::Clock;
use crate::contract::commit::{CommandSettings, CommitEffect, Ticket};
use crate::kernel::event::{AlertRaised, EventData, MessageAdded};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{MessageId, RunId, SessionId, SessionKey};
use crate::kernel::run::Run;
use crate::kernel::session::Session;
use crate::kernel::session::message::{Message, MessageKind, NewMessage};
use crate::kernel::time::Moment;
use crate::store::tables::boots::Sequence;
use crate::store::tables::events::{Circumstances, NewEvent};
use crate::store::tables::{events, messages, steps};
use crate::store::tx::{DbError, Tx};
use crate::store::write::Transaction;

/// The context of one command.
pub struct Context<'a> {
    /// The transaction.
    pub tx: &'a mut dyn Tx,
    /// Source of ids.
    pub clock: &'a Clock,
    /// The time of this command.
    pub now: Moment,
    /// Settings that commands apply.
    pub settings: &'a CommandSettings,
    sequence: &'a mut Sequence,
    events: Vec<NewEvent>,
    /// Cache of the session keys and run trees for these events.
    keys: Vec<(SessionId, Option<String>)>,
    trees: Vec<(RunId, Circumstances)>,
    effects: Vec<CommitEffect>,
}

impl<'a> Context<'a> {
    /// Creates the context of one command.
    pub fn new(on: Transaction<'a>) -> Self {
        Context {
            now: on.clock.moment(),
            tx: on.tx,
            clock: on.clock,
            settings: on.settings,
            sequence: on.sequence,
            events: Vec::new(),
            keys: Vec::new(),
            trees: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Writes the events of this command and returns its effects.
    pub fn finish(mut self) -> Result<Vec<CommitEffect>, Fault> {
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
    pub fn effect(&mut self, effect: CommitEffect) {
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }

    /// Requests a slot for `run` after the commit.
    pub fn enqueue(&mut self, run: &Run) -> Result<(), Fault> {
        let in_turn = steps::is_in_turn(self.tx, run)?;
        self.effect(CommitEffect::Enqueue(Ticket::of(run, in_turn)));
        Ok(())
    }

    /// Adds an event about `run`.
    pub fn emit(&mut self, run: &Run, data: impl Into<EventData>) {
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
        self.push(&run.org, Some(run.session), Some(run.id), data);
    }

    /// Adds an event about a session.
    pub fn emit_session(&mut self, session: &Session, data: impl Into<EventData>) {
        self.knows_key(session.id, &session.key);
        self.push(&session.org, Some(session.id), None, data);
    }

    /// Adds an event about the announce of `run` to the session `target`.
    pub fn emit_announce(
        &mut self,
        org: &str,
        run: RunId,
        target: SessionId,
        data: impl Into<EventData>,
    ) {
        self.push(org, Some(target), Some(run), data);
    }

    /// Adds an event about a tenant.
    pub fn emit_org(&mut self, org: &str, data: impl Into<EventData>) {
        self.push(org, None, None, data);
    }

    /// Adds an event about the daemon itself.
    pub fn emit_gateway(&mut self, data: impl Into<EventData>) {
        self.push("", None, None, data);
    }

    /// Adds an alert for operators; `about` is the session and run concerned, if any.
    pub fn alert(&mut self, about: (Option<SessionId>, Option<RunId>), alert: AlertRaised) {
        self.push("", about.0, about.1, alert);
    }

    fn push(
        &mut self,
        org: &str,
        session: Option<SessionId>,
        run: Option<RunId>,
        data: impl Into<EventData>,
    ) {
        self.events.push(NewEvent {
            org: org.to_owned(),
            session,
            run,
            data: data.into(),
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
                message.kind,
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
        kind: MessageKind,
    ) {
        let data = MessageAdded {
            message_id: message,
            seq,
            kind: kind.as_str().into(),
        };
        self.push(org, Some(session), run, data);
    }
}
