//! Zombies that were left to the daemon: in a container it may be the first process, which
//! every orphan falls to. Its own programs have somebody who waits for them.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

use super::table::{self, Identity};

/// How often is looked. One that is seen twice has nobody who waits for it.
const EACH: Duration = Duration::from_secs(2);

/// Do orphans fall to this process?
fn takes_over() -> bool {
    #[cfg(target_os = "linux")]
    if matches!(rustix::process::child_subreaper(), Ok(Some(_))) {
        return true;
    }
    std::process::id() == 1
}

/// Buries zombies that are nobody else's, for ever; ends at once where none can fall to this
/// process.
pub(super) async fn keep_clean() {
    if !takes_over() {
        return;
    }
    let mut seen = HashSet::new();
    loop {
        tokio::time::sleep(EACH).await;
        let before = std::mem::take(&mut seen);
        // A look fails only with the runtime.
        seen = tokio::task::spawn_blocking(move || sweep(&before))
            .await
            .unwrap_or_default();
    }
}

/// Buries the zombies below this process that were there `before` already; those that are new.
fn sweep(before: &HashSet<Identity>) -> HashSet<Identity> {
    let me = std::process::id();
    let zombies = table::all()
        .into_iter()
        .filter(|row| row.is_zombie && row.parent == me)
        .map(|row| row.id);
    let (old, new): (HashSet<_>, HashSet<_>) = zombies.partition(|one| before.contains(one));
    for zombie in old {
        if let Some(pid) = i32::try_from(zombie.pid).ok().and_then(Pid::from_raw) {
            // Somebody may have asked after all.
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
        // A child that this test does not wait for, as an orphan would be.
        let child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let is_zombie = || table::one(pid).is_some_and(|row| row.is_zombie);
        while !is_zombie() {
            std::thread::yield_now();
        }
        let seen = sweep(&HashSet::new());
        assert!(is_zombie() && seen.iter().any(|one| one.pid == pid));
        let mine = seen.into_iter().filter(|one| one.pid == pid).collect();
        sweep(&mine);
        assert!(!is_zombie(), "it is still there");
        drop(child);
    }
}
