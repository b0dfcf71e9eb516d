//! Characters that a terminal obeys or hides have one spelling in every text that a user sees.

use std::fs;

use serde_json::json;

use crate::approvals_shown::open;
use crate::harness::{CTRL_D, Place, Script, Terminal, calls, run, says};
use crate::home::output_of;

/// A title for the terminal, a mark that reverses the writing, an invisible blank.
const WILD: &str = "a\u{1b}]0;owned\u{7}b\u{202e}c\u{200b}d\u{9b}2Je";
/// Its only spelling.
const SHOWN: &str = r"a\u{1b}]0;owned\u{7}b\u{202e}c\u{200b}d\u{9b}2Je";
/// Where only the beginning fits.
const BEGIN: &str = r"a\u{1b}]0;owned";

fn place() -> Place {
    let wild = |tool: &str, name: &str| calls(tool, json!({ name: WILD }));
    // YAML has no C1 control characters but in escapes.
    let title = json!(WILD).to_string().replace('\u{9b}', r"\u009b");
    Place::new(
        Script::new()
            .on("[say]", [says(WILD)])
            .on("[keep]", [wild("memory_save", "text"), says("kept")])
            .on("[ask]", [wild("ask", "question"), says("asked")])
            .on("[shell]", [wild("shell", "command"), says("run")])
            .on("[fail]", [wild("read", "path"), says("read")]),
    )
    .with_agent(
        "worker",
        "mode: all\ntools: [read, ask, shell, memory_save]\ngate: {shell: ask}",
    )
    .with_agent("odd", &format!("title: {title}\nmode: all"))
}

/// No character controls a terminal or is hidden, and no other spelling occurs.
fn is_visible(arguments: &[&str], text: &str) {
    let hidden = |ch: &char| {
        ch.is_control() && !matches!(ch, '\n' | '\t') || matches!(ch, '\u{202e}' | '\u{200b}')
    };
    assert_eq!(text.chars().find(hidden), None, "{arguments:?}: {text:?}");
    for other in [r"\x1b", r"\u001b", "^[", "␛", r"\\u{1b}", "a]0;owned"] {
        assert!(!text.contains(other), "{arguments:?}: {other} in {text}");
    }
}

#[test]
fn hidden_characters_have_one_spelling_in_every_command() {
    run(async {
        let place = place();
        let files = place.path().join("files");
        fs::create_dir(&files).unwrap();
        fs::write(files.join(format!("{WILD}.md")), "---\nname: [\n---\n").unwrap();
        let unknown = format!("files/{WILD}.md");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let say = format!("[say] {WILD}");
        let say = json!({ "task": say, "agent": "worker", "label": WILD });
        let said = client.spawn(say).await;
        client.ended(&said.id).await;
        for task in ["[keep]", "[fail]"] {
            let done = client
                .spawn(json!({ "task": task, "agent": "worker" }))
                .await;
            client.ended(&done.id).await;
        }
        for task in ["[ask]", "[shell]"] {
            client
                .spawn(json!({ "task": task, "agent": "worker" }))
                .await;
        }
        let approval = open(&daemon).await;
        let approval = approval["id"].as_str().unwrap();
        let run = ["run", "--agent", "worker", "[say]"];
        for (arguments, expected) in [
            (&run[..], SHOWN),
            (&["ps", "--all"], SHOWN),
            (&["ps", "--all", "--format", "label,title"], SHOWN),
            (&["logs", &said.id], BEGIN),
            (&["history", &said.id], SHOWN),
            (&["sessions", "--all"], BEGIN),
            (&["wait", &said.id], SHOWN),
            (&["inbox", "--undelivered"], ""),
            (&["memory"], SHOWN),
            (&["answer"], SHOWN),
            (&["approvals"], SHOWN),
            (&["approvals", "show", approval], SHOWN),
            (&["agents"], SHOWN),
            (&["agents", "show", "odd"], ""),
            (&["agents", "check", &unknown], SHOWN),
            (&["audit"], ""),
            (&["status"], ""),
            // What the user types is not trusted either: it may have been pasted.
            (&["wait", WILD], SHOWN),
            (&["run", "--agent", WILD, "x"], SHOWN),
            (&["run", "--model", WILD, "x"], SHOWN),
            (&["run", "--thinking", WILD, "x"], SHOWN),
            (&["ps", "--format", WILD], SHOWN),
            (&["ps", "--state", WILD], SHOWN),
            (&["events", "--kind", WILD], SHOWN),
            (&["config", "set", WILD, "1"], SHOWN),
            (&["config", "check", "--config", WILD], SHOWN),
            (&["agents", "show", WILD], SHOWN),
            (&["skills", "show", WILD], SHOWN),
            (&["mcp", WILD], SHOWN),
            (&["approvals", "allow", WILD], BEGIN),
            (&["restore", WILD], SHOWN),
            (&["trust", WILD], SHOWN),
            (&["completions", WILD], SHOWN),
            (&["ps", "--state-dir", WILD], SHOWN),
            (&["ps", "--socket", WILD], SHOWN),
            (&["ps", "--url", WILD], SHOWN),
            (&[WILD], SHOWN),
        ] {
            let done = output_of(&mut place.command(arguments));
            let text = format!("{}{}", done.out, done.err);
            is_visible(arguments, &text);
            assert!(text.contains(expected), "{arguments:?}: {text}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn hidden_characters_have_one_spelling_on_every_screen() {
    run(async {
        let mut place = place();
        place.set("mcp.odd", &format!("{{ command = {} }}", json!(WILD)));
        // A daemon in the foreground shows its log.
        let mut log = Terminal::sized(place.command(&["serve"]), 400);
        let shown = log.until("was not found");
        assert!(shown.contains(&SHOWN[..BEGIN.len()]), "{shown}");
        let at = |arguments: &[&str]| {
            let mut command = place.command(arguments);
            command.env("ABIDE_TERMINAL", "one");
            Terminal::of_size(command, 200, 50)
        };
        let say = format!("[say] {WILD}");
        for (arguments, leave) in [
            (&["run", "--agent", "worker", &say][..], ""),
            (&["run", "--agent", "worker", "[shell]"], "no\n"),
            (&["run", "--agent", "worker", "[fail]"], ""),
            (&["chat", "--agent", "worker"], "[say]\n"),
            (&["history", "@last"], ""),
            (&["ps", "--all"], ""),
            (&["top"], "q"),
            (&[WILD], ""),
        ] {
            let mut screen = at(arguments);
            // An answer that is typed before its prompt is no answer.
            let is_asked = |seen: &str| leave != "no\n" || seen.contains("later)> ");
            screen.until_seen(|seen| {
                seen.contains(BEGIN) && is_asked(seen) || seen.contains("you> ")
            });
            screen.types(leave);
            if arguments[0] == "chat" {
                let is_over = |seen: &str| seen.trim_end().ends_with("you>");
                screen.until_seen(|seen| seen.contains(BEGIN) && is_over(seen));
                screen.types(CTRL_D);
            }
            screen.end();
            for wild in ["\u{1b}]0;", "\u{202e}", "\u{200b}", "\u{9b}"] {
                assert!(!screen.raw().contains(wild), "{arguments:?}: {wild:?}");
            }
        }
        log.interrupt();
        log.end();
        for wild in ["\u{1b}]0;", "\u{202e}", "\u{200b}", r"\x1b"] {
            assert!(!log.raw().contains(wild), "{wild:?}: {}", log.raw());
        }
    });
}

#[test]
fn a_wrong_command_line_is_answered_like_every_other_failure() {
    let place = Place::new(Script::new());
    let said = |arguments: &[&str]| {
        let done = output_of(&mut place.command(arguments));
        assert_eq!((done.code, done.out.as_str()), (2, ""), "{arguments:?}");
        done.err
    };
    let text = said(&["chta"]);
    assert!(
        text.starts_with("abide: unrecognized subcommand 'chta'\n  "),
        "{text}"
    );
    assert!(text.contains("'chat'"), "{text}");
    let text = said(&["wait"]);
    assert!(text.starts_with("abide: "), "{text}");
    assert!(text.contains("abide wait --help"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let mut narrow = Terminal::sized(place.command(&["ps", "--state", "x"]), 40);
    let (code, text) = narrow.end();
    assert_eq!(code, 2);
    assert!(
        text.lines().all(|line| line.trim_end().len() <= 40),
        "{text}"
    );
}
