//! Why a command failed: a message for people, a kind for programs, an exit code for scripts.
//! Every command returns one; `cli::run` prints it.

use std::fmt;

use serde_json::{Value, json};

/// Exit codes of the command line. Those of runs that ended badly and of refusals by the
/// daemon come from the wire's table.
pub(crate) mod exit {
    /// The command line makes no sense.
    pub(crate) const USAGE: u8 = 2;
    /// Nothing has that id.
    pub(crate) const NOT_FOUND: u8 = 3;
    /// The wait is over, the run goes on.
    pub(crate) const WINDOW: u8 = 4;
    /// A run holds still until a person decides.
    pub(crate) const PERSON: u8 = 8;
    /// It was refused, and nothing was changed.
    pub(crate) const REFUSED: u8 = 9;
    /// No daemon answers.
    pub(crate) const NO_DAEMON: u8 = 10;
    /// What `serve` answers when whoever supervises it is to start it again.
    pub(crate) const RESTART: u8 = 79;
    /// What `serve` answers where the store cannot be used.
    pub(crate) const STORE: u8 = 74;
    /// What `serve` answers where the folder, port or store is another process's.
    pub(crate) const HELD: u8 = 75;
    /// What `serve` answers where it may not write.
    pub(crate) const PERMISSION: u8 = 77;
    /// What `serve` answers to a configuration that makes no sense.
    pub(crate) const CONFIG: u8 = 78;
    /// No token, or the wrong one.
    pub(crate) const AUTH: u8 = 11;
    /// Something that should work did not.
    pub(crate) const FAILED: u8 = 1;

    /// The code for how a run ended, or for one that has not.
    pub(crate) fn of_run(state: &str, needs_person: bool) -> u8 {
        match state {
            "ok" => 0,
            "timeout" => 5,
            "cancelled" => 6,
            "interrupted" => 7,
            "error" => FAILED,
            _ if needs_person => PERSON,
            _ => WINDOW,
        }
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What the process answers.
    pub code: u8,
    /// A stable name for programs, such as `no_daemon`.
    pub kind: &'static str,
    /// What happened, and what was kept.
    pub message: String,
    /// What to do; one line each.
    pub hints: Vec<String>,
    /// Fields of the daemon's own error.
    pub data: Option<Box<Value>>,
}

impl Failure {
    /// A failure without a hint.
    pub(crate) fn new(code: u8, kind: &'static str, message: impl Into<String>) -> Self {
        Failure {
            code,
            kind,
            message: message.into(),
            hints: Vec::new(),
            data: None,
        }
    }

    /// The command line makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure::new(exit::USAGE, "usage", message)
    }

    /// Something on this machine did not work.
    pub(crate) fn local(what: impl fmt::Display, error: impl fmt::Display) -> Self {
        Failure::new(exit::FAILED, "local", format!("{what}: {error}"))
    }

    /// Says what to do.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The failure as `--json` prints it.
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
