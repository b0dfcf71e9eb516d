//! The limit of open files for started programs. The daemon raises its own soft limit at its start,
//! and programs inherit it. Many programs count or close every descriptor up to their limit, so
//! each program gets the limit back that the daemon was started with.
//!
//! Setting the limit between fork and exec needs `unsafe`, and setting it on the running child
//! races with the program's own first look at it. So the daemon starts this binary instead, which
//! sets its limit and then executes the program. That costs a few milliseconds per program, and
//! only if the limit was raised.

use std::ffi::OsString;
use std::io;
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
        let own = own_program()?;
        Some(Descriptors { soft, own })
    }

    /// The soft limit of programs.
    pub(super) fn soft(&self) -> u64 {
        self.soft
    }

    /// The program to start instead of `file`, and the arguments to put before those of `file`.
    pub(super) fn before(&self, file: &Path) -> (&Path, Vec<OsString>) {
        let before = vec![LAUNCH.into(), self.soft.to_string().into(), file.into()];
        (&self.own, before)
    }

    /// Restores the soft limit of this process, before it executes another program.
    pub fn put_back(&self) {
        if let Err(fault) = set_soft_limit(self.soft) {
            tracing::warn!(%fault, "the limit of open files could not be restored; it stays raised");
        }
    }

    /// The current soft limit of open files of this process.
    pub fn limit() -> u64 {
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
    }
}

/// The file of this program. On Linux it is a link that leads to the running program even if its
/// file was replaced.
pub(super) fn own_program() -> Option<PathBuf> {
    let link = Path::new("/proc/self/exe");
    match link.exists() {
        true => Some(link.to_owned()),
        false => std::env::current_exe().ok(),
    }
}

/// Sets the soft limit of open files of this process.
pub(super) fn set_soft_limit(soft: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(soft),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
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
    // Until now it has the OOM score of the daemon.
    let own = Path::new("/proc/self");
    oom::goes_first(own, own);
    let fault = match set_soft_limit(soft) {
        // Returns only if it fails.
        Ok(()) => Command::new(&file).args(words).exec(),
        Err(fault) => fault,
    };
    eprintln!(
        "abide: {} cannot be started: {fault}",
        Path::new(&file).display()
    );
    Some(ExitCode::from(NOT_STARTED))
}
