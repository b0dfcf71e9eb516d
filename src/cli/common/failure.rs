//! Errors of commands: a message for users, a kind for programs, an exit code for scripts.
//! Every command returns a [`Failure`]; `args` prints it.

use std::fmt;

use serde_json::{Value, json};

/// Exit codes of the command line. The codes of failed runs and of refusals by the daemon come from
/// the wire's table.
pub(crate) mod exit {
    /// The command line is invalid.
    pub(crate) const USAGE: u8 = 2;
    /// No object has that id.
    pub(crate) const NOT_FOUND: u8 = 3;
    /// The wait ended before the run, which goes on.
    pub(crate) const NOT_ENDED: u8 = 4;
    /// A run is paused until a user decides.
    pub(crate) const NEEDS_USER: u8 = 8;
    /// The request was refused; nothing was changed.
    pub(crate) const REFUSED: u8 = 9;
    /// Cannot connect to a daemon.
    pub(crate) const NO_DAEMON: u8 = 10;
    /// `serve`: the supervisor shall start it again.
    pub(crate) const RESTART: u8 = 79;
    /// `serve`: the store is unusable.
    pub(crate) const STORE: u8 = 74;
    /// `serve`: another process uses the folder, port or store.
    pub(crate) const HELD: u8 = 75;
    /// `serve`: it has no permission to write.
    pub(crate) const PERMISSION: u8 = 77;
    /// `serve`: the configuration is invalid.
    pub(crate) const CONFIG: u8 = 78;
    /// The token is missing or wrong.
    pub(crate) const AUTH: u8 = 11;
    /// Any other error.
    pub(crate) const FAILED: u8 = 1;

    /// What each code means, for the manual. docs/reference/command-line.md has the same rows.
    pub(crate) const MEANINGS: &[(u8, &str)] = &[
        (0, "ok"),
        (FAILED, "error: the run failed, a check failed, or a defect"),
        (USAGE, "invalid command line, or an ambiguous name"),
        (NOT_FOUND, "not found"),
        (
            NOT_ENDED,
            "the wait ended before the run; the run continues",
        ),
        (5, "the run exceeded its time limit"),
        (6, "the run was cancelled"),
        (7, "the run was interrupted"),
        (NEEDS_USER, "a person is needed"),
        (
            REFUSED,
            "the daemon refused the request; nothing was changed",
        ),
        (NO_DAEMON, "no daemon"),
        (AUTH, "the token is missing or wrong"),
    ];

    /// What the further codes of `abide serve` mean.
    pub(crate) const MEANINGS_OF_SERVE: &[(u8, &str)] = &[
        (71, "a system call failed"),
        (STORE, "the store is unusable"),
        (HELD, "another process uses the folder, port or store"),
        (
            PERMISSION,
            "no permission, or a file with unsafe owner or mode",
        ),
        (CONFIG, "invalid configuration"),
        (RESTART, "to be started again by the supervisor"),
    ];

    /// Exit code of a run by its final state, or of one that has not ended.
    pub(crate) fn of_run(state: &str, needs_person: bool) -> u8 {
        match state {
            "ok" => 0,
            "timeout" => 5,
            "cancelled" => 6,
            "interrupted" => 7,
            "error" => FAILED,
            _ if needs_person => NEEDS_USER,
            _ => NOT_ENDED,
        }
    }
}

/// Error of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Exit code of the process.
    pub code: u8,
    /// Stable name for programs, such as `no_daemon`.
    pub kind: &'static str,
    /// What happened and what was kept.
    pub message: String,
    /// What to do, one line each.
    pub hints: Vec<String>,
    /// Data of the daemon's own error, if it was one.
    pub data: Option<Box<Value>>,
}

impl Failure {
    /// A failure without hints.
    pub(crate) fn new(code: u8, kind: &'static str, message: impl Into<String>) -> Self {
        Failure {
            code,
            kind,
            message: message.into(),
            hints: Vec::new(),
            data: None,
        }
    }

    /// A failure for an invalid command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(exit::USAGE, "usage", message)
    }

    /// A failure of an operation on this machine.
    pub(crate) fn local(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Failure::new(exit::FAILED, "local", format!("{what}: {error}"))
    }

    /// Adds a hint that says what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The object that `--json` prints.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({
            "kind": self.kind,
            "message": self.message,
            "hint": self.hints.join("; "),
            "exitCode": self.code,
        });
        if let Some(data) = &self.data {
            error["data"] = (**data).clone();
        }
        json!({ "error": error })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for hint in &self.hints {
            write!(f, "\n  {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
