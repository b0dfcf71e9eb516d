//! What a door may ask of the process itself.

use std::time::Duration;

use super::finding::Finding;
use crate::kernel::fault::Fault;

/// How far the daemon has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Restoring rows; nothing runs yet.
    Starting {
        /// Rows restored.
        done: u64,
        /// Rows to restore.
        total: u64,
    },
    /// At work.
    Ready,
    /// Takes no work, and lets what is under way come to rest.
    Draining,
}

/// What follows a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The process ends.
    Stop,
    /// The process ends and is started again.
    Restart,
    /// Work is taken again.
    Resume,
}

impl Then {
    /// The word on the wire and in the event log.
    pub fn as_str(self) -> &'static str {
        match self {
            Then::Stop => "stop",
            Then::Restart => "restart",
            Then::Resume => "resume",
        }
    }
}

/// An order to drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long steps in flight may go on; as configured if unset.
    pub timeout: Option<Duration>,
    /// What follows.
    pub then: Then,
}

/// What a door may ask of the process itself.
pub trait Control: Send + Sync + 'static {
    /// How far the daemon has come.
    fn phase(&self) -> Phase;

    /// What there is to say about the folder, the disk and the system around the process.
    fn surroundings(&self) -> Vec<Finding>;

    /// Begins a drain; returns at once, with how long steps in flight may go on. While one is
    /// under way already, only one that would resume can be turned into one that ends.
    fn drain(&self, order: Drain) -> Result<Duration, Fault>;
}
