//! Why the daemon did not start or did not end well, with its exit code.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
    /// Somebody listens on the address.
    #[error(
        "{0} is taken by another program. Nothing was restored. Free it, or choose another with \
         --listen (port 0 picks a free one)"
    )]
    AddressTaken(SocketAddr),
    /// The system does not allow it.
    #[error("{0}: {1}. Nothing was changed")]
    NotPermitted(String, io::Error),
    /// The system failed.
    #[error("{0}: {1}")]
    System(String, io::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed while it was open.
    #[error("the store failed: {0}. What was accepted is kept; the next start goes on with it")]
    Store(String),
    /// A setting cannot be used.
    #[error("{0}")]
    Config(String),
}

impl Failure {
    /// The registry's loop ended although nobody told it to.
    pub(super) fn loop_ended(how: Result<(), tokio::task::JoinError>) -> Self {
        let why = match how {
            Ok(()) => "it returned".to_owned(),
            Err(fault) => fault.to_string(),
        };
        Failure::Store(format!("the registry's loop ended: {why}"))
    }

    /// The exit code, after `sysexits.h`: 74 store, 75 held or taken, 77 permissions, 78
    /// configuration, 71 the system.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Held { .. } | Failure::AddressTaken(_) => 75,
            Failure::NotPermitted(..) => 77,
            Failure::Open(_) | Failure::Store(_) => 74,
            Failure::Config(_) => 78,
            Failure::System(..) => 71,
        }
    }
}
