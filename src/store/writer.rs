//! The one thread that writes. It drains a bounded queue of commands into one transaction,
//! commits, and only then answers: group commit. The sync of the batch before is the time in
//! which the next batch collects.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::checkpoint::Checkpoints;
use super::command::{Command, Context, Effect, Reply, Settings, execute};
use super::db_fault;
use super::sqlite::Sqlite;
use super::tx::{DbError, DbErrorKind, Tx};
use crate::clock::Clock;
use crate::failpoint::{reach, reach_edge};
use crate::kernel::fault::{Fault, Kind};

/// So many commands wait at most; one more is `busy`.
pub const QUEUE: usize = 4096;
/// So many commands share one commit at most.
const BATCH: usize = 512;

/// What stands in the queue.
pub enum Message {
    /// A command to carry out.
    Job(Job),
    /// Nothing comes after it.
    Close,
}

/// A command and where its answer goes.
pub struct Job {
    /// The command.
    pub command: Command,
    /// Where the answer goes; a caller that left does not read it, the command counts.
    pub answer: oneshot::Sender<Result<Reply, Fault>>,
}

/// Called once when a commit cannot be trusted any more; it must end the process.
pub type OnFatal = Box<dyn Fn(String) + Send>;

/// The writing side of an open store.
pub struct Writer {
    db: Sqlite,
    clock: Clock,
    settings: Settings,
    effects: mpsc::UnboundedSender<Effect>,
    checkpoints: Arc<Checkpoints>,
    commits: Arc<AtomicU64>,
    on_fatal: OnFatal,
}

/// A command that was carried out, with its answer held back until the commit.
struct Held {
    name: &'static str,
    answer: oneshot::Sender<Result<Reply, Fault>>,
    reply: Result<Reply, Fault>,
}

impl Writer {
    /// A writer over an open database.
    pub fn new(
        db: Sqlite,
        clock: Clock,
        settings: Settings,
        effects: mpsc::UnboundedSender<Effect>,
        checkpoints: Arc<Checkpoints>,
        on_fatal: OnFatal,
    ) -> Self {
        Writer {
            db,
            clock,
            settings,
            effects,
            commits: checkpoints.commits(),
            checkpoints,
            on_fatal,
        }
    }

    /// Works until it is told to close; then empties the write-ahead file.
    pub fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut soft = Vec::new();
        let mut open = true;
        while open {
            let Some(mut next) = queue.blocking_recv() else {
                break;
            };
            let mut batch = Vec::new();
            loop {
                match next {
                    Message::Close => open = false,
                    Message::Job(job) if job.command.is_soft() => soft.push(job),
                    Message::Job(job) => batch.push(job),
                }
                if batch.len() >= BATCH {
                    break;
                }
                match queue.try_recv() {
                    Ok(message) => next = message,
                    Err(_) => break,
                }
            }
            // Soft commands ride along; they start a batch only when nobody waits behind them.
            if !batch.is_empty() || queue.is_empty() || !open {
                batch.append(&mut soft);
            }
            if !batch.is_empty() {
                self.commit(batch);
            }
            if self.checkpoints.writer_must_restart() {
                self.restart_log();
            }
        }
        if let Err(fault) = self.db.checkpoint_truncate() {
            tracing::warn!(%fault, "the write-ahead file could not be emptied; the next start does it");
        }
    }

    /// Carries out a batch in one transaction, and answers after its commit.
    fn commit(&mut self, batch: Vec<Job>) {
        if let Err(fault) = self.db.execute("BEGIN IMMEDIATE", &[]) {
            self.refuse(batch, fault);
            return;
        }
        let alone = batch.len() == 1;
        let mut held = Vec::with_capacity(batch.len());
        let mut effects = Vec::new();
        let mut jobs = batch.into_iter();
        for job in jobs.by_ref() {
            let name = job.command.name();
            reach_edge(name, "begin");
            let reply = self.savepoint(job.command, alone, &mut effects);
            reach_edge(name, "applied");
            held.push(Held {
                name,
                answer: job.answer,
                reply,
            });
            if !self.db.in_transaction() {
                // The engine gave up the whole transaction (a full disk does that): what
                // went before in this batch is undone as well, and nobody may hear "done".
                return self.undone(held, jobs);
            }
        }
        if let Err(fault) = self.db.execute("COMMIT", &[]) {
            let _ = self.db.execute("ROLLBACK", &[]);
            self.check_fatal(&fault);
            for held in held {
                let _ = held.answer.send(Err(db_fault(fault.clone())));
            }
            return;
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        for held in &held {
            reach_edge(held.name, "committed");
        }
        for effect in effects {
            // Nobody listens while the daemon stops; the rows say what is to be done.
            let _ = self.effects.send(effect);
        }
        for held in held {
            // A caller that left in the meantime finds the outcome in the rows.
            let _ = held.answer.send(held.reply);
            reach_edge(held.name, "answered");
        }
    }

    /// Answers a batch whose transaction is gone: the last one carried out says why.
    fn undone(&self, held: Vec<Held>, rest: impl Iterator<Item = Job>) {
        let why = held
            .last()
            .and_then(|last| last.reply.as_ref().err().cloned())
            .unwrap_or_else(|| Fault::internal("the transaction ended by itself"));
        tracing::error!(%why, commands = held.len(), "a batch of writes was undone");
        let answers = held.into_iter().map(|held| held.answer);
        for answer in answers.chain(rest.map(|job| job.answer)) {
            let _ = answer.send(Err(why.clone()));
        }
    }

    /// Carries out one command: all of it or nothing. A panic in it is an answer, not the
    /// end of the thread.
    fn savepoint(
        &mut self,
        command: Command,
        alone: bool,
        effects: &mut Vec<Effect>,
    ) -> Result<Reply, Fault> {
        if !alone {
            self.db
                .execute("SAVEPOINT command", &[])
                .map_err(db_fault)?;
        }
        let name = command.name();
        let done = catch_unwind(AssertUnwindSafe(|| {
            reach("store.command_panics");
            let mut context = Context::new(&mut self.db, &self.clock, &self.settings);
            let reply = execute(&mut context, command)?;
            Ok((reply, context.finish()?))
        }))
        .unwrap_or_else(|_| {
            tracing::error!(command = name, "a store command panicked; it was undone");
            Err(Fault::internal(format!(
                "store command {name} panicked; nothing of it was kept"
            )))
        });
        let end = match (&done, alone) {
            (Ok(_), true) => None,
            (Ok(_), false) => Some(&["RELEASE command"][..]),
            // The transaction goes on empty, so that the commit is the same for all.
            (Err(_), true) => Some(&["ROLLBACK", "BEGIN IMMEDIATE"][..]),
            (Err(_), false) => Some(&["ROLLBACK TO command", "RELEASE command"][..]),
        };
        if self.db.in_transaction() {
            for sql in end.into_iter().flatten() {
                if let Err(fault) = self.db.execute(sql, &[]) {
                    tracing::error!(%fault, command = name, sql, "a savepoint could not be ended");
                    self.check_fatal(&fault);
                    // Better nothing of the batch than a part that nobody decided on.
                    let _ = self.db.execute("ROLLBACK", &[]);
                    return Err(db_fault(fault));
                }
            }
        }
        let (reply, mut caused) = done?;
        effects.append(&mut caused);
        Ok(reply)
    }

    fn refuse(&self, batch: Vec<Job>, fault: DbError) {
        self.check_fatal(&fault);
        for job in batch {
            let _ = job.answer.send(Err(db_fault(fault.clone())));
        }
    }

    /// After a failed sync nobody knows what is on disk, and asking again would lie: the
    /// process ends and recovery decides.
    fn check_fatal(&self, fault: &DbError) {
        if matches!(fault.kind, DbErrorKind::Io | DbErrorKind::Corrupt) {
            (self.on_fatal)(format!(
                "the store failed: {fault}. What was answered is kept; the next start recovers the rest"
            ));
        }
    }

    /// Waits for readers and starts the write-ahead file anew: the upper bound of its size.
    fn restart_log(&mut self) {
        match self.db.checkpoint_restart() {
            Ok(_) => self.checkpoints.restarted(),
            Err(fault) => tracing::warn!(%fault, "the write-ahead file could not be restarted"),
        }
    }
}

/// The answer for a command that found the queue full.
pub fn busy() -> Fault {
    Fault::new(
        Kind::Busy,
        format!("{QUEUE} writes are waiting already; nothing of this one was kept"),
    )
    .hint("try again in a moment")
    .with("retryAfterMs", 100)
}
