//! Features for users at a terminal: trees that are redrawn, prompts, a daemon that is started on
//! demand, and Ctrl-C, once and twice.

use std::fs::{self, File};
use std::process::Command;

use serde_json::json;

use crate::harness::{CTRL_D, Daemon, Place, Script, Terminal, calls, run, says};
use crate::home::Home;

fn place() -> Place {
    let read = json!({ "path": "notes.txt" });
    let ask = json!({ "question": "which port?", "choices": ["80", "8080"] });
    let child = json!({ "task": "[held]", "agent": "explore", "label": "child" });
    let place = Place::new(
        Script::new()
            .on(
                "[held]",
                [calls("read", read), says("held is done").held_by("go")],
            )
            .on("[ask]", [calls("ask", ask), says("deployed")])
            .on(
                "[boss]",
                [
                    calls("sessions_spawn", child),
                    says("boss is done").held_by("go"),
                ],
            )
            .on("[a]", [says("a is done")]),
    );
    fs::write(place.work().join("notes.txt"), "one\n").unwrap();
    place
}

/// A command of the binary, run in the workspace.
fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.current_dir(place.work());
    command
}

async fn state_of_the_only_run(daemon: &Daemon) -> String {
    let client = daemon.client().await;
    let listed = client.call("runs.list", json!({})).await;
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{listed}");
    runs[0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_person_who_has_no_daemon_gets_one_and_is_told_so() {
    let home = Home::new();
    fs::write(home.path().join("notes.txt"), "the needle is here\n").unwrap();
    let run = |rest: &[&str]| {
        let mut words = vec!["run", "where is the needle?", "--state-dir", "state"];
        words.extend(rest);
        let mut command = home.command(&words);
        command.env("ABIDE_GATEWAY__LISTEN", "127.0.0.1:0");
        Terminal::start(command)
    };
    let (code, shown) = run(&["--no-start"]).end();
    assert_eq!(code, 10, "{shown}");
    assert!(shown.contains("abide serve --detach"), "{shown}");

    let mut first = run(&[]);
    first.until("no daemon is running; starting one\n");
    first.until("abide is up: process ");
    first.until("; stop it with: abide stop\n");
    let (code, shown) = first.end();
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("notes.txt:1"), "{shown}");

    let (code, shown) = run(&[]).end();
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains("abide is up"), "it is there: {shown}");
    let stopped = home.abide(&["stop", "--state-dir", "state"]);
    assert_eq!(stopped.code, 0, "{}", stopped.err);
}

#[test]
fn g1_3_ctrl_c_leaves_a_run_and_twice_cancels_it() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut once = Terminal::start(command(&place, &["run", "[held]"]));
        once.until("read (path: notes.txt)");
        once.interrupt();
        once.until("detached; the work continues. Wait again: abide wait ");
        let (code, shown) = once.end();
        assert_eq!(code, 4, "{shown}");
        assert_eq!(state_of_the_only_run(&daemon).await, "running");

        // Interrupting a viewer ends no run, however often it is repeated.
        let mut look = Terminal::start(command(&place, &["attach", "@last"]));
        look.until("read (path: notes.txt)");
        look.interrupt();
        look.interrupt();
        assert_eq!(look.end().0, 4);
        assert_eq!(state_of_the_only_run(&daemon).await, "running");
        place.let_go("go");
        let (code, shown) = Terminal::start(command(&place, &["wait", "@last"])).end();
        assert_eq!(
            (code, shown.contains("held is done\n")),
            (0, true),
            "{shown}"
        );
        fs::remove_file(place.path().join("go")).unwrap();

        let mut twice = Terminal::start(command(&place, &["run", "[held]"]));
        twice.until("read (path: notes.txt)");
        twice.interrupt();
        twice.until("once more within 2 s");
        twice.interrupt();
        twice.until("cancelled: ");
        assert_eq!(twice.end().0, 6);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn e6_the_tree_shows_what_a_run_has_asked_others_to_do() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut boss = Terminal::start(command(&place, &["run", "[boss]"]));
        boss.until("child · ");
        boss.until("read (path: notes.txt)");
        place.let_go("go");
        let (code, shown) = boss.end();
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("boss is done\n"), "{shown}");
        let below = |line: &str| line.starts_with("  ") && line.contains(" child · ");
        assert!(shown.lines().any(below), "{shown}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_conversation_shows_its_turns_and_sees_the_folder_that_it_was_begun_in() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = Terminal::start(command(&place, &["chat"]));
        chat.until("build in agent:build:chat, ");
        chat.until("you> ");
        chat.types("[held]\n");
        chat.until("read (path: notes.txt)");
        place.let_go("go");
        chat.until("held is done\n");
        chat.until("you> ");
        chat.types("[a]\n");
        chat.until("a is done\n");
        chat.until("you> ");
        chat.types(CTRL_D);
        assert_eq!(chat.end().0, 0);
        let client = daemon.client().await;
        let key = json!({ "sessionKey": "agent:build:chat" });
        let session = client.call("sessions.get", key).await;
        assert_eq!(session["cwd"], place.work().to_str().unwrap());

        // A returning user sees the earlier messages, and that they are about a different folder.
        let mut again = Terminal::start(place.command(&["chat"]));
        again.until("a is done");
        again.until("abide sessions patch agent:build:chat --cwd .\n");
        again.until("you> ");
        again.types(CTRL_D);
        assert_eq!(again.end().0, 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g14_7_a_conversation_puts_the_questions_of_its_turns() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = Terminal::start(command(&place, &["chat"]));
        chat.until("you> ");
        chat.types("[ask]\n");
        chat.until("which port?");
        chat.until("80 | 8080");
        chat.until("your answer (empty: later)> ");
        chat.types("8080\n");
        chat.until("deployed\n");
        chat.until("you> ");
        chat.types(CTRL_D);
        assert_eq!(chat.end().0, 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g1_3_in_a_conversation_ctrl_c_cancels_a_turn_and_keeps_the_conversation() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = Terminal::start(command(&place, &["chat"]));
        chat.until("you> ");
        chat.types("[held]\n");
        chat.until("read (path: notes.txt)");
        chat.interrupt();
        chat.until("stopped: ");
        chat.until("you> ");
        chat.types("[a]\n");
        chat.until("a is done\n");
        chat.until("you> ");
        chat.types(CTRL_D);
        assert_eq!(chat.end().0, 0);
        let client = daemon.client().await;
        let listed = client.call("runs.list", json!({})).await;
        let states: Vec<&str> = listed["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["state"].as_str().unwrap())
            .collect();
        assert_eq!(states, ["ok", "cancelled"]);
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_conversation_from_a_pipe_is_answers_alone() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        fs::write(place.path().join("lines"), "[a]\n\n[a]\n").unwrap();
        let mut talk = command(&place, &["chat", "agent:build:piped"]);
        let said =
            crate::home::output_of(talk.stdin(File::open(place.path().join("lines")).unwrap()));
        assert_eq!(
            (said.code, &*said.out),
            (0, "a is done\na is done\n"),
            "{}",
            said.err
        );
        assert_eq!(said.err, "");
        // An unknown name is more likely mistyped than new.
        let said = crate::home::output_of(&mut place.command(&["chat", "pipd"]));
        assert_eq!(said.code, 3, "{}", said.err);
        assert!(
            said.err.contains("abide chat agent:build:NAME"),
            "{}",
            said.err
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
