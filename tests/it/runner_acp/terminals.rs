//! Terminals: commands that an outside agent has its client run.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::permissions::{decide, decisions, open};
use super::played::{heard, lines};
use super::{calls_of, end_of, go, place};
use crate::harness::{Daemon, Link, Place, Spawned, eventually, run};
use crate::processes::is_alive;

const ALLOWED: &str = "gate: {shell: allow}";

fn shell(line: &str) -> Value {
    json!({ "terminal": { "command": "/bin/sh", "args": ["-c", line] } })
}

/// A command that notes its pid and runs until it is ended.
fn endless() -> Value {
    shell("echo $$ >> pids; while :; do sleep 0.05; done")
}

/// What the agent was told about its terminals, without the ids of new ones.
fn told(place: &Place) -> Vec<String> {
    let lines = lines(place, "terminals").into_iter();
    lines.filter(|line| !line.contains("terminalId")).collect()
}

async fn pid(place: &Place) -> u32 {
    eventually("the command", async || {
        lines(place, "pids")
            .first()
            .and_then(|pid| pid.parse().ok())
    })
    .await
}

async fn gone(pid: u32) {
    eventually("the end of the command", async || {
        (!is_alive(pid)).then_some(())
    })
    .await;
}

fn touch(place: &Place, file: &str) {
    fs::write(place.work().join(file), "").unwrap();
}

#[test]
fn a_command_runs_in_the_folder_and_environment_of_the_run_and_is_a_step() {
    run(async {
        let place = place("", ALLOWED);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let folder = place.work().canonicalize().unwrap();
        let line = "pwd; echo $DATA-$WORD-$ABIDE_TOKEN; echo bad >&2; exit 3";
        let create = json!({ "terminal": {
            "command": "/bin/sh", "args": ["-c", line], "cwd": folder.join("src"),
            "env": [{ "name": "WORD", "value": "more" }],
        } });
        let task = json!([
            create, { "wait_for_exit": 1 }, { "output": 1 }, { "release": 1 }, { "output": 1 },
            { "terminal": { "command": "echo a && echo b", "outputByteLimit": 2 } },
            { "wait_for_exit": 1 }, { "output": 1 }, { "say": "over" },
        ]);
        let spawned = client
            .spawn(
                json!({ "task": task.to_string(), "agent": "outside", "env": { "DATA": "given" } }),
            )
            .await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        let told = told(&place);
        assert_eq!(told[0], json!({ "exitCode": 3 }).to_string());
        let shown: Value = serde_json::from_str(&told[1]).unwrap();
        let output = shown["output"].as_str().unwrap();
        assert!(
            output.contains(folder.join("src").to_str().unwrap()),
            "{output}"
        );
        assert!(
            output.contains("given-more-\n") && output.contains("bad\n"),
            "{output}"
        );
        assert_eq!(shown["truncated"], false, "{shown}");
        assert_eq!(shown["exitStatus"], json!({ "exitCode": 3 }), "{shown}");
        assert_eq!(told[2], "{}");
        assert!(told[3].contains("no terminal"), "{told:?}");
        let shown: Value = serde_json::from_str(&told[5]).unwrap();
        assert_eq!(
            (&shown["output"], &shown["truncated"]),
            (&json!("b\n"), &json!(true))
        );
        let calls = calls_of(&client, &spawned.id).await;
        let shown: Vec<_> = calls
            .iter()
            .map(|call| (&call["tool"], &call["state"], &call["effect"]))
            .collect();
        assert_eq!(
            json!(shown),
            json!([["shell", "failed", "once"], ["shell", "done", "once"]]),
            "{calls:?}"
        );
        let summary = calls[0]["paramsSummary"].as_str().unwrap();
        assert!(summary.starts_with("/bin/sh -c 'pwd; "), "{calls:?}");
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn rules_for_shell_decide_on_a_command() {
    run(async {
        let gate = "gate: {shell: [{decision: deny}, {match: \"touch *\", decision: allow}]}";
        let place = place("", gate);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let outside = place.path().join("other");
        fs::create_dir(&outside).unwrap();
        // A program whose name looks like an assignment before an allowed command.
        let hidden = place.work().join("A=");
        fs::create_dir(&hidden).unwrap();
        fs::write(hidden.join("x"), "#!/bin/sh\ntouch hidden\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(hidden.join("x"), mode).unwrap();
        let terminal = |command: &str, args: &[&str]| json!({ "terminal": { "command": command, "args": args } });
        let task = json!([
            terminal("touch", &["allowed"]), { "wait_for_exit": 1 },
            terminal("rm", &["notes.txt"]),
            terminal("A=/x", &["touch", "y"]),
            terminal("env", &["PATH=.", "touch", "y"]),
            terminal("env", &["-S", "rm notes.txt", "touch", "y"]),
            { "terminal": { "command": "touch y; rm notes.txt" } },
            { "terminal": {
                "command": "touch", "args": ["y"], "env": [{ "name": "LD_PRELOAD", "value": "/x" }],
            } },
            { "terminal": { "command": "touch", "args": ["y"], "cwd": outside } },
            { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        let told = told(&place);
        assert_eq!(told.len(), 8, "{told:?}");
        assert_eq!(told[0], json!({ "exitCode": 0 }).to_string());
        for (at, says) in [
            (1, "denied"),
            (2, "no name of a program"),
            (3, "denied"),
            (4, "denied"),
            (5, "denied"),
            (6, "LD_PRELOAD cannot be set"),
            (7, "outside the allowed folder"),
        ] {
            assert!(told[at].contains(says), "{says}: {told:?}");
        }
        assert!(place.work().join("allowed").exists());
        assert!(place.work().join("notes.txt").exists());
        for file in ["y", "hidden"] {
            assert!(!place.work().join(file).exists() && !outside.join(file).exists());
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn people_decide_on_the_whole_command() {
    run(async {
        let place = place("", "");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!([
            shell("echo >> made"), { "wait_for_exit": 1 }, shell("echo >> not made"), { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        let first = open(&client).await;
        assert_eq!(first["tool"], "shell", "{first}");
        assert_eq!(
            first["arguments"]["command"], "/bin/sh -c 'echo >> made'",
            "{first}"
        );
        assert!(!place.work().join("made").exists());
        client.in_state(&spawned.id, "paused").await;
        decide(&client, &first, "allow").await;
        let second = eventually("the second approval", async || {
            let next = open(&client).await;
            (next["id"] != first["id"]).then_some(next)
        })
        .await;
        decide(&client, &second, "deny").await;
        assert_eq!(client.ended(&spawned.id).await["result"], "over");
        let told = told(&place);
        assert_eq!(told[0], json!({ "exitCode": 0 }).to_string());
        assert!(told[1].starts_with("denied"), "{told:?}");
        assert_eq!(lines(&place, "made").len(), 1);
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

#[test]
fn a_command_ends_when_it_is_killed_or_released() {
    run(async {
        for (action, is_known) in [("kill", true), ("release", false)] {
            let (place, ended) = end_of(
                "",
                ALLOWED,
                json!([
                    endless(), { "until": "pids" }, { "waiting": 1 }, { action: 1 },
                    { "until": "exits" }, { "output": 1 }, { "say": "over" },
                ]),
            )
            .await;
            assert_eq!(ended["result"], "over", "{ended}");
            gone(pid(&place).await).await;
            assert_eq!(
                lines(&place, "exits"),
                [json!({ "signal": "SIGTERM" }).to_string()]
            );
            let told = told(&place);
            assert_eq!(told[1].contains("exitStatus"), is_known, "{told:?}");
            heard(&place);
        }
    });
}

#[test]
fn no_command_outlives_its_turn() {
    run(async {
        for (action, status) in [
            (json!({ "say": "over" }), "ok"),
            (json!({ "die": 1 }), "error"),
            (json!({ "stop": "refusal" }), "error"),
        ] {
            let task = json!([endless(), { "until": "pids" }, action]);
            let (place, ended) = end_of("", ALLOWED, task).await;
            assert_eq!(ended["status"], status, "{ended}");
            gone(pid(&place).await).await;
        }
        let place = place("", ALLOWED);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, &json!([endless(), { "until": "never" }])).await;
        let pid = pid(&place).await;
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["status"], "cancelled");
        gone(pid).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_request_in_flight_is_answered_over_a_pause_of_the_run() {
    run(async {
        let place = place("", ALLOWED);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let fetch = json!({ "ask": {
            "toolCallId": "a", "title": "Fetch", "kind": "fetch",
            "rawInput": { "url": "https://example.com/" },
        } });
        let task = json!([
            shell("until [ -e go ]; do sleep 0.05; done; echo went"), { "waiting": 1 },
            fetch, { "until": "exits" }, { "output": 1 }, { "say": "over" },
        ]);
        let spawned = go(&client, &task).await;
        let approval = open(&client).await;
        client.in_state(&spawned.id, "paused").await;
        // The command ends while nothing drives the run.
        touch(&place, "go");
        eventually("the end of the command", async || {
            (!lines(&place, "exits").is_empty()).then_some(())
        })
        .await;
        client.in_state(&spawned.id, "paused").await;
        decide(&client, &approval, "allow").await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "over", "{ended}");
        assert_eq!(decisions(&place), ["yes"]);
        assert_eq!(
            lines(&place, "exits"),
            [json!({ "exitCode": 0 }).to_string()]
        );
        assert!(told(&place)[0].contains("went"), "{:?}", told(&place));
        let calls = calls_of(&client, &spawned.id).await;
        assert!(
            calls.iter().all(|call| call["state"] == "done"),
            "{calls:?}"
        );
        assert_eq!(daemon.stop().await, 0);
        heard(&place);
    });
}

/// A run whose daemon was killed while a command ran for its agent, and started again.
async fn killed(fields: &str) -> (Place, Daemon, Link, Spawned) {
    let place = place("load", fields);
    let daemon = place.start().await;
    let client = daemon.client().await;
    let spawned = go(&client, &json!([endless(), { "until": "never" }])).await;
    let pid = pid(&place).await;
    daemon.kill().await;
    let daemon = place.start().await;
    gone(pid).await;
    let client = daemon.client().await;
    (place, daemon, client, spawned)
}

#[test]
fn a_command_whose_daemon_was_killed_is_uncertain() {
    run(async {
        let (place, daemon, client, spawned) = killed(ALLOWED).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(
            ended["result"], "finished after the interruption",
            "{ended}"
        );
        let calls = calls_of(&client, &spawned.id).await;
        assert_eq!(calls[0]["state"], "uncertain", "{calls:?}");
        let history = json!({ "sessionKey": spawned.session, "tools": true });
        let history = client.call("sessions.history", history).await;
        let mut kinds = history["messages"].as_array().unwrap().iter();
        assert!(kinds.all(|one| one["kind"] != "tool_result"), "{history}");
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(lines(&place, "pids").len(), 1);
    });
}

#[test]
fn a_review_of_a_command_stays_over_further_restarts() {
    run(async {
        let fields = format!("{ALLOWED}\non_uncertain: review");
        let (place, mut daemon, mut client, spawned) = killed(&fields).await;
        for is_killed in [true, false] {
            let waits = eventually("the review", async || {
                let run = client.run(&spawned.id).await;
                (run["needsReview"] == true).then_some(run)
            })
            .await;
            assert_eq!(waits["state"], "paused", "{waits}");
            assert_eq!(waits["reviews"][0]["tool"], "shell", "{waits}");
            if is_killed {
                daemon.kill().await;
                daemon = place.start().await;
                client = daemon.client().await;
                continue;
            }
            let step = waits["reviews"][0]["stepId"].clone();
            let verdict = json!({ "runId": spawned.id, "stepId": step, "decision": "done" });
            client.call("runs.resolve", verdict).await;
        }
        let ended = client.ended(&spawned.id).await;
        assert_eq!(
            ended["result"], "finished after the interruption",
            "{ended}"
        );
        let calls = calls_of(&client, &spawned.id).await;
        assert_eq!(calls[0]["state"], "done", "{calls:?}");
        assert_eq!(lines(&place, "pids").len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_command_that_cannot_be_started_is_refused() {
    run(async {
        let missing = Path::new("/no/such/program");
        let (place, ended) = end_of(
            "",
            ALLOWED,
            json!([{ "terminal": { "command": missing } }, { "output": 1 }, { "say": "over" }]),
        )
        .await;
        assert_eq!(ended["result"], "over", "{ended}");
        let told = told(&place);
        assert!(told[0].contains("was not started"), "{told:?}");
        assert!(told[1].contains("no terminal"), "{told:?}");
        heard(&place);
    });
}
