//! The Unix socket: its path, its access mode, and the protection of another daemon's socket.
//! Called at start, while the state folder's lock is held, and by `abide doctor`.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::clock::Clock;
use crate::contract::finding::{Finding, Health};
use crate::daemon::DaemonFailure;
use crate::daemon::state::lock;

/// The socket's file name in the state folder.
pub const FILE: &str = "abide.sock";
/// Maximum length of a socket path in bytes. The limits of the systems are 108 and 104, including
/// the terminating zero.
const LONGEST: usize = 103;

/// The file of a listening socket; it is removed when this is dropped.
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file, so that only this one is ever removed.
    identity: (u64, u64),
}

impl SocketFile {
    /// The path to connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(fault) = fs::remove_file(&self.path)
        {
            tracing::warn!(%fault, path = %self.path.display(), "the socket file could not be removed");
        }
    }
}

/// Listens at `named`, else in the state folder, else, if that path is too long, in this login's
/// runtime folder. `None` if no path is short enough.
pub async fn listen(
    folder: &Path,
    named: Option<&Path>,
    clock: &Clock,
) -> Result<Option<(UnixListener, SocketFile)>, DaemonFailure> {
    let Some(path) = place(folder, named, runtime_folder().as_deref())? else {
        tracing::warn!(
            folder = %folder.display(),
            "no Unix socket: the folder's path is too long and XDG_RUNTIME_DIR is not set; \
             choose a path with --socket"
        );
        return Ok(None);
    };
    if let Some(parent) = path.parent() {
        private_folder(parent)?;
    }
    clear(&path, clock).await?;
    // The runtime owns the listener from here on. Clients that connect before the mode is set are
    // rejected by their user id.
    let listener = UnixListener::bind(&path).map_err(|fault| refused(&path, fault))?;
    let identity = fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
        .and_then(|()| identity(&path))
        .map_err(|fault| refused(&path, fault))?;
    Ok(Some((listener, SocketFile { path, identity })))
}

/// The socket at which a service manager waits for connections to start the daemon of this folder;
/// `None` if it does not. The question is such a connection.
pub fn service_managers(folder: &Path, named: Option<&Path>) -> Option<PathBuf> {
    let path = place(folder, named, runtime_folder().as_deref()).ok()??;
    is_of_systemd(&path).then_some(path)
}

fn is_of_systemd(path: &Path) -> bool {
    opener(path).is_some_and(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim().starts_with("systemd"))
    })
}

/// The process that opened the listening socket at `path`; `None` if no process listens there, or if
/// this system cannot tell. The question is a connection.
pub fn opener(path: &Path) -> Option<i32> {
    let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
    // The credentials of a listening socket are those of the process that opened it.
    #[cfg(target_os = "linux")]
    {
        let opener = rustix::net::sockopt::socket_peercred(&stream).ok()?;
        Some(opener.pid.as_raw_nonzero().get())
    }
    #[cfg(not(target_os = "linux"))]
    {
        drop(stream);
        None
    }
}

/// The doctor's finding on a socket at which a service manager waits.
pub fn activating(path: &Path) -> Finding {
    let message = format!(
        "systemd listens on {} and starts the daemon at the first connection",
        path.display()
    );
    Finding::new("gateway.socket", Health::Ok, message)
}

/// The doctor's finding on the socket of this state folder. `is_running`: a daemon holds the
/// folder. `told`: the socket in its `endpoint.json`, if there is one.
pub fn look(
    folder: &Path,
    named: Option<&Path>,
    is_running: bool,
    told: Option<Option<String>>,
) -> Finding {
    let id = "gateway.socket";
    let usual = place(folder, named, runtime_folder().as_deref());
    let path = match (told, usual) {
        (Some(Some(path)), _) => PathBuf::from(path),
        (None, Ok(Some(path))) => path,
        (_, Err(failure)) => return Finding::new(id, Health::Fail, failure.to_string()),
        (_, Ok(None)) => {
            return Finding::new(
                id,
                Health::Warn,
                format!(
                    "there is no Unix socket: the path of {} is too long for one and \
                     XDG_RUNTIME_DIR is not set; clients use the address and the token",
                    folder.display()
                ),
            )
            .fix("choose a shorter path: gateway.socket, or --socket");
        }
        (Some(None), Ok(Some(_))) => {
            return Finding::new(id, Health::Warn, "the running daemon has no Unix socket")
                .fix("restart it; its log says why");
        }
    };
    let shown = path.display();
    let found = match fs::symlink_metadata(&path) {
        Ok(found) => found,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound && !is_running => {
            return Finding::new(id, Health::Ok, format!("the next start creates {shown}"));
        }
        Err(fault) => {
            return Finding::new(id, Health::Fail, format!("{shown}: {fault}"))
                .fix("restart the daemon: it creates its socket again");
        }
    };
    if !found.file_type().is_socket() {
        return Finding::new(id, Health::Fail, format!("{shown} is not a socket"))
            .fix("move it away, or choose another path: gateway.socket");
    }
    let own = rustix::process::geteuid();
    if found.uid() != own.as_raw() && !own.is_root() {
        let message = format!("{shown} is owned by another user");
        return Finding::new(id, Health::Fail, message)
            .fix("run as the user who started the daemon, or choose another path: gateway.socket");
    }
    if found.mode() & 0o077 != 0 {
        let message = format!(
            "{shown} is accessible to other users (mode {:o})",
            found.mode() & 0o777
        );
        return Finding::new(id, Health::Fail, message).fix(format!("chmod 600 {shown}"));
    }
    match (std::os::unix::net::UnixStream::connect(&path), is_running) {
        (Ok(_), true) => Finding::new(
            id,
            Health::Ok,
            format!("the daemon accepts connections at {shown}"),
        ),
        (Ok(_), false) => {
            let message = format!("another daemon is listening on {shown}");
            Finding::new(id, Health::Fail, message)
                .fix("stop it, or choose another path: gateway.socket")
        }
        (Err(fault), true) => {
            let message = format!("cannot connect to {shown}: {fault}");
            Finding::new(id, Health::Fail, message).fix("restart the daemon")
        }
        (Err(_), false) => {
            let message = format!("{shown} was left behind by a daemon that was killed");
            Finding::new(id, Health::Warn, message).fix(format!(
                "the next start replaces it; to remove it now: rm {shown}"
            ))
        }
    }
}

fn place(
    folder: &Path,
    named: Option<&Path>,
    runtime: Option<&Path>,
) -> Result<Option<PathBuf>, DaemonFailure> {
    if let Some(named) = named {
        return match fits(named) {
            true => Ok(Some(named.to_owned())),
            false => Err(DaemonFailure::Config(format!(
                "{} has {} bytes, but a socket path may have at most {LONGEST}. Choose a \
                 shorter one with --socket or gateway.socket",
                named.display(),
                named.as_os_str().len()
            ))),
        };
    }
    let usual = folder.join(FILE);
    if fits(&usual) {
        return Ok(Some(usual));
    }
    // One path per state folder, the same at every start.
    let digest = blake3::hash(folder.as_os_str().as_bytes()).to_hex();
    let other = runtime.map(|runtime| {
        runtime
            .join("abide")
            .join(format!("{}.sock", &digest[..16]))
    });
    Ok(other.filter(|other| fits(other)))
}

fn fits(path: &Path) -> bool {
    path.as_os_str().len() <= LONGEST
}

fn runtime_folder() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// Once this returns, the folder exists, and no other user can replace the socket in it.
pub(super) fn private_folder(folder: &Path) -> Result<(), DaemonFailure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| fs::metadata(folder))
        .map_err(|fault| refused(folder, fault))
        .and_then(|found| {
            let own = [0, rustix::process::geteuid().as_raw()].contains(&found.uid());
            let sticky = found.mode() & 0o1000 != 0;
            if own && (sticky || found.mode() & 0o022 == 0) {
                return Ok(());
            }
            Err(DaemonFailure::Unsafe {
                path: folder.to_owned(),
                why: format!(
                    "it is owned by user {} with mode {:o}: others could put a socket into the \
                     place of the daemon's",
                    found.uid(),
                    found.mode() & 0o777
                ),
                advice: "Choose a folder of your own for the socket: --socket, or gateway.socket"
                    .to_owned(),
            })
        })
}

/// Once this returns, nothing is at `path`; the failure says that a daemon listens there. A killed
/// daemon leaves its socket behind, and a program that it has just forked may hold it open for a
/// moment.
async fn clear(path: &Path, clock: &Clock) -> Result<(), DaemonFailure> {
    let began = clock.monotonic();
    loop {
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(fault) => return Err(refused(path, fault)),
        };
        if !found.file_type().is_socket() {
            return Err(DaemonFailure::NoSocket(path.to_owned()));
        }
        match UnixStream::connect(path).await {
            Ok(stream) if !is_left_behind(&stream) => {
                if clock.monotonic() - began >= lock::HOLDER_TIMEOUT {
                    return Err(DaemonFailure::SocketTaken(path.to_owned()));
                }
                tokio::time::sleep(lock::RETRY_INTERVAL).await;
            }
            // The daemon is ending (reset), or does not accept connections (its queue is full):
            // which one becomes clear soon.
            Err(fault)
                if matches!(
                    fault.kind(),
                    io::ErrorKind::ConnectionReset
                        | io::ErrorKind::WouldBlock
                        | io::ErrorKind::Interrupted
                ) =>
            {
                if clock.monotonic() - began >= lock::HOLDER_TIMEOUT {
                    return Err(DaemonFailure::SocketTaken(path.to_owned()));
                }
                tokio::time::sleep(lock::RETRY_INTERVAL).await;
            }
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => {}
            Err(fault) if fault.kind() != io::ErrorKind::ConnectionRefused => {
                return Err(refused(path, fault));
            }
            Ok(_) | Err(_) => {
                tracing::info!(path = %path.display(), "replacing a socket that an earlier daemon left behind");
                return fs::remove_file(path).map_err(|fault| refused(path, fault));
            }
        }
    }
}

/// True if the process that created the socket has exited or is about to exit.
fn is_left_behind(stream: &UnixStream) -> bool {
    let made_by = stream.peer_cred().ok().and_then(|peer| peer.pid());
    made_by
        .and_then(|pid| u32::try_from(pid).ok())
        // 0: a process in another pid namespace, whose state is unknown here.
        .is_some_and(|pid| pid != 0 && crate::process::is_ending(pid))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

fn refused(path: &Path, fault: io::Error) -> DaemonFailure {
    let what = format!("{} cannot be used for the Unix socket", path.display());
    match fault.kind() {
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists => DaemonFailure::NotPermitted(what, fault),
        io::ErrorKind::AddrInUse => DaemonFailure::SocketTaken(path.to_owned()),
        _ => DaemonFailure::System(what, fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_long_path_has_its_socket_in_the_runtime_folder() {
        let short = Path::new("/srv/a/state/abide");
        let runtime = Path::new("/run/user/1000");
        let at = |folder: &Path, runtime| place(folder, None, runtime).unwrap();
        assert_eq!(at(short, Some(runtime)), Some(short.join(FILE)));
        let long = PathBuf::from(format!("/{}", "long/".repeat(30)));
        let other = at(&long, Some(runtime)).unwrap();
        assert!(other.starts_with("/run/user/1000/abide"), "{other:?}");
        assert_eq!(at(&long, Some(runtime)), Some(other.clone()));
        assert_ne!(at(&long.join("b"), Some(runtime)), Some(other));
        assert_eq!(at(&long, None), None);
        assert_eq!(at(&long, Some(&long)), None);
        // Exactly the maximum length.
        let most = PathBuf::from(format!("/{}", "x".repeat(LONGEST - 1)));
        assert_eq!(place(short, Some(&most), None).unwrap(), Some(most.clone()));
        let refused = place(short, Some(&most.join("y")), None).unwrap_err();
        assert_eq!(refused.exit_code(), 78);
        assert!(refused.to_string().contains("103"), "{refused}");
    }
}
