//! Why pairing or a link ended, for people and for exit codes.

use std::path::Path;

use crate::client::ClientError;
use crate::kernel::node::RefusalReason;

/// Why a node cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// A file of the node's settings is not valid.
    #[error("{0}")]
    Settings(String),
    /// No gateway has this name.
    #[error("{0}")]
    NotFound(String),
    /// The machine is paired with this gateway already.
    #[error(
        "this machine is already paired with this gateway: here it is {gateway}, there this machine is {name}"
    )]
    Paired {
        /// The name of the gateway on this machine.
        gateway: String,
        /// The name of this machine at the gateway.
        name: String,
    },
    /// Something on this machine failed.
    #[error("{0}")]
    Local(String),
    /// Another process serves this gateway.
    #[error("{0}")]
    Held(String),
    /// The gateway could not be reached, or the link was lost. It is tried again.
    #[error("{0}")]
    Lost(String),
    /// The gateway has another key than the one that was pinned.
    #[error(
        "the gateway at {url} has another key than before, and nothing was sent to it. Known: {known}, \
         now: {found}"
    )]
    KeyChanged {
        /// The address of the gateway.
        url: String,
        /// The fingerprint of the pinned key.
        known: String,
        /// The fingerprint of the key that it shows now.
        found: String,
    },
    /// The certificate of the gateway is not acceptable.
    #[error("{0}")]
    Untrusted(String),
    /// The gateway does not accept the node's token.
    #[error("the gateway at {url} does not accept the token of this node")]
    Unauthorized {
        /// The address of the gateway.
        url: String,
    },
    /// The gateway has refused the node.
    #[error("{message}")]
    Refused {
        /// Why.
        reason: RefusalReason,
        /// The gateway's message.
        message: String,
    },
}

impl NodeError {
    /// An error of the file system.
    pub(super) fn file(path: &Path, fault: impl std::fmt::Display) -> NodeError {
        NodeError::Local(format!("{}: {fault}", path.display()))
    }

    /// True if the same attempt may succeed later.
    pub fn is_temporary(&self) -> bool {
        match self {
            NodeError::Lost(_) => true,
            NodeError::Refused { reason, .. } => *reason == RefusalReason::Busy,
            _ => false,
        }
    }

    /// Stable name for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            NodeError::Settings(_) => "config",
            NodeError::NotFound(_) => "not_found",
            NodeError::Paired { .. } => "paired",
            NodeError::Local(_) => "local",
            NodeError::Held(_) => "held",
            NodeError::Lost(_) => "no_daemon",
            NodeError::KeyChanged { .. } => "key_changed",
            NodeError::Untrusted(_) => "untrusted",
            NodeError::Unauthorized { .. } => "unauthorized",
            NodeError::Refused { reason, .. } => reason.as_str(),
        }
    }

    /// The exit code of a process that ends by it.
    pub fn exit_code(&self) -> u8 {
        match self {
            NodeError::Local(_) => 1,
            NodeError::NotFound(_) => 3,
            NodeError::Refused { .. } | NodeError::Paired { .. } => 9,
            NodeError::Lost(_) => 10,
            NodeError::Unauthorized { .. }
            | NodeError::KeyChanged { .. }
            | NodeError::Untrusted(_) => 11,
            NodeError::Held(_) => 75,
            NodeError::Settings(_) => 78,
        }
    }
}

impl From<ClientError> for NodeError {
    fn from(error: ClientError) -> NodeError {
        match error {
            ClientError::Url { .. } => NodeError::Settings(error.to_string()),
            ClientError::OtherCertificate { url, pinned, shown } => NodeError::KeyChanged {
                url,
                known: pinned.to_string(),
                found: shown.to_string(),
            },
            ClientError::Untrusted { .. } => NodeError::Untrusted(error.to_string()),
            ClientError::Unauthorized { url } => NodeError::Unauthorized { url },
            error => NodeError::Lost(error.to_string()),
        }
    }
}
