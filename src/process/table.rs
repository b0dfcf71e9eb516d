//! Reads the process table: parents, sessions and environments. A process is identified by its pid
//! and start time, since pids are reused.

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::marks::MarkFilter;
use crate::failpoint::reach;

/// One process; a later process with the same pid is a different identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// The pid.
    pub pid: u32,
    /// The start time in the system's own unit; 0 where the system does not expose it.
    pub start: u64,
}

/// What the start times of a system tell.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "each system has one of them"))]
enum StartTimes {
    /// They grow with time.
    Ordered,
    /// Equal ones are of the same time, and that is all.
    EqualOrNot,
}

impl StartTimes {
    fn is_older(self, start: u64, than: u64) -> bool {
        match self {
            StartTimes::Ordered => start < than,
            StartTimes::EqualOrNot => false,
        }
    }
}

impl ProcessIdentity {
    /// True if the process is certainly older than one with this start time.
    pub(super) fn is_older_than(self, start: u64) -> bool {
        system::STARTS.is_older(self.start, start)
    }
}

/// The entry of a process in the process table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    /// The pid and start time.
    pub id: ProcessIdentity,
    /// The pid of the process that started it or adopted it.
    pub parent: u32,
    /// The session; the process group where the system does not expose sessions.
    pub session: u32,
    /// It has ended and its parent has not waited for it.
    pub is_zombie: bool,
}

pub(super) use system::{environment, is_marked, one};

/// Lists all processes; those that end meanwhile are left out. It reads a file for each, so it is only
/// called where something may be left.
pub(super) fn all() -> Vec<ProcessEntry> {
    reach("processes.table");
    system::all()
}

/// True if the process of this pid is gone or will be in a moment because it was killed. Files that
/// it holds open may stay open slightly longer.
pub fn is_ending(pid: u32) -> bool {
    system::is_ending(pid)
}

/// Sends `signal` to exactly this process; does nothing if it is gone.
pub(super) fn signal(process: ProcessIdentity, signal: Signal) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let sent = match process.start {
        // The start time is unknown: it is the leader of its group, as it was started.
        0 => rustix::process::kill_process_group(pid, signal),
        _ => system::send(pid, process, signal),
    };
    if let Err(fault) = sent
        && fault != rustix::io::Errno::SRCH
    {
        tracing::debug!(pid = process.pid, ?signal, %fault, "a process could not be signalled");
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::HashMap;
    use std::ffi::{OsStr, OsString};
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

    use super::{MarkFilter, ProcessEntry, ProcessIdentity, StartTimes};

    /// Ticks since the boot.
    pub(super) const STARTS: StartTimes = StartTimes::Ordered;

    pub(super) fn all() -> Vec<ProcessEntry> {
        let entries = match fs::read_dir("/proc") {
            Ok(entries) => entries,
            Err(fault) => {
                tracing::warn!(%fault, "/proc cannot be read: processes cannot be followed");
                return Vec::new();
            }
        };
        let row = |entry: fs::DirEntry| one(entry.file_name().to_str()?.parse().ok()?);
        entries.flatten().filter_map(row).collect()
    }

    /// The process with this pid; `None` if there is none.
    pub(in crate::process) fn one(pid: u32) -> Option<ProcessEntry> {
        let stat = Stat::of(pid)?;
        Some(ProcessEntry {
            id: ProcessIdentity {
                pid,
                start: stat.start,
            },
            parent: stat.parent,
            session: stat.session,
            is_zombie: stat.has_ended(),
        })
    }

    /// The kernel flag of a process that is exiting (`PF_EXITING`).
    const EXITING: u32 = 0x4;
    /// The bit of SIGKILL in a set of pending signals.
    const KILLED: u64 = 1 << 8;

    pub(super) fn is_ending(pid: u32) -> bool {
        let Some(stat) = Stat::of(pid) else {
            return true;
        };
        let is_killed = waiting_signals(pid).is_some_and(|signals| signals & KILLED != 0);
        is_killed || stat.has_ended() || stat.flags & EXITING != 0
    }

    /// The fields read from `/proc/PID/stat`; see proc_pid_stat(5).
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Stat {
        pub(super) state: u8,
        pub(super) parent: u32,
        pub(super) session: u32,
        pub(super) flags: u32,
        pub(super) start: u64,
    }

    impl Stat {
        fn of(pid: u32) -> Option<Stat> {
            Stat::read(&fs::read(format!("/proc/{pid}/stat")).ok()?)
        }

        /// Parses the line. The second field, the program's name, may contain blanks and
        /// parentheses.
        pub(super) fn read(line: &[u8]) -> Option<Stat> {
            let name_ends = line.iter().rposition(|byte| *byte == b')')?;
            let text = std::str::from_utf8(&line[name_ends + 1..]).ok()?;
            // Starts at the third field.
            let fields: Vec<&str> = text.split_ascii_whitespace().collect();
            Some(Stat {
                state: *fields.first()?.as_bytes().first()?,
                parent: fields.get(1)?.parse().ok()?,
                session: fields.get(3)?.parse().unwrap_or(0),
                flags: fields.get(6)?.parse().ok()?,
                start: fields.get(19)?.parse().ok()?,
            })
        }

        fn has_ended(&self) -> bool {
            matches!(self.state, b'Z' | b'X')
        }
    }

    /// The pending signals of a process and its first thread, as a bit set.
    fn waiting_signals(pid: u32) -> Option<u64> {
        let status = fs::read(format!("/proc/{pid}/status")).ok()?;
        let status = String::from_utf8_lossy(&status);
        let sets = status.lines().filter_map(|line| {
            let set = line
                .strip_prefix("SigPnd:")
                .or_else(|| line.strip_prefix("ShdPnd:"))?;
            u64::from_str_radix(set.trim(), 16).ok()
        });
        Some(sets.fold(0, |all, set| all | set))
    }

    /// True if its environment carries the marks of `whose`. An environment that cannot be read
    /// belongs to another user.
    pub(in crate::process) fn is_marked(pid: u32, whose: &MarkFilter) -> bool {
        environment(pid).is_some_and(|environ| {
            whose.names(|name| environ.get(name.as_ref() as &OsStr).cloned())
        })
    }

    /// The environment of a process; `None` if it cannot be read.
    pub(in crate::process) fn environment(pid: u32) -> Option<HashMap<OsString, OsString>> {
        let whole = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let variables = whole.split(|byte| *byte == 0).filter_map(|variable| {
            let equals = variable.iter().position(|byte| *byte == b'=')?;
            let (name, value) = (&variable[..equals], &variable[equals + 1..]);
            Some((
                OsStr::from_bytes(name).to_owned(),
                OsStr::from_bytes(value).to_owned(),
            ))
        });
        Some(variables.collect())
    }

    /// Signals through a pidfd, so that the pid cannot be reused between check and signal.
    pub(super) fn send(
        pid: Pid,
        process: ProcessIdentity,
        signal: Signal,
    ) -> rustix::io::Result<()> {
        let handle = pidfd_open(pid, PidfdFlags::empty());
        if one(process.pid).is_none_or(|row| row.id != process) {
            return Ok(());
        }
        match handle {
            Ok(handle) => pidfd_send_signal(handle, signal),
            // Some sandboxes do not support pidfds.
            Err(_) => kill_process(pid, signal),
        }
    }
}

/// Reads the process table from `ps` on other systems. Environments are not read there, so a
/// process that has left both its session and its chain of parents is not found.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use rustix::process::{Pid, Signal, kill_process};

    use super::{MarkFilter, ProcessEntry, ProcessIdentity, StartTimes};

    /// Hashes of texts.
    pub(super) const STARTS: StartTimes = StartTimes::EqualOrNot;

    pub(super) fn all() -> Vec<ProcessEntry> {
        ps(&["-A"])
    }

    pub(in crate::process) fn one(pid: u32) -> Option<ProcessEntry> {
        ps(&["-p", &pid.to_string()]).pop()
    }

    pub(super) fn is_ending(pid: u32) -> bool {
        one(pid).is_none_or(|row| row.is_zombie)
    }

    fn ps(which: &[&str]) -> Vec<ProcessEntry> {
        let columns = ["-o", "pid=,ppid=,pgid=,stat=,lstart="];
        let mut ps = std::process::Command::new("/bin/ps");
        match ps.args(which).args(columns).output() {
            Ok(output) => super::rows_of(&String::from_utf8_lossy(&output.stdout)),
            Err(fault) => {
                tracing::warn!(%fault, "/bin/ps cannot be run: processes cannot be followed");
                Vec::new()
            }
        }
    }

    pub(in crate::process) fn is_marked(_: u32, _: &MarkFilter) -> bool {
        false
    }

    pub(in crate::process) fn environment(_: u32) -> Option<HashMap<OsString, OsString>> {
        None
    }

    pub(super) fn send(
        pid: Pid,
        process: ProcessIdentity,
        signal: Signal,
    ) -> rustix::io::Result<()> {
        match one(process.pid) {
            Some(row) if row.id == process => kill_process(pid, signal),
            _ => Ok(()),
        }
    }
}

/// Parses the output of `ps -o pid=,ppid=,pgid=,stat=,lstart=`.
#[cfg(any(test, not(target_os = "linux")))]
fn rows_of(text: &str) -> Vec<ProcessEntry> {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        let (pid, parent, group) = (number()?, number()?, number()?);
        let is_zombie = words.next()?.starts_with('Z');
        // The start time stays text: it is only compared for equality.
        let mut start = DefaultHasher::new();
        words.for_each(|word| word.hash(&mut start));
        Some(ProcessEntry {
            id: ProcessIdentity {
                pid,
                start: start.finish(),
            },
            parent,
            session: group,
            is_zombie,
        })
    };
    text.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ending_once_it_has_ended_or_was_killed() {
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .unwrap();
        assert!(!is_ending(std::process::id()));
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // Not waited for: it is dying first, then it is a zombie.
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(is_ending(child.id()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_name_with_parentheses_and_numbers_is_no_field() {
        let stat = |name: &[u8]| {
            let after = b") S 1 77 70 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9876 11 12 13";
            system::Stat::read(&[b"77 (", name, after].concat())
        };
        let plain = stat(b"sh").unwrap();
        assert_eq!((plain.parent, plain.session), (1, 70));
        assert_eq!((plain.flags, plain.start), (4_194_304, 9876));
        for odd in [&b"a) Z 9 9 9 (b"[..], b") ", b"\xff\n"] {
            assert_eq!(stat(odd).as_ref(), Some(&plain));
        }
        assert_eq!(system::Stat::read(b"77 (sh) S 1"), None);
    }

    #[test]
    fn a_process_is_older_only_where_start_times_have_an_order() {
        assert!(StartTimes::Ordered.is_older(7, 8));
        assert!(!StartTimes::Ordered.is_older(8, 8));
        for start in [0, 7, 8, u64::MAX] {
            assert!(!StartTimes::EqualOrNot.is_older(start, 8));
        }
    }

    #[test]
    fn what_ps_prints_is_read() {
        let text = "    1     0     1 Ss   Mon Jan  5 10:00:00 2026\n  \
                    77     1    70 Z    Mon Jan  5 10:00:01 2026\nnothing\n";
        let rows = rows_of(text);
        assert_eq!(rows.len(), 2);
        let zombie = rows[1];
        assert_eq!((zombie.id.pid, zombie.parent, zombie.session), (77, 1, 70));
        assert!(zombie.is_zombie && !rows[0].is_zombie);
        assert_ne!(rows[0].id.start, zombie.id.start);
        assert_eq!(rows_of(text)[1].id, zombie.id);
    }

    #[test]
    fn this_process_is_in_the_table() {
        let me = one(std::process::id()).unwrap();
        assert!(all().iter().any(|row| row.id == me.id));
        assert_eq!(one(u32::MAX), None);
    }
}
