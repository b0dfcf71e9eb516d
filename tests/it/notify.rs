//! Notifications: a real program named in the settings records its arguments while runs wait and
//! end, across kills and restarts, and when it fails, hangs or is called too often.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::{Place, Script, Terminal, calls, eventually, run, says};

/// Writes one line with its environment and arguments, and exits with the code in the file `exit`.
const WRITER: &str = r#"#!/bin/sh
printf '%s|%s|%s|%s|%s|%s|%s\n' "$ABIDE_NOTIFY_KIND" "$ABIDE_NOTIFY_RUN_ID" \
  "$ABIDE_NOTIFY_TITLE" "$ABIDE_NOTIFY_COUNT" "$1" "$2" "${SECRET_OF_DAEMON:-none}" >> told.txt
read -r status < exit
while [ "$status" = hang ]; do read -r status < exit; done
exit "$status"
"#;

fn place() -> Place {
    let write = json!({ "path": "notes.txt", "content": "new\n" });
    let script = Script::new()
        .on("[write]", [calls("write", write), says("written")])
        .on("[plain]", [says("it is said")])
        .on(
            "[boss]",
            [
                calls(
                    "sessions_spawn",
                    json!({ "task": "[plain]", "agent": "worker" }),
                ),
                says("under way"),
            ],
        )
        .on_announce("*", [says("seen")]);
    let fields =
        "mode: all\ntools: [write, sessions_spawn]\ngate: {write: ask}\nallow_agents: [worker]";
    with_writer(Place::new(script).with_agent("worker", fields))
}

/// Notifications of this place are written to a file ([`until_told`]).
pub(crate) fn with_writer(mut place: Place) -> Place {
    let program = place.path().join("writer");
    fs::write(&program, WRITER).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    // It runs in the state folder.
    fs::create_dir_all(place.state()).unwrap();
    fs::set_permissions(place.state(), PermissionsExt::from_mode(0o700)).unwrap();
    exits(&place, "0");
    place.set(
        "notify.command",
        &format!("[{program:?}, \"{{title}}\", \"{{json}}\"]"),
    );
    place
}

fn exits(place: &Place, status: &str) {
    fs::write(place.state().join("exit"), format!("{status}\n")).unwrap();
}

/// The recorded lines: kind, run, title, count, first and second argument, a secret.
fn notifications(place: &Place) -> Vec<Vec<String>> {
    let text = fs::read_to_string(place.state().join("told.txt")).unwrap_or_default();
    text.lines()
        .map(|line| line.split('|').map(str::to_owned).collect())
        .collect()
}

pub(crate) async fn until_told(place: &Place, kind: &str, times: usize) -> Vec<Vec<String>> {
    eventually(&format!("{times} times {kind}"), async || {
        let told = notifications(place);
        (told.iter().filter(|line| line[0] == kind).count() == times).then_some(told)
    })
    .await
}

#[test]
fn an_approval_and_an_end_are_told_with_their_facts_and_without_secrets() {
    run(async {
        let place = place();
        let mut command = place.command(&["serve"]);
        command.env("SECRET_OF_DAEMON", "s3cret");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[write]", "agent": "worker", "label": "writer" }))
            .await;
        let lines = until_told(&place, "approval", 1).await;
        let [_, run, title, count, first, second, secret] = &lines[0][..] else {
            panic!("{lines:?}");
        };
        assert_eq!(
            [run, title, count, first, secret],
            [
                &spawned.id,
                "writer wants to call write",
                "1",
                title,
                "none"
            ]
            .map(|it| it)
        );
        let facts: Value = serde_json::from_str(second).unwrap();
        assert_eq!(facts["kind"], "approval");
        assert!(
            facts["text"].as_str().unwrap().ends_with("notes.txt"),
            "{facts}"
        );
        let approval = json!({ "id": facts["id"], "decision": "allow" });
        client.call("approvals.resolve", approval).await;
        client.ended(&spawned.id).await;
        let lines = until_told(&place, "ended", 1).await;
        assert_eq!(lines[1][2], "writer ended: ok");
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(notifications(&place).len(), 2);
    });
}

#[test]
fn ends_of_runs_below_others_are_not_told() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = client
            .spawn(json!({ "task": "[boss]", "agent": "worker", "label": "boss" }))
            .await;
        client.ended(&boss.id).await;
        client.quiet().await;
        let plain = client
            .spawn(json!({ "task": "[plain]", "agent": "worker", "label": "last" }))
            .await;
        client.ended(&plain.id).await;
        let lines = eventually("the last end", async || {
            let lines = notifications(&place);
            lines
                .iter()
                .any(|line| line[1] == plain.id)
                .then_some(lines)
        })
        .await;
        let listed = client.call("runs.list", json!({})).await;
        for run in listed["runs"].as_array().unwrap() {
            let is_top = run.get("parentRunId").is_none();
            let was_told = lines
                .iter()
                .any(|line| line[1] == run["runId"].as_str().unwrap());
            assert!(is_top || !was_told, "{run:#} {lines:?}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn after_a_kill_what_waits_is_told_once_more_and_what_was_answered_is_not() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut ids = Vec::new();
        for label in ["answered", "open"] {
            let spawned = client
                .spawn(json!({ "task": "[write]", "agent": "worker", "label": label }))
                .await;
            ids.push(spawned.id);
            until_told(&place, "approval", ids.len()).await;
        }
        let open = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        let all = open["approvals"].as_array().unwrap();
        let answered = all.iter().find(|one| one["label"] == "answered").unwrap();
        let deny = json!({ "id": answered["id"], "decision": "deny" });
        client.call("approvals.resolve", deny).await;
        client.ended(&ids[0]).await;
        until_told(&place, "ended", 1).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let lines = until_told(&place, "approval", 3).await;
        assert_eq!(lines.last().unwrap()[1], ids[1], "{lines:?}");
        // A later notification proves that there was none in between.
        let client = daemon.client().await;
        let plain = client
            .spawn(json!({ "task": "[plain]", "agent": "worker", "label": "last" }))
            .await;
        client.ended(&plain.id).await;
        let lines = until_told(&place, "ended", 2).await;
        assert_eq!(lines.len(), 5, "{lines:?}");
        daemon.kill().await;
    });
}

#[test]
fn a_command_that_fails_or_hangs_harms_no_run_and_a_burst_is_one() {
    run(async {
        let mut place = place();
        place.set("notify.timeout", "\"1s\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        exits(&place, "7");
        let first = client
            .spawn(json!({ "task": "[plain]", "agent": "worker", "label": "first" }))
            .await;
        assert_eq!(client.ended(&first.id).await["state"], "ok");
        eventually("a failure in the log", async || {
            place.log().contains("exit status 7").then_some(())
        })
        .await;
        exits(&place, "hang");
        let second = client
            .spawn(json!({ "task": "[plain]", "agent": "worker", "label": "second" }))
            .await;
        assert_eq!(client.ended(&second.id).await["state"], "ok");
        eventually("a time-out in the log", async || {
            place.log().contains("notify.timeout").then_some(())
        })
        .await;
        exits(&place, "0");
        let mut ids = Vec::new();
        for _ in 0..20 {
            let spawned = client
                .spawn(json!({ "task": "[write]", "agent": "worker" }))
                .await;
            ids.push(spawned.id);
        }
        // All of them are reported, by far fewer commands.
        let lines = eventually("all of a burst", async || {
            let lines = notifications(&place);
            let waits = lines
                .iter()
                .filter(|line| line[0] == "approval" || line[0] == "several");
            let counts = waits.map(|line| line[3].parse::<usize>().unwrap());
            (counts.sum::<usize>() == 20).then_some(lines)
        })
        .await;
        assert!(lines.len() < 20, "{lines:?}");
        assert!(lines.iter().any(|line| line[0] == "several"), "{lines:?}");
        daemon.kill().await;
    });
}

#[test]
fn an_end_beside_a_reload_of_the_settings_is_notified() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for count in 1..=20 {
            let spawned = client
                .spawn(json!({ "task": "[plain]", "agent": "worker" }))
                .await;
            client.call("gateway.reload", json!({})).await;
            client.ended(&spawned.id).await;
            client.call("gateway.reload", json!({})).await;
            eventually(&format!("{count} ends"), async || {
                let lines = notifications(&place);
                let counts = lines.iter().map(|line| line[3].parse::<usize>().unwrap());
                (counts.sum::<usize>() == count).then_some(())
            })
            .await;
        }
        daemon.kill().await;
    });
}

#[test]
fn nothing_is_told_by_default_or_where_it_is_switched_off_and_a_reload_counts() {
    run(async {
        let mut place = place();
        place.set("notify.ended", "false");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let plain = async |label: &str| {
            let params = json!({ "task": "[plain]", "agent": "worker", "label": label });
            let spawned = client.spawn(params).await;
            client.ended(&spawned.id).await;
        };
        plain("silent").await;
        place.set("notify.ended", "true");
        client.call("gateway.reload", json!({})).await;
        plain("told").await;
        let lines = until_told(&place, "ended", 1).await;
        assert_eq!(lines[0][2], "told ended: ok", "{lines:?}");
        place.unset("notify.command");
        client.call("gateway.reload", json!({})).await;
        plain("silent again").await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(notifications(&place).len(), 1);
    });
}

#[test]
fn setup_offers_the_program_that_is_there() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let programs = place.path().join("programs");
        fs::create_dir(&programs).unwrap();
        let setup = |arguments: &[&str]| {
            let mut command = place.command(&[&["setup", "--notify"], arguments].concat());
            command.env("PATH", &programs);
            command
        };
        let none = setup(&["--yes"]).output().unwrap();
        assert_eq!(none.status.code(), Some(3), "{none:?}");
        fs::copy(place.path().join("writer"), programs.join("notify-send")).unwrap();
        let mut person = Terminal::start(setup(&[]));
        person
            .until("use notify-send to notify you when a run needs you or has ended? (yes or no) ");
        person.types("yes\n");
        person.until("notify-send will notify you when a run needs you or has ended");
        assert_eq!(person.end().0, 0);
        let text = fs::read_to_string(place.path().join("abide.toml")).unwrap();
        assert!(
            text.contains("\"notify-send\", \"--app-name=abide\""),
            "{text}"
        );
        let client = daemon.client().await;
        let config = client.call("gateway.config", json!({})).await;
        assert!(config.to_string().contains("--app-name=abide"), "{config}");
        assert_eq!(daemon.stop().await, 0);
    });
}
