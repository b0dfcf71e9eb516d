//! Input that was typed, pasted or held down before an approval was on the screen does not answer
//! it, and no file content can hide changes from the user.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::approvals_shown::open;
use crate::harness::{Place, Script, Terminal, calls, eventually, kind_of, run, says};
use crate::home::output_of;

const AGENT: &str = "mode: all\ntools: [write, edit]\ngate: {write: ask, edit: ask}\n\
                     env: {DEPLOY_TOKEN: t0ken-of-the-agent}";

fn agent(script: Script) -> Place {
    Place::new(script).with_agent("worker", AGENT)
}

fn follow(place: &Place, arguments: &[&str]) -> Terminal {
    let mut command = place.command(arguments);
    command.current_dir(place.work());
    Terminal::start(command)
}

#[test]
fn a_yes_that_was_typed_ahead_answers_nothing_in_run_and_chat() {
    for begin in ["run", "chat"] {
        let write = |text: &str| json!({ "path": "notes.txt", "content": text });
        let place = agent(Script::new().on(
            "[go]",
            [
                calls("write", write("first\n")).held_by("go"),
                calls("write", write("second\n")),
                says("done"),
            ],
        ));
        run(async {
            let daemon = place.start().await;
            let mut person = match begin {
                "run" => follow(&place, &["run", "--agent", "worker", "[go]"]),
                _ => {
                    let mut chat = follow(&place, &["chat", "--agent", "worker"]);
                    chat.until("you> ");
                    chat.types("[go]\n");
                    chat
                }
            };
            let client = daemon.client().await;
            eventually("a run", async || {
                let listed = client.call("runs.list", json!({})).await;
                (listed["runs"][0]["state"] == "running").then_some(())
            })
            .await;
            person.types("yes\nyes\n");
            place.let_go("go");
            person.until("allow it? (yes or no; empty: later)> ");
            // Input typed from now on counts, and only once.
            person.types("no\nyes\nyes\n");
            person.until("denied: write");
            person.until("+second");
            person.until("allow it? (yes or no; empty: later)> ");
            person.types("no\n");
            let shown = person.until("denied: write");
            assert!(!shown.contains("allowed"), "{begin}: {shown}");
            if begin == "chat" {
                person.until_seen(|seen| seen.contains("you> yes"));
            } else {
                person.end();
            }
            let text = fs::read_to_string(place.work().join("notes.txt")).unwrap();
            assert_eq!(text, "alpha\nbeta\ngamma\n");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_yes_behind_an_empty_line_in_chat_is_a_message_and_no_answer() {
    let write = json!({ "path": "notes.txt", "content": "x\n" });
    let child = json!({ "task": "[go]", "agent": "worker", "label": "child" });
    let place = agent(
        Script::new()
            .on("[go]", [calls("write", write), says("done")])
            .on(
                "[boss]",
                [calls("sessions_spawn", child), says("it is under way")],
            )
            .on_announce("*", [says("the child is back")]),
    )
    .with_agent("boss", "mode: primary\nallow_agents: [worker]");
    run(async {
        let daemon = place.start().await;
        let mut chat = follow(&place, &["chat", "--agent", "boss"]);
        chat.until("you> ");
        chat.types("[boss]\n");
        chat.until("it is under way\n");
        let approval = open(&daemon).await;
        chat.until("Enter on an empty line");
        chat.types("\nyes\n");
        chat.until("allow it? (yes or no; empty: later)> ");
        assert_eq!(open(&daemon).await["id"], approval["id"]);
        chat.types("no\n");
        chat.until("denied: write");
        let text = fs::read_to_string(place.work().join("notes.txt")).unwrap();
        assert_eq!(text, "alpha\nbeta\ngamma\n");
        daemon.kill().await;
    });
}

#[test]
fn a_yes_that_is_held_down_or_pasted_in_top_decides_on_nothing() {
    let write = json!({ "path": "notes.txt", "content": "x\n" });
    let place = agent(Script::new().on("[go]", [calls("write", write), says("done")]));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        open(&daemon).await;
        let mut top = Terminal::start(place.command(&["top"]));
        top.until_seen(|seen| seen.contains("wants to call write"));
        assert!(top.raw().contains("\u{1b}[?2004h"));
        top.types("yyyyyyyyyyyy\u{1b}[200~\ryyyy\u{1b}[201~");
        top.types("\ryyyy");
        top.until_seen(|seen| seen.contains("not decided yet: read it"));
        open(&daemon).await;
        top.until_seen(|seen| seen.contains("y allow"));
        top.types("n");
        top.until_seen(|seen| seen.contains("denied: write"));
        client.ended(&spawned.id).await;
        top.types("q");
        assert_eq!(top.end().0, 0);
        assert!(
            top.raw().ends_with("\u{1b}[?2004l\u{1b}[?1049l"),
            "{}",
            top.raw()
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_write_that_would_put_a_mask_in_place_of_a_value_is_said_to_fail_and_does() {
    let content = "key = [secret:DEPLOY_TOKEN]\n# form: [secret:DEPLOY_TOKEN]\n";
    let write = json!({ "path": "m2.txt", "content": content });
    let place = agent(Script::new().on("[go]", [calls("write", write), says("done")]));
    let held = "key = t0ken-of-the-agent\n# form: [secret:DEPLOY_TOKEN]\n";
    fs::write(place.work().join("m2.txt"), held).unwrap();
    run(async {
        let daemon = place.start().await;
        let mut person = follow(&place, &["run", "--agent", "worker", "[go]"]);
        let shown = person.until("allow it? (yes or no; empty: later)> ");
        assert!(
            shown.contains("would fail with the current m2.txt: m2.txt contains"),
            "{shown}"
        );
        assert!(!shown.contains("t0ken"), "{shown}");
        person.types("yes\n");
        person.end();
        let text = fs::read_to_string(place.work().join("m2.txt")).unwrap();
        assert_eq!(text, held);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_file_that_changes_while_its_diff_is_read_is_not_written_and_the_new_diff_is_shown() {
    let write = json!({ "path": "notes.txt", "content": "alpha\n" });
    let place = agent(Script::new().on("[go]", [calls("write", write), says("done")]));
    let file = place.work().join("notes.txt");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut person = follow(&place, &["run", "--agent", "worker", "[go]"]);
        let shown = person.until("allow it? (yes or no; empty: later)> ");
        assert!(shown.contains("-gamma"), "{shown}");
        let seen = open(&daemon).await;
        fs::write(&file, "alpha\nbeta\nwhat a person has written\n").unwrap();
        let request = json!({
            "id": seen["id"], "decision": "allow", "digest": seen["change"]["digest"],
        });
        let refused = client.refused("approvals.resolve", request).await;
        assert_eq!(kind_of(&refused), "conflict");
        person.types("yes\n");
        person.until("nothing was decided: the file has changed");
        person.until("-what a person has written");
        person.until("allow it? (yes or no; empty: later)> ");
        let now = open(&daemon).await;
        assert_ne!(now["change"]["digest"], seen["change"]["digest"]);
        person.types("yes\n");
        person.until("allowed: write");
        assert_eq!(person.end().0, 0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "alpha\n");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_terminal_is_given_back_where_a_signal_ends_what_follows_a_run() {
    let write = json!({ "path": "notes.txt", "content": "alpha\n" });
    let place = agent(Script::new().on("[go]", [calls("write", write), says("done")]));
    run(async {
        let daemon = place.start().await;
        for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
            for begin in ["run", "turn", "prompt"] {
                let mut person = match begin {
                    "run" => follow(&place, &["run", "--agent", "worker", "[go]"]),
                    _ => follow(&place, &["chat", "--new", "--agent", "worker"]),
                };
                if begin != "run" {
                    person.until("you> ");
                }
                if begin == "turn" {
                    person.types("[go]\n");
                }
                if begin != "prompt" {
                    person.until("allow it? (yes or no; empty: later)> ");
                }
                person.signal(signal);
                assert_eq!(person.end().0, code, "{begin}");
                assert!(person.is_as_shells_leave_it(), "{begin}: {}", person.raw());
                let raw = person.raw();
                let (on, off) = (raw.rfind("\u{1b}[?2004h"), raw.rfind("\u{1b}[?2004l"));
                assert!(on <= off, "{begin}: {raw}");
            }
        }
        daemon.kill().await;
    });
}

#[test]
fn without_a_terminal_what_waits_is_said_once_and_names_the_tool() {
    let write = json!({ "path": "notes.txt", "content": "alpha\n" });
    let place = agent(Script::new().on("[go]", [calls("write", write), says("done")]));
    run(async {
        let daemon = place.start().await;
        for arguments in [
            &["run", "--agent", "worker", "[go]"][..],
            &["run", "--json", "--agent", "worker", "[go]"],
            &["attach", "@last"],
            &["wait", "@last"],
        ] {
            let mut command = place.command(arguments);
            command
                .current_dir(place.work())
                .env("ABIDE_TERMINAL", "one");
            let said = output_of(&mut command);
            let all = format!("{}{}", said.out, said.err);
            assert_eq!(said.code, 8, "{arguments:?}: {all}");
            assert_eq!(
                all.matches("wants to call write, ").count(),
                1,
                "{arguments:?}: {all}"
            );
            assert!(
                all.contains("/notes.txt details: abide approvals show "),
                "{all}"
            );
        }
        daemon.kill().await;
    });
}
