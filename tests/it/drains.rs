//! Drains: which calls they refuse, which work they let finish, and what follows them.

use std::fs;
use std::process::Stdio;

use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::harness::{
    Caller, Daemon, Link, Place, Script, Spawned, calls, eventually, kind_of, run, says,
};

/// `[a]` reads a file once it is released, then answers; `[b]` answers at once.
fn place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[a]",
                [
                    calls("read", json!({ "path": "notes.txt" })).held_by("go"),
                    says("a is done"),
                ],
            )
            .on("[b]", [says("b is done")]),
    )
}

async fn phase(client: &Link) -> String {
    let status = client.call("gateway.status", json!({})).await;
    status["phase"].as_str().unwrap().to_owned()
}

async fn in_phase(client: &Link, expected: &str) {
    eventually(expected, async || {
        (phase(client).await == expected).then_some(())
    })
    .await;
}

/// A run whose model call is in flight.
async fn at_work(place: &Place, client: &Link) -> Spawned {
    let a = client.spawn(json!({ "task": "[a]" })).await;
    eventually("the call", async || {
        let call = ("[a]".to_owned(), 0);
        place.model_calls().contains_key(&call).then_some(())
    })
    .await;
    a
}

/// The gateway's events in order: kind and data.
fn gateway_events(place: &Place) -> Vec<(String, Value)> {
    let events = place.book().events;
    events
        .into_values()
        .filter(|event| event.kind.starts_with("gateway."))
        .map(|event| (event.kind, event.data))
        .collect()
}

#[test]
fn a_drain_that_resumes_lets_steps_end_refuses_work_and_takes_it_again() {
    run(async {
        let place = place().with("lanes.subagent", "1");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = at_work(&place, &client).await;
        let b = client.spawn(json!({ "task": "[b]" })).await;
        let waiting = daemon.client().await;
        let wait = json!({ "runId": a.id, "waitTimeout": 3600 });
        let mut wait = Box::pin(waiting.call("agent.wait", wait));
        assert!((&mut wait).now_or_never().is_none());

        let order = json!({ "then": "resume", "timeout": "1h" });
        let begun = client.call("gateway.drain", order).await;
        assert_eq!(begun["timeoutMs"], 3_600_000);
        assert_eq!(phase(&client).await, "draining");
        assert_eq!(daemon.get("/ready").unwrap().0, 503);
        // Calls that start work are refused; reads are not.
        for (method, params) in [
            (
                "sessions.spawn",
                json!({ "task": "[b]", "agent": "explore" }),
            ),
            (
                "agent.run",
                json!({ "sessionKey": "agent:build:x", "message": "[b]" }),
            ),
            ("sessions.create", json!({})),
        ] {
            let refused = client.refused(method, params).await;
            assert_eq!(kind_of(&refused), "unavailable", "{method}");
        }
        assert_eq!(client.run(&a.id).await["state"], "running");
        // Open waits are answered.
        let waited = wait.await;
        assert_eq!(waited["cause"], "draining");
        assert_eq!(waited["runs"][0]["status"], "pending");
        // Only one drain can be active.
        let refused = client
            .refused("gateway.drain", json!({ "then": "resume" }))
            .await;
        assert_eq!(kind_of(&refused), "conflict");

        place.let_go("go");
        in_phase(&client, "ready").await;
        assert_eq!(client.ended(&a.id).await["result"], "a is done");
        assert_eq!(client.ended(&b.id).await["result"], "b is done");
        // The same process accepts work again.
        let again = client.spawn(json!({ "task": "[b]" })).await;
        assert_eq!(client.ended(&again.id).await["result"], "b is done");
        assert_eq!(daemon.stop().await, 0);

        // Its step was not repeated, and its model was not called twice.
        assert_eq!(place.model_calls()[&("[a]".to_owned(), 0)], 1);
        let told = gateway_events(&place);
        let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
        let expected = [
            "gateway.started",
            "gateway.draining",
            "gateway.resumed",
            "gateway.draining",
        ];
        assert_eq!(kinds, expected);
        assert_eq!(told[1].1["then"], "resume");
        assert_eq!(told[2].1["after"], "drain");
        assert!(told[2].1["awayMs"].is_u64());
        assert_eq!(told[3].1["then"], "stop");
    });
}

#[test]
fn g1_4_a_drain_that_does_not_wait_recovers_in_the_same_life() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = at_work(&place, &client).await;
        let order = json!({ "then": "resume", "timeout": 0 });
        client.call("gateway.drain", order).await;
        eventually("the second try", async || {
            let asked = place.model_calls()[&("[a]".to_owned(), 0)];
            (asked == 2).then_some(())
        })
        .await;
        place.let_go("go");
        assert_eq!(client.ended(&a.id).await["result"], "a is done");
        assert_eq!(phase(&client).await, "ready");
        let params = json!({ "sessionKey": a.session });
        let history = client.call("sessions.history", params).await;
        let notice = &history["messages"][1];
        assert_eq!(notice["kind"], "restart_notice", "{history}");
        assert!(
            notice["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("drained"),
            "{notice}"
        );
        assert_eq!(daemon.stop().await, 0);
        // A requested stop is not a crash: it does not count as an attempt of the run.
        assert!(!place.log().contains("defect"), "{}", place.log());
    });
}

#[test]
fn a_drain_that_resumes_can_be_turned_into_an_end() {
    run(async {
        let place = place();
        let mut daemon = place.start().await;
        let client = daemon.client().await;
        let a = at_work(&place, &client).await;
        let order = json!({ "then": "resume", "timeout": "1h" });
        client.call("gateway.drain", order).await;
        // This is the first signal: it drains and cancels nothing.
        daemon.terminate();
        eventually("the end is known", async || {
            place.log().contains("\"then\":\"stop\"").then_some(())
        })
        .await;
        assert_eq!(client.run(&a.id).await["state"], "running");
        place.let_go("go");
        assert_eq!(daemon.ended().await.code(), Some(0));
        assert_eq!(
            place.book().runs[&a.id].state,
            "queued",
            "parked at its step"
        );
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&a.id).await["result"], "a is done");
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.model_calls()[&("[a]".to_owned(), 0)], 1);
    });
}

/// The boot id in the endpoint file.
fn boot(place: &Place) -> Option<Value> {
    let text = fs::read_to_string(place.state().join("endpoint.json")).ok()?;
    let endpoint: Value = serde_json::from_str(&text).ok()?;
    Some(endpoint["bootId"].clone())
}

#[test]
fn g1_4_a_restart_comes_back_by_itself_where_nobody_supervises() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = at_work(&place, &client).await;
        let before = boot(&place).unwrap();
        let stop = place
            .command(&["stop", "--restart", "--timeout", "0s", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = stop.wait_with_output().unwrap();
        assert!(said.status.success());
        let said: Value = serde_json::from_slice(&said.stdout).unwrap();
        // The same process with a new boot id.
        assert_eq!(said["pid"], daemon.pid());
        assert_ne!(boot(&place).unwrap(), before);
        place.let_go("go");
        let waited = place.command(&["wait", &a.id, "--json"]).output().unwrap();
        assert!(waited.status.success(), "{waited:?}");
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        assert_eq!(book.boots, [true, true], "two lives, both ended in order");
        assert_eq!(book.runs[&a.id].state, "ok");
    });
}

#[test]
fn g15_1_a_restart_goes_through_a_supervisor() {
    run(async {
        let place = place();
        let mut command = place.command(&["serve", "--json"]);
        command.env("ABIDE_SUPERVISOR", "runit");
        let mut daemon = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("a start", async || boot(&place)).await;
        let link = abide::client::Client::connect_socket(&place.state().join("abide.sock"))
            .await
            .unwrap();
        let order = json!({ "then": "restart" });
        let _: Value = link.call("gateway.drain", order).await.unwrap();
        let status = daemon.wait().unwrap();
        assert_eq!(status.code(), Some(79));
        assert_eq!(boot(&place), None, "nobody is taken for alive");
    });
}

#[test]
fn g15_6_a_stop_names_the_runs_that_it_waits_for() {
    run(async {
        let place = place();
        let mut daemon: Daemon = place.start().await;
        let client = daemon.client().await;
        let a = at_work(&place, &client).await;
        let stop = place
            .command(&["stop", "--timeout", "1h"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        in_phase(&client, "draining").await;
        place.let_go("go");
        let said = stop.wait_with_output().unwrap();
        assert_eq!(said.status.code(), Some(0));
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains(&a.id[a.id.len() - 8..]), "{said}");
        assert!(said.contains("stopped"), "{said}");
        assert_eq!(daemon.ended().await.code(), Some(0));
    });
}

#[test]
fn g16_2_a_start_says_how_long_nobody_was_there() {
    run(async {
        let mut caller = Caller::begin(place(), None, false).await;
        let b = caller.spawn(json!({ "task": "[b]" })).await;
        caller.ended(&b.id).await;
        caller.kill_once().await;
        caller.finish().await;
        let (_, place) = caller.into_parts();
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        let told = gateway_events(&place);
        let resumed: Vec<&Value> = told
            .iter()
            .filter(|(kind, _)| kind == "gateway.resumed")
            .map(|(_, data)| data)
            .collect();
        // Not at the first start, but after a kill and after a stop.
        assert_eq!(resumed.len(), 2, "{told:?}");
        for data in resumed {
            assert_eq!(data["after"], "stop");
            let away = data["awayMs"].as_u64().unwrap();
            assert!(away < 3_600_000, "{data}");
        }
    });
}

#[test]
fn g1_4_what_a_drain_did_not_wait_for_goes_on_at_the_next_start() {
    run(async {
        let place = place().with("gateway.drain_timeout", "\"50ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        assert_eq!(daemon.stop().await, 0, "it comes to its end all the same");
        assert_eq!(
            place.book().runs[&a.id].state,
            "running",
            "marked for recovery"
        );

        place.let_go("go");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&a.id).await;
        assert_eq!(ended["result"], "a is done");
        assert_eq!(daemon.stop().await, 0);
        // It was a stop, not a crash: it does not count as an attempt of the run.
        assert_eq!(place.book().boots, [true, true]);
    });
}

#[test]
fn g1_4_a_second_signal_ends_the_patience_of_a_drain() {
    run(async {
        let place = place().with("gateway.drain_timeout", "\"1h\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        daemon.terminate();
        eventually("the drain", || async {
            let (_, body) = daemon.get("/ready").unwrap();
            body.contains("draining").then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
        place.let_go("go");
        let daemon = place.start().await;
        assert_eq!(
            daemon.client().await.ended(&a.id).await["result"],
            "a is done"
        );
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.book().boots, [true, true]);
    });
}
