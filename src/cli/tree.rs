//! How runs look while they go on: a line for each, and below it what it did last. The lines
//! are made here from data; `screen.rs` puts them on the terminal.

use anstyle::Style;
use unicode_width::UnicodeWidthStr;

use super::print::{BAD, BUSY, DIM, GOOD, styled};
use super::text::{COLUMNS, line, short, span};
use crate::clock::Clock;
use crate::kernel::ids::RunId;
use crate::wire::shapes::{Run, Step};

/// How many tool calls are shown below a run.
const SHOWN: usize = 5;
/// So many levels are drawn further in, each by two columns.
const DEEPEST: usize = 5;
/// From so many milliseconds without a step on it is said how long nothing happened.
const QUIET_MS: u64 = 5_000;

/// A run that is followed, with its journal as far as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    /// The run as it was last seen.
    pub(crate) run: Run,
    /// Its steps, oldest first.
    pub(crate) steps: Vec<Step>,
}

/// How a run or step stands, as a mark in front of its line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Waits,
    Goes,
    Holds,
    Done,
    Failed,
}

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

impl Mark {
    fn of_run(state: &str) -> Mark {
        match state {
            "queued" => Mark::Waits,
            "paused" => Mark::Holds,
            "ok" => Mark::Done,
            "error" | "timeout" | "cancelled" | "interrupted" => Mark::Failed,
            _ => Mark::Goes,
        }
    }

    fn of_step(step: &Step) -> Mark {
        match &*step.state {
            "done" => Mark::Done,
            "failed" | "uncertain" => Mark::Failed,
            _ => Mark::Goes,
        }
    }

    fn draw(self, frame: usize) -> String {
        match self {
            Mark::Waits => styled(DIM, "○"),
            Mark::Goes => styled(BUSY, SPINNER[frame % SPINNER.len()]),
            Mark::Holds => styled(BUSY, "‖"),
            Mark::Done => styled(GOOD, "✓"),
            Mark::Failed => styled(BAD, "✗"),
        }
    }
}

/// The colour of a state in a list: what is as it should be has none.
pub(crate) fn colour(state: &str) -> Style {
    match Mark::of_run(state) {
        Mark::Goes | Mark::Holds => BUSY,
        Mark::Failed => BAD,
        Mark::Waits | Mark::Done => Style::new(),
    }
}

/// Has a run in this state ended? A state that this program does not know goes on.
pub(crate) fn is_ended(state: &str) -> bool {
    matches!(
        state,
        "ok" | "error" | "timeout" | "cancelled" | "interrupted"
    )
}

/// The name under which people know a run.
pub(crate) fn name(run: &Run) -> &str {
    run.label.as_deref().unwrap_or(run.agent.as_str())
}

/// The lines of these runs, each below the run that it came from. `saying` is what some of them
/// are saying, of which the end is shown. `frame` moves the spinners on.
pub(crate) fn draw(runs: &[Followed], saying: &[(RunId, String)], frame: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (depth, followed) in families(runs) {
        let indent = 2 * depth.min(DEEPEST);
        let mut own = draw_run(followed, frame, COLUMNS - indent);
        let said = |(run, _): &&(RunId, String)| *run == followed.run.run_id;
        if let Some((_, text)) = saying.iter().find(said) {
            own.extend(tail(text, COLUMNS - indent));
        }
        lines.extend(own.iter().map(|line| format!("{:indent$}{line}", "")));
    }
    lines
}

/// The runs in the order in which they are drawn, with how deep each stands: a run whose
/// parent is not among them stands at the edge.
fn families(runs: &[Followed]) -> Vec<(usize, &Followed)> {
    fn add<'a>(
        runs: &'a [Followed],
        parent: Option<RunId>,
        depth: usize,
        all: &mut Vec<(usize, &'a Followed)>,
    ) {
        let is_here = |id: RunId| runs.iter().any(|other| other.run.run_id == id);
        for followed in runs {
            if followed.run.parent_run_id.filter(|id| is_here(*id)) == parent {
                all.push((depth, followed));
                add(runs, Some(followed.run.run_id), depth + 1, all);
            }
        }
    }
    let mut all = Vec::new();
    add(runs, None, 0, &mut all);
    all
}

fn draw_run(followed: &Followed, frame: usize, columns: usize) -> Vec<String> {
    let run = &followed.run;
    let mark = Mark::of_run(&run.state).draw(frame);
    let head = line(
        &format!("{} · {}", name(run), short(run.run_id)),
        columns / 2,
    );
    let tail = line(&headline(run), columns - head.width() - 4);
    let mut lines = vec![format!("{mark} {head}  {}", styled(DIM, tail))];
    if is_ended(&run.state) {
        return lines;
    }
    let tools: Vec<&Step> = followed
        .steps
        .iter()
        .filter(|step| step.tool.is_some())
        .collect();
    let hidden = tools.len().saturating_sub(SHOWN);
    if hidden > 0 {
        let more = format!("+{hidden} more tool uses");
        lines.push(format!("  {} {}", styled(DIM, "├"), styled(DIM, more)));
    }
    for (place, step) in tools[hidden..].iter().enumerate() {
        let branch = if hidden + place + 1 == tools.len() {
            "└"
        } else {
            "├"
        };
        let mark = Mark::of_step(step).draw(frame);
        lines.push(format!(
            "  {} {mark} {}",
            styled(DIM, branch),
            line(&describe(step), columns - 6)
        ));
    }
    lines
}

fn headline(run: &Run) -> String {
    let used = span(run.elapsed_ms);
    match (&*run.state, &run.step, &run.error) {
        ("queued", ..) => {
            let why = run.held_up.as_deref().unwrap_or("waits for a slot");
            format!("{why} · {used}")
        }
        ("paused", ..) => format!("{} · {used}", pause(run)),
        ("running", Some(step), _) => {
            let quiet = Clock::system().now().since(run.last_activity_at);
            let mut line = format!("step {} {}", step.seq, step.what);
            if run.tool_calls > 0 {
                line.push_str(&format!(" · {}", calls(run.tool_calls)));
            }
            line.push_str(&format!(" · {used}"));
            if quiet >= QUIET_MS {
                line.push_str(&format!(", quiet for {}", span(quiet)));
            }
            line
        }
        ("running", None, _) => format!("starts · {used}"),
        ("ok", ..) => format!("{} · {used}", calls(run.tool_calls)),
        (state, _, Some(error)) => format!("{state}: {}", error.message),
        (state, ..) => format!("{state} · {used}"),
    }
}

/// So many tool calls, in words.
pub(crate) fn calls(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 tool call".to_owned(),
        count => format!("{count} tool calls"),
    }
}

/// Why a run holds still, and what to do where a person can do something.
pub(crate) fn pause(run: &Run) -> String {
    match run.pause_reason.as_deref() {
        Some("child") => "waits for a run that it asked for".to_owned(),
        Some("reply") => "waits for a reply".to_owned(),
        Some("approval") => "wants to call a tool; allow or deny it: abide approvals".to_owned(),
        Some("review") => format!("needs a review: abide review {}", short(run.run_id)),
        Some("input") if run.env.iter().any(|one| one.missing.is_some()) => {
            format!("lacks a value; give it: abide env {}", short(run.run_id))
        }
        Some("input") => "asks something; answer it: abide answer".to_owned(),
        Some(other) => format!("holds still: {other}"),
        None => "holds still".to_owned(),
    }
}

/// The last lines of a text that is coming.
fn tail(text: &str, columns: usize) -> Vec<String> {
    let clean = super::text::clean(text);
    let mut last: Vec<String> = clean
        .lines()
        .rev()
        .filter(|said| !said.trim().is_empty())
        .take(SHOWN)
        .map(|said| format!("  {} {}", styled(DIM, "│"), line(said, columns - 4)))
        .collect();
    last.reverse();
    last
}

/// A step on one line: what was asked and what came out.
pub(crate) fn describe(step: &Step) -> String {
    let what = step.tool.as_deref().unwrap_or(&step.kind);
    let mut text = what.to_owned();
    if let Some(params) = &step.params_summary {
        text.push(' ');
        text.push_str(params);
    }
    // A model that calls tools has often nothing to say besides.
    let out = step.error.as_ref().or(step.result_summary.as_ref());
    if let Some(out) = out.filter(|out| !out.trim().is_empty()) {
        text.push_str(" → ");
        text.push_str(out);
    }
    text
}

/// How a step stands, as a mark that does not move.
pub(crate) fn mark(step: &Step) -> String {
    match &*step.state {
        "done" => styled(GOOD, "✓"),
        "failed" => styled(BAD, "✗"),
        "uncertain" => styled(BAD, "?"),
        _ => styled(BUSY, "…"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn run(state: &str) -> Run {
        let id = "01936f0e-0000-7000-8000-00004f2a91c3";
        serde_json::from_value(json!({
            "runId": id, "rootRunId": id, "sessionKey": "agent:explore:x", "agent": "explore",
            "model": "offline/search", "depth": 1, "state": state, "toolCalls": 7, "loops": 3,
            "lastActivityAt": "2026-11-30T00:53:20.123Z",
            "createdAt": "2026-11-30T00:53:20.123Z", "elapsedMs": 3210,
            "resultTruncated": false, "warnings": [], "needsReview": false, "traceId": "t",
            "usage": {"modelCalls": 3, "inputTokens": 0, "outputTokens": 0},
            "pins": {"agent": "", "tools": ""},
            "announce": {"policy": "inbox", "state": "open"},
        }))
        .unwrap()
    }

    fn step(seq: u32, state: &str, params: &str) -> Step {
        serde_json::from_value(json!({
            "stepId": format!("01936f0e-0000-7000-8000-{seq:012}"), "seq": seq, "kind": "tool",
            "tool": "grep", "effect": "read", "state": state, "paramsSummary": params,
            "startedAt": "2026-11-30T00:53:20.123Z", "attempts": 1,
        }))
        .unwrap()
    }

    fn plain(lines: &[String]) -> Vec<String> {
        let strip = |line: &String| anstream::adapter::strip_str(line).to_string();
        lines.iter().map(strip).collect()
    }

    #[test]
    fn e6_the_last_five_tool_calls_and_how_many_there_were_before() {
        let mut steps: Vec<Step> = (1..=7).map(|seq| step(seq, "done", "main")).collect();
        steps.push(step(8, "started", "error"));
        let followed = Followed {
            run: run("running"),
            steps,
        };
        let lines = plain(&draw(&[followed], &[], 0));
        assert_eq!(
            lines,
            [
                "⠋ explore · 4f2a91c3  starts · 3.2s",
                "  ├ +3 more tool uses",
                "  ├ ✓ grep main",
                "  ├ ✓ grep main",
                "  ├ ✓ grep main",
                "  ├ ✓ grep main",
                "  └ ⠋ grep error",
            ]
        );
    }

    #[test]
    fn g14_3_a_running_run_shows_step_counts_times_and_how_long_it_is_quiet() {
        let mut run = run("running");
        run.step = Some(crate::wire::shapes::CurrentStep {
            seq: 4,
            what: "grep".to_owned(),
        });
        let now = Clock::system().now();
        run.last_activity_at = now;
        assert_eq!(headline(&run), "step 4 grep · 7 tool calls · 3.2s");
        run.last_activity_at = crate::kernel::time::Timestamp(now.0 - 600_000);
        assert!(headline(&run).ends_with("3.2s, quiet for 10m"));
    }

    #[test]
    fn e6_an_ended_run_is_one_line() {
        let followed = Followed {
            run: run("ok"),
            steps: vec![step(1, "done", "x")],
        };
        assert_eq!(
            plain(&draw(&[followed], &[], 3)),
            ["✓ explore · 4f2a91c3  7 tool calls · 3.2s"]
        );
    }

    #[test]
    fn what_a_run_is_saying_is_shown_by_its_last_lines() {
        let text = "one\n\ntwo\u{1b}[2J\nthree\nfour\nfive\nsix";
        let lines = plain(&tail(text, COLUMNS));
        assert_eq!(
            lines,
            ["  │ two", "  │ three", "  │ four", "  │ five", "  │ six"]
        );
        let wide = tail(&"子代理恢复运行".repeat(20), COLUMNS);
        assert!(plain(&wide)[0].width() <= COLUMNS);
    }

    #[test]
    fn a_run_stands_below_the_one_that_it_came_from() {
        let of = |digit: &str, parent: Option<&str>| {
            let id = |digit: &str| format!("01936f0e-0000-7000-8000-00004f2a91c{digit}");
            let mut run = run("running");
            run.run_id = id(digit).parse().unwrap();
            run.parent_run_id = parent.map(|digit| id(digit).parse().unwrap());
            let steps = Vec::new();
            Followed { run, steps }
        };
        let runs = [
            of("3", Some("2")),
            of("1", Some("9")),
            of("2", Some("1")),
            of("4", Some("1")),
        ];
        let saying = [(runs[0].run.run_id, "one\ntwo".to_owned())];
        let drawn = plain(&draw(&runs, &saying, 0));
        assert_eq!(
            drawn,
            [
                "⠋ explore · 4f2a91c1  starts · 3.2s",
                "  ⠋ explore · 4f2a91c2  starts · 3.2s",
                "    ⠋ explore · 4f2a91c3  starts · 3.2s",
                "      │ one",
                "      │ two",
                "  ⠋ explore · 4f2a91c4  starts · 3.2s",
            ]
        );
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        let wide = "子代理恢复运行".repeat(20);
        let mut run = run("error");
        run.label = Some(wide.clone());
        run.error = Some(crate::kernel::run::RunError::new("provider", wide.clone()));
        let mut open = run.clone();
        open.state = "running".into();
        let steps = vec![step(1, "done", &wide)];
        let runs = [
            Followed {
                run,
                steps: Vec::new(),
            },
            Followed { run: open, steps },
        ];
        for line in plain(&draw(&runs, &[], 0)) {
            assert!(line.width() <= COLUMNS, "{line}");
        }
    }
}
