//! The terminal and the pipe show the whole call before they accept an approval.

use serde_json::{Value, json};

use crate::harness::{Daemon, Place, Script, Terminal, calls, eventually, run, says};
use crate::home::output_of;

/// The dangerous part of the command, which must be shown.
const END: &str = "; touch overlooked";

/// A command of about `length` characters with a dangerous end.
fn command(length: usize) -> String {
    let words: Vec<String> = (0..length / 8).map(|n| format!("word{n:03}")).collect();
    format!("echo {} > /dev/null{END}", words.join(" "))
}

fn place(command: &str) -> Place {
    let call = calls("shell", json!({ "command": command }));
    Place::new(Script::new().on("[go]", [call, says("done")]))
        .with_agent("worker", "mode: primary\ntools: [shell]")
}

fn follow(place: &Place) -> Terminal {
    let mut command = place.command(&["run", "--agent", "worker", "[go]"]);
    command.current_dir(place.work());
    Terminal::start(command)
}

/// The text without blanks, so that wrapping does not matter.
fn bare(shown: &str) -> String {
    shown.split_whitespace().collect()
}

/// The open approval.
pub(crate) async fn open(daemon: &Daemon) -> Value {
    let client = daemon.client().await;
    eventually("an approval", async || {
        let listed = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        listed["approvals"].get(0).cloned()
    })
    .await
}

#[test]
fn a_long_command_is_shown_to_its_end_before_it_can_be_allowed() {
    let command = command(3_000);
    let place = place(&command);
    run(async {
        let daemon = place.start().await;
        let mut person = follow(&place);
        let shown = person.until("allow it? (yes or no; empty: later)> ");
        assert!(bare(&shown).contains(&bare(&command)), "{shown}");
        // The live tree shortens its lines; the approval prompt does not.
        let (_, call) = shown.split_once("  command:\n").unwrap();
        let (call, _) = call.split_once("  because ").unwrap();
        assert!(!call.contains('…'), "{shown}");
        person.types("no\n");
        person.until("denied: shell echo word000");
        assert_eq!(person.end().0, 0);
        assert!(!place.work().join("overlooked").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_command_longer_than_the_screen_is_turned_page_by_page_and_no_yes_is_taken_before_its_end() {
    let command = command(12_000);
    let place = place(&command);
    run(async {
        let daemon = place.start().await;
        let mut person = follow(&place);
        let mut shown = person.until(" more lines (empty: show them; no; later)> ");
        assert!(!bare(&shown).contains(&bare(END)), "{shown}");
        person.types("yes\n");
        person.until("not decided yet: press Enter to see the rest first\n");
        assert_eq!(open(&daemon).await["state"], "open");
        person.until("later)> ");
        let more = |seen: &str| {
            let (before, _) = seen.rsplit_once(" more lines (empty")?;
            let digits = before.rsplit(|ch: char| !ch.is_ascii_digit()).next();
            digits.map(str::to_owned)
        };
        let mut left = more(&person.seen());
        while left.is_some() {
            person.types("\n");
            let seen = person.until_seen(|seen| more(seen) != left && seen.contains("later)> "));
            left = more(&seen);
            shown = seen;
        }
        assert!(shown.contains("allow it?"), "{shown}");
        assert!(bare(&shown).contains(&bare(END)), "{shown}");
        person.types("yes\n");
        person.until("allowed: shell echo word000");
        assert_eq!(person.end().0, 0);
        assert!(place.work().join("overlooked").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn every_line_of_a_page_is_on_the_screen_at_once_also_on_a_small_one() {
    let lines: Vec<String> = (0..60).map(|n| format!("line {n:03}")).collect();
    let write = json!({ "path": "new.txt", "content": format!("{}\n", lines.join("\n")) });
    for size in [(40, 15), (80, 24)] {
        let script = Script::new().on("[go]", [calls("write", write.clone()), says("done")]);
        let place = Place::new(script).with_agent(
            "worker",
            "mode: primary\ntools: [write]\ngate: {write: ask}",
        );
        run(async {
            let daemon = place.start().await;
            let mut command = place.command(&["run", "--agent", "worker", "[go]"]);
            command.current_dir(place.work());
            let mut person = Terminal::of_size(command, size.0, size.1);
            let left = |seen: &str| {
                let words: Vec<&str> = seen.split_whitespace().collect();
                let at = words.iter().rposition(|word| *word == "more")?;
                (!bare(seen).contains("allowit?")).then(|| words[at - 1].to_owned())
            };
            // A page is complete once its prompt is below it.
            let is_whole = |seen: &str| seen.trim_end().ends_with("later)>");
            let mut pages = vec![person.until_seen(|seen| is_whole(seen) && left(seen).is_some())];
            while let Some(before) = left(pages.last().unwrap()) {
                person.types("\n");
                let is_next = |seen: &str| left(seen).as_ref() != Some(&before);
                pages.push(person.until_seen(|seen| is_whole(seen) && is_next(seen)));
            }
            for line in &lines {
                let is_seen = pages.iter().any(|page| page.contains(&format!("+{line}")));
                assert!(is_seen, "{line} at {size:?}: {pages:#?}");
            }
            assert!(pages[0].contains("wants to call write"), "{}", pages[0]);
            person.types("no\n");
            assert_eq!(person.end().0, 0);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn a_list_and_one_approval_are_whole_in_a_pipe_and_at_a_terminal() {
    let command = format!("{}\nsecond \u{1b}[8mhidden\u{202e}line", command(3_000));
    let lines: Vec<String> = command
        .replace('\u{1b}', "\\u{1b}")
        .replace('\u{202e}', "\\u{202e}")
        .lines()
        .map(str::to_owned)
        .collect();
    let place = place(&command);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let approval = open(&daemon).await;
        let id = approval["id"].as_str().unwrap();
        let short = &id[id.len() - 8..];
        for arguments in [vec!["approvals"], vec!["approvals", "show", short]] {
            let piped = output_of(&mut place.command(&arguments));
            assert_eq!(piped.code, 0, "{}", piped.err);
            for line in &lines {
                assert!(
                    piped.out.contains(line.as_str()),
                    "{arguments:?}: {}",
                    piped.out
                );
            }
            let mut screen = Terminal::start(place.command(&arguments));
            let (code, shown) = screen.end();
            assert_eq!(code, 0);
            assert!(
                bare(&shown).contains(&bare(&lines.join("⏎"))),
                "{arguments:?}: {shown}"
            );
            assert!(!screen.raw().contains("\u{1b}[8m"), "{arguments:?}");
        }
        // In a list, one line names the tool and the command that shows the whole call; a pipe
        // shows it whole.
        let listed = output_of(&mut place.command(&["ps"]));
        assert!(
            bare(&listed.out).contains(&bare(&lines.join("⏎"))),
            "{}",
            listed.out
        );
        let (_, shown) = Terminal::start(place.command(&["ps"])).end();
        let whole = format!("details: abide approvals show {short}");
        assert!(shown.contains("wants to call shell"), "{shown}");
        assert!(bare(&shown).contains(&bare(&whole)), "{shown}");
        let missing = output_of(&mut place.command(&["approvals", "show", "00000000"]));
        assert_eq!(missing.code, 3, "{}", missing.err);
        client
            .call("approvals.resolve", json!({ "id": id, "decision": "deny" }))
            .await;
        let decided = output_of(&mut place.command(&["approvals", "show", id]));
        assert_eq!(decided.code, 3, "{}", decided.err);
        client.ended(&spawned.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
