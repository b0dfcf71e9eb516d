//! The sockets of the daemon: TCP, with TLS if a certificate is configured, and Unix. Those that a
//! service manager passes take the place of its own.

mod passed;
pub mod tls;
pub mod unix;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;

use self::passed::PassedSockets;
use self::tls::GatewayCertificate;
use self::unix::SocketFile;
use super::DaemonFailure;
use super::state::{Endpoint, lock};
use crate::clock::Clock;
use crate::config::Config;
use crate::contract::finding::{Finding, Health};
use crate::gateway::Listeners;

/// Where clients reach this daemon.
pub struct DaemonAddress {
    /// The HTTP base URL for clients on this machine.
    pub url: String,
    /// How its TCP connections are protected.
    pub protection: Protection,
    /// The path of the Unix socket, if there is one and it is UTF-8.
    pub socket: Option<String>,
    /// Removes the Unix socket when it is dropped; a passed one is the service manager's.
    _file: Option<SocketFile>,
}

impl DaemonAddress {
    /// The certificate of TCP connections, with TLS.
    pub fn certificate(&self) -> Option<&Arc<GatewayCertificate>> {
        self.protection.certificate.as_ref()
    }
}

/// How TCP connections are protected from others on the network.
#[derive(Clone)]
pub struct Protection {
    /// The certificate, with TLS.
    pub certificate: Option<Arc<GatewayCertificate>>,
    /// The address, if other machines can reach it and it speaks no TLS.
    plain: Option<SocketAddr>,
}

impl Protection {
    /// What an operator should know of it.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(address) = self.plain {
            let message = format!(
                "connections to {address} are not encrypted (gateway.allow_plain): others on the \
                 network can read tokens and all data"
            );
            findings.push(Finding::new("listen.plain", Health::Warn, message).fix(
                "abide tls new --use, then restart the daemon; or let a proxy encrypt, and listen \
                 on 127.0.0.1",
            ));
        }
        let certificate = self.certificate.iter();
        findings.extend(certificate.flat_map(|certificate| certificate.findings()));
        findings
    }
}

/// Once this returns, clients can connect, and wait until they are accepted. `folder` is the locked
/// state folder.
pub async fn open(
    folder: &Path,
    config: &Config,
    clock: &Clock,
) -> Result<(Listeners, DaemonAddress), DaemonFailure> {
    let address = config.listen;
    let certificate = GatewayCertificate::open(config, clock)?;
    let passed = PassedSockets::take(config)?;
    let tcp = match passed.tcp {
        Some(tcp) => tcp,
        None => bind(address, Endpoint::read(folder), clock).await?,
    };
    let local = tcp.local_addr().map_err(|fault| {
        let what = format!("the local address of {address} could not be read");
        DaemonFailure::System(what, fault)
    })?;
    let (unix, path, file) = match passed.unix {
        Some((unix, path)) => (Some(unix), Some(path), None),
        None => match unix::listen(folder, config.socket.as_deref(), clock).await? {
            Some((unix, file)) => (Some(unix), Some(file.path().to_owned()), Some(file)),
            None => (None, None, None),
        },
    };
    let path = path.as_deref().and_then(Path::to_str);
    let scheme = match certificate {
        Some(_) => "https",
        None => "http",
    };
    let identity = certificate.as_ref().map(|own| own.identity());
    let protection = Protection {
        plain: (identity.is_none() && !local.ip().to_canonical().is_loopback()).then_some(local),
        certificate,
    };
    for finding in protection.findings() {
        if finding.status != Health::Ok {
            tracing::warn!("{}", finding.message);
        }
    }
    let address = DaemonAddress {
        url: format!("{scheme}://{}", reachable(local)),
        protection,
        socket: path.map(str::to_owned),
        _file: file,
    };
    let listeners = Listeners {
        tcp,
        identity,
        unix,
    };
    Ok((listeners, address))
}

/// The address by which this machine reaches a listener: "any address" is none to connect to.
fn reachable(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, local.port())
}

/// Listens at `address`. Waits while the address is in use, longer if `left`, the endpoint of the
/// previous process, names the same address: that process may still be ending.
async fn bind(
    address: SocketAddr,
    left: Option<Endpoint>,
    clock: &Clock,
) -> Result<TcpListener, DaemonFailure> {
    let was_ours = left.and_then(|left| left.address()) == Some(reachable(address));
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
