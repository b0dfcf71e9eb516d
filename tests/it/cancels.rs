//! Area 4, cancellation: a cancel reaches all descendants, at any moment, and none of them resumes.

use serde_json::{Value, json};

use crate::harness::{Caller, Place, Script, calls, eventually, kind_of, run, says};

/// A parent with a child and a grandchild; every lane has one slot.
fn narrow() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [says("c waits for g").held_by("go")])
            .on(
                "[g]",
                [calls("list", json!({ "path": "." })), says("g waits for h")],
            )
            .on("[h]", [says("h is done")])
            .on_announce("h is done", [says("g heard of h")])
            .on_announce("g heard of h", [says("c heard of g")])
            .on_announce("c heard of g", [says("NO_REPLY")])
            .on_announce("*", [says("noted")]),
    )
    .with("defaults.max_spawn_depth", "3")
    .with("lanes.main", "1")
    .with("lanes.subagent", "1")
    .with("lanes.global", "1")
}

struct Family {
    top: String,
    runs: Vec<String>,
}

async fn family(caller: &mut Caller) -> Family {
    let top = caller.session("agent", "agent:build:top").await;
    let c = caller.spawn(json!({ "task": "[c]", "parent": top })).await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": c.session }))
        .await;
    let h = caller
        .spawn(json!({ "task": "[h]", "parent": g.session }))
        .await;
    // Released only when all exist: a child without children of its own would end at once.
    caller.place().let_go("go");
    Family {
        top,
        runs: vec![c.id, g.id, h.id],
    }
}

#[test]
fn g4_3_with_every_cap_at_one_a_grandchild_in_settling_completes() {
    run(async {
        let mut caller = Caller::begin(narrow(), None, false).await;
        let family = family(&mut caller).await;
        for (run, expected) in family
            .runs
            .iter()
            .zip(["c heard of g", "g heard of h", "h is done"])
        {
            assert_eq!(caller.ended(run).await["result"], expected);
        }
        caller.quiet().await;
        let book = caller.finish().await;
        // The wake run had a silent answer: it is stored but not announced.
        let silent: Vec<_> = book.messages.values().filter(|one| one.silent).collect();
        assert_eq!(silent.len(), 1);
        let told = book.events.values().filter(|event| {
            event.kind == "message.added"
                && event.data["seq"] == silent[0].seq
                && event.session.as_ref() == Some(&silent[0].session)
        });
        assert_eq!(told.count(), 0);
    });
}

#[test]
fn g4_12_a_cancel_at_any_moment_leaves_nothing_open() {
    run(async {
        // Before the first model call, and at the start of each model call of the scenario.
        for moment in [
            None,
            Some(("[c]", 0)),
            Some(("[g]", 0)),
            Some(("[g]", 1)),
            Some(("[h]", 0)),
            Some(("h is done", 0)),
            Some(("g heard of h", 0)),
            Some(("c heard of g", 0)),
        ] {
            let mut caller = Caller::begin(narrow(), None, false).await;
            let family = family(&mut caller).await;
            if let Some((rule, index)) = moment {
                caller.until_model_called(rule, index).await;
            }
            let params = json!({ "sessionKey": family.top });
            let done = caller.call("sessions.cancel", params).await;
            assert_eq!(done["notEnded"], json!([]), "{done}");
            for run in &family.runs {
                let state = caller.ended(run).await["state"].clone();
                assert!(state == "cancelled" || state == "ok", "{state}");
            }
            caller.quiet().await;
            caller.finish().await;
        }
    });
}

#[test]
fn g1_13_what_was_cancelled_stays_so_over_a_restart() {
    let place = Place::new(
        Script::new()
            .on("[c]", [says("never").held_by("never")])
            .on("[d]", [says("d is done")]),
    )
    .with("lanes.subagent", "1");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let root = caller.session("client", "bot:one").await;
        let c = caller.spawn(json!({ "task": "[c]", "parent": root })).await;
        caller.until_model_called("[c]", 0).await;
        let d = caller.spawn(json!({ "task": "[d]", "parent": root })).await;
        // The waiting run first: otherwise the end of the other one would start it.
        for run in [&d, &c] {
            caller.call("runs.cancel", json!({ "runId": run.id })).await;
        }
        let asked = caller.place().model_calls();
        caller.kill_once().await;
        caller.quiet().await;
        assert_eq!(
            caller.place().model_calls(),
            asked,
            "no model call after it"
        );
        for run in [&c, &d] {
            assert_eq!(caller.ended(&run.id).await["state"], "cancelled");
        }
        caller.ack_all(&root).await;
        caller.finish().await;
    });
}

#[test]
fn a_cancel_of_an_unknown_run_or_session_is_refused_by_name() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let id = abide::clock::Clock::system().new_id().to_string();
        let refused = client.refused("runs.cancel", json!({ "runId": id })).await;
        assert_eq!(kind_of(&refused), "not_found");
        let refused = client
            .refused("sessions.cancel", json!({ "sessionKey": "nobody" }))
            .await;
        assert_eq!(kind_of(&refused), "not_found");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn the_requester_above_is_woken_and_what_fell_wakes_nobody() {
    let place = Place::new(
        Script::new()
            .on("[c]", [says("c waits for g").held_by("go")])
            .on("[g]", [says("never").held_by("never")])
            .on_announce("*", [says("I see")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let top = client.session("agent", "top").await;
        let c = client.spawn(json!({ "task": "[c]", "parent": top })).await;
        let g = client
            .spawn(json!({ "task": "[g]", "parent": c.session }))
            .await;
        place.let_go("go");
        client.in_state(&c.id, "settling").await;
        client.in_state(&g.id, "running").await;
        let done = client.call("runs.cancel", json!({ "runId": c.id })).await;
        let mut cancelled: Vec<Value> = done["cancelled"].as_array().unwrap().clone();
        cancelled.sort_by_key(Value::to_string);
        let mut expected = vec![json!(c.id), json!(g.id)];
        expected.sort_by_key(Value::to_string);
        assert_eq!(cancelled, expected);
        eventually("the wake run", async || {
            let runs = client.call("runs.list", json!({ "sessionKey": top })).await;
            (runs["runs"][0]["result"] == "I see").then_some(())
        })
        .await;
        let runs = client
            .call("runs.list", json!({ "sessionKey": c.session }))
            .await;
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
        assert_eq!(daemon.stop().await, 0);
    });
}
