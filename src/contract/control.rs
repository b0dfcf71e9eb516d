//! What a door may ask of the process itself.

use super::finding::Finding;

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
    /// Stops taking work.
    Draining,
}

/// What a door may ask of the process itself.
pub trait Control: Send + Sync + 'static {
    /// How far the daemon has come.
    fn phase(&self) -> Phase;

    /// What there is to say about the folder, the disk and the system around the process.
    fn surroundings(&self) -> Vec<Finding>;

    /// Begins the drain that SIGTERM begins; returns at once.
    fn drain(&self);
}
