//! Which processes belong to what was started, and how all of them are ended: asked first,
//! forced when their time is over, and looked for again until none is left.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::Signal;

use super::marks::Whose;
use super::table::{self, Identity, Row};
use crate::clock::Clock;

/// The most time that a program may be given to end when it is asked.
pub const LONGEST_GRACE: Duration = Duration::from_millis(1500);
/// How long after the forced end is looked whether all are gone.
const LAST_LOOKS: Duration = Duration::from_millis(400);
/// The first pause between two looks; each next one is longer, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// Whatever the setting of the grace: a call returns within two seconds.
const _: () = assert!(LONGEST_GRACE.as_millis() + LAST_LOOKS.as_millis() < 2000);

/// What is to be found.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Processes that were seen to belong to it.
    pub known: HashSet<Identity>,
    /// A session whose first process has just ended.
    pub session: Option<u32>,
    /// Whose marks its processes carry.
    pub whose: Whose,
    /// None of them is older.
    pub since: u64,
}

/// Those of `rows` that are alive and belong to it: known ones, those with its marks, and what
/// is below them or in a session with them. `me` never does.
fn members(
    rows: &[Row],
    wanted: &Wanted,
    me: u32,
    is_marked: impl Fn(u32) -> bool,
) -> Vec<Identity> {
    let own_session = rows
        .iter()
        .find(|row| row.id.pid == me)
        .map_or(0, |row| row.session);
    let candidates: Vec<&Row> = rows
        .iter()
        .filter(|row| row.id.pid != me && row.id.pid != 1 && row.id.start >= wanted.since)
        .collect();
    let mut inside: HashSet<u32> = HashSet::new();
    let mut sessions: HashSet<u32> = wanted.session.into_iter().collect();
    loop {
        let before = inside.len();
        for row in &candidates {
            let pid = row.id.pid;
            if inside.contains(&pid) {
                continue;
            }
            let belongs = wanted.known.contains(&row.id)
                || inside.contains(&row.parent)
                || sessions.contains(&row.session);
            // Asked only the first time round: it is the one question that costs a file.
            if belongs || (before == 0 && !row.is_zombie && is_marked(pid)) {
                inside.insert(pid);
                // Whoever is in the daemon's own session says nothing about the others there.
                if row.session != 0 && row.session != own_session {
                    sessions.insert(row.session);
                }
            }
        }
        if inside.len() == before {
            break;
        }
    }
    candidates
        .into_iter()
        .filter(|row| inside.contains(&row.id.pid) && !row.is_zombie)
        .map(|row| row.id)
        .collect()
}

/// What is alive of it now; also noted as known.
pub(super) async fn look(wanted: &mut Wanted) -> Vec<Identity> {
    let asked = wanted.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let (rows, me) = (table::all(), std::process::id());
        if rows.iter().all(|row| row.id.pid != me) {
            // The system does not tell: what cannot be seen to have ended may go on.
            return asked.known.into_iter().collect();
        }
        let is_marked = |pid| table::is_marked(pid, &asked.whose);
        members(&rows, &asked, me, is_marked)
    });
    // A look fails only with the runtime, and then nobody waits for it.
    let alive = looking.await.unwrap_or_default();
    wanted.known.extend(&alive);
    alive
}

/// Ends all of it: once this returns none is left, but for those that are given. Takes `grace`
/// and [`LAST_LOOKS`] at most.
pub(super) async fn end(mut wanted: Wanted, grace: Duration, clock: &Clock) -> Vec<Identity> {
    let begun = clock.monotonic();
    let mut asked: HashSet<Identity> = HashSet::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let alive = look(&mut wanted).await;
        let spent = clock.monotonic().saturating_sub(begun);
        if alive.is_empty() || spent >= grace + LAST_LOOKS {
            return alive;
        }
        for process in alive {
            if spent >= grace {
                table::signal(process, Signal::KILL);
            } else if asked.insert(process) {
                table::signal(process, Signal::TERM);
                // One that is halted hears of it only when it goes on.
                table::signal(process, Signal::CONT);
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ids::RunId;
    use uuid::Uuid;

    fn row(pid: u32, parent: u32, session: u32) -> Row {
        Row {
            id: Identity { pid, start: 100 },
            parent,
            session,
            is_zombie: false,
        }
    }

    fn wanted(known: &[u32]) -> Wanted {
        Wanted {
            known: known
                .iter()
                .map(|pid| Identity {
                    pid: *pid,
                    start: 100,
                })
                .collect(),
            session: None,
            whose: Whose::Run(RunId(Uuid::from_u128(1))),
            since: 100,
        }
    }

    fn pids(rows: &[Row], wanted: &Wanted, marked: &[u32]) -> Vec<u32> {
        let found = members(rows, wanted, 10, |pid| marked.contains(&pid));
        found.into_iter().map(|process| process.pid).collect()
    }

    #[test]
    fn children_and_sessions_belong_whatever_the_order_of_the_table() {
        let rows = [
            // Grandchild before child, and one that left the session but not its parent.
            row(13, 12, 13),
            row(12, 11, 11),
            row(11, 10, 11),
            // An orphan of the same session, and what it started in a session of its own.
            row(14, 1, 11),
            row(15, 14, 15),
            // The daemon, its neighbour, and init.
            row(10, 1, 10),
            row(16, 1, 10),
            row(1, 0, 1),
        ];
        assert_eq!(pids(&rows, &wanted(&[11]), &[]), [13, 12, 11, 14, 15]);
        assert_eq!(pids(&rows, &wanted(&[]), &[]), [0; 0]);
    }

    #[test]
    fn marks_find_what_has_left_everything_else() {
        let rows = [
            row(10, 1, 10),
            row(20, 1, 20),
            row(21, 20, 20),
            row(30, 1, 30),
        ];
        assert_eq!(pids(&rows, &wanted(&[]), &[20]), [20, 21]);
        // A mark in the daemon's own session stands for itself alone.
        let rows = [row(10, 1, 10), row(20, 1, 10), row(30, 1, 10)];
        assert_eq!(pids(&rows, &wanted(&[]), &[20, 10]), [20]);
    }

    #[test]
    fn a_number_that_was_given_out_again_is_somebody_else() {
        let mut other = row(11, 1, 11);
        other.id.start = 101;
        assert_eq!(pids(&[other], &wanted(&[11]), &[]), [0; 0]);
        // Nothing older than what was started belongs to it.
        let mut old = row(20, 1, 20);
        old.id.start = 99;
        assert_eq!(pids(&[old], &wanted(&[]), &[20]), [0; 0]);
    }

    #[test]
    fn a_zombie_is_no_process_that_is_left_but_leads_to_others() {
        let mut root = row(11, 10, 11);
        root.is_zombie = true;
        assert_eq!(pids(&[row(12, 1, 11), root], &wanted(&[11]), &[]), [12]);
        let mut after = wanted(&[]);
        after.session = Some(11);
        assert_eq!(pids(&[row(12, 1, 11)], &after, &[]), [12]);
    }
}
