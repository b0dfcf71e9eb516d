//! The program to start, and its result.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;
use rustix::process::Signal;

use super::Captured;
use crate::kernel::policy::env::Environment;

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The name or path of the program and its arguments; not a shell command line.
    pub argv: Vec<String>,
    /// The complete environment; nothing is inherited.
    pub environment: Environment,
    /// The working directory.
    pub folder: PathBuf,
    /// The standard input.
    pub input: ProgramInput,
    /// The time limit, after which the program is ended; `None` = the caller decides.
    pub time: Option<Duration>,
    /// The maximum number of bytes kept of each output stream, half from each end.
    pub keep: usize,
    /// For a program of a step: processes that it leaves in the background go on until the run
    /// ends. Otherwise they are ended when the program has exited.
    pub detach: bool,
}

/// The standard input of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProgramInput {
    /// No input: the program reads end of file immediately.
    #[default]
    Nothing,
    /// This text; the pipe is closed after it.
    Text(String),
    /// A pipe that stays open while the program runs; see [`super::Service`].
    Pipe,
}

impl ProgramInput {
    /// The text, if it is one.
    pub(super) fn into_text(self) -> Option<String> {
        match self {
            ProgramInput::Text(text) => Some(text),
            ProgramInput::Nothing | ProgramInput::Pipe => None,
        }
    }
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It exited by itself with this status.
    Exited(i32),
    /// It was ended by this signal, which was not sent by the daemon.
    Signal(i32),
    /// It was ended because its time limit expired, or because its caller stopped it.
    TimedOut,
    /// It was ended because it wrote more than this many bytes.
    OutputLimit(u64),
    /// It was ended because its keeper received SIGTERM, as at a shutdown of the machine.
    Stopped,
    /// Its keeper ended it: no daemon was there for this long.
    Orphaned(Duration),
}

impl ExitReason {
    /// True if it ended by SIGKILL, which a program cannot handle.
    pub fn is_killed(self) -> bool {
        self == ExitReason::Signal(Signal::KILL.as_raw())
    }
}

/// The result of a program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub ending: ExitReason,
    /// The captured standard output.
    pub stdout: Captured,
    /// The captured standard error.
    pub stderr: Captured,
    /// The pids of live descendants: those left running if the program ended by itself, otherwise
    /// those that could not be ended.
    pub remaining: Vec<u32>,
}

/// The search path for an environment without `PATH`, as in shells.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Resolves `name`: a path relative to `folder`, or a name in one of the folders of `path`. The
/// error is a message for people.
pub fn find(name: &str, path: Option<&OsStr>, folder: &Path) -> Result<PathBuf, String> {
    if name.contains('/') {
        let file = folder.join(name);
        return match executable(&file) {
            Ok(()) => Ok(file),
            Err(why) => Err(format!("{}: {why}", file.display())),
        };
    }
    let mut denied = None;
    let path = path.unwrap_or(OsStr::new(USUAL_PATH));
    for folder in std::env::split_paths(path) {
        let file = folder.join(name);
        match executable(&file) {
            Ok(()) => return Ok(file),
            Err(why) if file.is_file() => denied = Some(format!("{}: {why}", file.display())),
            Err(_) => {}
        }
    }
    Err(denied.unwrap_or_else(|| format!("{name:?} was not found in PATH")))
}

fn executable(file: &Path) -> Result<(), String> {
    let found = std::fs::metadata(file).map_err(|fault| fault.to_string())?;
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    rustix::fs::access(file, Access::EXEC_OK).map_err(|_| "it is not executable".to_owned())
}

/// The number of a signal, with its name if it is one that ends programs.
pub fn signal_name(number: i32) -> String {
    let known = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
    ];
    let named = known.iter().find(|(signal, _)| signal.as_raw() == number);
    match named {
        Some((_, name)) => format!("{number} ({name})"),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_or_path_or_the_reason_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tool");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let path = folder.path().as_os_str();
        let refused = find("tool", Some(path), Path::new("/")).unwrap_err();
        assert!(refused.contains("not executable"), "{refused}");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, mode).unwrap();
        assert_eq!(find("tool", Some(path), Path::new("/")), Ok(file.clone()));
        assert_eq!(
            find("./tool", None, folder.path()).unwrap(),
            folder.path().join("./tool")
        );
        let refused = find("missing", Some(path), Path::new("/")).unwrap_err();
        assert!(refused.contains("PATH"), "{refused}");
        assert!(find("./missing", None, folder.path()).is_err());
        assert!(find(".", None, folder.path()).is_err());
        assert!(
            find("./", None, folder.path())
                .unwrap_err()
                .contains("not a file")
        );
    }
}
