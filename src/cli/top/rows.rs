//! Formats runs and open requests as lines of the lists of `abide top`.

use anstyle::{AnsiColor, Color as Ink, Effects};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::draw::{BAD, BUSY, DIM, GOOD};
use super::model::Waits;
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::asking::verbatim;
use crate::cli::commands::usage;
use crate::cli::live::tree;
use crate::cli::output::text::{age, clean, json, line, short, span};
use crate::kernel::time::Timestamp;
use crate::wire::shapes::Run;

/// Maximum level of indentation; deeper runs are not indented further.
const DEEPEST: usize = 8;

/// Branch lines in front of a run in its tree, from its level and those of the runs after it.
pub(super) fn branch(levels: &[usize]) -> String {
    let Some((level, behind)) = levels.split_first().filter(|(level, _)| **level > 0) else {
        return String::new();
    };
    // True if another run at this level follows under the same ancestor.
    let goes_on = |wanted: usize| {
        let mut below = behind.iter().take_while(|level| **level >= wanted);
        below.any(|level| *level == wanted)
    };
    let mut text = String::new();
    for above in 1..(*level).min(DEEPEST) {
        text.push_str(if goes_on(above) { "│ " } else { "  " });
    }
    text.push_str(if goes_on(*level) { "├ " } else { "└ " });
    text
}

/// A run behind its branch: its mark, id, name, state and news.
pub(super) fn run(run: &Run, branch: &str, now: Timestamp, width: usize) -> Line<'static> {
    let (mark, style) = match &*run.state {
        "ok" => ("✓", GOOD),
        "running" | "settling" => ("●", BUSY),
        "queued" => ("○", Style::new()),
        "paused" => ("‖", super::draw::ASKS),
        _ => ("✗", BAD),
    };
    let name = line(tree::name(run), 24);
    let begin = format!("{branch}{mark} ");
    let id = short(run.run_id);
    let rest = format!(" {} {}", run.state, news(run, now));
    let room = width.saturating_sub(unicode_width::UnicodeWidthStr::width(begin.as_str()));
    let text = line(&format!("{id} {name}{rest}"), room);
    Line::from(vec![Span::styled(begin, style), Span::raw(text)]).style(
        if tree::is_ended(&run.state) {
            DIM
        } else {
            Style::new()
        },
    )
}

/// News and title of a run: the news first, because the end may be cut off.
fn news(run: &Run, now: Timestamp) -> String {
    let title = &run.title;
    match (&*run.state, &run.step) {
        ("queued", _) => match &run.held_up {
            Some(why) => format!("{why}: {title}"),
            None => format!("{}: {title}", age(run.created_at, now)),
        },
        ("paused", _) => format!("{}: {title}", pause(run)),
        (state, Some(step)) if !tree::is_ended(state) => {
            let quiet = age(run.last_activity_at, now);
            format!("step {} {}, {quiet} ago: {title}", step.seq, step.what)
        }
        _ => match (&run.error, run.ended_at) {
            (Some(error), _) => format!("{}: {title}", error.message),
            (None, Some(at)) => format!("{} ago: {title}", age(at, now)),
            (None, None) => title.clone(),
        },
    }
}

/// Why a run is paused; its request is in the list above the runs, with the way to answer it.
fn pause(run: &Run) -> String {
    match run.pause_reason.as_deref() {
        Some("approval") => "waits for your approval".to_owned(),
        Some("input") => "waits for your answer".to_owned(),
        _ => tree::pause(run),
    }
}

/// Formats an open request or review on one line.
pub(super) fn waiting(one: &Waits, now: Timestamp, width: usize) -> String {
    let text = match one {
        Waits::For(asked) => asks(asked, now),
        Waits::Review(run) => format!(
            "! {} has a call that may have happened: abide review {}",
            tree::name(run),
            short(run.run_id)
        ),
    };
    line(&text, width)
}

/// Formats a request with the time that is left for it.
fn asks(asked: &OpenRequest, now: Timestamp) -> String {
    let left = |until: Timestamp| span(until.since(now));
    match asked {
        OpenRequest::Approval(asked) => {
            let who = asked.label.as_deref().unwrap_or(asked.agent.as_str());
            let covers = asked.covers.clone();
            let what = covers.unwrap_or_else(|| json(&asked.arguments));
            let what = verbatim::visible(&what).replace('\n', "⏎");
            format!(
                "! {who} wants to call {}, {} left: {what}",
                asked.tool,
                left(asked.expires_at)
            )
        }
        OpenRequest::Question(asked) => {
            let who = asked.label.as_deref().unwrap_or(asked.agent.as_str());
            format!(
                "? {who} asks, {} left: {}",
                left(asked.expires_at),
                asked.text
            )
        }
        OpenRequest::Value(_) => asked.in_short(now, None),
    }
}

/// Details of the selected run, for a wide screen.
pub(super) fn details(run: &Run, now: Timestamp) -> Vec<String> {
    let mut lines = vec![
        format!("{} ({})", run.title, run.state),
        format!("agent {}, model {}", run.agent, run.model),
        format!("session {}", run.session_key),
        format!(
            "{}, {}, {} tokens",
            tree::calls(run.tool_calls),
            usage::model_calls(run.loops.into()),
            run.usage.input_tokens + run.usage.output_tokens
        ),
        format!("accepted {} ago", age(run.created_at, now)),
    ];
    if let Some(deadline) = run.deadline_at.filter(|_| !tree::is_ended(&run.state)) {
        lines.push(format!("time limit in {}", span(deadline.since(now))));
    }
    if &*run.state == "paused" {
        lines.push(pause(run));
    }
    if let Some(step) = &run.step {
        lines.push(format!("step {}: {}", step.seq, step.what));
    }
    lines.extend(run.warnings.iter().map(|warning| format!("! {warning}")));
    lines.extend(run.error.iter().map(|error| error.message.clone()));
    lines.extend(run.result.iter().cloned());
    lines.iter().map(|text| clean(text)).collect()
}

/// Converts a style of the plain output for the screen.
pub(super) fn style_of(style: anstyle::Style) -> Style {
    let mut out = Style::new();
    out.fg = match style.get_fg_color() {
        Some(Ink::Ansi(AnsiColor::Green)) => Some(Color::Green),
        Some(Ink::Ansi(AnsiColor::Red)) => Some(Color::Red),
        Some(Ink::Ansi(AnsiColor::Cyan)) => Some(Color::Cyan),
        _ => None,
    };
    for (effect, modifier) in [
        (Effects::BOLD, Modifier::BOLD),
        (Effects::DIMMED, Modifier::DIM),
    ] {
        if style.get_effects().contains(effect) {
            out = out.add_modifier(modifier);
        }
    }
    out
}
