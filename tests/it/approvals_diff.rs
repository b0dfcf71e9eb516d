//! What an approval of a file write shows: the diff, the folder and the names in its environment,
//! at terminals of several widths, in a pipe and over the protocol.

use std::fs;

use serde_json::{Value, json};

use crate::approvals_shown::open;
use crate::harness::{Place, Script, Terminal, calls, run, says};
use crate::home::output_of;

const AGENT: &str = "mode: primary\ntools: [write, edit, shell]\n\
                     gate: {write: ask, edit: ask, shell: ask}\n\
                     env: {DEPLOY_HOST: internal-host-7, DEPLOY_TOKEN: t0ken-of-the-agent}";

/// A model that makes this one call.
fn place(tool: &str, arguments: Value) -> Place {
    let script = Script::new().on("[go]", [calls(tool, arguments), says("done")]);
    Place::new(script).with_agent("worker", AGENT)
}

fn follow(place: &Place, columns: u16, arguments: &[&str]) -> Terminal {
    let mut command = place.command(arguments);
    command.current_dir(place.work());
    Terminal::sized(command, columns)
}

/// The text without blanks and line markers, so that wrapping does not matter.
fn bare(shown: &str) -> String {
    shown
        .chars()
        .filter(|ch| !ch.is_whitespace() && *ch != '⏎')
        .collect()
}

#[test]
fn an_edit_is_approved_by_its_diff_in_run_and_chat_at_any_width() {
    for (begin, columns) in [("run", 80), ("run", 40), ("chat", 80), ("chat", 200)] {
        let edit =
            json!({ "path": "notes.txt", "old_text": "beta\n", "new_text": "be\u{202e}ta\n2\n" });
        let place = place("edit", edit);
        run(async {
            let daemon = place.start().await;
            let mut person = match begin {
                "run" => follow(&place, columns, &["run", "--agent", "worker", "[go]"]),
                _ => {
                    let mut chat = follow(&place, columns, &["chat", "--agent", "worker"]);
                    chat.until("you> ");
                    chat.types("[go]\n");
                    chat
                }
            };
            let shown = person.until("allow it?");
            for line in [
                "changes notes.txt:",
                " alpha",
                "-beta",
                "+be\\u{202e}ta",
                "+2",
                " gamma",
                "with DEPLOY_HOST, DEPLOY_TOKEN in its environment",
            ] {
                assert!(bare(&shown).contains(&bare(line)), "{line}: {shown}");
            }
            let folder = format!("in folder {}", place.work().display());
            assert!(bare(&shown).contains(&bare(&folder)), "{shown}");
            assert!(!shown.contains("t0ken"), "{shown}");
            person.types("yes\n");
            person.until("allowed: edit");
            if begin == "chat" {
                person.until("you> ");
                person.types("\u{4}");
            }
            assert_eq!(person.end().0, 0);
            let text = fs::read_to_string(place.work().join("notes.txt")).unwrap();
            assert_eq!(text, "alpha\nbe\u{202e}ta\n2\ngamma\n");
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_long_diff_is_paged_and_no_yes_is_taken_before_its_last_page() {
    let lines: Vec<String> = (0..300).map(|n| format!("line {n:03}\n")).collect();
    let content = format!("{}the last line\n", lines.concat());
    let place = place(
        "write",
        json!({ "path": "new/long.txt", "content": content }),
    );
    run(async {
        let daemon = place.start().await;
        let mut person = follow(&place, 80, &["run", "--agent", "worker", "[go]"]);
        let shown = person.until(" more lines (empty: show them; no; later)> ");
        assert!(shown.contains("creates new/long.txt:"), "{shown}");
        assert!(!shown.contains("the last line"), "{shown}");
        person.types("yes\n");
        person.until("not decided yet: press Enter to see the rest first\n");
        assert_eq!(open(&daemon).await["state"], "open");
        person.until("later)> ");
        // The prompt is redrawn on every change: only its line count shows that a page has arrived.
        let left = |seen: &str| {
            let (before, _) = seen.rsplit_once(" more lines (empty")?;
            let digits = before.rsplit(|ch: char| !ch.is_ascii_digit()).next();
            digits.map(str::to_owned)
        };
        let mut pages = person.seen();
        let mut now = left(&pages);
        while now.is_some() {
            person.types("\n");
            let seen = person.until_seen(|seen| left(seen) != now && seen.contains("later)> "));
            now = left(&seen);
            pages.push_str(&seen);
        }
        assert!(pages.contains("allow it?"), "{pages}");
        for line in ["+line 120", "+line 299", "+the last line"] {
            assert!(pages.contains(line), "{line}: {pages}");
        }
        person.types("yes\n");
        assert_eq!(person.end().0, 0);
        let written = fs::read_to_string(place.work().join("new/long.txt")).unwrap();
        assert_eq!(written, content);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn attach_and_the_lists_show_what_run_shows_and_json_has_all_of_it() {
    let place = place(
        "write",
        json!({ "path": "notes.txt", "content": "alpha\n" }),
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let approval = open(&daemon).await;
        let diff = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,3 +1 @@\n alpha\n-beta\n-gamma\n";
        let digest = approval["change"]["digest"].as_str().unwrap();
        assert_eq!(
            approval["change"],
            json!({ "path": "notes.txt", "effect": "changes", "diff": diff, "digest": digest })
        );
        assert_eq!(approval["folder"], place.work().to_str().unwrap());
        assert_eq!(approval["env"], json!(["DEPLOY_HOST", "DEPLOY_TOKEN"]));
        let listed = output_of(&mut place.command(&["approvals", "--json"]));
        let listed: Value = serde_json::from_str(&listed.out).unwrap();
        assert_eq!(listed["approvals"][0]["change"], approval["change"]);
        let id = approval["id"].as_str().unwrap();
        for arguments in [vec!["approvals"], vec!["approvals", "show", id]] {
            let piped = output_of(&mut place.command(&arguments));
            for line in ["    -beta\n", "    -gamma\n", "  changes notes.txt:\n"] {
                assert!(piped.out.contains(line), "{arguments:?}: {}", piped.out);
            }
        }
        let mut person = follow(&place, 40, &["attach", &spawned.id]);
        let shown = person.until("allow it?");
        assert!(shown.contains("    -gamma\n"), "{shown}");
        person.types("no\n");
        person.until("denied: write");
        person.end();
        let resolved = client.call("approvals.list", json!({})).await;
        // A resolved approval still shows the folder, but no diff.
        assert_eq!(resolved["approvals"][0].get("change"), None);
        assert_eq!(resolved["approvals"][0]["folder"], approval["folder"]);
        client.ended(&spawned.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_cannot_be_compared_is_said_and_the_call_is_shown_whole() {
    let place = place(
        "write",
        json!({ "path": "picture.png", "content": "not a picture" }),
    );
    fs::write(place.work().join("picture.png"), b"\x89PNG\0\xff").unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let approval = open(&daemon).await;
        assert_eq!(approval["change"]["effect"], "fails");
        let piped = output_of(&mut place.command(&["approvals"]));
        for text in [
            "would fail with the current picture.png: picture.png is not UTF-8 text",
            "content: not a picture",
        ] {
            assert!(piped.out.contains(text), "{}", piped.out);
        }
        let request = json!({ "id": approval["id"], "decision": "deny" });
        client.call("approvals.resolve", request).await;
        client.ended(&spawned.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_that_is_a_program_shows_its_command_and_folder() {
    let program =
        "mode: subagent\nrunner: command\ncommand:\n  argv: [echo, \"{task}\"]\n  cwd: src";
    let boss = "mode: primary\ntools: [sessions_spawn]\ngate: {command: ask}\n\
                allow_agents: [program]";
    let spawn = json!({ "task": "say it", "agent": "program" });
    let script = Script::new()
        .on("[go]", [calls("sessions_spawn", spawn), says("begun")])
        .on_announce("*", [says("seen")]);
    let place = Place::new(script)
        .with_agent("program", program)
        .with_agent("boss", boss);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "boss" }))
            .await;
        let approval = open(&daemon).await;
        assert_eq!(
            approval["folder"],
            place.work().join("src").to_str().unwrap()
        );
        let piped = output_of(&mut place.command(&["approvals"]));
        assert!(
            piped.out.contains("  argv: [\"echo\",\"say it\"]\n"),
            "{}",
            piped.out
        );
        let request = json!({ "id": approval["id"], "decision": "allow" });
        client.call("approvals.resolve", request).await;
        client.ended(&spawned.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
