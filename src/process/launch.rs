//! The limit of open files that programs get. The daemon raises its own soft limit at its start,
//! and a program inherits that; many programs count or close every descriptor up to their limit,
//! so each gets the one back that the daemon was started with.
//!
//! Setting the limit between fork and exec needs `unsafe`, and setting it on the running child
//! races with the program's own first look at it. So this binary is started in the program's
//! place: it sets its limit, and becomes the program. That costs a few milliseconds a program,
//! and only where the limit was raised.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::oom;

/// The first argument by which this binary knows that it stands for another program.
const LAUNCH: &str = "launch-with-descriptors";
/// The exit status of shells for a program that cannot be started.
const NOT_STARTED: u8 = 126;

/// How many files the programs that the daemon starts may open.
#[derive(Clone, Debug)]
pub struct Descriptors {
    soft: u64,
    own: PathBuf,
}

impl Descriptors {
    /// Raises the soft limit of this process to the hard one. What is given, if it was raised,
    /// starts programs with the limit from before.
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
        // The link leads to the program that runs, also where its file was replaced.
        let link = Path::new("/proc/self/exe");
        let own = match link.exists() {
            true => link.to_owned(),
            false => std::env::current_exe().ok()?,
        };
        Some(Descriptors { soft, own })
    }

    /// The program to start in the place of `file`, and its arguments in front of those of
    /// `file`.
    pub(super) fn before(&self, file: &Path) -> (&Path, Vec<OsString>) {
        let before = vec![LAUNCH.into(), self.soft.to_string().into(), file.into()];
        (&self.own, before)
    }

    /// Puts the soft limit of this process back, for a program that is to take its place.
    pub fn put_back(&self) {
        let limit = Rlimit {
            current: Some(self.soft),
            maximum: getrlimit(Resource::Nofile).maximum,
        };
        if let Err(fault) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%fault, "the limit of open files stays raised");
        }
    }

    /// How many files this process may open now.
    pub fn limit() -> u64 {
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
    }
}

/// Where this process was started by [`Descriptors`]: becomes the program, or gives the exit code
/// with which to end. Asked before anything else.
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
        eprintln!("abide: {LAUNCH} is for the daemon alone");
        return Some(ExitCode::from(2));
    };
    let limit = Rlimit {
        current: Some(soft),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    // It has the daemon's place until now.
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
