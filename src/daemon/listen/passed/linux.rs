//! Takes over the sockets of systemd's protocol: descriptors from 3 on, their number in `LISTEN_FDS`,
//! and this process in `LISTEN_PID`.

use std::net::TcpListener as StdTcpListener;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tokio::net::{TcpListener, UnixListener};

use super::PassedSockets;
use crate::config::Config;
use crate::daemon::DaemonFailure;
use crate::daemon::listen::unix;

/// As [`PassedSockets::take`].
pub fn take(config: &Config) -> Result<PassedSockets, DaemonFailure> {
    let numbers = sd_notify::listen_fds()
        .map_err(|fault| refused(&format!("LISTEN_FDS cannot be used: {fault}")))?;
    let mut sockets = PassedSockets::default();
    for number in numbers {
        let socket = owned(number)?;
        add(&mut sockets, number, socket, config)?;
    }
    if let Some((_, path)) = &sockets.unix {
        tracing::info!(path = %path.display(), "listening on the socket of the service manager");
    }
    Ok(sockets)
}

fn add(
    sockets: &mut PassedSockets,
    number: RawFd,
    socket: OwnedFd,
    config: &Config,
) -> Result<(), DaemonFailure> {
    let is_listening =
        socket_acceptconn(&socket) == Ok(true) && socket_type(&socket) == Ok(SocketType::STREAM);
    let family = socket_domain(&socket).ok().filter(|_| is_listening);
    match family {
        Some(AddressFamily::INET | AddressFamily::INET6) if sockets.tcp.is_none() => {
            sockets.tcp = Some(tcp(number, socket, config)?);
        }
        Some(AddressFamily::UNIX) if sockets.unix.is_none() => {
            sockets.unix = Some(local(number, socket)?);
        }
        Some(AddressFamily::INET | AddressFamily::INET6 | AddressFamily::UNIX) => {
            return Err(refused(&format!(
                "descriptor {number} is a second socket of its kind, and the daemon listens on one \
                 address and one Unix socket"
            )));
        }
        _ => {
            return Err(refused(&format!(
                "descriptor {number} is no listening stream socket"
            )));
        }
    }
    Ok(())
}

/// The descriptor under another number, which no program inherits. Its own number is closed.
fn owned(number: RawFd) -> Result<OwnedFd, DaemonFailure> {
    // Without unsafe code, a number becomes a descriptor only through the kernel.
    let duplicate = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|this| pidfd_getfd(this, number, PidfdGetfdFlags::empty()))
        .map_err(|fault| not_taken(number, fault))?;
    // It is valid, since it was duplicated.
    let _ = nix::unistd::close(number);
    Ok(duplicate)
}

/// The failure to take over a descriptor. Where the system has or permits no such call, a repeated start
/// would fail as well.
fn not_taken(number: RawFd, fault: Errno) -> DaemonFailure {
    let what = format!("descriptor {number} of the service manager cannot be taken over");
    match fault {
        Errno::PERM | Errno::NOSYS => refused(&format!(
            "{what}: pidfd_getfd fails ({fault}). Linux is older than 5.6, or a filter of system calls, \
             such as that of a container, forbids it"
        )),
        _ => DaemonFailure::System(what, fault.into()),
    }
}

fn tcp(number: RawFd, socket: OwnedFd, config: &Config) -> Result<TcpListener, DaemonFailure> {
    let socket = StdTcpListener::from(socket);
    let address = socket
        .local_addr()
        .map_err(|fault| unusable(number, fault))?;
    if config.exposes(address) {
        return Err(refused(&format!(
            "other machines can reach {address}, the address of descriptor {number}, so it needs \
             TLS: set gateway.tls_cert_file and gateway.tls_key_file (abide tls new makes both), or \
             gateway.allow_plain"
        )));
    }
    socket
        .set_nonblocking(true)
        .and_then(|()| TcpListener::from_std(socket))
        .map_err(|fault| unusable(number, fault))
}

fn local(number: RawFd, socket: OwnedFd) -> Result<(UnixListener, PathBuf), DaemonFailure> {
    let socket = StdUnixListener::from(socket);
    let address = socket
        .local_addr()
        .map_err(|fault| unusable(number, fault))?;
    let Some(path) = address.as_pathname() else {
        return Err(refused(&format!(
            "descriptor {number} is a Unix socket without a path, which clients could not find"
        )));
    };
    if let Some(parent) = path.parent() {
        unix::private_folder(parent)?;
    }
    socket
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(socket))
        .map(|listener| (listener, path.to_owned()))
        .map_err(|fault| unusable(number, fault))
}

fn unusable(number: RawFd, fault: std::io::Error) -> DaemonFailure {
    let what = format!("descriptor {number} of the service manager cannot be used");
    DaemonFailure::System(what, fault)
}

fn refused(why: &str) -> DaemonFailure {
    DaemonFailure::Config(format!(
        "{why}. Nothing was started. Correct the sockets of the service manager (for systemd: \
         abide.socket), or switch them off"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_the_call_is_not_asked_again() {
        for fault in [Errno::PERM, Errno::NOSYS] {
            let failure = not_taken(3, fault);
            assert_eq!(failure.exit_code(), 78);
            let said = failure.to_string();
            assert!(said.contains("pidfd_getfd"), "{said}");
            assert!(said.contains("Nothing was started"), "{said}");
        }
        assert_eq!(not_taken(3, Errno::MFILE).exit_code(), 71);
    }
}
