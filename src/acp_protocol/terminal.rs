//! Requests of an agent for terminals, and their results: commands that its client runs for it.

use serde::{Deserialize, Serialize};

/// Parameters of `terminal/create`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CreateTerminal {
    pub(crate) session_id: String,
    pub(crate) command: String,
    #[serde(default)]
    pub(crate) args: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) env: Option<Vec<EnvVariable>>,
    /// Absolute path; absent: the folder of the session.
    #[serde(default)]
    pub(crate) cwd: Option<String>,
    /// Maximum number of bytes of output that are kept, those at the end.
    #[serde(default)]
    pub(crate) output_byte_limit: Option<u64>,
}

/// A variable of a command's environment.
#[derive(Debug, Deserialize)]
pub(crate) struct EnvVariable {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Result of `terminal/create`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TerminalCreated {
    pub(crate) terminal_id: String,
}

/// Parameters of `terminal/output`, `terminal/wait_for_exit`, `terminal/kill` and `terminal/release`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfTerminal {
    pub(crate) session_id: String,
    pub(crate) terminal_id: String,
}

/// Result of `terminal/output`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TerminalOutput {
    pub(crate) output: String,
    /// The beginning was dropped.
    pub(crate) truncated: bool,
    /// How the command has ended; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_status: Option<TerminalExit>,
}

/// How a command has ended; also the result of `terminal/wait_for_exit`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TerminalExit {
    /// Its exit status; absent if a signal has ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<u32>,
    /// The name of the signal that has ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<String>,
}
