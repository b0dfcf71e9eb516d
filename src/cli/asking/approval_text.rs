//! Formats what an approval covers: the call, its folder, the names in its environment and its
//! change of a file. Nothing is cut. Used by every command that shows an approval.

use anstyle::Style;
use serde_json::Value;

use super::verbatim;
use crate::cli::output::print::{BAD, DIM, GOOD, HEAD, styled};
use crate::cli::output::text::{age, json, line, short, span};
use crate::kernel::time::Timestamp;
use crate::wire::approvals::{Approval, Change};

/// Tools whose summary line does not show everything that they write.
const WRITE: [&str; 2] = ["write", "edit"];
/// Number of header lines of a diff, which name the files.
const HEADERS: usize = 2;

/// Arguments that are left out because the diff shows them.
const IN_DIFF: [&str; 3] = ["content", "old_text", "new_text"];

/// Formats the complete call with its origin and the time until it is denied, wrapped to `columns`
/// if given.
pub(crate) fn show(approval: &Approval, now: Timestamp, columns: Option<usize>) -> String {
    let mut out = String::new();
    for (style, text) in lines(approval, now, columns) {
        out.push_str(&styled(style, text));
        out.push('\n');
    }
    out
}

/// The lines of [`show`], each with its style.
pub(crate) fn lines(
    approval: &Approval,
    now: Timestamp,
    columns: Option<usize>,
) -> Vec<(Style, String)> {
    let name = approval.label.as_deref().unwrap_or(&approval.title);
    let head = format!(
        "{} wants to call {} ({} old, denied in {})",
        short(approval.id),
        approval.tool,
        age(approval.asked_at, now),
        span(approval.expires_at.since(now)),
    );
    let origin = format!(
        "from {}, run {}: {name} (in {})",
        approval.agent,
        short(approval.run_id),
        approval.session_key
    );
    let mut out: Vec<(Style, String)> = verbatim::lines(&head, columns)
        .into_iter()
        .map(|said| (HEAD, said))
        .collect();
    let indented = |text: &str, by: usize, style: Style| {
        let within = columns.map(|columns| columns.saturating_sub(by));
        let indent = " ".repeat(by);
        let said = verbatim::lines(text, within).into_iter();
        said.map(move |said| (style, format!("{indent}{said}")))
            .collect::<Vec<_>>()
    };
    out.extend(indented(&origin, 2, Style::new()));
    if let Some(folder) = &approval.folder {
        out.extend(indented(&format!("in folder {folder}"), 2, Style::new()));
    }
    if !approval.env.is_empty() {
        let names = approval.env.join(", ");
        let text = format!("with {names} in its environment");
        out.extend(indented(&text, 2, Style::new()));
    }
    let diff = approval.change.as_ref().and_then(|one| one.diff.as_deref());
    let arguments = match diff {
        Some(_) => without_texts(&approval.arguments),
        None => approval.arguments.clone(),
    };
    let arguments = verbatim::arguments(&arguments, columns);
    out.extend(
        arguments
            .lines()
            .map(|said| (Style::new(), said.to_owned())),
    );
    if let Some(change) = &approval.change {
        out.extend(indented(&told(change), 2, Style::new()));
    }
    for (at, said) in diff.into_iter().flat_map(diff_lines).enumerate() {
        // Headers are found by position: a line of a file may look like one.
        let style = if at < HEADERS { DIM } else { colour(said) };
        out.extend(indented(said, 4, style));
    }
    out.extend(indented(
        &format!("because {}", approval.why),
        2,
        Style::new(),
    ));
    out
}

/// Describes the effect of a change, beside its diff.
fn told(change: &Change) -> String {
    let path = &change.path;
    let reason = change.reason.as_deref().unwrap_or("no reason given");
    match &*change.effect {
        "creates" => format!("creates {path}:"),
        "changes" => format!("changes {path}:"),
        "nothing" => format!("leaves {path} unchanged"),
        "fails" => format!("would fail with the current {path}: {reason}"),
        _ => format!("{path}: no diff is shown: {reason}"),
    }
}

/// The arguments without those that the diff shows.
fn without_texts(arguments: &Value) -> Value {
    let mut arguments = arguments.clone();
    if let Value::Object(fields) = &mut arguments {
        fields.retain(|name, _| !IN_DIFF.contains(&name.as_str()));
    }
    arguments
}

/// The lines of a diff. A carriage return at the end of a line belongs to it and is shown.
fn diff_lines(diff: &str) -> impl Iterator<Item = &str> {
    diff.strip_suffix('\n').unwrap_or(diff).split('\n')
}

fn colour(line: &str) -> Style {
    match line.as_bytes().first() {
        Some(b'+') => GOOD,
        Some(b'-') => BAD,
        Some(b'@' | b'\\') => DIM,
        _ => Style::new(),
    }
}

/// Formats a call on one line for lists of open work. With `columns` it is cut after the tool's
/// name, and a cut line names the command that shows all of it; without `columns` nothing is cut.
pub(crate) fn in_short(approval: &Approval, now: Timestamp, columns: Option<usize>) -> String {
    let who = approval.label.as_deref().unwrap_or(approval.agent.as_str());
    let covers = approval.covers.clone();
    let what = covers.unwrap_or_else(|| json(&approval.arguments));
    let id = short(approval.id);
    let head = format!(
        "! {id} {who} (run {}) wants to call {}",
        short(approval.run_id),
        approval.tool
    );
    let left = span(approval.expires_at.since(now));
    let text = format!(
        "{head}, {left} left: {}",
        verbatim::visible(&what).replace('\n', "⏎")
    );
    // The line does not show the written content, however short the path is.
    let is_part = approval.change.is_some() || WRITE.contains(&approval.tool.as_str());
    let hint = match is_part {
        true => format!(" details: abide approvals show {id}"),
        false => String::new(),
    };
    let Some(columns) = columns else {
        return format!("{}{hint}", line(&text, usize::MAX));
    };
    let all = line(&text, columns);
    if !all.ends_with('…') && !is_part {
        return all;
    }
    let hint = format!(" details: abide approvals show {id}");
    let room = columns.saturating_sub(hint.len());
    let head = line(&head, usize::MAX);
    let least = unicode_width::UnicodeWidthStr::width(head.as_str()) + 1;
    format!("{}{hint}", line(&text, room.max(least)))
}
