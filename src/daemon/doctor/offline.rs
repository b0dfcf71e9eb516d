//! Operations on a store while no daemon runs on it: check it, and restore a backup. Both take the
//! folder's lock first. Called by the command line.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use super::surroundings;
use crate::clock::Clock;
use crate::config::Config;
use crate::contract::finding::{Finding, Health};
use crate::daemon::DaemonFailure;
use crate::daemon::listen::unix;
use crate::daemon::state::{Endpoint, TOKEN, folder, lock};
use crate::kernel::ids::BootId;
use crate::store;
use crate::store::repair::findings;
use crate::store::{DATABASE, Placed, RestoreError};

/// Refuses a state folder that another user could have filled, or whose files another user could
/// have written or are not regular files. Changes nothing.
pub fn check_folder(state: &Path) -> Result<(), DaemonFailure> {
    folder::check(state)?;
    folder::check_files(state)
}

/// Once this returns, the state folder exists, only its owner can access it, and nothing in it is
/// refused by [`check_folder`].
pub fn prepare_folder(state: &Path) -> Result<(), DaemonFailure> {
    folder::prepare(state)?;
    folder::check_files(state)
}

/// Does a process hold this state folder, be it starting, ready or ending?
pub fn is_held(state: &Path) -> bool {
    lock::is_held(state)
}

/// The socket in this state folder by which a service manager starts the daemon: another process than
/// the one that holds the folder, if there is one, has opened it. The question is a connection.
pub fn activating_socket(state: &Path) -> Option<PathBuf> {
    let socket = state.join(unix::FILE);
    let opener = unix::opener(&socket)?;
    let is_of_daemon = match lock::holder(state) {
        Some(holder) => holder.is_none_or(|holder| holder == opener),
        None => false,
    };
    (!is_of_daemon).then_some(socket)
}

/// Was this state folder used by a daemon, but its store is gone? A start would create an empty
/// one.
pub fn has_lost_store(state: &Path) -> bool {
    // With remains of the store, or with a refused folder, a start creates none.
    let is_there = |ending: &str| state.join(format!("{DATABASE}{ending}")).exists();
    state.join(TOKEN).exists()
        && !["", "-wal", ".saved"].into_iter().any(is_there)
        && check_folder(state).is_ok()
}

/// The newest intact copy of the store in this state folder, or in `folder`.
pub fn newest_copy(state: &Path, folder: Option<&Path>) -> Option<PathBuf> {
    store::newest_copy(&state.join(DATABASE), folder)
}

/// Has an earlier boot marked the store for a check and repair at the next start?
pub fn is_to_be_repaired(state: &Path) -> bool {
    store::suspect(&state.join(DATABASE)).exists()
}

/// The result of [`look`].
#[derive(Clone, Debug)]
pub struct OfflineReport {
    /// The findings.
    pub findings: Vec<Finding>,
    /// A daemon holds the folder; only that daemon can report on its store.
    pub is_held: bool,
}

/// Checks a state folder and its environment. Changes nothing, except for permissions if `mend` is
/// set.
pub fn look(state: &Path, config: &Config, mend: bool) -> OfflineReport {
    let clock = Clock::system();
    if !state.exists() {
        let mut findings = surroundings::look(state, config.min_free, &clock, false);
        findings.push(findings::of_unexamined(&store::Unexamined::Missing));
        findings.push(port(config.listen));
        findings.push(unix::look(state, config.socket.as_deref(), false, None));
        return OfflineReport {
            findings,
            is_held: false,
        };
    }
    let boot = BootId(clock.new_id());
    let taken = lock::take(state, boot, std::process::id(), clock.now());
    let mut is_held = false;
    let held = match &taken {
        Ok(_) => Finding::new("daemon.lock", Health::Ok, "no daemon runs on this folder"),
        Err(DaemonFailure::Held { holder, .. } | DaemonFailure::Ending { holder, .. }) => {
            is_held = true;
            Finding::new(
                "daemon.lock",
                Health::Ok,
                format!("a daemon runs on this folder ({holder})"),
            )
        }
        Err(other) => Finding::new("daemon.lock", Health::Fail, other.to_string())
            .fix("make the folder writable for this user, or choose another --state-dir"),
    };
    let mut findings = vec![held];
    if !is_held {
        findings.extend(surroundings::look(state, config.min_free, &clock, mend));
        findings.push(surroundings::programs(state));
        match folder::check_files(state).map(|()| store::examine(state)) {
            Ok(Ok(health)) => findings.extend(findings::of(&health)),
            Ok(Err(why)) => findings.push(findings::of_unexamined(&why)),
            Err(refused) => findings.push(Finding::new(
                "store.integrity",
                Health::Fail,
                refused.to_string(),
            )),
        }
        // A daemon that the question starts needs the lock.
        drop(taken);
        if let Some(path) = unix::service_managers(state, config.socket.as_deref()) {
            // Its address is in use as well.
            findings.push(unix::activating(&path));
            return OfflineReport { findings, is_held };
        }
        findings.push(port(config.listen));
    } else if mend {
        findings.extend(surroundings::look(state, config.min_free, &clock, true));
    }
    let told = Endpoint::read(state).filter(|_| is_held);
    let told = told.map(|endpoint| endpoint.socket);
    findings.push(unix::look(state, config.socket.as_deref(), is_held, told));
    OfflineReport { findings, is_held }
}

/// The finding on whether the next start can listen on its address.
fn port(address: SocketAddr) -> Finding {
    let id = "gateway.port";
    match TcpListener::bind(address) {
        Ok(_) => Finding::new(id, Health::Ok, format!("{address} is free")),
        Err(fault) if fault.kind() == std::io::ErrorKind::AddrInUse => Finding::new(
            id,
            Health::Fail,
            format!("{address} is in use by another program"),
        )
        .fix(
            "free it (ss -ltnp shows whose it is), or set gateway.listen; port 0 picks a free one",
        ),
        Err(fault) => Finding::new(
            id,
            Health::Fail,
            format!("cannot listen on {address}: {fault}"),
        )
        .fix("set gateway.listen to an address of this machine"),
    }
}

/// Why a backup was not restored.
#[derive(Debug, thiserror::Error)]
pub enum NotRestored {
    /// The folder cannot be used at present.
    #[error(transparent)]
    Folder(#[from] DaemonFailure),
    /// The store was not replaced.
    #[error(transparent)]
    Store(#[from] RestoreError),
}

/// Once this returns, a copy of `file` is the store of this state folder, and the previous one is
/// kept beside it.
pub fn restore(state: &Path, file: &Path, force: bool) -> Result<Placed, NotRestored> {
    crate::failpoint::configure_from_env().map_err(DaemonFailure::Config)?;
    let clock = Clock::system();
    let state = folder::prepare(state)?;
    let boot = BootId(clock.new_id());
    let lock = lock::take(&state, boot, std::process::id(), clock.now())?;
    let placed = store::place(&state, file, force, &clock)?;
    drop(lock);
    Ok(placed)
}
