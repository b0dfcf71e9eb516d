//! Programs of runs under keepers, with the real daemon: they go on while it is down, each byte of
//! their output arrives once, their limits hold, and nothing outlives its run.

mod killed;
mod lost;
mod refused;
mod versions;

use std::fs;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::events::text::ReceivedText;
use crate::harness::{Daemon, Link, Place, Script, Spawned, eventually, run};
use crate::processes::{self, command_result, go, is_alive, pids};

/// A command that waits for the file `go` after it has written `begun.txt`.
const WAITS: &str = "echo once >> begun.txt; until [ -e go ]; do sleep 0.01; done";

/// Waits until the command has begun.
async fn begun(place: &Place) {
    eventually("the begin of the command", async || {
        (processes::begun(place) > 0).then_some(())
    })
    .await;
}

/// Lets the command go on.
fn let_go(place: &Place) {
    fs::write(place.work().join("go"), "").unwrap();
}

/// Waits until the keeper of the only program has recorded how it ended.
async fn recorded(place: &Place) -> Value {
    let folder = eventually("its folder", async || place.keeper_folders().pop()).await;
    eventually("the record of its end", async || {
        let text = fs::read_to_string(folder.join("exit")).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    })
    .await
}

/// A daemon whose agent `worker` has begun this command.
async fn started(place: &Place) -> (Daemon, Link, Spawned) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    let spawned = go(&client).await;
    begun(place).await;
    (daemon, client, spawned)
}

/// Starts a daemon, and returns the result of the command that it continues.
async fn continued(place: &Place, spawned: &Spawned) -> String {
    let daemon = place.start().await;
    let client = daemon.client().await;
    let ended = client.ended(&spawned.id).await;
    assert_eq!(ended["result"], "it has come back", "{ended}");
    let told = command_result(&client, &spawned.session).await;
    assert_eq!(daemon.stop().await, 0);
    assert_eq!(processes::begun(place), 1);
    assert_eq!(
        place.keeper_folders(),
        [""; 0].map(Into::<std::path::PathBuf>::into)
    );
    told
}

#[test]
fn a_program_under_four_kills_of_the_daemon_goes_on_and_each_line_arrives_once() {
    let line = "for i in 1 2 3 4 5; do echo line $i; until [ -e go$i ]; do sleep 0.01; done; done";
    let place = Place::new(Script::new());
    let argv = json!(["/bin/sh", "-c", line]);
    let fields = format!("runner: command\ncommand:\n  argv: {argv}\n  progress: text\n");
    write(&config(&place), "program.md", &fields, "Works.");
    run(async {
        let mut spawned = None;
        let mut daemon = place.start().await;
        for kill in 1..=5 {
            let client = daemon.client().await;
            let mut events = client.subscribe(json!({ "deltas": true })).await;
            if spawned.is_none() {
                let params = json!({ "task": "x", "agent": "program" });
                spawned = Some(client.spawn(params).await);
            }
            // The text that a client assembles by the protocol is the output so far.
            let expected: Vec<String> = (1..=kill).map(|line| format!("line {line}")).collect();
            let mut heard = ReceivedText::default();
            while heard.text != expected.join("\n") {
                heard.take(&crate::events::next(&mut events).await);
                assert!(
                    expected.join("\n").starts_with(&heard.text),
                    "{}",
                    heard.text
                );
            }
            if kill < 5 {
                daemon.kill().await;
                // It goes on with its next line while no daemon is there.
                fs::write(place.work().join(format!("go{kill}")), "").unwrap();
                daemon = place.start().await;
            }
        }
        let client = daemon.client().await;
        fs::write(place.work().join("go5"), "").unwrap();
        let ended = client.ended(&spawned.unwrap().id).await;
        assert_eq!(ended["result"], "line 1\nline 2\nline 3\nline 4\nline 5");
        assert_eq!(ended["status"], "ok", "{ended}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_exit_status_over_a_restart_is_the_result() {
    run(async {
        // After a kill, and after a stop, which does not wait for the command.
        for is_killed in [true, false] {
            let place = processes::place(&format!("{WAITS}; echo over; exit 3"));
            let (daemon, _, spawned) = started(&place).await;
            match is_killed {
                true => daemon.kill().await,
                false => assert_eq!(daemon.stop().await, 0),
            }
            let_go(&place);
            assert_eq!(recorded(&place).await["ending"], json!({ "exited": 3 }));
            let told = continued(&place, &spawned).await;
            assert_eq!(told, "exit status 3\nstdout:\nover");
        }
    });
}

#[test]
fn a_command_is_followed_to_its_end_by_the_daemon_after_the_next() {
    run(async {
        let place = processes::place(&format!("{WAITS}; echo over"));
        let (daemon, _, spawned) = started(&place).await;
        daemon.kill().await;
        let daemon = place.start().await;
        // A restart that could be asked for, with the command still at work.
        assert_eq!(daemon.stop().await, 0);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let_go(&place);
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        assert_eq!(told, "exit status 0\nstdout:\nover");
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(processes::begun(&place), 1);
    });
}

#[test]
fn a_cancel_after_a_restart_ends_what_has_left_its_group_and_session() {
    run(async {
        let place = processes::place(processes::TREE);
        let (daemon, _, spawned) = started(&place).await;
        let tree = pids(&place).await;
        let keepers = place.keepers();
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let all: Vec<u32> = [tree, keepers].concat();
        let ended: Vec<&u32> = all.iter().filter(|pid| !is_alive(**pid)).collect();
        assert!(
            all.len() == 5 && ended.is_empty(),
            "{ended:?} of {all:?}; {}",
            daemon.logged()
        );
        let params = json!({ "runId": spawned.id });
        client.call("runs.cancel", params).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["status"], "cancelled", "{ended}");
        assert!(!all.iter().any(|pid| is_alive(*pid)), "{all:?}");
        assert_eq!(daemon.stop().await, 0);
        eventually("the removal of its folder", async || {
            place.keeper_folders().is_empty().then_some(())
        })
        .await;
    });
}

#[test]
fn output_without_end_is_cut_while_no_daemon_is_there() {
    run(async {
        let place = processes::place(&format!("{WAITS}; exec yes"))
            .with("process.output_limit", "\"1 MiB\"");
        let (daemon, _, spawned) = started(&place).await;
        daemon.kill().await;
        let_go(&place);
        let record = recorded(&place).await;
        assert_eq!(record["ending"], json!({ "output_limit": 1 << 20 }));
        let stdout = place.keeper_folders()[0].join("stdout");
        let stored = fs::metadata(stdout).unwrap().len();
        assert!(stored < 3 << 20, "{stored} bytes");
        let told = continued(&place, &spawned).await;
        let says = "too much output: it wrote more than 1048576 bytes; it was stopped";
        assert!(told.starts_with(says), "{told}");
    });
}

#[test]
fn a_time_limit_passes_while_no_daemon_is_there() {
    run(async {
        let place = processes::place(&format!("{WAITS}; true"));
        let place = place.with("shell.timeout", "\"1s\"");
        let (daemon, _, spawned) = started(&place).await;
        daemon.kill().await;
        assert_eq!(recorded(&place).await["ending"], "timed_out");
        let told = continued(&place, &spawned).await;
        assert_eq!(
            told,
            "timeout: it had not ended after 1s; it was stopped with everything that it had started"
        );
    });
}

#[test]
fn a_program_without_a_daemon_ends_after_the_limit_for_that() {
    run(async {
        let place = processes::place(processes::TREE).with("process.orphan_max", "\"300ms\"");
        let (daemon, _, spawned) = started(&place).await;
        let tree = pids(&place).await;
        daemon.kill().await;
        assert_eq!(recorded(&place).await["ending"], json!({ "orphaned": 300 }));
        assert!(!tree.iter().any(|pid| is_alive(*pid)), "{tree:?}");
        let told = continued(&place, &spawned).await;
        let says = "stopped: no daemon ran for 300ms (process.orphan_max)";
        assert!(told.starts_with(says), "{told}");
    });
}

#[test]
fn a_keeper_stores_neither_environment_arguments_nor_input_and_no_readable_output() {
    run(async {
        let place = Place::new(Script::new());
        let line = format!("echo $A_TOKEN; {WAITS}; cat > input.txt");
        let argv = json!(["/bin/sh", "-c", line, "canary-argument"]);
        let fields = format!(
            "runner: command\ncommand:\n  argv: {argv}\nenv:\n  A_TOKEN: {{from: \"env:TOKEN\"}}\n"
        );
        write(&config(&place), "program.md", &fields, "Works.");
        let mut command = place.command(&["serve"]);
        command.env("TOKEN", "canary-token");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let params = json!({ "task": "canary-input", "agent": "program" });
        let spawned = client.spawn(params).await;
        begun(&place).await;
        let folder = place.keeper_folders().pop().unwrap();
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            names.push(entry.file_name().into_string().unwrap());
            let mode = entry.metadata().unwrap();
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(mode.permissions().mode() & 0o077, 0, "{names:?}");
            if entry.file_type().unwrap().is_file() {
                let text = fs::read(entry.path()).unwrap();
                let text = String::from_utf8_lossy(&text);
                assert!(!text.contains("canary"), "{names:?}: {text}");
            }
        }
        names.sort();
        assert_eq!(names, ["keeper", "launched", "run", "stderr", "stdout"]);
        let_go(&place);
        assert_eq!(client.ended(&spawned.id).await["status"], "ok");
        let input = fs::read_to_string(place.work().join("input.txt"));
        assert_eq!(input.unwrap(), "canary-input");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_detached_command_leaves_goes_on_over_a_restart_and_ends_with_its_run() {
    run(async {
        let command =
            "echo once >> begun.txt; setsid sleep 4000 & echo $! > pids.new; mv pids.new pids";
        let script = Script::new().on(
            "[go]",
            [
                crate::harness::calls("shell", json!({ "command": command, "detach": true })),
                crate::harness::says("it has come back").held_by("answer"),
            ],
        );
        let place = Place::new(script);
        let rights = "tools: [shell]\ngate: {shell: allow}\n";
        write(&config(&place), "worker.md", rights, "Work.");
        let (daemon, _, spawned) = started(&place).await;
        let left = pids(&place).await;
        eventually("the answer's call", async || {
            let called = place.model_calls();
            called.contains_key(&("[go]".to_owned(), 1)).then_some(())
        })
        .await;
        daemon.kill().await;
        let daemon = place.start().await;
        assert!(is_alive(left[0]));
        assert_eq!(daemon.stop().await, 0);
        assert!(is_alive(left[0]));
        place.let_go("answer");
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        let says = format!(
            "exit status 0; still running in the background: {}",
            left[0]
        );
        assert_eq!(told, says);
        eventually("its end", async || (!is_alive(left[0])).then_some(())).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_that_went_on_still_belongs_to_its_run() {
    run(async {
        let abide = env!("CARGO_BIN_EXE_abide");
        // It has dropped its marks, its session and its parents.
        let call = format!(
            "env -u ABIDE_RUN_ID -u ABIDE_STEP_ID -u ABIDE_STATE_DIR setsid sh -c \
             '(setsid {abide} rpc gateway.drain \"{{}}\" > out.new 2>&1; mv out.new out) &'; \
             until [ -e out ]; do sleep 0.01; done"
        );
        let place = processes::place(&format!("{WAITS}; {call}"));
        let (daemon, _, spawned) = started(&place).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let_go(&place);
        client.ended(&spawned.id).await;
        let said = fs::read_to_string(place.work().join("out")).unwrap();
        assert!(said.contains("a program that run"), "{said}");
        assert_eq!(daemon.stop().await, 0);
    });
}
