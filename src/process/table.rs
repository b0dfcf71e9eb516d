//! Which processes there are, as the system tells: who started them, in which session they are,
//! and what their environment says. A process is named by its number and the moment of its
//! start, since numbers are given out again.

use rustix::process::{Pid, Signal};

use super::marks::Whose;

/// A process, and no other one that has its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it was started, in the system's own count; 0 where the system does not tell.
    pub start: u64,
}

/// What the system says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Which it is.
    pub id: Identity,
    /// Who started it, or took it over.
    pub parent: u32,
    /// Its session; its group where the system does not tell.
    pub session: u32,
    /// It has ended, and nobody has asked how.
    pub is_zombie: bool,
}

pub(super) use system::{all, environment, is_marked, one};

/// Is the process of this number gone, or will it be in a moment because it was killed? What it
/// holds open may outlast its end a little.
pub fn is_ending(pid: u32) -> bool {
    system::is_ending(pid)
}

/// Sends `signal` to exactly this process; nothing happens if it is gone.
pub(super) fn signal(process: Identity, signal: Signal) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let sent = match process.start {
        // The system did not tell of it: it is the first of a group, as it was started.
        0 => rustix::process::kill_process_group(pid, signal),
        _ => system::send(pid, process, signal),
    };
    if let Err(fault) = sent
        && fault != rustix::io::Errno::SRCH
    {
        tracing::debug!(pid = process.pid, ?signal, %fault, "a process takes no signal");
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use procfs::process::{Process, all_processes};
    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

    use super::{Identity, Row, Whose};

    /// Every process. What ends meanwhile is left out.
    pub(in crate::process) fn all() -> Vec<Row> {
        let processes = match all_processes() {
            Ok(processes) => processes,
            Err(fault) => {
                tracing::warn!(%fault, "/proc cannot be read: processes cannot be followed");
                return Vec::new();
            }
        };
        processes.flatten().filter_map(|one| row(&one)).collect()
    }

    /// The process of this number.
    pub(in crate::process) fn one(pid: u32) -> Option<Row> {
        row(&Process::new(i32::try_from(pid).ok()?).ok()?)
    }

    /// The kernel's mark of a process that is exiting.
    const EXITING: u32 = 0x4;
    /// SIGKILL among the signals that wait.
    const KILLED: u64 = 1 << 8;

    pub(super) fn is_ending(pid: u32) -> bool {
        let process = i32::try_from(pid)
            .ok()
            .and_then(|pid| Process::new(pid).ok());
        let Some((process, stat)) = process.and_then(|one| one.stat().ok().map(|stat| (one, stat)))
        else {
            return true;
        };
        let is_killed = process
            .status()
            .is_ok_and(|status| (status.sigpnd | status.shdpnd) & KILLED != 0);
        is_killed || matches!(stat.state, 'Z' | 'X') || stat.flags & EXITING != 0
    }

    fn row(process: &Process) -> Option<Row> {
        let stat = process.stat().ok()?;
        Some(Row {
            id: Identity {
                pid: u32::try_from(stat.pid).ok()?,
                start: stat.starttime,
            },
            parent: u32::try_from(stat.ppid).ok()?,
            session: u32::try_from(stat.session).unwrap_or(0),
            is_zombie: matches!(stat.state, 'Z' | 'X'),
        })
    }

    /// Does its environment carry the marks of these? An environment that cannot be read
    /// belongs to somebody else.
    pub(in crate::process) fn is_marked(pid: u32, whose: &Whose) -> bool {
        let environ = i32::try_from(pid)
            .ok()
            .and_then(|pid| Process::new(pid).ok()?.environ().ok());
        environ.is_some_and(|environ| {
            whose.names(|name| environ.get(name.as_ref() as &std::ffi::OsStr).cloned())
        })
    }

    /// Its environment; `None` if that cannot be read.
    pub(in crate::process) fn environment(pid: u32) -> Option<HashMap<OsString, OsString>> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        process.environ().ok()
    }

    /// By a handle, so that the number cannot become another process's between look and signal.
    pub(super) fn send(pid: Pid, process: Identity, signal: Signal) -> rustix::io::Result<()> {
        let handle = pidfd_open(pid, PidfdFlags::empty());
        if one(process.pid).is_none_or(|row| row.id != process) {
            return Ok(());
        }
        match handle {
            Ok(handle) => pidfd_send_signal(handle, signal),
            // Some sandboxes have no such handles.
            Err(_) => kill_process(pid, signal),
        }
    }
}

/// Everywhere else `ps` tells, which every Unix has. Environments are not looked at there: what
/// has left both the session and the line of its parents is not found.
#[cfg(not(target_os = "linux"))]
mod system {
    use std::collections::HashMap;
    use std::ffi::OsString;

    use rustix::process::{Pid, Signal, kill_process};

    use super::{Identity, Row, Whose};

    pub(in crate::process) fn all() -> Vec<Row> {
        ps(&["-A"])
    }

    pub(in crate::process) fn one(pid: u32) -> Option<Row> {
        ps(&["-p", &pid.to_string()]).pop()
    }

    pub(super) fn is_ending(pid: u32) -> bool {
        one(pid).is_none_or(|row| row.is_zombie)
    }

    fn ps(which: &[&str]) -> Vec<Row> {
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

    pub(in crate::process) fn is_marked(_: u32, _: &Whose) -> bool {
        false
    }

    pub(in crate::process) fn environment(_: u32) -> Option<HashMap<OsString, OsString>> {
        None
    }

    pub(super) fn send(pid: Pid, process: Identity, signal: Signal) -> rustix::io::Result<()> {
        match one(process.pid) {
            Some(row) if row.id == process => kill_process(pid, signal),
            _ => Ok(()),
        }
    }
}

/// Reads what `ps -o pid=,ppid=,pgid=,stat=,lstart=` prints.
#[cfg(any(test, not(target_os = "linux")))]
fn rows_of(text: &str) -> Vec<Row> {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u32>().ok();
        let (pid, parent, group) = (number()?, number()?, number()?);
        let is_zombie = words.next()?.starts_with('Z');
        // The moment as text: it is only held against itself.
        let mut start = DefaultHasher::new();
        words.for_each(|word| word.hash(&mut start));
        Some(Row {
            id: Identity {
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
        // Not waited for: at first it dies, then it is a zombie.
        assert!(is_ending(child.id()));
        child.wait().unwrap();
        assert!(is_ending(child.id()));
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
