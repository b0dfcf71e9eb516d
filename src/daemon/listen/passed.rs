//! The sockets that a service manager has opened and passes to this process (socket activation).
//! Connections that arrive before the daemon accepts wait in them. Called at start.

#[cfg(target_os = "linux")]
mod linux;

use std::path::PathBuf;

use tokio::net::{TcpListener, UnixListener};

use crate::config::Config;
use crate::daemon::DaemonFailure;

/// The sockets of this process's service manager; empty if it passed none.
#[derive(Default)]
pub struct PassedSockets {
    /// Replaces `gateway.listen`.
    pub tcp: Option<TcpListener>,
    /// Replaces `gateway.socket`, with its path. The service manager removes its file.
    pub unix: Option<(UnixListener, PathBuf)>,
}

impl PassedSockets {
    /// Once this returns, the passed sockets belong to this process and to none of the programs that
    /// it starts. At most one of each kind is accepted; the address must be one that `config` allows.
    pub fn take(config: &Config) -> Result<PassedSockets, DaemonFailure> {
        #[cfg(target_os = "linux")]
        return linux::take(config);
        // launchd passes sockets only to programs that call its library.
        #[cfg(not(target_os = "linux"))]
        {
            let _ = config;
            Ok(PassedSockets::default())
        }
    }
}
