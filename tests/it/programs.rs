//! Agents that are programs, with the real daemon: their input, the meaning of their exit, and
//! which of a project's programs may run.

use std::fs;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Link, Place, Script, Spawned, eventually, kind_of, run};
use crate::processes::{is_alive, pids};

/// A daemon with the agent `program`, whose field `command` contains these lines.
fn place(command: &[&str]) -> Place {
    let place = Place::new(Script::new());
    define(&place, command);
    place
}

fn define(place: &Place, command: &[&str]) {
    let lines: String = command.iter().map(|line| format!("  {line}\n")).collect();
    let fields = format!("runner: command\ncommand:\n{lines}");
    write(&config(place), "program.md", &fields, "Works.");
}

/// `argv` for a shell line.
fn sh(line: &str) -> String {
    format!("argv: {}", json!(["/bin/sh", "-c", line]))
}

async fn go(client: &Link, task: &str) -> Spawned {
    let params = json!({ "task": task, "agent": "program" });
    client.spawn(params).await
}

/// The ended run of such a program.
async fn end_of(command: &[&str], task: &str) -> Value {
    let place = place(command);
    let daemon = place.start().await;
    let client = daemon.client().await;
    let spawned = go(&client, task).await;
    let run = client.ended(&spawned.id).await;
    assert_eq!(daemon.stop().await, 0);
    run
}

#[test]
fn status_0_is_an_answer_and_anything_else_a_failure_in_its_own_words() {
    run(async {
        let ended = end_of(
            &[&sh("printf 'read: '; cat; echo; echo aside >&2")],
            "do it",
        )
        .await;
        assert_eq!(ended["status"], "ok", "{ended}");
        assert_eq!(ended["result"], "read: do it");
        assert_eq!(ended["model"], "command");

        let ended = end_of(
            &["argv: [echo, -n, \"{task}\", \"say={task}\"]"],
            "a 'b' $HOME *",
        )
        .await;
        assert_eq!(
            ended["result"], "a 'b' $HOME * say=a 'b' $HOME *",
            "{ended}"
        );

        let ended = end_of(&[&sh("true")], "x").await;
        assert_eq!(ended["result"], "exit status 0, and no output", "{ended}");

        for (line, kind, says) in [
            (
                "echo half; echo 'no such host' >&2; exit 3",
                "exit",
                "exit status 3: no such host",
            ),
            ("exit 4", "exit", "exit status 4, without any output"),
            ("kill -KILL $$", "signal", "signal 9 (SIGKILL)"),
        ] {
            let ended = end_of(&[&sh(line)], "x").await;
            assert_eq!(ended["status"], "error", "{ended}");
            assert_eq!(ended["error"]["kind"], kind, "{ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains(says), "{ended}");
        }
    });
}

#[test]
fn a_program_that_is_not_there_is_a_problem_and_its_run_says_why() {
    run(async {
        let place = place(&["argv: [no-such-program]"]);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let shown = client
            .call("agents.get", json!({ "agent": "program" }))
            .await;
        assert_eq!(shown["health"]["ok"], false, "{shown}");
        assert!(
            shown["health"]["problems"][0]
                .as_str()
                .unwrap()
                .contains("no-such-program")
        );
        assert_eq!(shown["program"], json!(["no-such-program"]));
        let spawned = go(&client, "x").await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["error"]["kind"], "command", "{ended}");
        assert!(
            ended["error"]["message"].as_str().unwrap().contains("PATH"),
            "{ended}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_works_in_the_folder_of_its_run_and_its_output_is_bounded() {
    run(async {
        let place = place(&[&sh("pwd"), "cwd: src"]);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, "x").await;
        let ended = client.ended(&spawned.id).await;
        let folder = place.work().canonicalize().unwrap().join("src");
        assert_eq!(ended["result"], folder.to_str().unwrap());

        define(&place, &[&sh("seq 1 10000"), "output_limit: 1024"]);
        client.call("agents.reload", json!({})).await;
        let spawned = go(&client, "x").await;
        let ended = client.ended(&spawned.id).await;
        let result = ended["result"].as_str().unwrap();
        assert!(
            result.starts_with("1\n2\n") && result.ends_with("\n10000"),
            "{result}"
        );
        assert!(
            result.contains("bytes left out") && result.len() < 1200,
            "{result}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_session_of_a_program_takes_one_turn_after_another() {
    run(async {
        let place = place(&[&sh("printf 'heard: '; cat")]);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "agent": "program", "label": "talk" });
        let made = client.call("sessions.create", params).await;
        let session = made["session"]["key"].as_str().unwrap();
        for said in ["one", "two"] {
            let turn = client.turn(session, said).await;
            let ended = client.ended(&turn.id).await;
            assert_eq!(ended["result"], format!("heard: {said}"), "{ended}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn people_who_watch_see_what_a_program_writes_as_it_comes() {
    run(async {
        let line = "echo first; while [ ! -e go ]; do sleep 0.01; done; echo second";
        let place = place(&[&sh(line), "progress: text"]);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "deltas": true })).await;
        let spawned = go(&client, "x").await;
        let mut heard = String::new();
        while heard != "first" {
            let event = crate::events::next(&mut events).await;
            if event.kind == "message.delta" {
                heard.push_str(event.data["text"].as_str().unwrap());
            }
        }
        fs::write(place.work().join("go"), "").unwrap();
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "first\nsecond", "{ended}");
        assert_eq!(daemon.stop().await, 0);
    });
}

const STUCK: &str = "echo once >> begun.txt; setsid sleep 4000 & \
                     echo $$ $! > pids.new; mv pids.new pids; wait";

#[test]
fn g13_1_cancel_and_time_limit_end_a_program_with_all_that_it_started() {
    run(async {
        let place = place(&[&sh(STUCK)]);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, "x").await;
        let started = pids(&place).await;
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["status"], "cancelled");
        assert!(!started.iter().any(|pid| is_alive(*pid)), "{started:?}");

        fs::remove_file(place.work().join("pids")).unwrap();
        let params = json!({ "task": "x", "agent": "program", "runTimeout": "4s" });
        let spawned = client.spawn(params).await;
        let started = pids(&place).await;
        assert_eq!(client.ended(&spawned.id).await["status"], "timeout");
        eventually("its end", async || {
            (!started.iter().any(|pid| is_alive(*pid))).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_of_a_project_runs_only_once_the_project_is_trusted() {
    run(async {
        let place = Place::new(Script::new());
        let folder = place.path().join("project");
        let fields = "runner: command\ncommand: {argv: [/bin/sh, -c, 'echo ran; touch ran']}\n";
        write(
            &folder.join(".abide/agents"),
            "deploy.md",
            fields,
            "Deploys.",
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        let cwd = folder.to_str().unwrap();
        let spawn = json!({ "task": "x", "agent": "deploy", "cwd": cwd });
        let refused = client.refused("sessions.spawn", spawn.clone()).await;
        assert_eq!(kind_of(&refused), "forbidden", "{refused}");
        assert!(refused.message.contains("runner: command"), "{refused}");
        assert!(refused.message.contains("abide trust"), "{refused}");
        assert!(!folder.join("ran").exists());

        client.call("trust.add", json!({ "folder": cwd })).await;
        let spawned = client.spawn(spawn.clone()).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "ran");
        assert!(folder.join("ran").exists());

        // A changed command is no longer trusted.
        let other = fields.replace("touch ran", "touch other");
        write(
            &folder.join(".abide/agents"),
            "deploy.md",
            &other,
            "Deploys.",
        );
        eventually("the change to be seen", async || {
            client
                .attempt("sessions.spawn", &spawn)
                .await
                .is_err()
                .then_some(())
        })
        .await;
        assert!(!folder.join("other").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}
