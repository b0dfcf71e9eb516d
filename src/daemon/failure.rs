//! Why the daemon did not start or did not end well, with its exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::task::JoinError;

use crate::store::OpenError;

/// Why the daemon did not start or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Another daemon holds the state folder.
    #[error(
        "{folder} is held by another abide ({holder}). Nothing was changed. Use it as it is, end \
         it with `abide stop`, or choose another --state-dir"
    )]
    Held {
        /// The state folder.
        folder: PathBuf,
        /// What the lock file says about the holder.
        holder: String,
    },
    /// The daemon that held the state folder is ending, but has not ended in time.
    #[error(
        "{folder} is still held by an abide that is ending ({holder}). Nothing was changed. Start \
         again when its process is gone"
    )]
    Ending {
        /// The state folder.
        folder: PathBuf,
        /// What the lock file says about the holder.
        holder: String,
    },
    /// Somebody listens on the address.
    #[error(
        "{0} is in use by another program. Nothing was started. Free it, or choose another with \
         --listen (port 0 picks a free one)"
    )]
    AddressTaken(SocketAddr),
    /// Somebody answers at the Unix socket.
    #[error(
        "another daemon answers at {0}. Nothing was started. End it, or choose another socket \
         with --socket"
    )]
    SocketTaken(PathBuf),
    /// Something else is where the Unix socket should be.
    #[error("{0} is no socket and was left as it is. Choose another path with --socket")]
    NoSocket(PathBuf),
    /// The system does not allow it.
    #[error("{0}: {1}. Nothing was changed")]
    NotPermitted(String, io::Error),
    /// The folder is in use for something else.
    #[error(
        "{folder} holds other files and is open to others (mode {mode:o}): not taken over as a \
         state folder. Name another with --state-dir, or close it with: chmod 700"
    )]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Others could have put something there.
    #[error("{path} is not used: {why}. Nothing was started. {advice}")]
    Unsafe {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        advice: String,
    },
    /// The system failed.
    #[error("{0}: {1}")]
    System(String, io::Error),
    /// The disk is full.
    #[error(
        "the disk with {0} is full. Nothing was started and nothing was lost. Free some space, and \
         start again"
    )]
    NoRoom(PathBuf),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed while it was open: why, what was kept, and what to do.
    #[error("the store failed: {0}")]
    Store(String),
    /// A setting cannot be used.
    #[error("{0}")]
    Config(String),
}

impl Failure {
    /// A loop that must not end has ended.
    pub(super) fn loop_ended(what: &str, how: Result<(), JoinError>) -> Self {
        let why = match how {
            Ok(()) => "it returned".to_owned(),
            Err(fault) => fault.to_string(),
        };
        Failure::store(&format!("the {what}'s loop ended: {why}"))
    }

    /// The store failed, and has all that was accepted.
    pub(super) fn store(why: &str) -> Self {
        Failure::Store(format!(
            "{why}. What was accepted is kept; the next start goes on with it"
        ))
    }

    /// Nobody can call any more.
    pub(super) fn doors_ended(how: Result<io::Result<()>, JoinError>) -> Self {
        match how {
            Ok(Err(fault)) => {
                Failure::System("connections are not accepted any more".to_owned(), fault)
            }
            Ok(Ok(())) => Failure::loop_ended("gateway", Ok(())),
            Err(fault) => Failure::loop_ended("gateway", Err(fault)),
        }
    }

    /// The exit code, after `sysexits.h`: 74 store, 75 held, taken or locked, 77 permissions, 78
    /// configuration, 71 the system.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Held { .. }
            | Failure::Ending { .. }
            | Failure::AddressTaken(_)
            | Failure::SocketTaken(_)
            | Failure::Open(OpenError::Locked { .. }) => 75,
            Failure::NotPermitted(..)
            | Failure::NotOurs { .. }
            | Failure::Unsafe { .. }
            | Failure::Open(OpenError::ReadOnly { .. }) => 77,
            Failure::Open(_) | Failure::Store(_) | Failure::NoRoom(_) => 74,
            Failure::Config(_) | Failure::NoSocket(_) => 78,
            Failure::System(..) => 71,
        }
    }
}
