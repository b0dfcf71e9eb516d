//! Finds the processes that belong to a program, and ends them: SIGTERM first, SIGKILL after the
//! grace period, and new scans until none is left.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::Signal;

use super::marks::MarkFilter;
use super::table::{self, ProcessEntry, ProcessIdentity};
use crate::clock::Clock;

/// The maximum grace period between SIGTERM and SIGKILL.
pub const LONGEST_GRACE: Duration = Duration::from_millis(1500);
/// How long scans continue after SIGKILL.
const LAST_LOOKS: Duration = Duration::from_millis(400);
/// The first pause between two scans; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(40);

/// A call returns within two seconds, whatever the configured grace period.
const _: () = assert!(LONGEST_GRACE.as_millis() + LAST_LOOKS.as_millis() < 2000);

/// Which processes to find.
#[derive(Clone, Debug)]
pub(super) struct ProcessQuery {
    /// Processes that were seen to belong to it.
    pub known: HashSet<ProcessIdentity>,
    /// A session whose leader has just ended.
    pub session: Option<u32>,
    /// Selects processes by their marks.
    pub whose: MarkFilter,
    /// The earliest start time; processes that are certainly older never belong to it.
    pub since: u64,
    /// Living keepers of programs, which end their own descendants on SIGTERM: these get SIGKILL
    /// alone, after the grace period.
    pub keepers: HashSet<ProcessIdentity>,
    /// Living keepers that do not belong to the query, nor do their descendants.
    pub spared: HashSet<ProcessIdentity>,
    /// The children of this process belong to it: for a keeper, which has no others.
    pub own_children: bool,
}

impl ProcessQuery {
    /// A query for the processes with the marks of `whose`.
    pub(super) fn marked(whose: MarkFilter) -> Self {
        ProcessQuery {
            known: HashSet::new(),
            session: None,
            whose,
            since: 0,
            keepers: HashSet::new(),
            spared: HashSet::new(),
            own_children: false,
        }
    }
}

/// A process that belongs to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    id: ProcessIdentity,
    /// It is a descendant of a keeper.
    is_kept: bool,
}

/// The pids of the descendants of `keepers` in `rows`, and of the keepers themselves.
fn trees_of(keepers: &HashSet<ProcessIdentity>, rows: &[ProcessEntry]) -> HashSet<u32> {
    if keepers.is_empty() {
        return HashSet::new();
    }
    let own = rows.iter().filter(|row| keepers.contains(&row.id));
    let mut kept: HashSet<u32> = own.map(|row| row.id.pid).collect();
    loop {
        let before = kept.len();
        let below = rows.iter().filter(|row| kept.contains(&row.parent));
        let below: Vec<u32> = below.map(|row| row.id.pid).collect();
        kept.extend(below);
        if kept.len() == before {
            return kept;
        }
    }
}

/// Selects the live processes of `rows` that belong to `wanted`: known ones, those with its marks,
/// their descendants, and those in a session with them. `me` never belongs.
fn members(
    rows: &[ProcessEntry],
    wanted: &ProcessQuery,
    me: u32,
    is_marked: impl Fn(u32) -> bool,
) -> Vec<Member> {
    let kept = trees_of(&wanted.keepers, rows);
    let spared = trees_of(&wanted.spared, rows);
    let own_session = rows
        .iter()
        .find(|row| row.id.pid == me)
        .map_or(0, |row| row.session);
    let candidates: Vec<&ProcessEntry> = rows
        .iter()
        .filter(|row| row.id.pid != me && row.id.pid != 1 && !row.id.is_older_than(wanted.since))
        .filter(|row| !spared.contains(&row.id.pid))
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
                || wanted.own_children && row.parent == me
                || sessions.contains(&row.session);
            // Only checked in the first pass: it is the only check that reads a file.
            if belongs || (before == 0 && !row.is_zombie && is_marked(pid)) {
                inside.insert(pid);
                // A member in the daemon's own session says nothing about the other processes
                // there.
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
        .map(|row| Member {
            id: row.id,
            is_kept: kept.contains(&row.id.pid) && !wanted.keepers.contains(&row.id),
        })
        .collect()
}

/// Finds the live processes that belong to `wanted`, and adds them to its known ones.
pub(super) async fn look(wanted: &mut ProcessQuery) -> Vec<ProcessIdentity> {
    let found = scan(wanted).await;
    found.into_iter().map(|member| member.id).collect()
}

async fn scan(wanted: &mut ProcessQuery) -> Vec<Member> {
    let asked = wanted.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let (rows, me) = (table::all(), std::process::id());
        if rows.iter().all(|row| row.id.pid != me) {
            // The process table is not readable: processes may be alive as long as their end was
            // not seen.
            let alive = asked.known.into_iter();
            return alive.map(|id| Member { id, is_kept: false }).collect();
        }
        let is_marked = |pid| table::is_marked(pid, &asked.whose);
        members(&rows, &asked, me, is_marked)
    });
    // The scan fails only if the runtime shuts down, and then no task waits for it.
    let alive = looking.await.unwrap_or_default();
    wanted.known.extend(alive.iter().map(|member| member.id));
    alive
}

/// Ends all processes that belong to `wanted`; returns those still alive. Takes at most `grace`
/// plus [`LAST_LOOKS`].
pub(super) async fn end(
    mut wanted: ProcessQuery,
    grace: Duration,
    clock: &Clock,
) -> Vec<ProcessIdentity> {
    let begun = clock.monotonic();
    let mut asked: HashSet<ProcessIdentity> = HashSet::new();
    let mut pause = FIRST_PAUSE;
    loop {
        let alive = scan(&mut wanted).await;
        let spent = clock.monotonic().saturating_sub(begun);
        if alive.is_empty() || spent >= grace + LAST_LOOKS {
            return alive.into_iter().map(|member| member.id).collect();
        }
        for Member {
            id: process,
            is_kept,
        } in alive
        {
            if spent >= grace {
                table::signal(process, Signal::KILL);
            } else if !is_kept && asked.insert(process) {
                table::signal(process, Signal::TERM);
                // A stopped process handles SIGTERM only after it is continued.
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
    use std::path::PathBuf;
    use uuid::Uuid;

    fn row(pid: u32, parent: u32, session: u32) -> ProcessEntry {
        ProcessEntry {
            id: ProcessIdentity { pid, start: 100 },
            parent,
            session,
            is_zombie: false,
        }
    }

    fn wanted(known: &[u32]) -> ProcessQuery {
        ProcessQuery {
            known: known
                .iter()
                .map(|pid| ProcessIdentity {
                    pid: *pid,
                    start: 100,
                })
                .collect(),
            since: 100,
            ..ProcessQuery::marked(MarkFilter::Run(RunId(Uuid::from_u128(1)), PathBuf::new()))
        }
    }

    fn pids(rows: &[ProcessEntry], wanted: &ProcessQuery, marked: &[u32]) -> Vec<u32> {
        let found = members(rows, wanted, 10, |pid| marked.contains(&pid));
        found.into_iter().map(|process| process.id.pid).collect()
    }

    #[test]
    fn a_keeper_ends_its_own_descendants_or_all_of_them_are_spared() {
        let rows = [
            row(10, 1, 10),
            // A keeper that an earlier process has started, its program, and what has left both.
            row(20, 1, 20),
            row(21, 20, 20),
            row(22, 21, 22),
            row(23, 20, 23),
            // A process of the same run that no keeper treats.
            row(30, 1, 30),
        ];
        let mut wanted = wanted(&[20]);
        wanted.keepers = HashSet::from([rows[1].id]);
        let found = members(&rows, &wanted, 10, |pid| pid == 30);
        let found: Vec<(u32, bool)> = found
            .into_iter()
            .map(|member| (member.id.pid, member.is_kept))
            .collect();
        let expected = [(20, false), (21, true), (22, true), (23, true), (30, false)];
        assert_eq!(found, expected);
        wanted.spared = std::mem::take(&mut wanted.keepers);
        assert_eq!(pids(&rows, &wanted, &[20, 21, 30]), [30]);
        // The keeper itself finds all that it started, without marks.
        let own = ProcessQuery {
            own_children: true,
            ..ProcessQuery::marked(wanted.whose)
        };
        let found = members(&rows, &own, 20, |_| false);
        let found: Vec<u32> = found.into_iter().map(|member| member.id.pid).collect();
        assert_eq!(found, [21, 22, 23]);
    }

    #[test]
    fn children_and_sessions_belong_whatever_the_order_of_the_table() {
        let rows = [
            // A grandchild before its parent, and one that left the session but not its parent.
            row(13, 12, 13),
            row(12, 11, 11),
            row(11, 10, 11),
            // An orphan of the same session, and what it started in its own session.
            row(14, 1, 11),
            row(15, 14, 15),
            // The daemon, another process in its session, and init.
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
        // In the daemon's own session a mark applies to that process alone.
        let rows = [row(10, 1, 10), row(20, 1, 10), row(30, 1, 10)];
        assert_eq!(pids(&rows, &wanted(&[]), &[20, 10]), [20]);
    }

    #[test]
    fn a_number_that_was_given_out_again_is_somebody_else() {
        let mut other = row(11, 1, 11);
        other.id.start = 101;
        assert_eq!(pids(&[other], &wanted(&[11]), &[]), [0; 0]);
        // A process that is older than the program does not belong to it.
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
