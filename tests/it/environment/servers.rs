//! MCP servers that are started for a run with exactly its environment, started again after a
//! restart, and stopped with the run, however it ends.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use super::traces;
use crate::harness::{Daemon, Link, Place, Script, Spawned, calls, eventually, fails, run, says};
use crate::mcp::{until_state, with_server};
use crate::processes::is_alive;

const WORKER: &str = "mcp_servers: [mem]\ntools: {shell: true}\ngate: {shell: allow}\n\
                      on_uncertain: retry\nenv: {A_TOKEN: null, TOKEN: null, OF_AGENT: agent-value}";

/// The server `mem` is started for each run; its tool returns its environment.
fn place(script: Script) -> Place {
    with_server(Place::new(script), "mem", "")
        .with("mcp.mem.scope", "\"run\"")
        .with_agent("worker", WORKER)
}

async fn ready(place: &Place) -> (Daemon, Link) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    until_state(&client, "mem", "ready").await;
    (daemon, client)
}

async fn go(client: &Link, task: &str, token: &str) -> Spawned {
    let env = json!({ "A_TOKEN": token, "TOKEN": "of the request" });
    let params = json!({ "task": task, "agent": "worker", "env": env });
    client.spawn(params).await
}

/// Process ids of the servers of this run.
pub(crate) fn servers_of(run: &str) -> Vec<u32> {
    let mark = format!("ABIDE_RUN_ID={run}");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut env = env.split(|byte| *byte == 0);
        let has = |name: &str| env.clone().any(|one| one.starts_with(name.as_bytes()));
        has("ABIDE_SERVICE_ID=") && env.any(|one| one == mark.as_bytes())
    })
    .collect()
}

/// The variables with which a process was started, as `NAME=value`.
fn environment_of(pid: u32) -> BTreeSet<String> {
    let env = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let env = env.split('\0').filter(|one| !one.is_empty());
    env.map(str::to_owned).collect()
}

/// Shortly before it is gone, an exiting process has no environment any more: both states count as
/// gone.
async fn gone(run: &str, servers: &[u32]) {
    eventually("the end of the run's servers", async || {
        let none = servers_of(run).is_empty() && !servers.iter().any(|pid| is_alive(*pid));
        none.then_some(())
    })
    .await;
}

/// Each has the same variables as a command of the run, plus those of its own table, and none of
/// another run; the server process that the daemon shares has none of them.
#[test]
fn g7_2_g12_3_a_server_of_a_run_has_exactly_its_environment_and_again_after_a_kill() {
    let dump = "env | sort > \"of.$A_TOKEN\"";
    let script = Script::new().on(
        "[go]",
        [
            calls("shell", json!({ "command": dump })),
            calls("mem__environment", json!({})).and("mem__look", json!({})),
            calls("mem__slow", json!({ "text": "x" })),
            says("done"),
        ],
    );
    let place = place(script);
    run(async {
        let (daemon, client) = ready(&place).await;
        let tokens = ["canary-token-1", "canary-token-2"];
        let mut runs = Vec::new();
        for token in tokens {
            runs.push(go(&client, "[go]", token).await);
        }
        let begun = async |times: usize| {
            let file = place.work().join("begun");
            eventually("the slow calls", async || {
                let begun = fs::read_to_string(&file).unwrap_or_default();
                (begun.lines().count() == times).then_some(())
            })
            .await;
        };
        let look = || -> Vec<BTreeSet<String>> {
            let of_runs = runs.iter().zip(tokens).map(|(spawned, token)| {
                let servers = servers_of(&spawned.id);
                assert_eq!(servers.len(), 1, "one process for each server and run");
                let own: BTreeSet<String> = environment_of(servers[0])
                    .into_iter()
                    .filter(|one| !one.starts_with("ABIDE_SERVICE_ID="))
                    .collect();
                let command = fs::read_to_string(place.work().join(format!("of.{token}")));
                let mut expected: BTreeSet<String> = command
                    .unwrap()
                    .lines()
                    // Variables that the shell sets itself, and marks that only a command has.
                    .filter(|one| {
                        let of_command = [
                            "PWD=",
                            "OLDPWD=",
                            "SHLVL=",
                            "_=",
                            "ABIDE_STEP_ID=",
                            "ABIDE_SOCKET=",
                        ];
                        !of_command.iter().any(|name| one.starts_with(name))
                    })
                    // Set by the server's own table.
                    .filter(|one| !one.starts_with("TOKEN="))
                    .map(str::to_owned)
                    .collect();
                expected.extend(["TOKEN=canary", "TEST_MCP_START="].map(str::to_owned));
                assert_eq!(own, expected);
                assert!(own.contains(&format!("A_TOKEN={token}")), "{own:?}");
                own
            });
            of_runs.collect()
        };
        begun(2).await;
        let before = look();
        let listed = client.call("mcp.list", json!({})).await;
        let shared = &listed["servers"][0];
        assert_eq!(
            (&shared["scope"], &shared["starts"]),
            (&json!("run"), &json!(1))
        );
        let shared = u32::try_from(shared["pid"].as_u64().unwrap()).unwrap();
        let names = environment_of(shared);
        assert!(
            !names
                .iter()
                .any(|one| one.contains("A_TOKEN") || one.contains("OF_AGENT"))
        );
        daemon.kill().await;

        let (daemon, client) = ready(&place).await;
        begun(4).await;
        assert_eq!(look(), before, "the same map");
        fs::write(place.work().join("go"), "").unwrap();
        for spawned in &runs {
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "done", "{ended}");
            gone(&spawned.id, &[]).await;
        }
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let canaries = tokens.map(str::to_owned);
        assert_eq!(traces(&place, &canaries), [""; 0]);
    });
}

#[test]
fn g12_4_a_server_of_a_run_ends_with_it_whatever_its_end() {
    let add = || calls("mem__add", json!({ "text": "one" }));
    let script = Script::new()
        .on("[ok]", [add(), says("done").held_by("ok")])
        .on("[fail]", [add(), fails("it fails").held_by("fail")])
        .on("[cancel]", [add(), says("done").held_by("never")])
        .on("[none]", [says("nobody was called")]);
    let place = place(script);
    run(async {
        let (daemon, client) = ready(&place).await;
        for (way, state) in [("ok", "ok"), ("fail", "error"), ("cancel", "cancelled")] {
            let task = format!("[{way}]");
            let spawned = go(&client, &task, "canary-token-1").await;
            // Its server has answered.
            eventually("the call after its server's", async || {
                let asked = place.model_calls();
                asked.contains_key(&(task.clone(), 1)).then_some(())
            })
            .await;
            let servers = servers_of(&spawned.id);
            assert_eq!(servers.len(), 1, "{servers:?}");
            match way {
                "cancel" => {
                    let id = json!({ "runId": spawned.id });
                    client.call("runs.cancel", id).await;
                }
                way => place.let_go(way),
            }
            assert_eq!(client.ended(&spawned.id).await["state"], state);
            gone(&spawned.id, &servers).await;
        }
        // A run that does not call the server does not start it.
        let spawned = go(&client, "[none]", "canary-token-1").await;
        client.ended(&spawned.id).await;
        let listed = client.call("mcp.list", json!({})).await;
        assert_eq!(listed["servers"][0]["starts"], 1, "{listed}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let starts = fs::read_to_string(place.work().join("starts")).unwrap();
        assert_eq!(starts.lines().count(), 4, "{starts}");
        let restored = place.book().events.into_values();
        let restored = restored.filter(|event| event.kind == "env.restored");
        assert_eq!(restored.count(), 4);
    });
}

#[test]
fn a_server_that_is_being_started_for_a_run_ends_with_a_cancel() {
    let add = calls("mem__add", json!({ "text": "one" }));
    let script = Script::new().on("[go]", [add, says("never")]);
    let place = with_server(Place::new(script), "mem", "hang later")
        .with("mcp.mem.scope", "\"run\"")
        .with_agent("worker", WORKER);
    run(async {
        let (daemon, client) = ready(&place).await;
        let spawned = go(&client, "[go]", "canary-token-1").await;
        let servers = eventually("its server", async || {
            let servers = servers_of(&spawned.id);
            (!servers.is_empty()).then_some(servers)
        })
        .await;
        let id = json!({ "runId": spawned.id });
        client.call("runs.cancel", id).await;
        assert_eq!(client.ended(&spawned.id).await["state"], "cancelled");
        gone(&spawned.id, &servers).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The output of the server's program has the run's secrets masked in every outcome.
#[test]
fn a_server_of_a_run_that_dies_is_started_again_and_tells_no_secret() {
    let script = Script::new().on(
        "[go]",
        [
            calls("mem__die", json!({ "text": "x" })),
            calls("mem__add", json!({ "text": "one" })),
            says("done"),
        ],
    );
    let place = place(script);
    run(async {
        let (daemon, client) = ready(&place).await;
        let spawned = go(&client, "[go]", "a fatal thing").await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        let history = json!({ "sessionKey": spawned.session, "tools": true });
        let history = client.call("sessions.history", history).await;
        let said = history.to_string();
        assert!(said.contains("added one"), "{said}");
        assert!(!said.contains("a fatal thing"), "{said}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let log = place.log();
        assert!(log.contains("it wrote: [secret:A_TOKEN]"), "{log}");
        assert_eq!(traces(&place, &["a fatal thing".to_owned()]), [""; 0]);
    });
}

/// A server's own table may reference a source of a value, which is read at each start.
#[test]
fn a_servers_table_may_say_where_a_value_is_read_from() {
    let script = Script::new().on("[go]", [calls("mem__environment", json!({})), says("done")]);
    let mut place =
        with_server(Place::new(script), "mem", "").with_agent("worker", "mcp_servers: [mem]");
    let file = place.path().join("token");
    let env = format!(
        "{{ TEST_MCP_START = \"\", FROM_FILE = {{ from = \"file:{}\" }} }}",
        file.display()
    );
    place.set("mcp.mem.env", &env);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let failed = until_state(&client, "mem", "failed").await;
        let why = failed["lastError"].as_str().unwrap();
        assert!(
            why.contains("FROM_FILE (env)") && why.contains("token"),
            "{why}"
        );
        assert_eq!(daemon.stop().await, 0);
        fs::write(&file, "canary-from-file\n").unwrap();

        let (daemon, client) = ready(&place).await;
        let listed = client.call("mcp.list", json!({})).await;
        let pid = listed["servers"][0]["pid"].as_u64().unwrap();
        let env = environment_of(u32::try_from(pid).unwrap());
        assert!(env.contains("FROM_FILE=canary-from-file"), "{env:?}");
        let config: Value = client.call("gateway.config", json!({})).await;
        assert!(!config.to_string().contains("canary"), "{config}");
        assert_eq!(daemon.stop().await, 0);
        fs::remove_file(&file).unwrap();
        assert_eq!(traces(&place, &["canary-from-file".to_owned()]), [""; 0]);
    });
}
