//! Draws the tree as lines: open requests, then each run with its last calls, and below a call the
//! run that executes it. The lines fit the given screen.

use anstyle::{AnsiColor, Style};
use unicode_width::UnicodeWidthStr;

use super::{Followed, RunTree, calls, is_ended, name, outcome, pause};
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::output::markdown::Markdown;
use crate::cli::output::print::{BAD, DIM, GOOD, HEAD, styled};
use crate::cli::output::text::{COLUMNS, line, short, span, wrap};
use crate::kernel::ids::{RunId, StepId};
use crate::kernel::time::Timestamp;
use crate::wire::shapes::{Run, Step};

/// Number of calls that are shown below a run if there is room.
const SHOWN: usize = 5;
/// Milliseconds without a step after which the quiet time is shown.
const QUIET_MS: u64 = 5_000;
/// Number of characters at the end of a streamed text that are searched for its last lines.
const TAIL: usize = 20_000;
/// Below this number of columns, a run is shown without its id.
const NARROW: usize = 32;
/// Below this number of columns, a call's arguments or outcome are left out.
const NARROWEST: usize = 8;
/// Style of what has not ended yet.
const OPEN: Style = AnsiColor::Yellow.on_default();

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Parameters of a drawing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawOptions {
    /// The current time.
    pub(crate) now: Timestamp,
    /// Frame of the spinners.
    pub(crate) frame: usize,
    /// Maximum width of a line.
    pub(crate) columns: usize,
    /// Maximum number of lines.
    pub(crate) rows: usize,
}

/// Level of detail, which is reduced until everything fits.
#[derive(Clone, Copy)]
struct DetailLevel {
    /// Maximum number of calls below a run, apart from those that open child runs execute.
    calls: usize,
    /// Show the calls of child runs that have ended.
    ended: bool,
}

const DETAILS: [DetailLevel; 5] = [
    DetailLevel::of(SHOWN, true),
    DetailLevel::of(SHOWN, false),
    DetailLevel::of(3, false),
    DetailLevel::of(1, false),
    DetailLevel::of(0, false),
];

impl DetailLevel {
    const fn of(calls: usize, ended: bool) -> DetailLevel {
        DetailLevel { calls, ended }
    }
}

/// State of a run or call, as a mark in front of its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateMark {
    Pending,
    Executing,
    Working,
    Done,
    Failed,
}

impl StateMark {
    fn of_run(run: &Run) -> StateMark {
        match (&*run.state, run.pause_reason.as_deref()) {
            ("ok", _) => StateMark::Done,
            (state, _) if is_ended(state) => StateMark::Failed,
            ("queued", _) | ("paused", Some("approval" | "input" | "review")) => StateMark::Pending,
            _ => StateMark::Executing,
        }
    }

    fn of_step(step: &Step) -> StateMark {
        match &*step.state {
            "done" => StateMark::Done,
            "failed" | "uncertain" => StateMark::Failed,
            _ => StateMark::Working,
        }
    }

    fn draw(self, frame: usize) -> String {
        match self {
            StateMark::Pending => styled(OPEN, "○"),
            StateMark::Executing => styled(OPEN, "◉"),
            StateMark::Working => styled(OPEN, SPINNER[frame % SPINNER.len()]),
            StateMark::Done => styled(GOOD, "●"),
            StateMark::Failed => styled(BAD, "●"),
        }
    }
}

impl RunTree {
    /// Draws the tree in lines that fit `look`.
    pub(crate) fn draw(&self, look: &DrawOptions) -> Vec<String> {
        let mut lines = Vec::new();
        for detail in DETAILS {
            lines = self.listed().flat_map(|one| ask(one, look)).collect();
            let mut pen = Pen {
                look,
                detail,
                text: SHOWN,
            };
            self.draw_roots(&mut lines, pen);
            if lines.len() <= look.rows {
                // Streamed text gets the lines that are left.
                if self.writes() && look.rows != usize::MAX {
                    pen.text += look.rows - lines.len();
                    lines = self.listed().flat_map(|one| ask(one, look)).collect();
                    self.draw_roots(&mut lines, pen);
                }
                return lines;
            }
        }
        let more = lines.len() + 1 - look.rows;
        lines.truncate(look.rows.saturating_sub(1));
        let more = line(&format!("… {more} more lines"), look.columns);
        lines.push(styled(DIM, more));
        lines
    }

    fn draw_roots(&self, lines: &mut Vec<String>, pen: Pen<'_>) {
        let roots = self.runs.iter().filter(|one| !self.is_below(&one.run));
        let is_alone = roots.clone().count() == 1;
        for root in roots {
            let is_whole = is_alone || self.about == Some(root.run.run_id);
            self.draw_run(lines, pen, root, "", is_whole);
        }
    }

    /// True if exactly one run is writing.
    fn writes(&self) -> bool {
        let mut writers = self.runs.iter().filter(|one| one.partial_message.is_some());
        writers.next().is_some() && writers.next().is_none()
    }

    /// The permanent line of a call that has ended.
    pub(crate) fn permanent_call_line(
        &self,
        run: RunId,
        call: StepId,
        look: &DrawOptions,
    ) -> Option<String> {
        let followed = self.runs.iter().find(|one| one.run.run_id == run)?;
        let mut steps = followed.steps.iter();
        let step = steps.find(|step| step.step_id == call && step.tool.is_some())?;
        let pen = Pen {
            look,
            detail: DetailLevel::of(0, false),
            text: 0,
        };
        Some(pen.bare_call("", step, self.child_of(&followed.run, step)))
    }

    fn is_below(&self, run: &Run) -> bool {
        run.parent_run_id.is_some_and(|parent| self.has(parent))
    }

    /// Draws a run on its own line, and its work below. An ended run that is not to be drawn
    /// completely gets only its line.
    fn draw_run(
        &self,
        lines: &mut Vec<String>,
        pen: Pen<'_>,
        followed: &Followed,
        indent: &str,
        is_whole: bool,
    ) {
        lines.push(pen.head(followed, indent));
        if is_whole || !is_ended(&followed.run.state) {
            self.draw_work(lines, pen, followed, &pen.deeper(indent, "  "), false);
        }
    }

    /// Draws the work of a run: its last calls, its other child runs and, if it executes a call of
    /// its parent run, its result.
    fn draw_work(
        &self,
        lines: &mut Vec<String>,
        pen: Pen<'_>,
        followed: &Followed,
        indent: &str,
        carries: bool,
    ) {
        let run = &followed.run;
        let result = carries.then(|| result(run)).flatten();
        let sealed = carries && is_sealed(run);
        let calls: Vec<(&Step, Option<&Followed>)> = followed
            .steps
            .iter()
            .filter(|step| step.tool.is_some() && !sealed && !self.has_printed(step.step_id))
            .map(|step| (step, self.child_of(run, step)))
            .collect();
        let last = calls.len().saturating_sub(pen.detail.calls);
        let is_open =
            |child: &Option<&Followed>| child.is_some_and(|one| !is_ended(&one.run.state));
        let shown: Vec<_> = calls
            .iter()
            .enumerate()
            .filter(|(at, (_, child))| *at >= last || is_open(child))
            .map(|(_, call)| call)
            .collect();
        let hidden = calls.len() - shown.len();
        if hidden > 0 {
            let is_last = shown.is_empty() && result.is_none();
            let more = format!("... +{hidden} more tool uses");
            lines.push(pen.branch(indent, is_last, DIM, &more));
        }
        for (place, (step, child)) in shown.iter().enumerate() {
            let is_last = place + 1 == shown.len() && result.is_none();
            lines.push(pen.call(indent, is_last, step, *child));
            let all = pen.detail.ended || is_open(child);
            if let Some(child) = child.filter(|_| all) {
                let inner = pen.deeper(indent, if is_last { "  " } else { "│ " });
                self.draw_work(lines, pen, child, &inner, true);
            }
        }
        // Calls that were printed above the tree count, too.
        let carries_a_call = |other: &Followed| {
            let is_it = |child: &Followed| child.run.run_id == other.run.run_id;
            let of_tools = followed.steps.iter().filter(|step| step.tool.is_some());
            let mut of_tools = of_tools.filter(|_| !sealed);
            of_tools.any(|step| self.child_of(run, step).is_some_and(is_it))
        };
        for other in self.runs.iter().filter(|_| !sealed) {
            if other.run.parent_run_id == Some(run.run_id) && !carries_a_call(other) {
                self.draw_run(lines, pen, other, indent, false);
            }
        }
        let is_shown = !carries && !self.is_printed(run.run_id);
        if let Some((_, text)) = followed.partial_message.as_ref().filter(|_| is_shown) {
            lines.extend(tail(text, indent, pen.look.columns, pen.text));
        }
        if let Some((style, text)) = result {
            lines.push(pen.branch(indent, true, style, &text));
        }
    }
}

/// Parameters of drawn lines.
#[derive(Clone, Copy)]
struct Pen<'a> {
    look: &'a DrawOptions,
    detail: DetailLevel,
    /// Maximum number of lines of streamed text.
    text: usize,
}

impl Pen<'_> {
    fn room(&self, indent: &str) -> usize {
        self.look.columns.saturating_sub(indent.width())
    }

    /// A deeper indentation, as long as there is room for it.
    fn deeper(&self, indent: &str, by: &str) -> String {
        match indent.width() + by.width() <= self.look.columns / 3 {
            true => format!("{indent}{by}"),
            false => indent.to_owned(),
        }
    }

    /// The line of a run with its state.
    fn head(&self, followed: &Followed, indent: &str) -> String {
        let run = &followed.run;
        let mark = StateMark::of_run(run).draw(self.look.frame);
        let room = self.room(indent).saturating_sub(2);
        let digits = match room >= NARROW {
            true => format!(" · {}", short(run.run_id)),
            false => String::new(),
        };
        let most = (room / 2).saturating_sub(digits.width()).max(NARROWEST);
        let who = line(name(run), most);
        let rest = room.saturating_sub(who.width() + digits.width() + 2);
        let how = line(&headline(followed, self.look.now), rest);
        format!(
            "{}{mark} {}{digits}  {}",
            styled(DIM, indent),
            styled(HEAD, who),
            styled(DIM, how)
        )
    }

    /// The line of a call: its tool, its arguments and its outcome, unless that has a line of its
    /// own.
    fn call(&self, indent: &str, is_last: bool, step: &Step, child: Option<&Followed>) -> String {
        let branch = styled(DIM, format!("{indent}{}", branch(is_last)));
        format!("{branch} {}", self.bare_call(indent, step, child))
    }

    /// A call without its branch.
    fn bare_call(&self, indent: &str, step: &Step, child: Option<&Followed>) -> String {
        let mut room = self.room(indent).saturating_sub(4);
        let tool = line(step.tool.as_deref().unwrap_or(&step.kind), room);
        room -= tool.width();
        let mark = child.map_or_else(
            || StateMark::of_step(step),
            |child| StateMark::of_run(&child.run),
        );
        let out = match child.map(|child| &child.run) {
            Some(run) if !is_ended(&run.state) => Some((DIM, "·", standing(run, self.look.now))),
            // The outcome is on a line below, if there is room for it.
            Some(run) => result(run)
                .filter(|_| !self.detail.ended)
                .map(|(style, text)| (style, "→", text)),
            None if step.ended_at.is_none() => None,
            None => outcome(step).map(|out| match &*step.state {
                "failed" => (BAD, "→", format!("error: {out}")),
                "uncertain" => (BAD, "→", format!("unknown whether it was done: {out}")),
                _ => (DIM, "→", out.to_owned()),
            }),
        };
        let out = out.map(|(style, mark, text)| (style, line(&format!(" {mark} {text}"), room)));
        // If there is an outcome, a part of both is shown.
        let most = match &out {
            Some((_, out)) => (room / 2).max(room.saturating_sub(out.width() + 1)),
            None => room,
        };
        let params = step.params_summary.as_deref().unwrap_or_default();
        let params = match params.trim().is_empty() || most < NARROWEST {
            true => String::new(),
            false => format!(" ({})", line(params, most - 3)),
        };
        room -= params.width();
        let out = match out {
            Some((style, out)) if room >= NARROWEST => {
                styled(style, format!(" {}", line(&out, room - 1)))
            }
            _ => String::new(),
        };
        format!(
            "{} {}{}{out}",
            mark.draw(self.look.frame),
            styled(HEAD, tool),
            styled(DIM, params),
        )
    }

    /// A line of the tree without a mark.
    fn branch(&self, indent: &str, is_last: bool, style: Style, text: &str) -> String {
        let text = line(text, self.room(indent).saturating_sub(2));
        let branch = styled(DIM, format!("{indent}{}", branch(is_last)));
        format!("{branch} {}", styled(style, text))
    }
}

fn branch(is_last: bool) -> &'static str {
    if is_last { "└" } else { "├" }
}

/// True if only the run's result is visible, and not its work.
fn is_sealed(run: &Run) -> bool {
    let mode = run.delegated.as_ref().map(|of| &*of.mode);
    mode == Some("subagent")
}

/// Outcome of an ended run that executed a call; `None` while it is open.
fn result(run: &Run) -> Option<(Style, String)> {
    match (&*run.state, &run.error) {
        ("ok", _) => {
            let text = run.result.clone().unwrap_or_default();
            Some((
                GOOD,
                if text.trim().is_empty() {
                    "done".into()
                } else {
                    text
                },
            ))
        }
        (state, Some(error)) if is_ended(state) => {
            Some((BAD, format!("{state}: {}", error.message)))
        }
        (state, None) if is_ended(state) => Some((BAD, state.to_owned())),
        _ => None,
    }
}

/// Duration of a run, or its duration so far.
fn took(run: &Run, now: Timestamp) -> String {
    let since = run.started_at.unwrap_or(run.created_at);
    span(run.ended_at.unwrap_or(now).since(since))
}

/// State of a run in words.
fn headline(followed: &Followed, now: Timestamp) -> String {
    let run = &followed.run;
    let used = took(run, now);
    match (&*run.state, &run.step, &run.error) {
        ("ok", ..) => format!("{} · {used}", calls(run.tool_calls)),
        (state, _, Some(error)) if is_ended(state) => format!("{state}: {}", error.message),
        (state, ..) if is_ended(state) => format!("{state} · {used}"),
        ("running", Some(step), _) => {
            let mut line = format!("step {} {}", step.seq, step.what);
            if run.tool_calls > 0 {
                line.push_str(&format!(" · {}", calls(run.tool_calls)));
            }
            line.push_str(&format!(" · {used}"));
            let quiet = now.since(
                Some(run.last_activity_at)
                    .max(followed.heard_at)
                    .unwrap_or(now),
            );
            if quiet >= QUIET_MS {
                line.push_str(&format!(", quiet for {}", span(quiet)));
            }
            line
        }
        _ => standing(run, now),
    }
}

/// State of a run that executes a call, in few words.
fn standing(run: &Run, now: Timestamp) -> String {
    let used = took(run, now);
    match &*run.state {
        "queued" => {
            let why = run.held_up.as_deref().unwrap_or("waits for a slot");
            format!("{why} · {used}")
        }
        "paused" => format!("{} · {used}", pause(run)),
        "running" if run.step.is_none() => format!("starts · {used}"),
        "running" => {
            let quiet = now.since(run.last_activity_at);
            match quiet >= QUIET_MS {
                true => format!("{used}, quiet for {}", span(quiet)),
                false => used,
            }
        }
        state => format!("{state} · {used}"),
    }
}

/// Formats a request: who asks, until when, and what.
fn ask(asked: &OpenRequest, look: &DrawOptions) -> Vec<String> {
    let lines = wrap(
        &asked.in_short(look.now, Some(look.columns.max(COLUMNS))),
        look.columns,
    );
    let painted = lines.into_iter().map(|line| styled(OPEN.bold(), line));
    painted.collect()
}

/// The last lines of a streamed text, wrapped to the screen.
fn tail(said: &str, indent: &str, columns: usize, rows: usize) -> Vec<String> {
    let from = said.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
    let room = columns.saturating_sub(indent.width() + 2);
    let mut markdown = Markdown::default();
    let mut last: Vec<String> = said[from..]
        .lines()
        .flat_map(|said| markdown.line(said, room, true))
        .filter(|row| !row.trim().is_empty())
        .map(|row| format!("{} {row}", styled(DIM, format!("{indent}│"))))
        .collect();
    last.split_off(last.len().saturating_sub(rows))
}
