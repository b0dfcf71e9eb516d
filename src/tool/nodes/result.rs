//! Formats what a node answers for models, in the words of the tool `shell`.

use std::fmt::Write as _;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::contract::nodes::NodeEnd;
use crate::kernel::node::{CallEnd, Entries, FilePart, NodeCall, RunEnd};
use crate::process::signal_name;
use crate::tool::output::ResultLines;
use crate::tool::{Called, ToolOutput};

/// The outcome of a program with this time limit. `may_have_begun`: an earlier attempt may have sent
/// the call.
pub(super) fn of_program(node: &str, may_have_begun: bool, end: NodeEnd, time: Duration) -> Called {
    let uncertain = |why: String, is_final: bool| Called::Uncertain { why, is_final };
    match answer(node, end) {
        Ok(value) => match decoded::<RunEnd>(node, value) {
            Ok(end) => Called::Done(program(&end, time)),
            Err(why) => uncertain(why, true),
        },
        Err(Unanswered::Failed(text)) => Called::Done(ToolOutput::error(text)),
        Err(Unanswered::NotSent(why)) if may_have_begun => {
            let why = format!("the daemon was restarted during the call, and now {why}");
            uncertain(why, false)
        }
        Err(Unanswered::NotSent(why)) => Called::Done(ToolOutput::error(why)),
        Err(Unanswered::Away(why)) => uncertain(why, false),
        Err(Unanswered::Uncertain(why)) => uncertain(why, true),
    }
}

/// The outcome of a call that has no effect.
pub(super) fn of_look(node: &str, call: &NodeCall, end: NodeEnd) -> Called {
    let text = match answer(node, end) {
        Ok(value) => match call {
            NodeCall::List { path } => decoded(node, value).map(|list| entries(path, &list)),
            NodeCall::Read { path, offset, .. } => {
                decoded(node, value).map(|part| file_part(path, *offset, &part))
            }
            other => Err(format!("{} is no tool", other.command())),
        },
        Err(Unanswered::Away(why)) => Err(format!("node_away: {why}")),
        Err(Unanswered::Failed(why) | Unanswered::NotSent(why) | Unanswered::Uncertain(why)) => {
            Err(why)
        }
    };
    Called::Done(match text {
        Ok(text) => ToolOutput::text(text),
        Err(text) => ToolOutput::error(text),
    })
}

/// Why there is no result.
enum Unanswered {
    /// It was not carried out, and had no effect.
    Failed(String),
    /// Nothing was sent.
    NotSent(String),
    /// The node was lost after it got the call.
    Away(String),
    /// The node does not know how it ended.
    Uncertain(String),
}

fn answer(node: &str, end: NodeEnd) -> Result<serde_json::Value, Unanswered> {
    match end {
        NodeEnd::Answered(CallEnd::Done { value }) => Ok(value),
        NodeEnd::Answered(CallEnd::Failed { reason, message }) => Err(Unanswered::Failed(format!(
            "{reason}: node {node} did not carry out the call, nothing was done: {message}"
        ))),
        NodeEnd::Answered(CallEnd::Uncertain { message }) => Err(Unanswered::Uncertain(message)),
        NodeEnd::NotSent(why) => Err(Unanswered::NotSent(why)),
        NodeEnd::Away(why) => Err(Unanswered::Away(why)),
    }
}

fn decoded<T: DeserializeOwned>(node: &str, value: serde_json::Value) -> Result<T, String> {
    serde_json::from_value(value)
        .map_err(|error| format!("node {node} sent a result that cannot be read: {error}"))
}

/// First how it ended, since a long output is cut at the end.
fn program(end: &RunEnd, time: Duration) -> ToolOutput {
    let stopped = "it was stopped with everything that it had started";
    let (mut text, is_error) = match (end.stopped.as_deref(), end.status, end.signal) {
        (Some("timeout"), ..) => {
            let limit = humantime::format_duration(time);
            let text = format!("timeout: it had not ended after {limit}; {stopped}");
            (text, true)
        }
        (Some("output"), ..) => (format!("too much output; {stopped}"), true),
        (Some(why), ..) => (format!("{why}; {stopped}"), true),
        (None, Some(0), _) => ("exit status 0".to_owned(), false),
        (None, Some(status), _) => (format!("exit status {status}"), true),
        (None, None, Some(signal)) => (format!("ended by signal {}", signal_name(signal)), true),
        (None, None, None) => ("it ended without a status".to_owned(), true),
    };
    for (name, stream) in [("stdout", &end.stdout), ("stderr", &end.stderr)] {
        if !stream.is_empty() {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n{name}:\n{}", stream.trim_end_matches('\n'));
        }
    }
    ToolOutput { text, is_error }
}

fn entries(path: &str, found: &Entries) -> String {
    let mut lines = ResultLines::default();
    for entry in &found.entries {
        let slash = if entry.kind == "folder" { "/" } else { "" };
        lines.push(&format!("{}{slash}", entry.name));
    }
    let mut notes = Vec::new();
    if found.entries.is_empty() {
        notes.push(format!("{path} is empty"));
    }
    if found.truncated || lines.left_out() > 0 {
        notes.push("… more entries were left out".to_owned());
    }
    lines.finish(&notes)
}

fn file_part(path: &str, offset: u64, part: &FilePart) -> String {
    if part.size == 0 {
        return format!("{path}: empty");
    }
    let end = part.next.unwrap_or(part.size);
    let mut text = format!(
        "{path}: bytes {offset}-{end} of {}\n{}",
        part.size, part.text
    );
    if let Some(next) = part.next {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n… more; continue with offset {next}");
    }
    text
}
