//! What a user sees of a call that waits for approval, beside its arguments: its working folder and
//! the change it would make. The registry requests it whenever approvals are read.

use serde_json::Value;

use super::pin::Pin;
use crate::kernel::text::redact::Redactor;

/// A call that waits for approval.
#[derive(Clone, Debug)]
pub struct UnapprovedCall {
    /// The definition that its run has pinned.
    pub agent: Pin,
    /// The run's folder, if it has one of its own.
    pub cwd: Option<String>,
    /// The name of the tool.
    pub tool: String,
    /// The arguments of the call.
    pub arguments: Value,
    /// Masks values of the run's environment.
    pub redactor: Redactor,
    /// Ignore cached previews and compute a fresh one.
    pub anew: bool,
}

/// The current target and effect of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// The absolute folder in which the call works.
    pub folder: Option<String>,
    /// Its change to a file, for tools that write one.
    pub change: Option<FileChange>,
}

/// The change that a call would make to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file's path relative to the folder.
    pub path: String,
    /// The change.
    pub effect: ChangeEffect,
    /// Digest that differs whenever the change differs; `None` if it is unknown.
    pub digest: Option<String>,
}

/// The kind of change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeEffect {
    /// Creates the file. A unified diff.
    Creates(String),
    /// Modifies the file. A unified diff.
    Changes(String),
    /// No change: the file already has this content.
    Nothing,
    /// The call would fail on the current file, for this reason.
    Fails(String),
    /// The diff is not shown, for this reason; the arguments describe the whole call.
    NotShown(String),
}
