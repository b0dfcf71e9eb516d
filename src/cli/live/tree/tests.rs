//! Snapshots of the tree: each state on wide and narrow screens, with and without colours.

mod modes;

use proptest::prelude::*;
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::cli::asking::open_requests::OpenRequest;
use crate::kernel::time::Timestamp;
use crate::wire::events::Event;

/// Start of all runs in these tests, and the time at which they are drawn.
const BEGAN: &str = "2026-11-30T00:53:20.123Z";
const LOOKED_AT: &str = "2026-11-30T00:53:23.333Z";

const HOST: &str = "01936f0e-0000-7000-8000-00004f2a91c1";
const CHILD: &str = "01936f0e-0000-7000-8000-00004f2a91c2";

fn time(text: &str) -> Timestamp {
    serde_json::from_value(json!(text)).unwrap()
}

fn run(id: &str, more: Value) -> Run {
    let mut fields = json!({
        "runId": id, "rootRunId": HOST, "sessionKey": "agent:build:x", "agent": "build",
        "model": "offline/search", "depth": 0, "state": "running", "toolCalls": 0, "loops": 0,
        "lastActivityAt": BEGAN, "createdAt": BEGAN, "startedAt": BEGAN, "elapsedMs": 0,
        "resultTruncated": false, "warnings": [], "needsReview": false, "traceId": "t",
        "usage": {"modelCalls": 3, "inputTokens": 0, "outputTokens": 0},
        "pins": {"agent": "", "tools": ""},
        "announce": {"policy": "inbox", "state": "open"},
    });
    merge(&mut fields, more);
    serde_json::from_value(fields).unwrap()
}

fn merge(fields: &mut Value, more: Value) {
    for (name, value) in more.as_object().unwrap() {
        fields[name] = value.clone();
    }
}

/// The run that executes step 2 of the host, in this delegation mode.
fn child(mode: &str, more: Value) -> Run {
    let mut fields = json!({
        "agent": "explore", "depth": 1, "parentRunId": HOST,
        "delegated": { "mode": mode, "step": 2, "toolCallId": "c2", "agentName": "explore" },
    });
    merge(&mut fields, more);
    run(CHILD, fields)
}

fn event(kind: &str, run: &str, data: Value) -> Event {
    let parent = (run == CHILD).then_some(HOST);
    serde_json::from_value(json!({
        "cursor": 1, "at": BEGAN, "kind": kind, "runId": run, "parentRunId": parent, "data": data,
    }))
    .unwrap()
}

/// An event of a run's step.
fn moved(run: &str, seq: u32, tool: &str, more: Value) -> Event {
    let mut data = json!({
        "stepId": format!("01936f0e-0000-7000-8000-{}{seq:011}", &run[35..]), "seq": seq,
        "state": "started", "toolName": tool, "toolCallId": format!("c{seq}"),
        "paramsSummary": null, "resultSummary": null, "error": null,
    });
    merge(&mut data, more);
    let kind = match &data["state"] {
        state if state == "started" || state == "intended" => "tool.started",
        _ => "tool.completed",
    };
    event(kind, run, data)
}

fn done(run: &str, seq: u32, tool: &str, params: &str, result: &str) -> Event {
    let more = json!({ "state": "done", "paramsSummary": params, "resultSummary": result });
    moved(run, seq, tool, more)
}

/// The host in its call of `tool`, after one finished call.
fn host(tool: &str, params: &str) -> RunTree {
    let mut tree = RunTree::default();
    tree.take(run(HOST, json!({})), Some(Vec::new()));
    tree.hear(&done(HOST, 1, "read", "path: notes.txt", "3 lines"));
    tree.hear(&moved(HOST, 2, tool, json!({ "paramsSummary": params })));
    tree
}

fn task() -> RunTree {
    host("task", "description: Find where errors are reported")
}

/// Adds the child run's calls, the last of which is open.
fn work(tree: &mut RunTree) {
    for seq in 1..=6 {
        tree.hear(&done(
            CHILD,
            seq,
            "grep",
            &format!("pattern: error{seq}"),
            "12 matches",
        ));
    }
    let fails =
        json!({ "state": "failed", "paramsSummary": "path: no.rs", "error": "no such file" });
    tree.hear(&moved(CHILD, 7, "read", fails));
    tree.hear(&moved(
        CHILD,
        8,
        "read",
        json!({ "paramsSummary": "path: src/main.rs" }),
    ));
}

fn look(columns: usize) -> DrawOptions {
    DrawOptions {
        now: time(LOOKED_AT),
        frame: 0,
        columns,
        rows: 40,
    }
}

fn plain(lines: &[String]) -> Vec<String> {
    let strip = |line: &String| anstream::adapter::strip_str(line).to_string();
    lines.iter().map(strip).collect()
}

/// Replaces colours by words, so that a change of them is readable.
fn tagged(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    for (code, word) in [
        ("\u{1b}[1m", "{bold}"),
        ("\u{1b}[2m", "{dim}"),
        ("\u{1b}[3m", "{italic}"),
        ("\u{1b}[36m", "{cyan}"),
        ("\u{1b}[31m", "{red}"),
        ("\u{1b}[32m", "{green}"),
        ("\u{1b}[33m", "{yellow}"),
        ("\u{1b}[0m", "{/}"),
    ] {
        text = text.replace(code, word);
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    text
}

/// Compares the tree with its snapshot: on a screen of 80 columns with and without colours, and on
/// one of 40 columns.
fn seen(name: &str, tree: &RunTree) {
    let wide = tree.draw(&look(80));
    let narrow = tree.draw(&look(40));
    for (lines, columns) in [(&wide, 80), (&narrow, 40)] {
        for line in plain(lines) {
            assert!(line.width() <= columns, "{columns}: {line:?}");
        }
    }
    let text = format!(
        "80 columns, with colours:\n{}\n\n80 columns, NO_COLOR:\n{}\n\n40 columns:\n{}\n",
        tagged(&wide),
        plain(&wide).join("\n"),
        plain(&narrow).join("\n"),
    );
    let mut settings = insta::Settings::clone_current();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots");
    settings.set_snapshot_path(folder);
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(format!("frame__{name}"), text));
}

#[test]
fn e6_a_call_whose_child_waits_for_a_slot_is_pending() {
    let mut tree = task();
    let queued = json!({ "state": "queued", "startedAt": null });
    tree.take(child("task", queued), Some(Vec::new()));
    seen("pending", &tree);
}

#[test]
fn e6_the_display_shows_the_tool_progress_of_a_child() {
    let mut tree = task();
    tree.take(child("task", json!({})), Some(Vec::new()));
    work(&mut tree);
    seen("executing", &tree);
}

#[test]
fn e6_a_child_that_is_done_has_its_result_below_its_calls() {
    let mut tree = task();
    work_to_the_end(
        &mut tree,
        "ok",
        json!({ "result": "They are reported in\nwire/error.rs." }),
    );
    tree.hear(&done(
        HOST,
        2,
        "task",
        "description: Find where errors are reported",
        "{\"success\":true",
    ));
    seen("success", &tree);
}

/// Ends the child run with this state; first its event arrives, then its row is read.
fn work_to_the_end(tree: &mut RunTree, state: &str, more: Value) {
    tree.take(child("task", json!({})), Some(Vec::new()));
    work(tree);
    tree.hear(&done(CHILD, 8, "read", "path: src/main.rs", "40 lines"));
    let steps = tree.find(CHILD.parse().unwrap()).unwrap().steps.clone();
    let end = json!({
        "state": state, "error": null, "cancel": null, "toolCalls": 8, "loops": 3,
        "usage": {"modelCalls": 3, "inputTokens": 0, "outputTokens": 0}, "meta": null,
        "stepsDropped": 0, "steersDropped": 0,
    });
    tree.hear(&event("run.ended", CHILD, end));
    assert!(tree.unread().contains(&CHILD.parse().unwrap()));
    let mut row = json!({ "state": state, "endedAt": LOOKED_AT, "toolCalls": 8 });
    merge(&mut row, more);
    tree.take(child("task", row), Some(steps));
}

#[test]
fn e6_g14_9_an_error_is_shown_at_the_child_that_it_belongs_to() {
    let mut tree = task();
    let error = json!({ "kind": "provider", "message": "the model's server answered 500" });
    work_to_the_end(&mut tree, "error", json!({ "error": error }));
    let failed = json!({
        "state": "failed", "error": "{\"success\":false",
        "paramsSummary": "description: Find where errors are reported",
    });
    tree.hear(&moved(HOST, 2, "task", failed));
    seen("error", &tree);
}

#[test]
fn e6_a_child_that_was_cancelled_says_so() {
    let mut tree = task();
    work_to_the_end(&mut tree, "cancelled", json!({}));
    seen("cancelled", &tree);
}

#[test]
fn e6_a_sealed_child_shows_that_it_works_and_what_comes_out() {
    let mut tree = host("subagent_reviewer", "task_summary: Review the change");
    tree.take(child("subagent", json!({})), Some(Vec::new()));
    work(&mut tree);
    let working = plain(&tree.draw(&look(80)));
    assert!(!working.join("\n").contains("grep"), "{working:#?}");
    let ended = json!({ "state": "ok", "endedAt": LOOKED_AT, "result": "two findings" });
    tree.take(child("subagent", ended), None);
    seen("sealed", &tree);
}

#[test]
fn e6_a_child_of_a_child_draws_the_same_tree_below_its_call() {
    let grandchild = "01936f0e-0000-7000-8000-00004f2a91c3";
    let mut tree = task();
    tree.take(child("task", json!({})), Some(Vec::new()));
    tree.hear(&moved(
        CHILD,
        1,
        "call_helper",
        json!({ "paramsSummary": "message: look" }),
    ));
    let start = json!({
        "agent": "helper", "agentName": "helper", "toolCallId": "c1", "childRunId": grandchild,
    });
    tree.hear(&event("sub_agent.call_start", CHILD, start));
    assert_eq!(tree.unread(), [grandchild.parse().unwrap()].into());
    let below = json!({ "agent": "helper", "depth": 2, "parentRunId": CHILD });
    tree.take(run(grandchild, below), Some(Vec::new()));
    tree.hear(&done(grandchild, 1, "glob", "pattern: *.rs", "7 files"));
    tree.hear(&moved(
        grandchild,
        2,
        "read",
        json!({ "paramsSummary": "path: src/lib.rs" }),
    ));
    seen("nested", &tree);
}

#[test]
fn e6_a_child_that_is_announced_stands_below_the_run_that_asked_for_it() {
    let mut tree = host("sessions_spawn", "task: count the lines, agent: explore");
    let row = json!({ "agent": "explore", "label": "counter", "depth": 1, "parentRunId": HOST });
    tree.take(run(CHILD, row), Some(Vec::new()));
    tree.hear(&done(
        HOST,
        2,
        "sessions_spawn",
        "task: count the lines",
        "accepted",
    ));
    tree.hear(&moved(
        CHILD,
        1,
        "grep",
        json!({ "paramsSummary": "pattern: fn" }),
    ));
    tree.hear(&event(
        "message.delta",
        HOST,
        json!({
            "runId": HOST, "messageId": CHILD, "channel": "text", "offset": 0,
            "text": "It is being counted.\n\nMeanwhile:\u{1b}[2J",
        }),
    ));
    seen("announced", &tree);
}

#[test]
fn g14_7_what_descendants_ask_stands_at_the_top_with_origin_and_expiry() {
    let mut tree = task();
    let paused = json!({ "state": "paused", "pauseReason": "approval" });
    tree.take(child("task", paused), Some(Vec::new()));
    let origin = json!({
        "runId": CHILD, "sessionKey": "agent:explore:subagent:x", "agent": "explore",
        "title": "Find where errors are reported", "depth": 1, "askedAt": BEGAN,
        "expiresAt": "2026-11-30T01:03:20.123Z", "state": "open",
    });
    let mut approval = json!({
        "id": "01936f0e-0000-7000-8000-0000aaaa0001", "tool": "shell",
        "arguments": { "command": "rm -rf build" }, "why": "the gate of explore",
        "covers": "rm -rf build",
    });
    merge(&mut approval, origin.clone());
    let mut question = json!({
        "id": "01936f0e-0000-7000-8000-0000aaaa0002", "text": "which port?\n(80 or 8080)",
        "choices": ["80", "8080"],
    });
    merge(&mut question, origin);
    tree.asks(vec![
        OpenRequest::Approval(Box::new(serde_json::from_value(approval).unwrap())),
        OpenRequest::Question(Box::new(serde_json::from_value(question).unwrap())),
    ]);
    seen("asked", &tree);
}

#[test]
fn wide_characters_take_the_columns_that_they_have() {
    let mut tree = task();
    let wide = "子代理恢复运行 👩‍👩‍👧 e\u{301} ".repeat(6);
    tree.take(
        child("task", json!({ "label": "查找错误报告的位置" })),
        Some(Vec::new()),
    );
    tree.hear(&done(CHILD, 1, "grep", &wide, &wide));
    tree.hear(&moved(CHILD, 2, "read", json!({ "paramsSummary": wide })));
    seen("wide", &tree);
}

#[test]
fn e6_a_picture_that_is_too_high_keeps_what_goes_on() {
    let mut tree = task();
    work_to_the_end(&mut tree, "ok", json!({ "result": "found" }));
    tree.hear(&done(HOST, 2, "task", "description: first", "{}"));
    for seq in 3..=9 {
        tree.hear(&moved(
            HOST,
            seq,
            "read",
            json!({ "paramsSummary": "path: a.rs" }),
        ));
    }
    let rows = |rows| plain(&tree.draw(&DrawOptions { rows, ..look(80) }));
    for most in [1, 2, 4, 7, 9, 12] {
        assert!(rows(most).len() <= most, "{most}: {:#?}", rows(most));
    }
    assert_eq!(rows(1), ["… 2 more lines"]);
    assert!(rows(4).last().unwrap().contains("read"), "{:#?}", rows(4));
}

#[test]
fn what_is_told_again_changes_nothing() {
    let mut tree = task();
    tree.take(child("task", json!({})), Some(Vec::new()));
    work(&mut tree);
    let once = plain(&tree.draw(&look(80)));
    // A resumed subscription may begin before the rows that were read.
    work(&mut tree);
    tree.hear(&event("run.started", CHILD, json!({ "state": "running" })));
    tree.hear(&moved(HOST, 1, "read", json!({ "state": "intended" })));
    assert_eq!(plain(&tree.draw(&look(80))), once);
    assert!(tree.unread().is_empty());
}

#[test]
fn e3_progress_that_is_known_from_the_child_itself_is_not_read_again() {
    let mut tree = task();
    tree.take(child("task", json!({})), Some(Vec::new()));
    tree.hear(&done(CHILD, 1, "grep", "pattern: x", "1 match"));
    let progress = |kind: &str, call: &str| {
        let status = if kind == "tool_complete" {
            "completed"
        } else {
            "running"
        };
        let data = json!({
            "toolCallId": "c2", "childRunId": CHILD,
            "progress": { "type": kind, "status": status, "subToolCallId": call, "toolName": "grep" },
        });
        event("tool.progress", HOST, data)
    };
    tree.hear(&progress("tool_complete", "c1"));
    assert!(tree.unread().is_empty());
    tree.hear(&progress("tool_start", "c9"));
    assert_eq!(tree.unread(), [CHILD.parse().unwrap()].into());
    // Events of a child run that a caller's stream repeats belong to the child run.
    let mirrored = json!({ "source": "subagent:explore", "state": "done" });
    tree.hear(&moved(HOST, 7, "glob", mirrored));
    assert_eq!(tree.runs()[0].steps.len(), 2);
}

#[test]
fn a_run_that_one_of_these_asks_for_is_to_be_read_and_no_other() {
    let mut tree = task();
    tree.hear(&event("run.queued", CHILD, json!({})));
    assert_eq!(tree.unread(), [CHILD.parse().unwrap()].into());
    let mut foreign = event("run.queued", CHILD, json!({}));
    foreign.parent_run_id = Some("01936f0e-0000-7000-8000-0000ffffffff".parse().unwrap());
    tree.hear(&foreign);
    assert!(tree.unread().is_empty());
}

#[test]
fn g14_3_a_running_run_shows_step_counts_times_and_how_long_it_is_quiet() {
    let mut tree = host("grep", "pattern: x");
    let head = |tree: &RunTree, now: &str| {
        let now = time(now);
        plain(&tree.draw(&DrawOptions { now, ..look(80) }))[0].clone()
    };
    assert_eq!(
        head(&tree, LOOKED_AT),
        "◉ build · 4f2a91c1  step 2 grep · 1 tool call · 3.2s"
    );
    let later = head(&tree, "2026-11-30T01:03:20.123Z");
    assert!(later.ends_with("10m, quiet for 10m"), "{later}");
    tree.hear(&event("run.paused", HOST, json!({ "pause": "approval" })));
    let paused = head(&tree, LOOKED_AT);
    assert!(paused.starts_with("○ build"), "{paused}");
    tree.hear(&moved(HOST, 3, "read", json!({ "state": "intended" })));
    assert!(head(&tree, LOOKED_AT).contains("step 3 read"));
}

#[test]
fn the_spinner_has_ten_pictures() {
    let tree = host("grep", "pattern: x");
    let frames: Vec<String> = (0..11)
        .map(|frame| plain(&tree.draw(&DrawOptions { frame, ..look(80) }))[2].clone())
        .collect();
    assert_eq!(frames[0], frames[10]);
    let marks: String = frames[..10]
        .iter()
        .map(|line| line.chars().nth(4).unwrap())
        .collect();
    assert_eq!(marks, "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏");
}

proptest! {
    /// For any texts of tools, models and files: no line is wider than the screen, no picture is
    /// higher, and nothing in it moves the cursor.
    #[test]
    fn g14_no_picture_leaves_its_screen_or_steers_the_terminal(
        texts in proptest::collection::vec("(\\PC|[\u{0}-\u{1f}\u{7f}-\u{9f}]|\u{1b}\\[[0-9]{0,2}[A-Z]|子|👩‍👧){0,40}", 6),
        columns in 20usize..140,
        rows in 1usize..30,
    ) {
        let mut tree = host(&texts[0], &texts[1]);
        let row = json!({ "label": texts[2], "result": texts[3], "state": "ok" });
        tree.take(child("task", row), Some(Vec::new()));
        for seq in 1..9 {
            tree.hear(&done(CHILD, seq, &texts[4], &texts[5], &texts[0]));
        }
        tree.hear(&event("message.delta", HOST, json!({
            "runId": HOST, "messageId": CHILD, "channel": "text", "offset": 0, "text": texts[3],
        })));
        let lines = tree.draw(&DrawOptions { rows, columns, ..look(80) });
        prop_assert!(lines.len() <= rows);
        for line in plain(&lines) {
            prop_assert!(line.width() <= columns, "{columns}: {line:?}");
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        tagged(&lines);
    }
}

#[test]
fn c4_the_beginning_of_a_text_stays_where_another_message_is_stored_meanwhile() {
    const OTHER: &str = "01936f0e-0000-7000-8000-000000000008";
    let mut tree = task();
    let piece = |offset: usize, text: &str| {
        event(
            "message.delta",
            HOST,
            json!({
                "runId": HOST, "messageId": CHILD, "channel": "text", "offset": offset,
                "text": text,
            }),
        )
    };
    let added = |id: &str| {
        let data = json!({ "messageId": id, "seq": 3, "kind": "tool_result" });
        event("message.added", HOST, data)
    };
    tree.hear(&piece(0, "It is "));
    tree.hear(&added(OTHER));
    tree.hear(&piece(6, "there."));
    let has = |tree: &RunTree| {
        let lines = plain(&tree.draw(&look(80)));
        lines.iter().any(|line| line.ends_with("It is there."))
    };
    assert!(has(&tree));
    tree.hear(&added(CHILD));
    assert!(!has(&tree));
}

#[test]
fn what_a_run_has_done_stays_beside_the_turn_that_comes_after_it() {
    const NEXT: &str = "01936f0e-0000-7000-8000-000000000009";
    let mut tree = task();
    tree.set_focus(HOST.parse().unwrap());
    tree.hear(&done(HOST, 2, "task", "description: Look", "it is there"));
    tree.take(run(HOST, json!({ "state": "ok" })), None);
    tree.take(run(NEXT, json!({ "state": "queued" })), Some(Vec::new()));
    let lines = plain(&tree.draw(&look(80)));
    assert!(
        lines.iter().any(|line| line.contains("notes.txt")),
        "{lines:?}"
    );
    assert!(
        lines.last().unwrap().contains("waits for a slot"),
        "{lines:?}"
    );
}
