//! Tests of the screen of `abide top` at several sizes, and of its keys.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};

use super::draw::draw;
use super::keys::PressedKey;
use super::model::{TopModel, TopOverlay};
use super::press::{KeyOutcome, press};
use crate::cli::asking::open_requests::OpenRequest;
use crate::cli::top::act::{ActionOutcome, TopAction};
use crate::kernel::time::Timestamp;
use crate::wire::approvals::Approval;
use crate::wire::shapes::Run;

const AT: &str = "2026-11-30T00:53:20.123Z";
const SIZES: [(u16, u16); 3] = [(80, 24), (40, 15), (200, 50)];

fn now() -> Timestamp {
    after(0)
}

/// The test's time plus this number of milliseconds.
fn after(ms: u64) -> Timestamp {
    let text = format!("2026-11-30T00:54:{:02}.{:03}Z", 20 + ms / 1_000, ms % 1_000);
    serde_json::from_value(json!(text)).unwrap()
}

fn id(number: u32) -> String {
    format!("01936f0e-0000-7000-8000-{number:012}")
}

fn a_run(number: u32, parent: Option<u32>, state: &str) -> Run {
    let mut run = json!({
        "runId": id(number), "sessionKey": format!("agent:build:s{number}"),
        "rootRunId": id(parent.unwrap_or(number)), "agent": "build", "model": "offline/search",
        "depth": 0, "title": "look at all of it and say what is there, at some length",
        "state": state, "toolCalls": 3, "loops": 2, "lastActivityAt": AT, "createdAt": AT,
        "elapsedMs": 1000, "resultTruncated": false, "warnings": [], "traceId": "0",
        "usage": { "modelCalls": 2, "inputTokens": 10, "outputTokens": 5, "costMicros": 0 },
        "pins": { "agent": "a", "tools": "b" }, "needsReview": false,
        "announce": { "policy": "none", "state": "none" },
        "step": { "seq": 4, "what": "model" },
    });
    if let Some(parent) = parent {
        run["parentRunId"] = json!(id(parent));
        run["label"] = json!(format!("子代理 child {number}"));
    }
    serde_json::from_value(run).unwrap()
}

fn an_approval(lines: usize) -> OpenRequest {
    let diff: String = (0..lines).map(|n| format!("+line {n}\n")).collect();
    let approval: Approval = serde_json::from_value(json!({
        "id": id(900), "runId": id(2), "sessionKey": "agent:build:s2", "agent": "build",
        "title": "t", "depth": 0, "tool": "write",
        "arguments": { "path": "a.txt", "content": "x" }, "why": "a rule asks",
        "covers": "/w/a.txt", "folder": "/w", "env": ["TOKEN"],
        "change": { "path": "a.txt", "effect": "creates", "diff": diff },
        "askedAt": AT, "expiresAt": "2026-11-30T01:03:20.123Z", "state": "open",
    }))
    .unwrap();
    OpenRequest::Approval(Box::new(approval))
}

fn status() -> Value {
    json!({
        "version": "1.2.3", "protocol": 1, "pid": 7, "phase": "ready", "storeId": "s",
        "bootId": id(1), "uptimeMs": 61_000, "startedAt": AT, "url": "http://127.0.0.1:7777",
        "defaultAgent": "build", "model": "offline/search",
        "providers": [
            { "name": "offline", "kind": "built-in", "models": [] },
            { "name": "cloud", "kind": "openai", "models": [],
              "health": { "state": "paused", "until": "2026-11-30T00:54:50.123Z", "failures": 3,
                          "reason": "429 too many requests" } },
        ],
        "lanes": [
            { "name": "main", "running": 1, "queued": 0, "limit": 8 },
            { "name": "subagent", "running": 2, "queued": 3, "limit": 2 },
            { "name": "nested", "running": 0, "queued": 0, "limit": 8 },
            { "name": "global", "running": 3, "queued": 3, "limit": 16 },
        ],
        "counts": { "queued": 3, "running": 3, "paused": 1, "settling": 0, "pendingAnnounces": 2 },
    })
}

fn model(runs: u32, lines: usize) -> TopModel {
    let mut model = TopModel {
        status: Some(serde_json::from_value(status()).unwrap()),
        ..TopModel::default()
    };
    let mut all = vec![a_run(1, None, "running"), a_run(2, Some(1), "paused")];
    all.extend((3..=runs).map(|number| a_run(number, Some(2), "ok")));
    model.take_runs(all, false);
    model.take_asked(vec![an_approval(lines)]);
    model
}

fn picture(model: &mut TopModel, (columns, rows): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, model, now())).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = (0..rows).map(|y| {
        let cells = (0..columns).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn keys(model: &mut TopModel, text: &str) -> KeyOutcome {
    keys_at(model, text, now())
}

fn keys_at(model: &mut TopModel, text: &str, at: Timestamp) -> KeyOutcome {
    let keys = super::keys::Keys::default().read(text.as_bytes());
    let mut next = KeyOutcome::Draw;
    for key in keys {
        next = press(model, key, at);
        picture(model, SIZES[0]);
    }
    next
}

#[test]
fn every_part_is_there_at_every_size() {
    for size in SIZES {
        let seen = picture(&mut model(60, 3), size);
        for part in [
            "abide top",
            "3 running",
            "main 1/8",
            "subagent 2/2",
            "cloud paused 30s",
            "waits for you: 1",
            "! build wants to call write",
            "runs: 60",
            "● 00000001 build running",
            "└ ‖ 00000002 子",
            "below)",
            "q quit",
        ] {
            assert!(seen.contains(part), "{part} at {size:?}:\n{seen}");
        }
        let lines = seen.lines().count();
        assert_eq!(lines, usize::from(size.1), "{seen}");
        // The last line has the keys, and nothing was drawn over it.
        assert!(seen.lines().last().unwrap().contains("? help"), "{seen}");
    }
}

#[test]
fn every_size_is_drawn_with_everything_over_it() {
    for columns in [1, 10, 24, 40, 80, 200] {
        for rows in [1, 5, 8, 15, 24, 50] {
            let mut model = model(5, 100);
            for open in ["", "?", "\u{1b}s", "\u{1b}c", "n\r"] {
                keys(&mut model, open);
                picture(&mut model, (columns, rows));
            }
        }
    }
}

#[test]
fn the_selected_line_stays_in_sight() {
    let mut model = model(60, 3);
    press(&mut model, PressedKey::End, now());
    for size in SIZES {
        let seen = picture(&mut model, size);
        assert!(
            seen.contains("00000060") || seen.contains("00000003"),
            "{seen}"
        );
    }
    press(&mut model, PressedKey::Home, now());
    let seen = picture(&mut model, SIZES[1]);
    assert!(seen.contains("● 00000001"), "{seen}");
}

#[test]
fn an_approval_is_given_after_its_end_was_shown() {
    for (lines, is_long) in [(3, false), (200, true)] {
        let mut model = model(2, lines);
        assert!(matches!(keys(&mut model, "\r"), KeyOutcome::Draw));
        let seen = picture(&mut model, SIZES[0]);
        assert!(seen.contains("creates a.txt:"), "{seen}");
        if is_long {
            assert!(matches!(keys(&mut model, "y"), KeyOutcome::Draw));
            assert!(model.message.as_ref().unwrap().contains("not decided yet"));
            let mut pages = 0;
            while !picture(&mut model, SIZES[0]).contains("because a rule asks") {
                keys(&mut model, " ");
                pages += 1;
                assert!(pages < 50);
            }
            assert!(pages > 5, "{pages}");
        }
        let KeyOutcome::Do(TopAction::Answer(_, said)) = keys_at(&mut model, "y", after(500))
        else {
            panic!("it was not taken");
        };
        assert_eq!(said, "yes");
    }
}

#[test]
fn a_yes_that_is_held_down_or_pasted_decides_on_nothing() {
    let mut model = model(2, 3);
    // In the lists these keys open nothing.
    for text in ["y", "n", "yyyy", "\u{1b}[200~\ry\u{1b}[201~"] {
        assert!(matches!(keys(&mut model, text), KeyOutcome::Draw), "{text}");
        assert!(matches!(model.over, TopOverlay::Nothing), "{text}");
    }
    // Keys that arrive at once.
    assert!(matches!(keys(&mut model, "\ry"), KeyOutcome::Draw));
    // Held down, and pasted.
    for ms in (0..3_000).step_by(30) {
        let next = keys_at(&mut model, "y", after(ms));
        assert!(matches!(next, KeyOutcome::Draw), "{ms}");
    }
    let pasted = "\u{1b}[200~y\ryes\u{1b}[201~";
    assert!(matches!(
        keys_at(&mut model, pasted, after(9_000)),
        KeyOutcome::Draw
    ));
    assert!(matches!(
        keys_at(&mut model, "y", after(9_000)),
        KeyOutcome::Do(_)
    ));
}

#[test]
fn a_file_that_changes_meanwhile_is_to_be_read_again() {
    let mut model = model(2, 3);
    keys(&mut model, "\r");
    picture(&mut model, SIZES[0]);
    model.take_asked(vec![an_approval(200)]);
    assert!(matches!(
        keys_at(&mut model, "y", after(900)),
        KeyOutcome::Draw
    ));
    model.take_asked(Vec::new());
    assert!(matches!(model.over, TopOverlay::Nothing));
    assert!(model.message.unwrap().contains("decided elsewhere"));
}

#[test]
fn an_approval_whose_file_has_changed_is_shown_again_after_a_yes() {
    let mut model = model(2, 3);
    keys(&mut model, "\r");
    picture(&mut model, SIZES[0]);
    assert!(matches!(
        keys_at(&mut model, "n", after(900)),
        KeyOutcome::Do(_)
    ));
    assert!(matches!(model.over, TopOverlay::Nothing));
    model.acted(ActionOutcome {
        message: "the file has changed".to_owned(),
        again: Some(an_approval(200)),
    });
    assert!(matches!(model.over, TopOverlay::Detail(_)));
    assert_eq!(model.message.as_deref(), Some("the file has changed"));
}

#[test]
fn keys_steer_cancel_attach_and_quit() {
    let mut model = model(3, 3);
    keys(&mut model, "\t");
    let KeyOutcome::Do(TopAction::Steer(_, text)) = keys(&mut model, "slook\u{7f}k there\r") else {
        panic!("not steered");
    };
    assert_eq!(text, "look there");
    keys(&mut model, "c");
    assert!(picture(&mut model, SIZES[0]).contains("cancel build 00000001"));
    assert!(matches!(keys(&mut model, "n"), KeyOutcome::Draw));
    keys(&mut model, "c");
    assert!(matches!(
        keys(&mut model, "y"),
        KeyOutcome::Do(TopAction::Cancel(_))
    ));
    assert!(matches!(keys(&mut model, "a"), KeyOutcome::Attach(_)));
    keys(&mut model, "G");
    keys(&mut model, "c");
    assert!(model.message.as_ref().unwrap().contains("has ended"));
    keys(&mut model, "?");
    assert!(picture(&mut model, SIZES[0]).contains("steer: a line"));
    keys(&mut model, "\u{1b}");
    assert!(matches!(keys(&mut model, "q"), KeyOutcome::Quit));
}
