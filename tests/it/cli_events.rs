//! `events`, `attach` and `logs` on the command line, against a real daemon.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Place, Script, Terminal, calls, eventually, run, says};

fn place() -> Place {
    let read = json!({ "path": "notes.txt" });
    Place::new(
        Script::new()
            .on(
                "[held]",
                [calls("read", read), says("held is done").held_by("go")],
            )
            .on("[stream]", [says("one two three").in_pieces(4, 1, "go")])
            .on("[a]", [says("a is done")]),
    )
}

/// A command that keeps running.
struct Going(Child);

impl Going {
    fn start(place: &Place, arguments: &[&str]) -> Going {
        let mut command: Command = place.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Going(command.spawn().unwrap())
    }

    fn interrupt(&self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
    }

    /// Waits for its end; returns exit code, remaining output and standard error.
    fn end(mut self) -> (i32, String, String) {
        let (mut out, mut notes) = (String::new(), String::new());
        if let Some(mut rest) = self.0.stdout.take() {
            rest.read_to_string(&mut out).unwrap();
        }
        let mut errors = self.0.stderr.take().unwrap();
        errors.read_to_string(&mut notes).unwrap();
        (self.0.wait().unwrap().code().unwrap(), out, notes)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn events_goes_on_over_a_kill_of_the_daemon_and_misses_nothing() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let arguments = ["events", "--since", "0", "--kind", "run.ended", "--json"];
        let mut going = Going::start(&place, &arguments);
        let mut lines = BufReader::new(going.0.stdout.take().unwrap()).lines();
        let mut ended = Vec::new();
        let mut next = || {
            let line = lines.next().unwrap().unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(event["kind"], "run.ended");
            event["runId"].as_str().unwrap().to_owned()
        };
        let first = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&first.id).await;
        ended.push(next());
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let second = client.spawn(json!({ "task": "[a]" })).await;
        client.ended(&second.id).await;
        ended.push(next());
        assert_eq!(ended, [first.id, second.id]);
        going.interrupt();
        let (code, _, notes) = going.end();
        assert_eq!(code, 0);
        assert!(notes.contains("was lost; retrying for up to"), "{notes}");
        assert!(notes.contains("abide events --since "), "{notes}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g14_4_attach_shows_a_run_to_its_end_and_prints_its_answer() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[held]" })).await;
        client.in_state(&held.id, "running").await;
        let digits = &held.id[held.id.len() - 8..];
        let going = Going::start(&place, &["attach", digits]);
        place.let_go("go");
        let (code, out, notes) = going.end();
        assert_eq!((code, out.as_str()), (0, "held is done\n"), "{notes}");
        assert!(notes.contains("step 2 read path: notes.txt"), "{notes}");
        assert!(notes.contains("ended ok"), "{notes}");

        // Attaching after the end gives the same result and starts nothing.
        let (code, out, _) = Going::start(&place, &["attach", digits]).end();
        assert_eq!((code, out.as_str()), (0, "held is done\n"));
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.book().runs.len(), 1);
    });
}

#[test]
fn g14_5_attach_to_a_session_follows_what_is_said_and_ctrl_c_only_stops_looking() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "talk").await;
        let mut going = Going::start(&place, &["attach", "talk"]);
        let out = BufReader::new(going.0.stdout.take().unwrap());
        let (said, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            out.lines()
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        // Turns are started until one is seen: the first may end before the subscription exists.
        eventually("a turn that is seen", || async {
            let turn = client.turn(&session, "[a] please").await;
            client.ended(&turn.id).await;
            lines
                .try_iter()
                .any(|line| line == "a is done")
                .then_some(())
        })
        .await;
        going.interrupt();
        let (code, _, notes) = going.end();
        assert_eq!(code, 0, "{notes}");
        assert!(notes.contains("detached; the work continues"), "{notes}");
        assert!(
            notes.contains(&format!("abide attach {session}")),
            "{notes}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn attach_to_a_session_says_what_the_earlier_turns_are() {
    const HEADING: &str = "latest turns, newest last:";
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "talk").await;
        // Without turns there is nothing to head.
        let mut empty = Terminal::start(place.command(&["attach", "talk"]));
        empty.until("is idle");
        empty.interrupt();
        assert!(!empty.end().1.contains("turns"), "{}", empty.seen());
        for _ in 0..2 {
            let turn = client.turn(&session, "[a] please").await;
            client.ended(&turn.id).await;
        }
        for columns in [40, 80] {
            let mut look = Terminal::sized(place.command(&["attach", "talk"]), columns);
            let seen = look.until_seen(|seen| seen.matches("● ").count() == 2);
            let lines: Vec<&str> = seen.lines().collect();
            let at = lines.iter().position(|line| *line == HEADING);
            let first = lines.iter().position(|line| line.starts_with("● "));
            assert_eq!(at.map(|at| at + 1), first, "{seen}");
            look.interrupt();
            assert_eq!(look.end().0, 0);
            assert_eq!(look.seen().matches(HEADING).count(), 1, "{}", look.seen());
        }
        let notes = fs::File::create(place.path().join("notes")).unwrap();
        let mut command = place.command(&["attach", "talk"]);
        let mut piped = command.stdout(Stdio::null()).stderr(notes).spawn().unwrap();
        let notes = || fs::read_to_string(place.path().join("notes")).unwrap();
        eventually("both turns", || async {
            (notes().matches("ended ok").count() == 2).then_some(())
        })
        .await;
        piped.kill().unwrap();
        piped.wait().unwrap();
        let (_, below) = notes()
            .split_once(HEADING)
            .map(|(a, b)| (a.len(), b.to_owned()))
            .unwrap();
        assert_eq!(below.matches("ended ok").count(), 2, "{}", notes());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g14_9_logs_shows_the_journal_and_follows_it_to_the_end() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let held = client.spawn(json!({ "task": "[held]" })).await;
        client.in_state(&held.id, "running").await;
        let going = Going::start(&place, &["logs", "--follow", &held.id]);
        place.let_go("go");
        let (code, followed, notes) = going.end();
        assert_eq!(code, 0, "{notes}");
        assert!(notes.contains("is ok"), "{notes}");
        let (code, whole, _) = Going::start(&place, &["logs", &held.id]).end();
        assert_eq!((code, &whole), (0, &followed));
        let lines: Vec<&str> = whole.lines().collect();
        assert_eq!(lines.len(), 3, "{whole}");
        assert!(lines[1].contains(" ✓ read path: notes.txt → "), "{whole}");
        assert_eq!(daemon.stop().await, 0);
        let (code, _, notes) = Going::start(&place, &["logs", "@last"]).end();
        assert_eq!(code, 10, "{notes}");
    });
}

#[test]
fn attach_with_json_gives_each_item_on_a_line_and_the_run_at_the_end() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = client.spawn(json!({ "task": "[stream]" })).await;
        client.in_state(&run.id, "running").await;
        let mut going = Going::start(&place, &["attach", "--json", &run.id]);
        let mut lines = BufReader::new(going.0.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(first["kind"], "snapshot");
        place.let_go("go");
        let items: Vec<Value> = lines
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        let mut heard = String::new();
        for item in &items {
            let said = item["data"]["text"].as_str().unwrap_or_default();
            match item["kind"].as_str() {
                Some("message.partial") => said.clone_into(&mut heard),
                Some("message.delta") => heard.push_str(said),
                _ => {}
            }
        }
        assert_eq!(heard, "one two three");
        assert_eq!(items.last().unwrap()["result"], "one two three");
        assert_eq!(going.end().0, 0);
        assert_eq!(daemon.stop().await, 0);
    });
}
