//! How runs look while they go on: a line for each, and below it what it did last. The lines
//! are made here from data; `screen.rs` puts them on the terminal.

use super::print::{BAD, BUSY, DIM, GOOD, styled};
use super::text::{COLUMNS, line, short, span};
use crate::wire::shapes::{Run, Step};

/// How many tool calls are shown below a run.
const SHOWN: usize = 5;

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

/// The lines of these runs. `frame` moves the spinners on.
pub(crate) fn draw(runs: &[Followed], frame: usize) -> Vec<String> {
    runs.iter().flat_map(|run| draw_run(run, frame)).collect()
}

fn draw_run(followed: &Followed, frame: usize) -> Vec<String> {
    let run = &followed.run;
    let mark = Mark::of_run(&run.state).draw(frame);
    let head = line(&format!("{} · {}", name(run), short(run.run_id)), 40);
    let tail = line(&headline(run), COLUMNS - 45);
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
            line(&describe(step), COLUMNS - 6)
        ));
    }
    lines
}

fn headline(run: &Run) -> String {
    let used = span(run.elapsed_ms);
    match (&*run.state, &run.step, &run.error) {
        ("queued", ..) => "waits for a slot".to_owned(),
        ("paused", ..) => {
            let reason = run
                .pause_reason
                .as_deref()
                .unwrap_or("a reason unknown here");
            format!("holds still: {reason}")
        }
        ("running", Some(step), _) => format!("step {} {} · {used}", step.seq, step.what),
        ("running", None, _) => format!("starts · {used}"),
        ("ok", ..) => format!("{} tool calls · {used}", run.tool_calls),
        (state, _, Some(error)) => format!("{state}: {}", error.message),
        (state, ..) => format!("{state} · {used}"),
    }
}

/// The last lines of a text that is coming.
pub(crate) fn tail(text: &str) -> Vec<String> {
    let clean = super::text::clean(text);
    let mut last: Vec<String> = clean
        .lines()
        .rev()
        .filter(|said| !said.trim().is_empty())
        .take(SHOWN)
        .map(|said| format!("  {} {}", styled(DIM, "│"), line(said, COLUMNS - 4)))
        .collect();
    last.reverse();
    last
}

/// A step on one line: what was asked and what came out.
pub(crate) fn describe(step: &Step) -> String {
    let what = step.tool.as_deref().unwrap_or("model");
    let mut text = what.to_owned();
    if let Some(params) = &step.params_summary {
        text.push(' ');
        text.push_str(params);
    }
    if let Some(out) = step.error.as_ref().or(step.result_summary.as_ref()) {
        text.push_str(" → ");
        text.push_str(out);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use unicode_width::UnicodeWidthStr;

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
        let lines = plain(&draw(&[followed], 0));
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
    fn e6_an_ended_run_is_one_line() {
        let followed = Followed {
            run: run("ok"),
            steps: vec![step(1, "done", "x")],
        };
        assert_eq!(
            plain(&draw(&[followed], 3)),
            ["✓ explore · 4f2a91c3  7 tool calls · 3.2s"]
        );
    }

    #[test]
    fn what_a_run_is_saying_is_shown_by_its_last_lines() {
        let text = "one\n\ntwo\u{1b}[2J\nthree\nfour\nfive\nsix";
        let lines = plain(&tail(text));
        assert_eq!(
            lines,
            ["  │ two", "  │ three", "  │ four", "  │ five", "  │ six"]
        );
        let wide = tail(&"子代理恢复运行".repeat(20));
        assert!(plain(&wide)[0].width() <= COLUMNS);
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
        for line in plain(&draw(&runs, 0)) {
            assert!(line.width() <= COLUMNS, "{line}");
        }
    }
}
