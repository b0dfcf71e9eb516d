//! Live output about runs at a terminal, with the real binary at a real pseudo-terminal: the tree
//! of a run and its descendants, prompts, and a restart in between.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{CTRL_D, Place, Script, Terminal, calls, run, says};

fn task(agent: &str, prompt: &str) -> Value {
    json!({
        "description": "Look around", "prompt": prompt, "subagent_type": agent, "session_id": "",
    })
}

fn place() -> Place {
    let read = json!({ "path": "notes.txt" });
    let touch = json!({ "command": "touch made" });
    let place = Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("read", read.clone()),
                    says("the kid has found it").held_by("go"),
                ],
            )
            .on(
                "[boss]",
                [
                    calls("task", task("explore", "[kid]")),
                    says("boss is done"),
                ],
            )
            .on(
                "[touch]",
                [
                    calls("shell", touch),
                    says("the kid has made it").held_by("kid"),
                ],
            )
            .on(
                "[risk]",
                [
                    calls("task", task("careful", "[touch]")),
                    says("risk is done"),
                ],
            )
            .on("[hi]", [says("hello from here")])
            .on(
                "[wild]",
                [
                    calls("read", json!({ "path": "wild.txt" })),
                    says("tamed").held_by("go"),
                ],
            ),
    )
    .with_agent("careful", "mode: all\ntools: [shell]\ngate: {shell: ask}")
    .with_agent("second", "mode: primary\nallow_agents: [careful]");
    fs::write(
        place.work().join("wild.txt"),
        "\u{1b}[2J\u{1b}]0;owned\u{7}wild\u{202e}\n",
    )
    .unwrap();
    place
}

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.current_dir(place.work());
    command
}

/// The number of occurrences of a text.
fn count(seen: &str, text: &str) -> usize {
    seen.matches(text).count()
}

#[test]
fn e6_display_verification() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut boss = Terminal::start(command(&place, &["run", "[boss]"]));
        // The states of runs are read a moment after the events of their calls.
        let seen = boss.until_seen(|seen| {
            seen.contains("└ ● read (path: notes.txt)")
                && seen.contains("  └ ◉ task (Look around (@explore)")
        });
        assert!(seen.contains("◉ build · "), "{seen}");
        place.let_go("go");
        let (code, _) = boss.end();
        let seen = boss.seen();
        assert_eq!(code, 0, "{seen}");
        let lines: Vec<&str> = seen.lines().map(str::trim_end).collect();
        assert!(lines[0].starts_with("● build · "), "{seen}");
        assert!(
            lines[1].starts_with("  └ ● task (Look around (@explore)"),
            "{seen}"
        );
        assert!(
            lines[2].starts_with("    ├ ● read (path: notes.txt) → "),
            "{seen}"
        );
        assert_eq!(
            lines[3..],
            ["    └ the kid has found it", "boss is done"],
            "{seen}"
        );
        assert!(
            boss.raw().contains("\u{1b}[33m◉"),
            "colours: {:?}",
            boss.raw()
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g14_7_an_approval_of_a_descendant_is_put_where_the_run_is_followed() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut risk = Terminal::start(command(&place, &["run", "--agent", "second", "[risk]"]));
        let has_all = |seen: &str| seen.contains("later)> ") && seen.contains(" task (");
        let seen = risk.until_seen(has_all);
        // The prompt names its origin and deadline; the tree is below it.
        let (asked, tree) = seen.split_once("◉ second · ").unwrap();
        assert!(
            asked.contains("wants to call shell (") && asked.contains("denied in "),
            "{seen}"
        );
        assert!(
            asked.contains("from careful, run ") && asked.contains(": Look around (@careful)"),
            "{seen}"
        );
        assert!(asked.contains("command: touch made"), "{seen}");
        assert!(tree.contains("task ("), "{seen}");
        risk.types("perhaps\n");
        risk.until("answer yes or no\n");
        // What is typed before the prompt is there again is no answer.
        risk.until("later)> ");
        risk.types("yes\n");
        risk.until("allowed: shell touch made\n");
        place.let_go("kid");
        let (code, _) = risk.end();
        fs::remove_file(place.path().join("kid")).unwrap();
        let seen = risk.seen();
        assert_eq!(
            (code, place.work().join("made").exists()),
            (0, true),
            "{seen}"
        );
        assert_eq!(count(&seen, "● task ("), 1, "{seen}");
        assert_eq!(count(&seen, "wants to call shell ("), 1, "{seen}");

        // An attached user can answer too, and so can others meanwhile.
        let mut chat = Terminal::start(command(&place, &["chat", "agent:second:risk"]));
        chat.until("you> ");
        chat.types("[risk]\n");
        chat.until("later)> ");
        chat.types("\n");
        // It is postponed, and stays at the top with the remaining time.
        chat.until_seen(|seen| seen.contains(" left: touch made"));
        let mut look = Terminal::start(command(&place, &["attach", "@last"]));
        look.until("later)> ");
        let client = daemon.client().await;
        let open = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        let id = &open["approvals"][0]["id"];
        client
            .call("approvals.resolve", json!({ "id": id, "decision": "deny" }))
            .await;
        look.until("denied elsewhere\n");
        place.let_go("kid");
        assert_eq!(look.end().0, 0);
        chat.until("risk is done\n");
        chat.until("you> ");
        chat.types(CTRL_D);
        assert_eq!(chat.end().0, 0);
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e1_agent_lists_the_primary_agents_and_goes_on_with_another() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = Terminal::start(command(&place, &["chat"]));
        chat.until("you> ");
        chat.types("/agent\n");
        let listed = chat.until("talk to one: /agent NAME\n");
        assert!(listed.contains("●  build "), "{listed}");
        assert!(
            listed.contains("   second ") && listed.contains("   careful "),
            "{listed}"
        );
        assert!(
            !listed.contains("explore"),
            "it only works for others: {listed}"
        );
        chat.types("/agent explore\n");
        chat.until("there is no agent explore that you can talk to");
        chat.until("you> ");
        chat.types("/agent second\n");
        chat.until("second in agent:second:chat, ");
        chat.until("you> ");
        chat.types("[hi]\n");
        chat.until("hello from here\n");
        chat.until("you> ");
        // A returning user sees the earlier messages.
        chat.types("/agent build\n");
        chat.until("build in agent:build:chat, ");
        chat.types("/agent second\n");
        chat.until("hello from here\n");
        chat.until("you> ");
        chat.types(CTRL_D);
        assert_eq!(chat.end().0, 0);
        let client = daemon.client().await;
        let runs = client.call("runs.list", json!({})).await;
        assert_eq!(runs["runs"][0]["agent"], "second", "{runs:#}");
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e6_a_kill_of_the_daemon_in_between_doubles_no_line() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut boss = Terminal::start(command(&place, &["run", "[boss]"]));
        boss.until_seen(|seen| seen.contains("└ ● read (path: notes.txt)"));
        daemon.kill().await;
        boss.until("the connection to the daemon was lost; retrying for up to 60 s\n");
        let daemon = place.start().await;
        boss.until_seen(|seen| seen.contains("└ ● read (path: notes.txt)"));
        place.let_go("go");
        let (code, _) = boss.end();
        let seen = boss.seen();
        assert_eq!(code, 0, "{seen}");
        for line in [
            "● build · ",
            "● task (",
            "● read (",
            "└ the kid has found it",
            "boss is done",
        ] {
            assert_eq!(count(&seen, line), 1, "{line}:\n{seen}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn terminals_without_colours_or_cursor_get_none() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        place.let_go("go");
        let mut plain = command(&place, &["run", "[boss]"]);
        plain.env("NO_COLOR", "1");
        let mut plain = Terminal::start(plain);
        assert_eq!(plain.end().0, 0);
        assert!(plain.raw().contains("\u{1b}[?2026h"), "it is redrawn");
        assert!(!has_colours(&plain.raw()), "{:?}", plain.raw());

        let mut dumb = command(&place, &["run", "[boss]"]);
        dumb.env("TERM", "dumb");
        let mut dumb = Terminal::start(dumb);
        let (code, text) = dumb.end();
        assert_eq!(code, 0, "{text}");
        assert!(!dumb.raw().contains('\u{1b}'), "{:?}", dumb.raw());
        assert!(text.contains("step 2 read path: notes.txt → "), "{text}");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Does the output contain a sequence that sets a style?
fn has_colours(raw: &str) -> bool {
    let mut sequences = raw.split("\u{1b}[").skip(1);
    sequences.any(|rest| {
        rest.trim_start_matches(|ch: char| ch.is_ascii_digit() || ch == ';')
            .starts_with('m')
    })
}

#[test]
fn g14_what_tools_give_does_not_steer_the_terminal_and_a_smaller_window_is_kept_to() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut wild = Terminal::start(command(&place, &["run", "[wild]"]));
        wild.until_seen(|seen| seen.contains("● read (path: wild.txt)"));
        wild.resize(40);
        wild.until_seen(|seen| {
            let cut = |line: &str| line.contains("build · ") && line.trim_end().ends_with('…');
            seen.lines().any(cut)
        });
        place.let_go("go");
        assert_eq!(wild.end().0, 0, "{}", wild.seen());
        let raw = wild.raw();
        assert!(
            !raw.contains("\u{1b}]") && !raw.contains("\u{1b}[2J"),
            "{raw:?}"
        );
        assert!(!raw.contains('\u{202e}'), "{raw:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}
