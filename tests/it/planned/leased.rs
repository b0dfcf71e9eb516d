//! MCP connections that belong to one delegated run of a plan: opened for it, and closed in every
//! outcome. With real processes.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{BOSS, boss, delegates, turn};
use crate::delegations::{children, tool_results, until_ended};
use crate::harness::{Answer, Daemon, Link, Place, Script, calls, eventually, fails, run, says};
use crate::mcp::{lines, until_state, with_server, with_stubborn_server};
use crate::processes::is_alive;

/// A boss that delegates to a worker, which adds an item through its server and then continues with
/// `kid`.
fn script(kid: impl IntoIterator<Item = Answer>) -> Script {
    let add = calls("mem__add", json!({ "text": "one" }));
    Script::new()
        .on("[kid]", std::iter::once(add).chain(kid))
        .on(
            "[boss]",
            [delegates("worker"), says("known"), says("boss is done")],
        )
}

fn agents(script: Script) -> Place {
    boss(script, "tools: [read]\nmcp_servers: []")
        .with_agent("worker", "mode: subagent\ntools: []\nmcp_servers: [mem]")
}

fn place(kid: impl IntoIterator<Item = Answer>) -> Place {
    with_server(agents(script(kid)), "mem", "")
}

/// The processes that were started as the server, oldest first.
fn started(place: &Place) -> Vec<u32> {
    let started = std::fs::read_to_string(place.work().join("starts")).unwrap_or_default();
    started.lines().map(|pid| pid.parse().unwrap()).collect()
}

/// A daemon whose shared server is up, and a turn of the boss whose worker has added an item.
async fn begun(place: &Place) -> (Daemon, Link, String) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    until_state(&client, "mem", "ready").await;
    assert_eq!(lines(place, "starts"), 1);
    let boss = turn(&client, "[boss]").await.id;
    eventually("its call", async || {
        (lines(place, "added") == 1).then_some(())
    })
    .await;
    (daemon, client, boss)
}

/// Waits until the worker's own server process is gone; the shared one keeps running.
async fn own_is_gone(place: &Place) {
    let pids = started(place);
    let [everybodys, own] = pids[..] else {
        panic!("expected a shared and an own server: {pids:?}");
    };
    eventually("its own server ends", async || {
        (!is_alive(own)).then_some(())
    })
    .await;
    assert!(is_alive(everybodys));
}

async fn worker(client: &Link) -> Value {
    children(client, BOSS).await.remove(0)
}

#[test]
fn a4_own_servers_are_closed_when_the_run_ends_ok_or_fails() {
    run(async {
        for kid in [says("kid is done"), fails("no model today")] {
            let place = place([kid]);
            let (daemon, client, boss) = begun(&place).await;
            assert_eq!(client.ended(&boss).await["result"], "boss is done");
            own_is_gone(&place).await;
            assert_eq!(worker(&client).await["warnings"], json!([]));
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a4_own_servers_are_closed_when_the_run_is_cancelled() {
    run(async {
        // During a call of the server, and during a model call.
        let slow = calls("mem__slow", json!({ "text": "x" }));
        for kid in [slow, says("never").held_by("never")] {
            let place = place([kid]);
            let (daemon, client, boss) = begun(&place).await;
            let id = worker(&client).await["runId"].clone();
            client.call("runs.cancel", json!({ "runId": id })).await;
            assert_eq!(client.ended(&boss).await["result"], "boss is done");
            assert_eq!(tool_results(&client, BOSS).await[0]["kind"], "cancelled");
            own_is_gone(&place).await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a4_own_servers_are_closed_when_the_time_is_over() {
    run(async {
        let place = place([says("never").held_by("never")]).with("delegation.timeout", "\"5s\"");
        let (daemon, client, boss) = begun(&place).await;
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        assert_eq!(tool_results(&client, BOSS).await[0]["kind"], "run_timeout");
        own_is_gone(&place).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a4_own_servers_are_closed_by_the_next_start_after_a_kill() {
    run(async {
        let place = place([says("kid is done").held_by("go")]);
        let (daemon, _, boss) = begun(&place).await;
        let before = started(&place);
        assert_eq!(before.len(), 2, "{before:?}");
        daemon.kill().await;
        let daemon = place.start().await;
        for pid in &before {
            assert!(!is_alive(*pid), "{pid} of {before:?} is left");
        }
        // The run continues, with a new connection of its own.
        let client = daemon.client().await;
        until_state(&client, "mem", "ready").await;
        place.let_go("go");
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        let after = started(&place).split_off(2);
        eventually("one server is left", async || {
            let alive = after.iter().filter(|pid| is_alive(**pid)).count();
            (alive == 1).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
        assert!(started(&place).iter().all(|pid| !is_alive(*pid)));
    });
}

#[test]
fn a4_a_server_that_is_not_closed_as_it_should_is_a_warning_of_the_run_and_no_error() {
    run(async {
        let place = with_stubborn_server(agents(script([says("kid is done")])), "mem");
        let (daemon, client, boss) = begun(&place).await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        own_is_gone(&place).await;
        let kid = eventually("the warning", async || {
            let kid = worker(&client).await;
            (kid["warnings"] != json!([])).then_some(kid)
        })
        .await;
        assert_eq!((&kid["state"], &kid["error"]), (&json!("ok"), &Value::Null));
        let warning = kid["warnings"][0].as_str().unwrap();
        assert!(warning.contains("MCP server mem"), "{warning}");
        assert!(warning.contains("was killed"), "{warning}");
        assert_eq!(
            tool_results(&client, BOSS).await[0]["result"],
            "kid is done"
        );
        // The event follows the end of the run that it belongs to.
        until_ended(&mut events, kid["runId"].as_str().unwrap()).await;
        let warned = loop {
            let event = crate::events::next(&mut events).await;
            if event.kind == "run.warned" {
                break serde_json::to_value(event).unwrap();
            }
        };
        assert_eq!(warned["runId"], kid["runId"]);
        assert_eq!(warned["data"], json!({ "warnings": [warning] }));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a4_a_server_that_died_before_nobody_could_close_and_no_warning_says_so() {
    run(async {
        let place = place([says("kid is done").held_by("go")]);
        let (daemon, client, boss) = begun(&place).await;
        let own = i32::try_from(started(&place)[1]).unwrap();
        kill_process(Pid::from_raw(own).unwrap(), Signal::KILL).unwrap();
        own_is_gone(&place).await;
        place.let_go("go");
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        let kid = worker(&client).await;
        // Warnings about the run's end are written after that end and before the daemon stops, so
        // none can still be pending.
        assert_eq!(daemon.stop().await, 0);
        let kid = &place.book().runs[kid["runId"].as_str().unwrap()];
        assert!(kid.ended);
        let events = place.book().events.into_values();
        assert_eq!(events.filter(|event| event.kind == "run.warned").count(), 0);
    });
}
