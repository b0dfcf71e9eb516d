//! Reaps the zombies of orphans that the daemon adopts (see `origin`). Programs that the daemon
//! started itself have a task that waits for them.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};

use super::origin::adopts_orphans;
use super::table::{self, ProcessIdentity};

/// How often zombies are looked for. No task waits for a zombie that is seen twice.
const EACH: Duration = Duration::from_secs(2);

/// The children of this process, adopted orphans included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnChildren {
    /// There is none.
    None,
    /// All of them are alive.
    Alive,
    /// Some may have ended and were not waited for.
    Ended,
}

/// Asks the system about the children of this process, which reads no process table.
pub(super) fn own_children() -> OwnChildren {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::All, options) {
        Err(rustix::io::Errno::CHILD) => OwnChildren::None,
        Ok(None) => OwnChildren::Alive,
        Ok(Some(_)) | Err(_) => OwnChildren::Ended,
    }
}

/// True if nothing can be left of a program that this process has started and waited for: its
/// descendants would have become children of this process, which has none.
pub(super) fn nothing_is_left() -> bool {
    adopts_orphans() && own_children() == OwnChildren::None
}

/// Reaps zombies that no task waits for, until the runtime ends; returns at once if this process
/// adopts none. `is_awaited` excludes the children that a task waits for.
pub(super) async fn reap_orphans(
    is_awaited: impl Fn(ProcessIdentity) -> bool + Clone + Send + 'static,
) {
    if !adopts_orphans() {
        return;
    }
    let mut seen = HashSet::new();
    loop {
        tokio::time::sleep(EACH).await;
        let before = std::mem::take(&mut seen);
        let is_awaited = is_awaited.clone();
        // The scan fails only if the runtime shuts down.
        seen = tokio::task::spawn_blocking(move || sweep(&before, is_awaited))
            .await
            .unwrap_or_default();
    }
}

/// Reaps the zombie children that were there `before` already; returns the new ones.
fn sweep(
    before: &HashSet<ProcessIdentity>,
    is_awaited: impl Fn(ProcessIdentity) -> bool,
) -> HashSet<ProcessIdentity> {
    if own_children() != OwnChildren::Ended {
        return HashSet::new();
    }
    let me = std::process::id();
    let zombies = table::all()
        .into_iter()
        .filter(|row| row.is_zombie && row.parent == me)
        .map(|row| row.id)
        .filter(|one| !is_awaited(*one));
    let (old, new): (HashSet<_>, HashSet<_>) = zombies.partition(|one| before.contains(one));
    for zombie in old {
        if let Some(pid) = i32::try_from(zombie.pid).ok().and_then(Pid::from_raw) {
            // A task may have waited for it meanwhile.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g13_5_a_zombie_that_is_nobodys_is_buried_at_the_second_look() {
        // A child that this test does not wait for, like an orphan.
        let child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let is_zombie = || table::one(pid).is_some_and(|row| row.is_zombie);
        while !is_zombie() {
            std::thread::yield_now();
        }
        assert_eq!(own_children(), OwnChildren::Ended);
        let awaited = sweep(&HashSet::new(), |one| one.pid == pid);
        assert!(awaited.iter().all(|one| one.pid != pid));
        let seen = sweep(&HashSet::new(), |_| false);
        assert!(is_zombie() && seen.iter().any(|one| one.pid == pid));
        let mine = seen.into_iter().filter(|one| one.pid == pid).collect();
        sweep(&mine, |_| false);
        assert!(!is_zombie(), "it is still there");
        drop(child);
    }
}
