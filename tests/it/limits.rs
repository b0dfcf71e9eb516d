//! Area 4, as far as clients can spawn: depth, slots, and what a refusal says.

use serde_json::json;

use crate::harness::{Caller, Place, Script, kind_of, run, says};

fn family() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [says("c waits").held_by("go")])
            .on("[g]", [says("g is done").held_by("go")])
            .on_announce("g is done", [says("c heard")]),
    )
}

#[test]
fn d_question_1_subagents_cannot_spawn_recursively() {
    run(async {
        let place = family();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let c = client.spawn(json!({ "task": "[c]", "parent": root })).await;
        let before = client.call("sessions.list", json!({ "kind": "all" })).await;
        let params = json!({ "task": "[g]", "agent": "explore", "parent": c.session });
        let refused = client.refused("sessions.spawn", params).await;
        assert_eq!(kind_of(&refused), "limit", "{refused}");
        assert_eq!(refused.data["limit"], "max_spawn_depth");
        assert_eq!(refused.data["value"], 1);
        assert!(refused.data["counts"].is_string() && refused.data["free"].is_string());
        let after = client.call("sessions.list", json!({ "kind": "all" })).await;
        assert_eq!(
            after["sessions"].as_array().unwrap().len(),
            2,
            "something was created: {after}"
        );
        assert_eq!(before["sessions"].as_array().unwrap().len(), 2);
        let below = client
            .call("runs.list", json!({ "parent": c.session }))
            .await;
        assert_eq!(below["runs"], json!([]));
        daemon.kill().await;
    });
}

#[test]
fn g4_1_a_place_is_free_as_soon_as_its_run_has_ended() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done").held_by("go")])
            .on("[b]", [says("b is done")]),
    )
    .with("defaults.max_client_children", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        let more = json!({ "task": "[b]", "agent": "explore", "parent": root });
        let refused = client.refused("sessions.spawn", more.clone()).await;
        assert_eq!(kind_of(&refused), "limit", "{refused}");
        assert_eq!(refused.data["value"], 1);
        place.let_go("go");
        client.ended(&a.id).await;
        let b = client.spawn(more).await;
        client.ended(&b.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g4_2_g4_3_with_every_cap_at_one_a_parent_and_its_child_both_end() {
    let place = family()
        .with("defaults.max_spawn_depth", "2")
        .with("lanes.main", "1")
        .with("lanes.subagent", "1")
        .with("lanes.nested", "1")
        .with("lanes.global", "1");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let root = caller.session("client", "bot:one").await;
        let c = caller.spawn(json!({ "task": "[c]", "parent": root })).await;
        let g = caller
            .spawn(json!({ "task": "[g]", "parent": c.session }))
            .await;
        caller.until_asked("[c]", 0).await;
        assert_eq!(
            caller.run(&g.id).await["state"],
            "queued",
            "one slot, and the parent has it"
        );
        caller.place().let_go("go");
        assert_eq!(caller.ended(&g.id).await["result"], "g is done");
        assert_eq!(caller.ended(&c.id).await["result"], "c heard");
        caller.finish().await;
    });
}

#[test]
fn g4_5_at_most_so_many_turns_wait_in_a_session() {
    let place = Place::new(Script::new().on("*", [says("done").held_by("go")]))
        .with("defaults.max_queued_turns", "2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = "agent:build:talk";
        let first = client.turn(session, "one").await;
        client.in_state(&first.id, "running").await;
        client.turn(session, "two").await;
        client.turn(session, "three").await;
        let params = json!({ "sessionKey": session, "message": "four" });
        let refused = client.refused("agent.run", params).await;
        assert_eq!(kind_of(&refused), "limit", "{refused}");
        assert_eq!(refused.data["value"], 2);
        place.let_go("go");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.book().runs.len(), 3);
    });
}
