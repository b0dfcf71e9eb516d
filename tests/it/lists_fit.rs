//! Lists and notes are cut only at the width of their terminal. Also the text about runs that wait
//! for a user or have failed.

use serde_json::json;

use crate::harness::{Place, Script, Terminal, calls, fails, run, says};
use crate::home::{CommandOutput, output_of};

fn place() -> Place {
    let touch = json!({ "command": "touch made" });
    let long = json!({ "path": format!("{}/none.txt", "a-long-name-of-a-folder".repeat(8)) });
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[long]", [calls("read", long), says("it does not exist")])
            .on("[fails]", [fails("the model is out of order")])
            .on("[touch]", [calls("shell", touch), says("it is made")]),
    )
    .with_agent("careful", "mode: all\ntools: [shell]\ngate: {shell: ask}")
}

fn abide(place: &Place, arguments: &[&str]) -> CommandOutput {
    output_of(&mut place.command(arguments))
}

#[test]
fn nothing_is_cut_in_a_pipe() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let ran = abide(&place, &["run", "--session", "agent:build:x", "[long]"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let is_long = |line: &str| line.chars().count() > 200;
        assert!(ran.err.lines().any(is_long), "{}", ran.err);
        for arguments in [
            &["history", "agent:build:x"][..],
            &["logs", "@last"],
            &["agents"],
            &["skills"],
            &["usage"],
            &["ps"],
        ] {
            let listed = abide(&place, arguments);
            assert_eq!(listed.code, 0, "{arguments:?}: {}", listed.err);
            let cut = |line: &&str| line.ends_with('…') && line.chars().count() <= 80;
            let cut = listed.out.lines().find(cut);
            assert_eq!(cut, None, "{arguments:?}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn text_is_wrapped_at_the_width_of_the_terminal_not_at_80() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for columns in [40, 80] {
            for arguments in [
                &["status"][..],
                &["doctor"],
                &["config", "show"],
                &["agents", "show", "build"],
                &["agents", "check", ".config/abide/agents/careful.md"],
                &["serve", "--detach"],
                &["events", "--since", "999999"],
                &["ps", "--state", "none"],
                &["logs", "none"],
                &["trust", "none"],
            ] {
                let mut screen = Terminal::sized(place.command(arguments), columns);
                let (_, text) = screen.end();
                assert!(!text.is_empty(), "{arguments:?}");
                for line in text.lines() {
                    let width = line.trim_end().chars().count();
                    assert!(width <= columns.into(), "{arguments:?}: {line}");
                }
            }
        }
        // What users cannot send, they are not told to correct and to send again.
        let refused = abide(&place, &["trust", "none"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("--help"), "{}", refused.err);
        assert!(!refused.err.contains("parameter"), "{}", refused.err);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_failed_run_says_its_end_once_and_how_to_do_it_again() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let ran = abide(&place, &["run", "[fails]"]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert_eq!(ran.err.matches("ended error").count(), 1, "{}", ran.err);
        assert!(ran.err.contains("retry it: abide retry "), "{}", ran.err);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_send_that_needs_a_person_says_so_and_ends_with_8() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let made = json!({ "key": "agent:careful:x", "agent": "careful" });
        client.call("sessions.create", made).await;
        let sent = abide(&place, &["send", "agent:careful:x", "[touch]"]);
        assert_eq!(sent.code, 8, "{}", sent.err);
        assert!(sent.err.contains("wants to call shell"), "{}", sent.err);
        assert!(sent.err.contains("abide approvals"), "{}", sent.err);
        let listed = abide(&place, &["ps"]);
        assert!(
            listed.out.contains("waits for approval: "),
            "{}",
            listed.out
        );
        let status = abide(&place, &["status"]);
        let waits = "waiting  1 tool call needs your approval: abide approvals";
        assert!(status.out.contains(waits), "{}", status.out);
        drop(client);
        drop(daemon);
    });
}

#[test]
fn a_watched_list_is_folded_shows_what_waits_and_ends_at_q() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[touch]", "agent": "careful", "label": "touch it" }))
            .await;
        client.in_state(&spawned.id, "paused").await;
        let mut watch = Terminal::sized(place.command(&["ps", "--watch"]), 40);
        let seen = watch.until_seen(|seen| seen.contains("q or Ctrl-C quits"));
        assert!(seen.starts_with("! "), "{seen}");
        assert!(seen.contains("paused"), "{seen}");
        let words = seen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("waits for"), "{seen}");
        watch.types("q");
        assert_eq!(watch.end().0, 0, "{}", watch.seen());
        assert!(watch.is_as_shells_leave_it());
        drop(client);
        drop(daemon);
    });
}
