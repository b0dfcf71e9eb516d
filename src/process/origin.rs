//! Finds the origin of a process: a run, a tool server, or neither. The listeners check it before
//! they accept a peer of the Unix socket as the owner.
//!
//! The proof is the chain of ancestors. The daemon is the subreaper, so it becomes the parent of
//! every orphan of its programs, and what a program has started stays a descendant of the daemon
//! however it forks. A chain that reaches process 1 without passing the daemon is outside. The
//! marks in the environment name the run, and identify what a previous daemon process has started.
//! A program can drop its marks, so missing marks prove nothing.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};

use super::marks::{RUN_ID, SERVICE_ID, STATE_DIR};
use super::running::{Processes, ProcessesInner};
use super::table::{self, ProcessEntry, ProcessIdentity};
use crate::contract::processes::ProcessOrigin;
use crate::kernel::ids::StepId;

/// The maximum number of ancestors that are examined.
const DEEPEST: usize = 64;

impl Processes {
    /// Makes this process the parent of all orphans of its programs, so that none escapes by
    /// forking twice. Call it before the first program is started.
    pub fn adopt_orphans() {
        #[cfg(target_os = "linux")]
        if let Err(fault) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tracing::warn!(
                %fault,
                "orphans of programs cannot be adopted: callers over the socket need the token \
                 once a program was started"
            );
        }
    }
}

/// True if orphans of programs become children of this process.
pub(super) fn adopts_orphans() -> bool {
    #[cfg(target_os = "linux")]
    if matches!(rustix::process::child_subreaper(), Ok(Some(_))) {
        return true;
    }
    std::process::id() == 1
}

impl ProcessesInner {
    pub(super) fn origin(&self, pid: Option<u32>) -> ProcessOrigin {
        let origin = pid
            .and_then(table::one)
            .map_or(ProcessOrigin::Unproven, |peer| self.line_of(peer));
        match origin {
            ProcessOrigin::Unproven if !self.has_started() => ProcessOrigin::Outside,
            origin => origin,
        }
    }

    fn line_of(&self, peer: ProcessEntry) -> ProcessOrigin {
        let me = std::process::id();
        let mut row = peer;
        let mut is_hidden = false;
        for _ in 0..DEEPEST {
            let pid = row.id.pid;
            if pid == me {
                return match me {
                    _ if pid == peer.id.pid => ProcessOrigin::Outside,
                    // As process 1 it inherits the orphans of every process.
                    1 => ProcessOrigin::Unproven,
                    _ => ProcessOrigin::Stray,
                };
            }
            if let Some(known) = self.known_origin(row.id) {
                return known;
            }
            if pid != 1 {
                match table::environment(pid) {
                    Some(environment) => {
                        if let Some(marked) = self.marked_origin(&environment) {
                            return marked;
                        }
                    }
                    // Its ancestors can still show that it is not outside.
                    None if pid == peer.id.pid => is_hidden = true,
                    // An ancestor of another user, such as a login, still exposes its parent.
                    None => {}
                }
            }
            // The parent is outside of this pid namespace, or this is its first process.
            if pid == 1 || row.parent == 0 {
                let unchanged =
                    table::one(peer.id.pid).is_some_and(|now| now.id == peer.id && !now.is_zombie);
                return match unchanged && !is_hidden && adopts_orphans() {
                    true => ProcessOrigin::Outside,
                    false => ProcessOrigin::Unproven,
                };
            }
            let above = table::one(row.parent);
            row = match above {
                // A parent is never younger; a younger process has only reused the pid.
                Some(above) if above.id.start <= row.id.start => above,
                _ => match table::one(pid) {
                    // The parent has ended meanwhile, and the process has a new parent.
                    Some(now) if now.id == row.id && now.parent != row.parent => now,
                    _ => return ProcessOrigin::Unproven,
                },
            };
        }
        ProcessOrigin::Unproven
    }

    fn known_origin(&self, process: ProcessIdentity) -> Option<ProcessOrigin> {
        let known = self.lock();
        let mut services = known.services.values();
        if services.any(|alive| alive.contains(&process)) {
            return Some(ProcessOrigin::Service);
        }
        let holds = |steps: &HashMap<StepId, HashSet<ProcessIdentity>>| {
            steps.values().any(|alive| alive.contains(&process))
        };
        let run = known.runs.iter().find(|(_, steps)| holds(steps));
        run.map(|(run, _)| ProcessOrigin::Run(*run))
    }

    fn marked_origin(&self, environment: &HashMap<OsString, OsString>) -> Option<ProcessOrigin> {
        let of = |name: &str| environment.get(OsStr::new(name));
        if of(STATE_DIR)? != self.marks.state.as_os_str() {
            return None;
        }
        if of(SERVICE_ID).is_some() {
            return Some(ProcessOrigin::Service);
        }
        let run = of(RUN_ID)?.to_str()?.parse();
        // The mark cannot be parsed as a run id: a program has overwritten it.
        Some(run.map_or(ProcessOrigin::Stray, ProcessOrigin::Run))
    }
}
