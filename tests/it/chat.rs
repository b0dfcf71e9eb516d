//! `abide chat` at a terminal: what is typed, sent and shown while an answer streams, and how it
//! behaves when something fails in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::{CTRL_D, Daemon, Place, Script, Terminal, calls, run, says};

const UP: &str = "\u{1b}[A";
const ALT_ENTER: &str = "\u{1b}\r";
const CTRL_C: &str = "\u{3}";

fn place() -> Place {
    let read = json!({ "path": "notes.txt" });
    let touch = json!({ "command": "touch made" });
    let child = json!({ "task": "[touch]", "agent": "careful", "label": "child" });
    let long = format!(
        "# The *title*\n\n- one **bold** item\n- `code`\n\n```sh\necho \"**\"\n```\n{}",
        "many words in one line ".repeat(20)
    );
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done")])
            .on("[long]", [says(&long).in_pieces(40, 12, "go")])
            .on(
                "[steps]",
                [
                    calls("read", read.clone()),
                    calls("read", json!({ "path": "none.txt" })),
                    says("looked at both").held_by("go"),
                ],
            )
            .on(
                "[held]",
                [calls("read", read), says("held is done").held_by("go")],
            )
            .on(
                "[slow]",
                [says("first line\nsecond line\nthird").in_pieces(14, 1, "never")],
            )
            .on(
                "[wild]",
                [says(
                    "a\u{1b}]0;owned\u{7}b\u{1b}[2J\u{202e}c\n`\u{1b}[31m`",
                )],
            )
            .on(
                "[touch]",
                [calls("shell", touch.clone()), says("the child has made it")],
            )
            .on(
                "[boss]",
                [calls("sessions_spawn", child), says("it is under way")],
            )
            .on_announce("*", [says("the child is back")])
            .on("[value]", [calls("shell", touch), says("value was there")]),
    )
    .with_agent("careful", "mode: all\ntools: [shell]\ngate: {shell: ask}")
    .with_agent("second", "mode: primary\nallow_agents: [careful]")
}

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.current_dir(place.work());
    command
}

fn chat(place: &Place, more: &[&str]) -> Terminal {
    let mut arguments = vec!["chat"];
    arguments.extend(more);
    let mut chat = Terminal::start(command(place, &arguments));
    chat.until("Ctrl-D quits");
    chat.until("you> ");
    chat
}

fn leave(mut chat: Terminal) -> Terminal {
    chat.types(CTRL_D);
    assert_eq!(chat.end().0, 0, "{}", chat.seen());
    chat
}

/// The user messages of a session, oldest first.
async fn user_messages(daemon: &Daemon, key: &str) -> Vec<String> {
    let client = daemon.client().await;
    let page = client
        .call("sessions.history", json!({ "sessionKey": key }))
        .await;
    let messages = page["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message["role"] == "user" && message["kind"] == "text")
        .map(|message| message["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

async fn runs(daemon: &Daemon) -> Vec<Value> {
    let client = daemon.client().await;
    let listed = client.call("runs.list", json!({})).await;
    listed["runs"].as_array().unwrap().clone()
}

#[test]
fn commands_are_handled_here_and_an_unknown_one_is_not_sent() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        for (typed, shown) in [
            ("/help", "stop the running turn; twice: detach"),
            (
                "/nonsense now",
                "unknown command /nonsense, nothing was sent",
            ),
            ("/model", "model: the agent's"),
            ("/model script/y", "model from the next turn on: script/y"),
            ("/thinking deep", "deep is not a level"),
            ("/thinking high", "thinking from the next turn on: high"),
            ("/usage", "0 messages, 0 model calls"),
            ("/attach", "no turn is open in this session"),
            ("/attach nowhere", "no run or session matches"),
            (
                "/agent nobody",
                "there is no agent nobody that you can talk to",
            ),
            ("/sessions", "continue one: /attach SESSION"),
            ("/new tour", "build in agent:build:tour, "),
            ("/attach agent:build:chat", "build in agent:build:chat, "),
        ] {
            chat.types(&format!("{typed}\n"));
            chat.until(shown);
            chat.until("you> ");
        }
        chat.types("/compact\n");
        chat.until("you> ");
        chat.types("exit\n");
        assert_eq!(chat.end().0, 0);
        for key in ["agent:build:chat", "agent:build:tour"] {
            assert_eq!(user_messages(&daemon, key).await, Vec::<String>::new());
        }
        let client = daemon.client().await;
        let request = json!({ "sessionKey": "agent:build:tour" });
        let tour = client.call("sessions.get", request).await;
        assert_eq!(
            (&tour["model"], &tour["thinking"]),
            (&json!("script/y"), &json!("high"))
        );
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn flags_name_the_session_its_agent_model_level_and_folder() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let flags = [
            "--agent",
            "second",
            "--new",
            "--model",
            "script/z",
            "--thinking",
            "low",
        ];
        leave(chat(&place, &flags));
        leave(chat(
            &place,
            &["--session", "agent:second:named", "--cwd", "src"],
        ));
        let refused = command(
            &place,
            &["chat", "--session", "agent:second:named", "--new"],
        )
        .output()
        .unwrap();
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let client = daemon.client().await;
        let listed = client.call("sessions.list", json!({})).await;
        let all = listed["sessions"].as_array().unwrap();
        assert_eq!(all.len(), 2, "{listed:#}");
        let named = all
            .iter()
            .find(|one| one["key"] == "agent:second:named")
            .unwrap();
        assert_eq!(named["cwd"], place.work().join("src").to_str().unwrap());
        let new = all
            .iter()
            .find(|one| one["key"] != "agent:second:named")
            .unwrap();
        assert_eq!(
            (&new["agent"], &new["model"], &new["thinking"]),
            (&json!("second"), &json!("script/z"), &json!("low"))
        );
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_paste_is_one_message_and_so_are_several_typed_lines() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        chat.types("\u{1b}[200~[a] one\n/quit\nthree\u{1b}[201~");
        chat.until_seen(|seen| seen.contains("three"));
        chat.types("\n");
        chat.until("a is done\n");
        chat.until("you> ");
        chat.types(&format!("[a] first{ALT_ENTER}second"));
        chat.until_seen(|seen| seen.contains("second"));
        chat.types("\n");
        chat.until("a is done\n");
        chat.until("you> ");
        chat.types("[a] begun \\\nended\n");
        chat.until("a is done\n");
        chat.until("you> ");
        leave(chat);
        assert_eq!(
            user_messages(&daemon, "agent:build:chat").await,
            [
                "[a] one\n/quit\nthree",
                "[a] first\nsecond",
                "[a] begun \nended"
            ]
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_folder_has_a_history_that_only_its_user_may_read() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut first = chat(&place, &[]);
        first.types("[a] secret plan\n");
        first.until("a is done\n");
        first.until("you> ");
        leave(first);
        let kept = fs::read_dir(place.state().join("history")).unwrap();
        let kept: Vec<_> = kept.map(|entry| entry.unwrap()).collect();
        assert_eq!(kept.len(), 1);
        let mode =
            |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&kept[0].path()), 0o600);
        assert_eq!(mode(&place.state().join("history")), 0o700);

        let mut again = chat(&place, &["--new"]);
        again.types(UP);
        again.until_seen(|seen| seen.trim_end().ends_with("you> [a] secret plan"));
        again.types("\n");
        again.until("a is done\n");
        again.until("you> ");
        leave(again);
        // A different folder has its own session.
        let mut elsewhere = Terminal::start(place.command(&["chat", "--new"]));
        elsewhere.until("you> ");
        elsewhere.types(&format!("{UP}[b]\n"));
        elsewhere.until("b is done\n");
        elsewhere.until("you> ");
        leave(elsewhere);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn tab_completes_commands_agents_models_sessions_and_files() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        for (typed, completed) in [
            ("/thi\t", "you> /thinking"),
            ("hig\t", "you> /thinking high"),
            ("\u{15}/agent sec\t", "you> /agent second"),
            (
                "\u{15}/attach agent:build:c\t",
                "you> /attach agent:build:chat",
            ),
            ("\u{15}read @not\t", "you> read @notes.txt"),
            ("\u{15}@src/o\t", "you> @src/one.rs"),
        ] {
            chat.types(typed);
            chat.until_seen(|seen| seen.trim_end().ends_with(completed));
        }
        chat.types("\u{15}");
        leave(chat);
        assert_eq!(runs(&daemon).await.len(), 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c4_an_answer_streams_in_full_width_and_stands_there_once() {
    for (name, columns) in [("chat", 80), ("chat", 40), ("run", 80)] {
        run(async {
            let place = place();
            let daemon = place.start().await;
            let mut look = match name {
                "chat" => {
                    let mut look = Terminal::sized(command(&place, &["chat"]), columns);
                    look.until("you> ");
                    look.types("[long]\n");
                    look
                }
                _ => Terminal::sized(command(&place, &["run", "[long]"]), columns),
            };
            // The line that is still streaming takes several rows of the screen.
            let written = look.until_seen(|seen| seen.matches("many words").count() >= 8);
            let mut lines = written.lines().filter(|line| line.contains("many"));
            assert!(lines.all(|line| !line.contains('…')), "{written}");
            assert!(written.contains("• one bold item"), "{written}");
            place.let_go("go");
            match name {
                "chat" => {
                    look.until_seen(|seen| seen.trim_end().ends_with("\nyou>"));
                    look = leave(look);
                }
                _ => assert_eq!(look.end().0, 0),
            }
            let seen = look.seen();
            for (text, times) in [
                ("The title", 1),
                ("• one bold item", 1),
                ("echo \"**\"", 1),
                ("many", 20),
            ] {
                assert_eq!(seen.matches(text).count(), times, "{text}:\n{seen}");
            }
            assert!(look.raw().contains("\u{1b}[36mecho"), "{:?}", look.raw());
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn tool_calls_are_folded_to_one_line_each_above_the_live_tree() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        chat.types("[steps]\n");
        // A call may appear in the tree for a moment before its own line appears above it.
        chat.until_seen(|seen| {
            let parts = seen.split_once("◉ build · ");
            parts.is_some_and(|(calls, tree)| {
                calls.contains("● read (path: none.txt) → error")
                    && calls.contains("● read (path: notes.txt) → ")
                    && !tree.contains("read (")
            })
        });
        place.let_go("go");
        chat.until("looked at both\n");
        chat.until("you> ");
        let seen = leave(chat).seen();
        let order = [
            "● read (path: notes.txt)",
            "● read (path: none.txt)",
            "looked at both",
        ];
        let at: Vec<_> = order.iter().map(|text| seen.find(text).unwrap()).collect();
        assert!(at.is_sorted(), "{seen}");
        assert_eq!(seen.matches("● read (").count(), 2, "{seen}");
        assert!(!seen.contains("◉"), "{seen}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn ctrl_c_stops_the_turn_keeps_what_was_written_and_the_conversation() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        // While nothing is active, it shows how to leave.
        chat.types(CTRL_C);
        chat.until("no turn is running; Ctrl-D or /quit quits\n");
        chat.until("you> ");
        chat.interrupt();
        chat.until("no turn is running; Ctrl-D or /quit quits\n");
        chat.types("[slow]\n");
        chat.until_seen(|seen| seen.contains("first line"));
        chat.interrupt();
        chat.until("stopped: ");
        chat.until("you> ");
        chat.types("[a]\n");
        chat.until("a is done\n");
        chat.until("you> ");
        let seen = leave(chat).seen();
        assert_eq!(seen.matches("first line").count(), 1, "{seen}");
        let states: Vec<Value> = runs(&daemon)
            .await
            .iter()
            .map(|run| run["state"].clone())
            .collect();
        assert_eq!(states, ["ok", "cancelled"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g14_what_a_model_says_does_not_steer_the_terminal() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        chat.types("[wild]\n");
        chat.until("a\\u{1b}]0;owned\\u{7}b\\u{1b}[2J\\u{202e}c\n");
        chat.until("you> ");
        let chat = leave(chat);
        let raw = chat.raw();
        let bad = ["\u{1b}]", "\u{1b}[2J", "\u{202e}", "\u{1b}[31m"];
        for bad in bad {
            assert!(!raw.contains(bad), "{bad:?}: {raw:?}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_daemon_that_is_killed_comes_back_with_what_happened_meanwhile() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &[]);
        chat.types("[held]\n");
        chat.until_seen(|seen| seen.contains("● read (path: notes.txt)"));
        daemon.kill().await;
        chat.until("the connection to the daemon was lost; retrying for up to 60 s\n");
        place.let_go("go");
        let daemon = place.start().await;
        chat.until("the daemon is back\n");
        chat.until("held is done\n");
        chat.until_seen(|seen| seen.contains("you> "));
        // The same while nothing is active.
        daemon.kill().await;
        chat.until_seen(|seen| seen.matches("retrying for up to 60 s").count() == 2);
        let daemon = place.start().await;
        chat.until_seen(|seen| seen.matches("the daemon is back").count() == 2);
        chat.types("[a]\n");
        chat.until("a is done\n");
        chat.until("you> ");
        let seen = leave(chat).seen();
        for text in ["● read (path: notes.txt)", "held is done", "a is done"] {
            assert_eq!(seen.matches(text).count(), 1, "{text}:\n{seen}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_session_that_is_resumed_shows_its_last_exchange() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut first = chat(&place, &[]);
        for (typed, answer) in [("[a]\n", "a is done\n"), ("[b] last\n", "b is done\n")] {
            first.types(typed);
            first.until(answer);
            first.until("you> ");
        }
        leave(first);
        let seen = leave(chat(&place, &[])).seen();
        assert!(seen.contains("you> [b] last\nb is done\n"), "{seen}");
        assert!(!seen.contains("a is done"), "{seen}");
        assert!(
            seen.contains("… earlier messages: abide history agent:build:chat"),
            "{seen}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_background_run_asks_is_answered_at_the_prompt_and_its_end_is_told_there() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut chat = chat(&place, &["--agent", "second"]);
        chat.types("[boss]\n");
        chat.until("it is under way\n");
        chat.until("you> ");
        // A partly typed line stays and is not taken as an answer.
        chat.types("yes");
        chat.until_seen(|seen| {
            let is_told = seen.contains("wants to") && seen.contains("Enter on an empty line");
            is_told && seen.trim_end().ends_with("you> yes")
        });
        assert!(!place.work().join("made").exists());
        chat.types("\u{15}\n");
        chat.until("command: touch made");
        chat.until("allow it? (yes or no; empty: later)> ");
        chat.types("perhaps\n");
        chat.until("answer yes or no\n");
        chat.types("yes\n");
        chat.until("allowed: shell touch made\n");
        chat.until("second has answered (");
        chat.until("the child is back");
        chat.until("you> ");
        leave(chat);
        assert!(place.work().join("made").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_missing_value_is_given_in_place_and_not_shown() {
    let mut place = place();
    let file = place.path().join("token");
    let fields = format!(
        "mode: primary\ntools: [shell]\ngate: {{shell: allow}}\nenv:\n  A_TOKEN: {{from: \"file:{}\"}}",
        file.display()
    );
    place = place.with_agent("valued", &fields);
    run(async {
        let daemon = place.start().await;
        let mut chat = chat(&place, &["--agent", "valued"]);
        chat.types("[value]\n");
        chat.until("has no value for A_TOKEN");
        chat.until("its value (hidden; empty: later)> ");
        // The tree says so, too.
        chat.until_seen(|seen| seen.contains("lacks a value; provide it: abide env"));
        chat.types("canary-second\n");
        chat.until("provided: A_TOKEN\n");
        chat.until("value was there\n");
        chat.until("you> ");
        let chat = leave(chat);
        assert!(!chat.raw().contains("canary"), "{}", chat.raw());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c7_from_a_pipe_a_turn_that_needs_a_person_ends_with_exit_8() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        fs::write(place.path().join("lines"), "[touch]\n[a]\n").unwrap();
        let mut piped = command(&place, &["chat", "--agent", "careful"]);
        let input = fs::File::open(place.path().join("lines")).unwrap();
        let output = piped.stdin(Stdio::from(input)).output().unwrap();
        let notes = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(8), "{notes}");
        assert!(notes.contains("wants to call shell"), "{notes}");
        assert!(notes.contains("abide approvals"), "{notes}");
        assert!(output.stdout.is_empty());
        drop(daemon);
    });
}

#[test]
fn without_a_message_no_session_is_created() {
    let place = place();
    run(async {
        let daemon = place.start().await;
        let output = command(&place, &["chat"]).stdin(Stdio::null()).output();
        let output = output.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{told}");
        assert!(told.contains("no message; nothing was done"), "{told}");
        let client = daemon.client().await;
        let sessions = client.call("sessions.list", json!({ "kind": "all" })).await;
        assert_eq!(sessions["sessions"], json!([]));
        let output = command(&place, &["send", "agent:build:none", "hello"]).output();
        let output = output.unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(
            told.contains("abide spawn and abide chat create one"),
            "{told}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
