//! Commands of runs with the real daemon: what stops them, and what is known about them after a
//! kill.

use std::fs;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Faults, Link, Place, Script, Spawned, calls, eventually, run, says};

/// Writes its own process id and those of its children: one in its group, one in a new session, one
/// whose parent has exited. Then it waits.
pub(crate) const TREE: &str = "echo once >> begun.txt; sleep 4000 & a=$!; setsid sleep 4000 & b=$!; \
                    (setsid sh -c 'echo $$ > orphan; exec sleep 4000' &); \
                    while [ ! -s orphan ]; do sleep 0.01; done; \
                    echo \"$$ $a $b $(cat orphan)\" > pids.new; mv pids.new pids; wait";

/// A daemon whose agent `worker` runs this command on the input `[go]`.
pub(crate) fn place(command: &str) -> Place {
    let place = Place::new(Script::new().on(
        "[go]",
        [
            calls("shell", json!({ "command": command })),
            says("it has come back"),
        ],
    ));
    write(
        &config(&place),
        "worker.md",
        "tools: [shell, read]\ngate: {shell: allow}\n",
        "Work.",
    );
    place
}

pub(crate) async fn go(client: &Link) -> Spawned {
    let params = json!({ "task": "[go]", "agent": "worker" });
    client.spawn(params).await
}

/// Waits until the command has written the process ids.
pub(crate) async fn pids(place: &Place) -> Vec<u32> {
    eventually("the numbers of processes", async || {
        let text = fs::read_to_string(place.work().join("pids")).ok()?;
        Some(
            text.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect(),
        )
    })
    .await
}

/// Does the process exist, and not as a zombie?
pub(crate) fn is_alive(pid: u32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(") ").next().unwrap().starts_with('Z'),
        Err(_) => {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            cfg!(not(target_os = "linux")) && rustix::process::test_kill_process(pid).is_ok()
        }
    }
}

/// Exit code, output and errors of the command line.
fn abide(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let output = place.command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    // As it is without the breaks of lines.
    let text = |bytes| -> String {
        let text: String = text(bytes);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let code = output.status.code().unwrap_or(-1);
    (code, text(output.stdout), text(output.stderr))
}

/// Children of this process that have exited and were not reaped.
fn zombies_below(parent: u32) -> Vec<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let below = format!(") Z {parent} ");
    stats.filter(|stat| stat.contains(&below)).collect()
}

fn alive(pids: &[u32]) -> Vec<u32> {
    pids.iter().copied().filter(|pid| is_alive(*pid)).collect()
}

pub(crate) fn begun(place: &Place) -> usize {
    let text = fs::read_to_string(place.work().join("begun.txt")).unwrap_or_default();
    text.lines().count()
}

/// The result of its command that the model got.
pub(crate) async fn command_result(client: &Link, session: &str) -> String {
    let params = json!({ "sessionKey": session, "tools": true });
    let history = client.call("sessions.history", params).await;
    let messages = history["messages"].as_array().unwrap();
    let result = messages.iter().find(|one| one["kind"] == "tool_result");
    result.unwrap()["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn a_command_runs_in_the_workspace_with_its_marks_and_no_secrets() {
    run(async {
        let place = place("pwd; env").with("env.pass", r#"["PASSED_*"]"#);
        let mut command = place.command(&["serve"]);
        command
            .env("OPENAI_API_KEY", "sk-not-for-commands")
            .env("PASSED_ON", "yes");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let run = go(&client).await;
        assert_eq!(client.ended(&run.id).await["result"], "it has come back");
        let told = command_result(&client, &run.session).await;
        let work = place.work().canonicalize().unwrap();
        assert!(
            told.contains(&format!("stdout:\n{}\n", work.display())),
            "{told}"
        );
        assert!(
            told.contains(&format!("ABIDE_RUN_ID={}\n", run.id)),
            "{told}"
        );
        assert!(
            told.contains("ABIDE_SOCKET=") && told.contains("PASSED_ON=yes"),
            "{told}"
        );
        assert!(
            !told.contains("not-for-commands") && !told.contains("ABIDE_CONFIG"),
            "{told}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g13_1_g13_4_a_cancelled_run_has_ended_when_nothing_of_it_is_left() {
    run(async {
        let place = place(TREE);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        let pids = pids(&place).await;
        assert_eq!(alive(&pids), pids);
        client.call("runs.cancel", json!({ "runId": run.id })).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(alive(&pids), [0; 0], "{ended}");
        assert_eq!(ended["status"], "cancelled");
        assert_eq!(ended.get("error"), None, "{ended}");
        eventually("no zombie below the daemon", async || {
            zombies_below(daemon.pid()).is_empty().then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g13_1_the_time_limit_of_a_run_ends_its_commands() {
    run(async {
        let place = place(TREE);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[go]", "agent": "worker", "runTimeout": "4s" });
        let run = client.spawn(params).await;
        let pids = pids(&place).await;
        assert_eq!(client.ended(&run.id).await["status"], "timeout");
        eventually("the end of its commands", async || {
            alive(&pids).is_empty().then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g13_6_what_a_command_leaves_in_the_background_ends_with_it() {
    run(async {
        let place = place("setsid sleep 4000 & echo $! > pids.new; mv pids.new pids");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["status"], "ok", "{ended}");
        assert_eq!(command_result(&client, &run.session).await, "exit status 0");
        assert_eq!(alive(&pids(&place).await), [0; 0]);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Neither an idle daemon nor the end of a command that has left nothing reads the process table.
#[test]
#[cfg(target_os = "linux")]
fn the_process_table_is_read_only_where_something_may_be_left() {
    run(async {
        let place = place("if [ -e leave ]; then setsid sleep 4000 & echo $! > pids; fi");
        let faults = Faults {
            orders: None,
            trace: Some(place.path().join("trace")),
        };
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let read = || {
            let trace = fs::read_to_string(place.path().join("trace")).unwrap();
            let read = trace
                .lines()
                .filter(|line| line.contains("processes.table"));
            read.count()
        };
        let command = async || {
            let spawned = go(&client).await;
            assert_eq!(client.ended(&spawned.id).await["status"], "ok");
        };
        command().await;
        let before = read();
        command().await;
        // Zombies are looked for every two seconds.
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        assert_eq!(read(), before);
        fs::write(place.work().join("leave"), "").unwrap();
        command().await;
        let left = pids(&place).await;
        assert!(!is_alive(left[0]), "{left:?}");
        assert!(read() > before);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_of_a_run_is_ended_before_the_daemon_where_memory_ends() {
    // The daemon inherits its value from this process.
    let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let more = (own.trim().parse::<i32>().unwrap() + 200).min(1000);
    // It is set right after the start.
    let place = place(&format!(
        "until grep -qx {more} /proc/self/oom_score_adj; do sleep 0.02; done"
    ));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client).await;
        assert_eq!(client.ended(&spawned.id).await["state"], "ok");
        let daemons = fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.pid()));
        assert_eq!(daemons.unwrap(), own);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g13_5_a_stop_waits_for_no_command_and_the_next_daemon_ends_it_on_request() {
    run(async {
        let place = place(&format!("trap '' TERM; {TREE}"));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        let pids = pids(&place).await;
        drop(client);
        // It stops at once, or this test hangs: the command would run for an hour.
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(alive(&pids), pids);

        let daemon = place.start().await;
        let client = daemon.client().await;
        let steps = client.call("runs.steps", json!({ "runId": run.id })).await;
        assert_eq!(steps["steps"][1]["state"], "started", "{steps}");
        client.call("runs.cancel", json!({ "runId": run.id })).await;
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["status"], "cancelled", "{ended}");
        assert_eq!(alive(&pids), [0; 0]);
        assert_eq!(begun(&place), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_status_and_a_stop_name_the_programs_that_go_on() {
    run(async {
        let place = place(TREE);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        pids(&place).await;
        let status = client.call("gateway.status", json!({})).await;
        let programs = status["keptPrograms"].as_array().unwrap();
        assert_eq!(programs.len(), 1, "{status}");
        assert_eq!(programs[0]["runId"], run.id.as_str(), "{status}");
        let numbers = crate::metrics::numbers(&daemon);
        assert_eq!(crate::metrics::number(&numbers, "abide_keepers"), 1.0);
        let short = &run.id[run.id.len() - 8..];
        let (code, out, _) = abide(&place, &["status"]);
        let says = "programs 1 goes on if the daemon stops, until its limits; of runs";
        let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            code == 0 && out.contains(says) && out.contains(short),
            "{out}"
        );
        let (code, out, _) = abide(&place, &["doctor"]);
        assert!(out.contains("programs.kept"), "{code}: {out}");
        let (code, _, err) = abide(&place, &["stop"]);
        let says = "and 1 program of a run goes on until its limits";
        assert!(code == 0 && err.contains(says), "{err}");
        let (_, out, _) = abide(&place, &["doctor"]);
        assert!(
            out.contains("programs that go on without the daemon: 1, of runs"),
            "{out}"
        );
        place.kill_keepers().await;
        let (_, out, _) = abide(&place, &["doctor"]);
        assert!(
            out.contains("ended, with a result for the next start: 1"),
            "{out}"
        );
    });
}

#[test]
fn g13_3_the_settings_of_processes_are_obeyed() {
    run(async {
        let place = place("yes").with("process.output_limit", "\"1 MiB\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        assert_eq!(client.ended(&run.id).await["status"], "ok");
        let told = command_result(&client, &run.session).await;
        assert!(
            told.starts_with("too much output: it wrote more than 1048576 bytes"),
            "{told}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
    run(async {
        let place = place("trap 'echo never' TERM; sleep 4000 & wait; wait")
            .with("shell.timeout", "\"300ms\"")
            .with("process.grace", "\"0s\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        assert_eq!(client.ended(&run.id).await["status"], "ok");
        // Without a grace period it is killed at once.
        let told = command_result(&client, &run.session).await;
        let says = "timeout: it had not ended after 300ms; it was stopped with everything \
                    that it had started";
        assert_eq!(told, says);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_of_a_run_sees_its_run_over_the_socket_and_approves_and_governs_nothing() {
    run(async {
        let abide = env!("CARGO_BIN_EXE_abide");
        let command =
            "setsid sh -c '(setsid sh calls.sh &)'; while [ ! -s pids ]; do sleep 0.01; done";
        let place = place(command);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let other = client.spawn(json!({ "task": "[held]" })).await;
        // The descendant process has left its group, its session and its parents.
        let call = |method: &str, params: &str| {
            format!("{abide} rpc {method} '{params}' > {method}.out 2>&1; ")
        };
        let own = r#"{"runId":"'$ABIDE_RUN_ID'"}"#;
        let calls = [
            call("runs.get", own),
            call("agents.list", "{}"),
            call("runs.steps", &format!(r#"{{"runId":"{}"}}"#, other.id)),
            call("runs.list", "{}"),
            call("gateway.drain", "{}"),
            call(
                "questions.answer",
                &format!(r#"{{"id":"{}","text":"yes"}}"#, other.id),
            ),
            call("trust.add", r#"{"folder":"/"}"#),
            call("sessions.spawn", r#"{"task":"x"}"#),
        ];
        let file = place.work().join("calls.sh");
        fs::write(&file, format!("{} echo 1 > pids", calls.concat())).unwrap();
        let params = json!({ "task": "[go]", "agent": "worker" });
        let run = client.spawn(params).await;
        assert_eq!(client.ended(&run.id).await["status"], "ok");
        let said = |method: &str| {
            let file = place.work().join(format!("{method}.out"));
            fs::read_to_string(file).unwrap()
        };
        let shown: Value = serde_json::from_str(&said("runs.get")).unwrap();
        assert_eq!(shown["runId"], run.id.as_str());
        assert!(said("agents.list").contains("explore"));
        for method in [
            "runs.steps",
            "runs.list",
            "gateway.drain",
            "questions.answer",
            "trust.add",
            "sessions.spawn",
        ] {
            let said = said(method);
            assert!(said.contains("a program that run"), "{method}: {said}");
        }
        // A program that belongs to no run has every permission.
        let all = client.call("runs.list", json!({})).await;
        assert_eq!(all["runs"].as_array().unwrap().len(), 2);
        client
            .call("runs.cancel", json!({ "runId": other.id }))
            .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_a_dead_daemon_has_left_without_a_keeper_is_ended_by_the_next_start() {
    run(async {
        let place = place(TREE);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = go(&client).await;
        let tree = pids(&place).await;
        daemon.kill().await;
        place.kill_keepers().await;
        // Without its keeper the tree belongs to no process that is known by its lock.
        assert_eq!(alive(&tree), tree);
        let daemon = place.start().await;
        assert_eq!(alive(&tree), [0; 0], "{}", daemon.logged());
        let client = daemon.client().await;
        assert_eq!(client.ended(&run.id).await["status"], "ok");
        assert_eq!(begun(&place), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}
