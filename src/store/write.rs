//! What the writer executes: a command is a value that works in the writer's transaction and
//! returns its reply, which the caller receives after the commit.

use std::fmt::Debug;

use super::tables::boots::Sequence;
use super::tx::Tx;
use crate::clock::Clock;
use crate::contract::commit::{Effect, Settings};
use crate::kernel::fault::Fault;

/// A named write: all of it happens, or nothing. It may be submitted again when its outcome is
/// unknown: it then changes nothing more, and returns the first reply or `conflict`.
pub trait Command: Send + 'static {
    /// What the caller receives after the commit.
    type Reply: Reply;
    /// Its name, as failpoints use it.
    const NAME: &'static str;
    /// How the queue treats it.
    const CLASS: Class = Class::Regular;

    /// Executes the command in the current transaction. It may be called a second time, in a new
    /// transaction, if another command of the same batch has failed.
    fn execute(&self, on: Transaction<'_>) -> Result<Executed<Self::Reply>, Fault>;
}

/// How the queue treats a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
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
    pub settings: &'a Settings,
    /// Source of sequence numbers.
    pub sequence: &'a mut Sequence,
}

/// The result of a command, held back until the commit.
#[derive(Debug)]
pub struct Executed<R> {
    /// The reply to the caller.
    pub reply: R,
    /// Work for the registry.
    pub effects: Vec<Effect>,
}
