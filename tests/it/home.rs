//! The real binary in a separate home folder, for tests of the command line.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Output and exit code of a command.
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A temporary home folder in which the binary runs without this machine's environment.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Home {
        Home(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_abide"));
        command.args(arguments);
        command
    }

    /// A command for another program in the same environment.
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", self.path())
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn abide(&self, arguments: &[&str]) -> CommandOutput {
        output_of(&mut self.command(arguments))
    }
}

/// Runs a command to its end and returns its output.
pub(crate) fn output_of(command: &mut Command) -> CommandOutput {
    let output = command.output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
