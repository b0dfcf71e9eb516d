//! What a person sees of a call that waits for approval, beside its arguments: the folder in which
//! it works, and what it would change. The registry asks for it whenever approvals are read.

use serde_json::Value;

use super::pin::Pin;
use crate::kernel::redact::Redactor;

/// A call that waits for approval.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The definition that its run has pinned.
    pub agent: Pin,
    /// The run's folder, if it has one of its own.
    pub cwd: Option<String>,
    /// The tool.
    pub tool: String,
    /// The arguments that the call is made with.
    pub arguments: Value,
    /// Masks values of the run's environment.
    pub redactor: Redactor,
    /// What was worked out before is not to be taken.
    pub anew: bool,
}

/// What the call works on, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// The folder in which the call works, absolute.
    pub folder: Option<String>,
    /// What it would do to a file, for tools that write one.
    pub change: Option<FileChange>,
}

/// What a call would do to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file, from the folder on.
    pub path: String,
    /// The change.
    pub effect: ChangeEffect,
    /// Another one once the change is another one; `None` where it is not known.
    pub digest: Option<String>,
}

/// The change itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeEffect {
    /// Creates the file. A unified diff.
    Creates(String),
    /// Changes the file. A unified diff.
    Changes(String),
    /// Leaves the file as it is: it holds this already.
    Nothing,
    /// The call would fail as the file is now, for this reason.
    Fails(String),
    /// The diff is not shown, for this reason; the arguments hold all of the call.
    NotShown(String),
}
