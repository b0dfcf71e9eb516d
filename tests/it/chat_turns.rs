//! `abide chat` during a turn: the order of the output, input typed meanwhile, how to leave it, and
//! commands entered at a prompt.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{CTRL_D, Daemon, Place, Script, Terminal, calls, run, says};

fn place() -> Place {
    let read = json!({ "path": "notes.txt" });
    let none = json!({ "path": "none.txt" });
    let touch = json!({ "command": "touch made" });
    let long = "Words of the answer come here, one after another. ".repeat(20);
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done")])
            .on(
                "[reads]",
                [
                    // Calls of the same message may end in any order.
                    calls("read", read.clone()).and("read", read.clone()),
                    calls("read", none.clone()).and("read", none),
                    says(&format!("The answer\n\n{long}\nand its last line")),
                ],
            )
            .on(
                "[slow]",
                [says("first line\nsecond line\nthird").in_pieces(14, 1, "never")],
            )
            .on(
                "[held]",
                [calls("read", read), says("held is done").held_by("go")],
            )
            .on("[touch]", [calls("shell", touch), says("it is made")])
            .on(
                "[ask]",
                [
                    calls("ask", json!({ "question": "Which colour?" })),
                    says("noted"),
                ],
            ),
    )
    .with_agent("careful", "mode: all\ntools: [shell]\ngate: {shell: ask}")
    .with_agent("asker", "mode: all\ntools: [ask]")
}

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.current_dir(place.work());
    command
}

fn chat(place: &Place, more: &[&str], columns: u16) -> Terminal {
    let mut arguments = vec!["chat"];
    arguments.extend(more);
    let mut chat = Terminal::sized(command(place, &arguments), columns);
    chat.until("you> ");
    chat
}

fn leave(mut chat: Terminal) -> Terminal {
    chat.types(CTRL_D);
    assert_eq!(chat.end().0, 0, "{}", chat.seen());
    chat
}

async fn states(daemon: &Daemon) -> Vec<Value> {
    let client = daemon.client().await;
    let listed = client.call("runs.list", json!({})).await;
    let runs = listed["runs"].as_array().unwrap();
    runs.iter().map(|run| run["state"].clone()).collect()
}

#[test]
fn calls_stand_above_the_answer_in_the_order_in_which_they_happened() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for _ in 0..3 {
            let mut chat = chat(&place, &["--new"], 80);
            chat.types("[reads]\n");
            chat.until("and its last line\n");
            chat.until("you> ");
            let seen = leave(chat).seen();
            let begin = seen.find("The answer").unwrap();
            let calls: Vec<_> = seen.match_indices("● read (").collect();
            assert_eq!(calls.len(), 4, "{seen}");
            assert!(calls.iter().all(|(at, _)| *at < begin), "{seen}");
            let which: Vec<_> = calls
                .iter()
                .map(|(at, _)| {
                    seen[*at..].contains("notes.txt") && seen[*at..*at + 24].contains("notes")
                })
                .collect();
            assert_eq!(which, [true, true, false, false], "{seen}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn ctrl_d_leaves_a_turn_at_work_also_where_it_waits_for_an_approval() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for (agent, typed, shown) in [
            ("build", "[slow]\n", "first line"),
            (
                "careful",
                "[touch]\n",
                "allow it? (yes or no; empty: later)> ",
            ),
        ] {
            let mut chat = chat(&place, &["--agent", agent], 80);
            chat.types(typed);
            chat.until_seen(|seen| seen.contains(shown.trim()));
            chat.types(CTRL_D);
            chat.until("detached; the work continues. Wait again: abide wait");
            assert_eq!(chat.end().0, 4);
            assert!(chat.is_as_shells_leave_it());
        }
        let states = states(&daemon).await;
        assert!(
            states
                .iter()
                .all(|state| matches!(state.as_str(), Some("running" | "paused"))),
            "{states:?}"
        );
        drop(daemon);
    });
}

#[test]
fn ctrl_c_twice_leaves_a_turn_at_work_also_where_it_waits_for_an_approval() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        for (agent, typed, shown) in [
            ("build", "[slow]\n", "first line"),
            (
                "careful",
                "[touch]\n",
                "allow it? (yes or no; empty: later)> ",
            ),
        ] {
            let mut chat = chat(&place, &["--agent", agent], 80);
            chat.types(typed);
            chat.until_seen(|seen| seen.contains(shown.trim()));
            chat.interrupt();
            chat.until("stopping the turn … (Ctrl-C again: detach, and it continues)");
            chat.interrupt();
            chat.until("detached; the work continues. Wait again: abide wait");
            assert_eq!(chat.end().0, 4);
        }
        let states = states(&daemon).await;
        assert!(
            states
                .iter()
                .all(|state| matches!(state.as_str(), Some("running" | "paused"))),
            "{states:?}"
        );
        drop(daemon);
    });
}

#[test]
fn what_is_left_for_later_gives_the_prompt_back_and_attach_brings_it_again() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &["--agent", "careful"], 80);
        chat.types("[touch]\n");
        chat.until("empty: later)> ");
        chat.types("\n");
        chat.until("left open: the turn waits for your answer; /attach asks again\n");
        chat.until("you> ");
        chat.types("/attach\n");
        chat.until("empty: later)> ");
        chat.types("yes\n");
        chat.until("it is made\n");
        chat.until("you> ");
        leave(chat);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn lines_typed_during_a_turn_are_sent_after_it_and_come_back_where_it_is_stopped() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[], 80);
        chat.types("[held]\n");
        chat.until_seen(|seen| seen.contains("● read (path: notes.txt)"));
        chat.types("[a] and mo");
        chat.until_seen(|seen| seen.contains("next> [a] and mo"));
        chat.types("re\n[b] beg");
        chat.until_seen(|seen| seen.contains("next> [b] beg"));
        place.let_go("go");
        chat.until("held is done\n");
        chat.until("you> [a] and more\n");
        chat.until("a is done\n");
        chat.until_seen(|seen| seen.trim_end().ends_with("you> [b] beg"));
        chat.types("un\n");
        chat.until("b is done\n");
        chat.until("you> ");

        chat.types("[slow]\n");
        chat.until_seen(|seen| seen.contains("first line"));
        chat.types("[a] not now\n");
        chat.types("more");
        chat.until_seen(|seen| seen.contains("next> more"));
        chat.interrupt();
        chat.until("stopped: ");
        chat.until("what you typed meanwhile was not sent; it is in the line below\n");
        chat.until_seen(|seen| {
            seen.contains("you> [a] not now") && seen.trim_end().ends_with("more")
        });
        chat.types("\u{15}\u{17}\u{3}");
        chat.until("no turn is running; Ctrl-D or /quit quits");
        drop(chat);
        assert_eq!(states(&daemon).await.len(), 4);
        drop(daemon);
    });
}

#[test]
fn a_message_that_does_not_reach_a_daemon_is_named() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[], 80);
        daemon.kill().await;
        chat.until("retrying for up to 60 s\n");
        chat.types("[a] for the dead\n");
        chat.until("retrying for up to 60 s\n");
        chat.interrupt();
        chat.until("\"[a] for the dead\" was not sent\n");
        assert_eq!(chat.end().0, 10);
    });
}

#[test]
fn commands_work_where_something_is_asked_and_an_answer_may_begin_with_a_slash() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &["--agent", "careful"], 80);
        chat.types("[touch]\n");
        chat.until("empty: later)> ");
        chat.types("/help\n");
        chat.until("stop the running turn; twice: detach");
        chat.until("empty: later)> ");
        chat.types("/model x\n");
        chat.until("/model is not available while a run waits for your answer");
        chat.until("empty: later)> ");
        chat.types("/quit\n");
        chat.until("detached; the work continues");
        assert_eq!(chat.end().0, 4);

        let mut chat = self::chat(&place, &["--agent", "asker"], 80);
        chat.types("[ask]\n");
        chat.until("your answer (empty: later)> ");
        chat.types("/nonsense\n");
        chat.until("unknown command /nonsense; type // to begin an answer with /\n");
        chat.until("your answer (empty: later)> ");
        chat.types("//red\n");
        chat.until("answered: /red\n");
        chat.until("noted\n");
        chat.until("you> ");
        leave(chat);
        drop(daemon);
    });
}

#[test]
fn errors_keep_their_lines_and_are_parted_between_words() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[], 40);
        chat.types("/new Bad Name\n");
        chat.until("the name \"Bad Name\" is not valid");
        chat.until("you> ");
        chat.types("/agent none\n");
        chat.until("there is no agent none that you can talk\n  to\n  available: ");
        chat.until("you> ");
        leave(chat);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_name_of_an_agent_in_place_of_a_session_is_answered_with_the_option_for_it() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let (code, seen) = Terminal::start(command(&place, &["chat", "build"])).end();
        assert_eq!(code, 3, "{seen}");
        assert!(seen.contains("abide chat --agent build"), "{seen}");
        let (code, seen) = Terminal::start(command(&place, &["chat", "none-such"])).end();
        assert_eq!(code, 3, "{seen}");
        assert!(seen.contains("abide chat agent:build:NAME"), "{seen}");
        assert_eq!(daemon.stop().await, 0);
    });
}
