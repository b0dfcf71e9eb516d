//! The limit of open files for started programs. The daemon raises its own soft limit at its start,
//! and programs inherit it. Many programs count or close every descriptor up to their limit, so
//! each program gets the limit back that the daemon was started with.
//!
//! Setting the limit between fork and exec needs `unsafe`, and setting it on the running child
//! races with the program's own first look at it. So the daemon starts this binary instead, which
//! sets its limit and then executes the program. That costs a few milliseconds per program, and
//! only if the limit was raised.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::oom;

/// The first argument that makes this binary set the limit and execute another program.
const LAUNCH: &str = "launch-with-descriptors";
/// The exit status that shells use for a program that cannot be started.
const NOT_STARTED: u8 = 126;

/// The open-file limit for the programs that the daemon starts.
#[derive(Clone, Debug)]
pub struct Descriptors {
    soft: u64,
    own: PathBuf,
}

impl Descriptors {
    /// Raises the soft limit of this process to the hard limit. Returns the launcher that starts
    /// programs with the previous limit; `None` if the limit was not raised.
    pub fn raise() -> Option<Self> {
        let before = getrlimit(Resource::Nofile);
        // Without a soft limit there is nothing to raise.
        let soft = before.current?;
        if before.maximum == Some(soft) {
            return None;
        }
        let raised = Rlimit {
            current: before.maximum,
            maximum: before.maximum,
        };
        if let Err(fault) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%fault, soft, "the limit of open files could not be raised");
            return None;
        }
        // The link leads to the running program even if its file was replaced.
        let link = Path::new("/proc/self/exe");
        let own = match link.exists() {
            true => link.to_owned(),
            false => std::env::current_exe().ok()?,
        };
        Some(Descriptors { soft, own })
    }

    /// The program to start instead of `file`, and the arguments to put before those of `file`.
    pub(super) fn before(&self, file: &Path) -> (&Path, Vec<OsString>) {
        let before = vec![LAUNCH.into(), self.soft.to_string().into(), file.into()];
        (&self.own, before)
    }

    /// Restores the soft limit of this process, before it executes another program.
    pub fn put_back(&self) {
        let limit = Rlimit {
            current: Some(self.soft),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        if let Err(fault) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%fault, "the limit of open files could not be restored; it stays raised");
        }
    }

    /// The current soft limit of open files of this process.
    pub fn limit() -> u64 {
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
    }
}

/// Executes the program if this process was started by [`Descriptors`]; returns an exit code if
/// that fails, and `None` for any other start. Call it before anything else.
#[expect(
    clippy::print_stderr,
    reason = "it stands for a program whose standard error is read by its caller"
)]
pub fn launched() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != LAUNCH {
        return None;
    }
    let soft = words.next().and_then(|word| word.to_str()?.parse().ok());
    let (Some(soft), Some(file)) = (soft, words.next()) else {
        eprintln!("abide: {LAUNCH} is internal to the daemon");
        return Some(ExitCode::from(2));
    };
    let limit = Rlimit {
        current: Some(soft),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    // Until now it has the OOM score of the daemon.
    let own = Path::new("/proc/self");
    oom::goes_first(own, own);
    let fault = match setrlimit(Resource::Nofile, limit) {
        // Returns only if it fails.
        Ok(()) => Command::new(&file).args(words).exec(),
        Err(fault) => fault.into(),
    };
    eprintln!(
        "abide: {} cannot be started: {fault}",
        Path::new(&file).display()
    );
    Some(ExitCode::from(NOT_STARTED))
}
