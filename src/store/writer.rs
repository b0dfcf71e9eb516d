//! The only thread that writes (group commit). It drains a bounded queue of commands into one
//! transaction, commits, and only then answers. While one batch syncs, the next one collects.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use super::checkpoint::Checkpoints;
use super::placement::{Moved, Placement};
use super::sqlite::Sqlite;
use super::tx::{DbError, DbErrorKind, Tx};
use super::write::{Job, Transaction};
use crate::clock::Clock;
use crate::contract::commit::{CommandSettings, CommitEffect};
use crate::failpoint::{reach, reach_edge};
use crate::kernel::event::{AlertRaised, EventData};
use crate::kernel::fault::{Fault, Kind};
use crate::store::repair::noticed::FoundDamage;
use crate::store::tables::audit;
use crate::store::tables::boots::Sequence;
use crate::store::tables::events::{self, Circumstances, NewEvent};
use crate::telemetry::metrics::metrics;

/// Maximum number of queued commands; a further one is answered `busy`.
pub const QUEUE: usize = 4096;
/// Maximum number of commands in one commit.
const BATCH: usize = 512;
/// Old audit rows are pruned once per this number of new ones.
const PRUNE_EACH: u64 = 1024;

/// A message in the writer's queue.
pub enum WriterMessage {
    /// A command to execute.
    Job(Box<dyn Job>),
    /// Settings that commands follow from now on.
    Settings(CommandSettings),
    /// The store's files may have been moved or deleted: check them.
    CheckFiles,
    /// A liveness check, answered between two commits.
    Ping(oneshot::Sender<()>),
    /// The last message: stop after it.
    Close,
}

/// Called once when no further commit can be trusted; it must end the process.
pub type OnFatal = Box<dyn Fn(String) + Send>;

/// The channels that are notified after each commit.
pub struct CommitChannels {
    /// Effects to carry out now, one message per commit.
    pub effects: mpsc::UnboundedSender<Vec<CommitEffect>>,
    /// The highest sequence number that readers of the event log may see.
    pub head: watch::Sender<i64>,
}

/// State that the writer shares with other parts of the same store.
pub struct WriterShared {
    /// The state shared with the checkpoint thread.
    pub checkpoints: Arc<Checkpoints>,
    /// The damage that reads and writes have found.
    pub noticed: Arc<FoundDamage>,
    /// The expected location of the files.
    pub placement: Arc<Placement>,
}

/// The writing side of an open store.
pub struct Writer {
    db: Sqlite,
    clock: Clock,
    settings: CommandSettings,
    sequence: Sequence,
    effects: mpsc::UnboundedSender<Vec<CommitEffect>>,
    head: watch::Sender<i64>,
    checkpoints: Arc<Checkpoints>,
    noticed: Arc<FoundDamage>,
    placement: Arc<Placement>,
    commits: Arc<AtomicU64>,
    audited: u64,
    on_fatal: OnFatal,
}

/// The result of an executed command: the work for the registry after the commit.
type Done = Result<Vec<CommitEffect>, Fault>;

/// Why a batch cannot be committed as it is.
enum BatchError {
    /// The command at this index failed after it had written; the fault is its reply.
    CommandFailed(usize, Fault),
    /// The whole batch was rolled back, for this reason.
    Lost(Fault),
}

impl Writer {
    /// A writer on an open, migrated database.
    pub fn new(
        db: Sqlite,
        clock: Clock,
        settings: CommandSettings,
        told: CommitChannels,
        kept: WriterShared,
        on_fatal: OnFatal,
    ) -> Self {
        Writer {
            db,
            clock,
            settings,
            sequence: Sequence::default(),
            effects: told.effects,
            head: told.head,
            commits: kept.checkpoints.commits(),
            checkpoints: kept.checkpoints,
            audited: 0,
            noticed: kept.noticed,
            placement: kept.placement,
            on_fatal,
        }
    }

    /// Processes messages until [`Message::Close`]; then truncates the WAL.
    pub fn run(mut self, mut queue: mpsc::Receiver<WriterMessage>) {
        let mut soft = Vec::new();
        let mut open = true;
        while open {
            let Some(mut next) = queue.blocking_recv() else {
                break;
            };
            let mut batch = Vec::new();
            loop {
                match next {
                    WriterMessage::Close => open = false,
                    WriterMessage::Settings(settings) => self.settings = settings,
                    WriterMessage::CheckFiles => drop(self.look_after_files()),
                    // The requester may have given up.
                    WriterMessage::Ping(answer) => answer.send(()).unwrap_or_default(),
                    WriterMessage::Job(job) if job.is_soft() => soft.push(job),
                    WriterMessage::Job(job) => batch.push(job),
                }
                if batch.len() >= BATCH {
                    break;
                }
                match queue.try_recv() {
                    Ok(message) => next = message,
                    Err(_) => break,
                }
            }
            // Soft commands join a batch; they start one only when no other message is queued.
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
        let emptied = self.db.checkpoint_truncate();
        if emptied == Ok(false) {
            tracing::warn!(
                "a reader prevented the WAL from being truncated; the next start truncates it"
            );
        }
        if let Err(fault) = emptied {
            tracing::warn!(%fault, "the WAL could not be truncated; the next start truncates it");
        }
    }

    /// Executes a batch in one transaction, and answers after its commit.
    fn commit(&mut self, mut batch: Vec<Box<dyn Job>>) {
        let began = self.clock.monotonic();
        let done = match self.execute_batch(&mut batch) {
            Err(BatchError::CommandFailed(at, fault)) => {
                self.execute_with_savepoints(&mut batch, at, &fault)
            }
            done => done,
        };
        match done.and_then(|done| self.delimit("COMMIT").map(|()| done)) {
            Ok(done) => {
                metrics().committed(batch.len(), self.clock.monotonic() - began);
                match self.look_after_files() {
                    Ok(()) => self.answer(batch, done),
                    Err(fault) => refuse(batch, &fault),
                }
            }
            Err(BatchError::CommandFailed(_, fault) | BatchError::Lost(fault)) => {
                self.lost(batch, &fault)
            }
        }
    }

    /// Executes the commands without savepoints, which cost a copy of every page that a command
    /// touches. A command that is refused before it has written needs none.
    fn execute_batch(&mut self, batch: &mut [Box<dyn Job>]) -> Result<Vec<Done>, BatchError> {
        self.delimit("BEGIN IMMEDIATE")?;
        let mut all = Vec::with_capacity(batch.len());
        for (at, job) in batch.iter_mut().enumerate() {
            let before = self.db.changes();
            let done = self.carry_out(job.as_mut())?;
            if let Err(fault) = &done
                && self.db.changes() != before
            {
                self.roll_back();
                return Err(BatchError::CommandFailed(at, fault.clone()));
            }
            self.audit(job.as_ref(), &done)?;
            all.push(done);
        }
        Ok(all)
    }

    /// Executes the commands again, each in a savepoint of its own, except for the one at `spoilt`,
    /// which already has its answer.
    fn execute_with_savepoints(
        &mut self,
        batch: &mut [Box<dyn Job>],
        spoilt: usize,
        fault: &Fault,
    ) -> Result<Vec<Done>, BatchError> {
        self.delimit("BEGIN IMMEDIATE")?;
        let mut all = Vec::with_capacity(batch.len());
        for (at, job) in batch.iter_mut().enumerate() {
            let done = if at == spoilt {
                Err(fault.clone())
            } else {
                self.delimit("SAVEPOINT command")?;
                let done = self.carry_out(job.as_mut())?;
                if done.is_err() {
                    self.delimit("ROLLBACK TO command")?;
                    self.sequence.undone();
                }
                self.delimit("RELEASE command")?;
                done
            };
            self.audit(job.as_ref(), &done)?;
            all.push(done);
        }
        Ok(all)
    }

    /// Writes the audit row of a command's call in the same transaction as the command.
    fn audit(&mut self, job: &dyn Job, done: &Done) -> Result<(), BatchError> {
        let (Some(entry), Some(outcome)) = (job.audit(), audit::outcome(done)) else {
            return Ok(());
        };
        let object = if done.is_ok() { job.object() } else { None };
        let written = self.sequence.take(&mut self.db, 1).and_then(|seq| {
            let now = self.clock.now();
            audit::insert(&mut self.db, seq, now, entry, object.as_deref(), outcome)
        });
        self.audited += 1;
        let pruned = match self.audited.is_multiple_of(PRUNE_EACH) {
            true => audit::prune(&mut self.db, self.settings.audit_rows),
            false => Ok(()),
        };
        written.and(pruned).map_err(|fault| {
            self.check_fatal(&fault);
            BatchError::Lost(Fault::from(fault))
        })
    }

    /// Executes one command. A panic in it becomes an error reply and does not end the thread.
    fn carry_out(&mut self, job: &mut dyn Job) -> Result<Done, BatchError> {
        let name = job.name();
        reach_edge(name, "begin");
        let done = catch_unwind(AssertUnwindSafe(|| {
            reach("store.command_panics");
            job.execute(self.transaction())
        }))
        .unwrap_or_else(|_| {
            tracing::error!(
                command = name,
                "a store command panicked; it was rolled back"
            );
            Err(Fault::internal(format!(
                "store command {name} panicked; it was rolled back"
            )))
        });
        self.noticed.rows(self.db.take_bad());
        if self.db.is_corrupt() {
            // Writes based on other pages must not be mixed with the damaged one.
            self.noticed.corrupt("a write found a damaged page");
            self.check_fatal(&DbError {
                kind: DbErrorKind::Corrupt,
                message: "a page of the database file is damaged".to_owned(),
            });
        }
        reach_edge(name, "applied");
        if self.db.in_transaction() {
            return Ok(done);
        }
        // The engine rolled back the whole transaction (it does so on a full disk): earlier
        // commands of this batch are undone as well, and none of them may be answered as done.
        let why = done.err();
        Err(BatchError::Lost(why.unwrap_or_else(|| {
            Fault::internal("the engine rolled back the transaction")
        })))
    }

    fn transaction(&mut self) -> Transaction<'_> {
        Transaction {
            tx: &mut self.db,
            clock: &self.clock,
            settings: &self.settings,
            sequence: &mut self.sequence,
        }
    }

    /// Runs a statement that begins or ends a transaction or a savepoint. If it fails, the whole
    /// batch is undone, so that no arbitrary part of it is committed.
    fn delimit(&mut self, sql: &str) -> Result<(), BatchError> {
        let Err(fault) = self.db.execute(sql, &[]) else {
            return Ok(());
        };
        self.check_fatal(&fault);
        Err(BatchError::Lost(Fault::from(fault)))
    }

    /// Rolls back the transaction, if one is still open.
    fn roll_back(&mut self) {
        self.sequence.undone();
        if self.db.in_transaction()
            && let Err(fault) = self.db.execute("ROLLBACK", &[])
        {
            tracing::error!(%fault, "a transaction could not be rolled back");
            self.check_fatal(&fault);
        }
    }

    /// Passes on the effects of a committed batch and answers its callers.
    fn answer(&self, batch: Vec<Box<dyn Job>>, done: Vec<Done>) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        for job in &batch {
            reach_edge(job.name(), "committed");
        }
        if let Some(last) = self.sequence.last() {
            self.head.send_if_modified(|head| {
                let rises = last > *head;
                *head = last.max(*head);
                rises
            });
        }
        let mut effects = Vec::new();
        let mut outcomes = Vec::with_capacity(batch.len());
        for done in done {
            outcomes.push(done.map(|mut caused| effects.append(&mut caused)));
        }
        if !effects.is_empty() {
            // The receiver is gone while the daemon stops; the rows show what is left to do.
            let _ = self.effects.send(effects);
        }
        for (job, outcome) in batch.into_iter().zip(outcomes) {
            let name = job.name();
            job.answer(outcome);
            reach_edge(name, "answered");
        }
    }

    /// If the store's files are gone, saves their whole content elsewhere and ends the process. If
    /// saving fails, returns an error, because nothing may be answered as kept.
    fn look_after_files(&mut self) -> Result<(), Fault> {
        let Some(moved) = self.placement.look() else {
            return Ok(());
        };
        // Recorded once, however often saving is retried.
        if !self.placement.is_lost()
            && let Err(fault) = self.record_move(&moved)
        {
            tracing::warn!(%fault, "the event log could not record that the store's files are gone");
        }
        match self.placement.save(&mut self.db, &moved, &self.clock) {
            Ok(path) => {
                let (what, path) = (&moved.what, path.display());
                (self.on_fatal)(format!("{what}; all accepted work is saved in {path}"));
                Ok(())
            }
            Err(fault) => {
                tracing::error!(what = moved.what, %fault, "the content of the store could not be saved yet; it will be tried again");
                Err(self.placement.lost())
            }
        }
    }

    /// Writes an alert event about the move, so that the saved copy records what happened.
    fn record_move(&mut self, moved: &Moved) -> Result<(), DbError> {
        let alert = NewEvent {
            org: String::new(),
            session: None,
            run: None,
            data: EventData::AlertRaised(AlertRaised::StoreMoved {
                what: moved.what.clone(),
            }),
        };
        self.db.execute("BEGIN IMMEDIATE", &[])?;
        let written = self.sequence.take(&mut self.db, 1).and_then(|cursor| {
            let now = self.clock.now();
            events::insert(&mut self.db, cursor, &alert, &Circumstances::default(), now)
        });
        let end = if written.is_ok() {
            "COMMIT"
        } else {
            "ROLLBACK"
        };
        self.db.execute(end, &[])?;
        written
    }

    /// Rolls back a batch and answers its callers with the reason.
    fn lost(&mut self, batch: Vec<Box<dyn Job>>, why: &Fault) {
        self.roll_back();
        tracing::error!(%why, commands = batch.len(), "a batch of writes was rolled back");
        refuse(batch, why);
    }

    /// After a failed sync the content of the disk is unknown, and a second sync could report false
    /// success: ends the process, so that recovery decides.
    fn check_fatal(&self, fault: &DbError) {
        if fault.kind == DbErrorKind::Corrupt {
            self.noticed.corrupt(&fault.message);
        }
        if matches!(
            fault.kind,
            DbErrorKind::Io | DbErrorKind::Corrupt | DbErrorKind::ReadOnly
        ) {
            (self.on_fatal)(fault.to_string());
        }
    }

    /// Waits for readers and restarts the WAL, which bounds its size.
    fn restart_log(&mut self) {
        match self.db.checkpoint_restart() {
            Ok(_) => self.checkpoints.restarted(),
            Err(fault) => tracing::warn!(%fault, "the WAL could not be restarted"),
        }
    }
}

/// Answers every caller of a batch with this fault.
fn refuse(batch: Vec<Box<dyn Job>>, why: &Fault) {
    for job in batch {
        job.answer(Err(why.clone()));
    }
}

/// The fault for a command that found the queue full.
pub fn busy() -> Fault {
    Fault::new(
        Kind::Busy,
        format!("the write queue is full ({QUEUE} writes); this write was not kept"),
    )
    .hint("try again in a moment")
    .with("retryAfterMs", 100)
}
