//! Errors that prevent a start or a clean stop of the daemon, with their exit codes.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::task::JoinError;

use crate::store::OpenError;

/// Why the daemon did not start or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum DaemonFailure {
    /// Another daemon holds the state folder.
    #[error(
        "{folder} is in use by another abide ({holder}). Nothing was changed. Use that one, stop \
         it with `abide stop`, or choose another --state-dir"
    )]
    Held {
        /// The state folder.
        folder: PathBuf,
        /// The holder, as written in the lock file.
        holder: String,
    },
    /// The daemon that held the state folder is ending, but did not end in time.
    #[error(
        "{folder} is still held by an ending abide ({holder}). Nothing was changed. Start \
         again when its process has ended"
    )]
    Ending {
        /// The state folder.
        folder: PathBuf,
        /// The holder, as written in the lock file.
        holder: String,
    },
    /// Another program listens on the TCP address.
    #[error(
        "{0} is in use by another program. Nothing was started. Free it, or choose another with \
         --listen (port 0 picks a free one)"
    )]
    AddressTaken(SocketAddr),
    /// Another daemon listens on the Unix socket.
    #[error(
        "another daemon listens on {0}. Nothing was started. Stop it, or choose another socket \
         with --socket"
    )]
    SocketTaken(PathBuf),
    /// The socket's path exists and is not a socket.
    #[error("{0} is not a socket and was not changed. Choose another path with --socket")]
    NoSocket(PathBuf),
    /// The operating system denied an operation: what, and its error.
    #[error("{0}: {1}. Nothing was changed")]
    NotPermitted(String, io::Error),
    /// The folder holds other files, so it is not taken over as a state folder.
    #[error(
        "{folder} has other files and is open to other users (mode {mode:o}): it is not used as a \
         state folder. Choose another with --state-dir, or restrict it with: chmod 700"
    )]
    NotOurs {
        /// The folder.
        folder: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Another user could have written the folder or file.
    #[error("{path} is not used: {why}. Nothing was started. {advice}")]
    Unsafe {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What to do.
        advice: String,
    },
    /// The operating system failed: the operation, and its error.
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
    /// The store failed while it was open: the cause, what was kept, and what to do.
    #[error("the store failed: {0}")]
    Store(String),
    /// A setting cannot be used.
    #[error("{0}")]
    Config(String),
}

impl DaemonFailure {
    /// A background loop that must not end has ended.
    pub(super) fn loop_ended(what: &str, how: Result<(), JoinError>) -> Self {
        let why = match how {
            Ok(()) => "it returned".to_owned(),
            Err(fault) => fault.to_string(),
        };
        DaemonFailure::store(&format!("the {what}'s loop ended: {why}"))
    }

    /// The store failed; everything accepted is in it.
    pub(super) fn store(why: &str) -> Self {
        DaemonFailure::Store(format!(
            "{why}. All accepted work is kept; the next start continues it"
        ))
    }

    /// The gateway has ended, so no client can connect any more.
    pub(super) fn doors_ended(how: Result<io::Result<()>, JoinError>) -> Self {
        match how {
            Ok(Err(fault)) => {
                DaemonFailure::System("connections can no longer be accepted".to_owned(), fault)
            }
            Ok(Ok(())) => DaemonFailure::loop_ended("gateway", Ok(())),
            Err(fault) => DaemonFailure::loop_ended("gateway", Err(fault)),
        }
    }

    /// The exit code, based on `sysexits.h`: 74 store, 75 in use or locked, 77 permissions, 78
    /// configuration, 71 operating system.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonFailure::Held { .. }
            | DaemonFailure::Ending { .. }
            | DaemonFailure::AddressTaken(_)
            | DaemonFailure::SocketTaken(_)
            | DaemonFailure::Open(OpenError::Locked { .. }) => 75,
            DaemonFailure::NotPermitted(..)
            | DaemonFailure::NotOurs { .. }
            | DaemonFailure::Unsafe { .. }
            | DaemonFailure::Open(OpenError::ReadOnly { .. }) => 77,
            DaemonFailure::Open(_) | DaemonFailure::Store(_) | DaemonFailure::NoRoom(_) => 74,
            DaemonFailure::Config(_) | DaemonFailure::NoSocket(_) => 78,
            DaemonFailure::System(..) => 71,
        }
    }
}
