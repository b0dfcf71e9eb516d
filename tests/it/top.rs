//! `abide top` at a terminal: its live view, its keys, and that the terminal is restored on every
//! exit.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Place, Script, Terminal, calls, eventually, run, says};
use crate::home::output_of;

fn place() -> Place {
    let lines: Vec<String> = (0..100).map(|n| format!("line {n:03}\n")).collect();
    let write = |text: &str| json!({ "path": "notes.txt", "content": text });
    Place::new(
        Script::new()
            .on(
                "[write]",
                [calls("write", write("alpha\n2\n")), says("written")],
            )
            .on(
                "[long]",
                [calls("write", write(&lines.concat())), says("written")],
            )
            .on("[held]", [says("held is done").held_by("go")])
            .on(
                "[steered]",
                [
                    calls("read", json!({ "path": "notes.txt" })).held_by("go"),
                    says("read"),
                ],
            ),
    )
    .with_agent(
        "worker",
        "mode: all\ntools: [write, read]\ngate: {write: ask}",
    )
}

fn top(place: &Place, (columns, rows): (u16, u16)) -> Terminal {
    let mut top = Terminal::of_size(place.command(&["top"]), columns, rows);
    top.until_seen(|seen| seen.contains("runs: ") && seen.contains("lanes"));
    top
}

/// Quits by key; the terminal must be restored.
fn quit(mut top: Terminal) {
    top.types("q");
    assert_eq!(top.end().0, 0);
    assert!(top.is_as_shells_leave_it(), "{}", top.raw());
}

#[test]
fn what_happens_is_seen_and_an_approval_is_given_at_any_size() {
    for size in [(80, 24), (40, 15), (200, 50)] {
        let place = place();
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut top = top(&place, size);
            let spawned = client
                .spawn(json!({ "task": "[long]", "agent": "worker", "label": "writer" }))
                .await;
            top.until_seen(|seen| {
                seen.contains("waits for you: 1") && seen.contains("! writer wants to call write")
            });
            // An approval is accepted only after the end of the call was shown.
            top.types("\r");
            top.until_seen(|seen| seen.contains("more lines: Space"));
            top.types("y");
            top.until_seen(|seen| seen.contains("not decided yet"));
            let mut seen = top.seen();
            while !seen.contains("the end") {
                top.types(" ");
                let before = seen.clone();
                seen = top.until_seen(|seen| *seen != before);
            }
            assert!(seen.contains("+line 099"), "{seen}");
            top.until_seen(|seen| seen.contains("y allow"));
            top.types("y");
            top.until_seen(|seen| seen.contains("allowed: write"));
            top.until_seen(|seen| !seen.contains("waits for you") && seen.contains("writer ok"));
            client.ended(&spawned.id).await;
            let written = fs::read_to_string(place.work().join("notes.txt")).unwrap();
            assert!(written.ends_with("line 099\n"));
            quit(top);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_run_is_steered_cancelled_and_denied_and_the_help_is_there() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let steered = client
            .spawn(json!({ "task": "[steered]", "agent": "worker", "label": "one" }))
            .await;
        client.in_state(&steered.id, "running").await;
        let mut top = top(&place, (80, 24));
        top.until_seen(|seen| seen.contains("one running"));
        top.types("?");
        top.until_seen(|seen| seen.contains("steer: a line that the next model call"));
        top.types("\u{1b}");
        top.until_seen(|seen| !seen.contains("steer: a line"));
        top.types("s");
        top.until_seen(|seen| seen.contains("steer one"));
        top.types("look at two\r");
        top.until_seen(|seen| seen.contains("sent; the next model call of"));
        top.types("c");
        top.until_seen(|seen| seen.contains("cancel one"));
        top.types("y");
        top.until_seen(|seen| seen.contains("cancelled: "));
        assert_eq!(client.ended(&steered.id).await["state"], "cancelled");
        let denied = client
            .spawn(json!({ "task": "[write]", "agent": "worker", "label": "two" }))
            .await;
        top.until_seen(|seen| seen.contains("! two wants to call write"));
        top.types("\r");
        top.until_seen(|seen| seen.contains("-beta") && seen.contains("the end"));
        top.types("n");
        top.until_seen(|seen| seen.contains("denied: write"));
        client.ended(&denied.id).await;
        let text = fs::read_to_string(place.work().join("notes.txt")).unwrap();
        assert_eq!(text, "alpha\nbeta\ngamma\n");
        quit(top);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_help_is_read_to_its_end_and_nothing_is_cut_at_any_size() {
    for size in [(80, 24), (40, 15), (200, 50)] {
        let place = place();
        run(async {
            let daemon = place.start().await;
            let mut top = top(&place, size);
            top.types("?");
            let mut seen = top.until_seen(|seen| seen.contains("Esc closes"));
            let mut pages = seen.clone();
            while seen.contains("more line") {
                top.types(" ");
                let before = seen.clone();
                seen = top.until_seen(|seen| *seen != before);
                pages.push_str(&seen);
            }
            let whole: String = pages.split([' ', '\n', '│']).collect();
            for part in [
                "HomeandEndgototheends",
                "closewhatliesoverthelists",
                "quit;therunscontinue",
            ] {
                assert!(whole.contains(part), "{part} at {size:?}:\n{pages}");
            }
            // Of the keys below, those that fit are shown whole.
            top.types("\u{1b}");
            let seen = top.until_seen(|seen| !seen.contains("Esc closes"));
            let keys = seen.lines().last().unwrap().to_owned();
            assert!(keys.starts_with("? help"), "{seen}");
            assert!(!keys.contains('…') && !keys.ends_with('·'), "{seen}");
            quit(top);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_message_is_whole_on_a_narrow_screen() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut top = top(&place, (40, 15));
        let client = daemon.client().await;
        client
            .spawn(json!({ "task": "[long]", "agent": "worker", "label": "writer" }))
            .await;
        top.until_seen(|seen| seen.contains("waits for you: 1"));
        top.types("\r");
        top.until_seen(|seen| seen.contains("n deny · Esc later"));
        top.types("y");
        top.until_seen(|seen| {
            let words: Vec<&str> = seen.split_whitespace().collect();
            words
                .join(" ")
                .contains("not decided yet: press Space to see the rest first Space next page")
        });
        top.types("\u{1b}");
        quit(top);
        daemon.kill().await;
    });
}

#[test]
fn attach_opens_over_it_and_comes_back() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client
            .spawn(json!({ "task": "[held]", "agent": "worker", "label": "held" }))
            .await;
        let mut top = top(&place, (80, 24));
        top.until_seen(|seen| seen.contains("held running"));
        top.types("a");
        top.until_seen(|seen| !seen.contains("abide top") && seen.contains("held"));
        place.let_go("go");
        top.until_seen(|seen| {
            seen.contains("held is done") && seen.contains("Enter goes back to abide top")
        });
        top.types("\n");
        top.until_seen(|seen| seen.contains("runs: 1") && seen.contains("held ok"));
        client.ended(&held.id).await;
        quit(top);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_daemon_that_is_killed_and_started_again_is_found() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut top = top(&place, (80, 24));
        daemon.kill().await;
        top.until_seen(|seen| seen.contains("no daemon: reconnecting"));
        let daemon = place.start().await;
        top.until_seen(|seen| seen.contains("the daemon is back"));
        let client = daemon.client().await;
        client
            .spawn(json!({ "task": "[write]", "agent": "worker", "label": "later" }))
            .await;
        top.until_seen(|seen| seen.contains("! later wants to call write"));
        quit(top);
        daemon.kill().await;
    });
}

#[test]
fn the_terminal_is_given_back_after_signals_and_a_panic() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130)] {
            let mut top = top(&place, (80, 24));
            top.signal(signal);
            assert_eq!(top.end().0, code);
            assert!(top.is_as_shells_leave_it(), "{code}: {}", top.raw());
        }
        let mut command = place.command(&["top"]);
        command.env("ABIDE_FAILPOINTS", "cli.top.draw=panic@2");
        let mut top = Terminal::of_size(command, 80, 24);
        assert_eq!(top.end().0, 101);
        assert!(top.is_as_shells_leave_it(), "{}", top.raw());
        // The error is on the screen that remains.
        let raw = top.raw();
        let (_, after) = raw.split_once("\u{1b}[?1049l").unwrap();
        assert!(after.contains("panicked"), "{raw}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn without_colours_there_are_none_and_without_a_terminal_lists_are_named() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        client
            .spawn(json!({ "task": "[write]", "agent": "worker", "label": "one" }))
            .await;
        for (has_colours, variable) in [(true, "OTHER"), (false, "NO_COLOR")] {
            let mut command = place.command(&["top"]);
            command.env(variable, "1");
            let mut top = Terminal::of_size(command, 80, 24);
            top.until_seen(|seen| seen.contains("! one wants to call write"));
            assert_eq!(top.raw().contains("\u{1b}[38;5;3"), has_colours);
            quit(top);
        }
        for arguments in [vec!["top"], vec!["top", "--json"]] {
            let refused = output_of(&mut place.command(&arguments));
            let text = format!("{}{}", refused.out, refused.err);
            assert_eq!(refused.code, 2, "{text}");
            assert!(text.contains("abide ps --json"), "{text}");
        }
        eventually("an approval", async || {
            let listed = client.call("approvals.list", json!({})).await;
            listed["approvals"].get(0).map(drop)
        })
        .await;
        daemon.kill().await;
    });
}
