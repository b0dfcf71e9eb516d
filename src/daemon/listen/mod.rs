//! The sockets of the daemon: TCP and Unix.

pub mod unix;

use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;

use self::unix::SocketFile;
use super::DaemonFailure;
use super::state::{Endpoint, lock};
use crate::clock::Clock;
use crate::config::Config;
use crate::gateway::Listeners;

/// Where clients reach this daemon.
pub struct DaemonAddress {
    /// The HTTP base URL.
    pub url: String,
    /// The path of the Unix socket, if there is one and it is UTF-8.
    pub socket: Option<String>,
    /// Removes the Unix socket when it is dropped.
    _file: Option<SocketFile>,
}

/// Once this returns, clients can connect, and wait until they are accepted. `folder` is the locked
/// state folder.
pub async fn open(
    folder: &Path,
    config: &Config,
    clock: &Clock,
) -> Result<(Listeners, DaemonAddress), DaemonFailure> {
    let address = config.listen;
    let tcp = bind(address, Endpoint::read(folder), clock).await?;
    let local = tcp.local_addr().map_err(|fault| {
        let what = format!("the local address of {address} could not be read");
        DaemonFailure::System(what, fault)
    })?;
    let (unix, file) = unix::listen(folder, config.socket.as_deref(), clock)
        .await?
        .unzip();
    let path = file.as_ref().and_then(|file| file.path().to_str());
    let address = DaemonAddress {
        url: format!("http://{local}"),
        socket: path.map(str::to_owned),
        _file: file,
    };
    Ok((Listeners { tcp, unix }, address))
}

/// Listens at `address`. Waits while the address is in use, longer if `left`, the endpoint of the
/// previous process, names the same address: that process may still be ending.
async fn bind(
    address: SocketAddr,
    left: Option<Endpoint>,
    clock: &Clock,
) -> Result<TcpListener, DaemonFailure> {
    let was_ours = left.and_then(|left| left.address()) == Some(address);
    let timeout = if was_ours {
        lock::ENDING_TIMEOUT
    } else {
        lock::HOLDER_TIMEOUT
    };
    let began = clock.monotonic();
    loop {
        let fault = match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(fault) => fault,
        };
        return Err(match fault.kind() {
            std::io::ErrorKind::AddrInUse if clock.monotonic() - began < timeout => {
                tokio::time::sleep(lock::RETRY_INTERVAL).await;
                continue;
            }
            std::io::ErrorKind::AddrInUse => DaemonFailure::AddressTaken(address),
            std::io::ErrorKind::PermissionDenied => {
                DaemonFailure::NotPermitted(format!("cannot listen on {address}"), fault)
            }
            _ => DaemonFailure::System(format!("cannot listen on {address}"), fault),
        });
    }
}
