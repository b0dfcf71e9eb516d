//! What is to be started, and what came of it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;
use rustix::process::Signal;

use super::Captured;
use crate::kernel::env::Environment;

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name or path and its arguments; never a line for a shell.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub environment: Environment,
    /// Its folder.
    pub folder: PathBuf,
    /// What it can read.
    pub input: Input,
    /// It is ended after this long; `None` = whoever waits for it says when.
    pub time: Option<Duration>,
    /// So many bytes of each of its two streams are kept, from both ends.
    pub keep: usize,
}

/// What a program can read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing: its input is empty.
    #[default]
    Nothing,
    /// This text.
    Text(String),
    /// What is said to it as long as it runs; see [`super::Service`].
    Talk,
}

/// How a program came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal, which came from elsewhere.
    Signal(i32),
    /// It was ended: its time was over.
    TimeOver,
    /// It was ended: it had written more than this many bytes.
    TooMuch(u64),
}

impl Ending {
    /// Was it killed? Nothing can be ready for that.
    pub fn is_killed(self) -> bool {
        self == Ending::Signal(Signal::KILL.as_raw())
    }
}

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How.
    pub ending: Ending,
    /// What it wrote.
    pub stdout: Captured,
    /// What it wrote beside that.
    pub stderr: Captured,
    /// What it started and what is alive: where it ended by itself, what it left running, else
    /// what could not be ended.
    pub left: Vec<u32>,
}

/// Where programs are looked for by an environment without a `PATH`, as shells do.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The file that `name` stands for: a path, from `folder` on, or a name in one of the folders
/// of `path`. The error is for people.
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
    Err(denied.unwrap_or_else(|| format!("{name:?} is in no folder of PATH")))
}

fn executable(file: &Path) -> Result<(), String> {
    let found = std::fs::metadata(file).map_err(|fault| fault.to_string())?;
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    rustix::fs::access(file, Access::EXEC_OK).map_err(|_| "it is not executable".to_owned())
}

/// The number and, for those that end programs, the name of a signal.
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
                .contains("no file")
        );
    }
}
