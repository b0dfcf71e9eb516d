//! What the writer executes: a command is a value that works in the writer's transaction and
//! returns its reply, which the caller receives after the commit.

use std::fmt::Debug;

use tokio::sync::oneshot;

use super::tables::audit::{self, AuditedCall};
use super::tables::boots::Sequence;
use super::tx::Tx;
use crate::clock::Clock;
use crate::contract::commit::{CommandSettings, CommitEffect};
use crate::kernel::fault::Fault;

/// A named write: all of it happens, or nothing. It may be submitted again when its outcome is
/// unknown: it then changes nothing more, and returns the first reply or `conflict`.
pub trait Command: Send + 'static {
    /// What the caller receives after the commit.
    type Reply: Reply;
    /// Its name, as failpoints use it.
    const NAME: &'static str;
    /// How the queue treats it.
    const CLASS: QueueClass = QueueClass::Regular;

    /// Executes the command in the current transaction. It may be called a second time, in a new
    /// transaction, if another command of the same batch has failed.
    fn execute(&self, on: Transaction<'_>) -> Result<Executed<Self::Reply>, Fault>;
}

/// How the queue treats a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueClass {
    /// It is accepted as long as the queue has room.
    Regular,
    /// It accepts new work, and is refused on a nearly full disk.
    NewWork,
    /// It may wait until another command starts a batch.
    Soft,
}

/// The reply of a command.
pub trait Reply: Debug + Send + 'static {
    /// The id or key of the object that the command created or moved, for its audit row.
    fn object(&self) -> Option<String> {
        None
    }
}

/// The writer's state that a command works with.
pub struct Transaction<'a> {
    /// The database, inside a transaction.
    pub tx: &'a mut dyn Tx,
    /// Source of time and ids.
    pub clock: &'a Clock,
    /// Settings that commands apply.
    pub settings: &'a CommandSettings,
    /// Source of sequence numbers.
    pub sequence: &'a mut Sequence,
}

/// The result of a command, held back until the commit.
#[derive(Debug)]
pub struct Executed<R> {
    /// The reply to the caller.
    pub reply: R,
    /// Work for the registry.
    pub effects: Vec<CommitEffect>,
}

/// A submitted command, its reply and the channel for it, without their types.
pub trait Job: Send {
    /// The name of the command.
    fn name(&self) -> &'static str;
    /// True if the command may wait until another one starts a batch.
    fn is_soft(&self) -> bool;
    /// The audit entry of the RPC call, if that has no audit row yet.
    fn audit(&self) -> Option<&AuditedCall>;
    /// Executes the command and holds its reply back. The result is the work for the registry.
    fn execute(&mut self, on: Transaction<'_>) -> Result<Vec<CommitEffect>, Fault>;
    /// The id or key of the object that the executed command created or moved.
    fn object(&self) -> Option<String>;
    /// Sends the reply, or the fault. A caller that gave up finds the outcome in the rows.
    fn answer(self: Box<Self>, done: Result<(), Fault>);
}

/// A command and the channel for its reply.
struct Submitted<C: Command> {
    command: C,
    /// The command is executed even if the caller no longer waits.
    answer: oneshot::Sender<Result<C::Reply, Fault>>,
    audit: Option<AuditedCall>,
    reply: Option<C::Reply>,
}

/// A job that takes the audit entry of the current RPC call.
pub fn job<C: Command>(
    command: C,
    answer: oneshot::Sender<Result<C::Reply, Fault>>,
) -> Box<dyn Job> {
    Box::new(Submitted {
        command,
        answer,
        audit: audit::take(),
        reply: None,
    })
}

impl<C: Command> Job for Submitted<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn is_soft(&self) -> bool {
        C::CLASS == QueueClass::Soft
    }

    fn audit(&self) -> Option<&AuditedCall> {
        self.audit.as_ref()
    }

    fn execute(&mut self, on: Transaction<'_>) -> Result<Vec<CommitEffect>, Fault> {
        let executed = self.command.execute(on)?;
        self.reply = Some(executed.reply);
        Ok(executed.effects)
    }

    fn object(&self) -> Option<String> {
        self.reply.as_ref().and_then(Reply::object)
    }

    fn answer(self: Box<Self>, done: Result<(), Fault>) {
        let Submitted { answer, reply, .. } = *self;
        let missing = || Fault::internal("the command was not executed");
        let _ = answer.send(done.and_then(|()| reply.ok_or_else(missing)));
    }
}
