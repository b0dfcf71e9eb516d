//! Area 4, limits that clients can reach: spawn depth, slots, and the contents of refusals.

use serde_json::json;

use crate::harness::{Caller, Place, Script, calls, eventually, kind_of, run, says};

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
        caller.until_model_called("[c]", 0).await;
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

#[test]
fn g4_4_depth_holds_for_spawns_by_runs_at_its_edges() {
    for (depth, expected) in [(0, 0), (1, 1), (2, 2)] {
        let spawn = calls(
            "sessions_spawn",
            json!({ "task": "[down]", "agent": "build" }),
        );
        let place = Place::new(
            Script::new()
                .on("[down]", [spawn, says("went down")])
                .on_announce("*", [says("heard")]),
        )
        .with("defaults.max_spawn_depth", &depth.to_string());
        run(async {
            let mut caller = Caller::begin(place, None, false).await;
            let run = caller.turn("agent:build:top", "[down]").await;
            caller.ended(&run.id).await;
            caller.quiet().await;
            let book = caller.finish().await;
            let deepest = book.sessions.values().map(|session| session.depth).max();
            assert_eq!(deepest, Some(expected), "limit {depth}");
            let refused = book
                .steps
                .values()
                .filter_map(|step| step.error.as_ref())
                .filter(|error| error.contains(&format!("max_spawn_depth = {depth}")));
            assert_eq!(refused.count(), 1, "limit {depth}");
        });
    }
}

/// A turn that spawns `times` children sequentially, and waits for each if `waits`.
fn spawner(times: usize, waits: bool) -> Script {
    let mut answers = Vec::new();
    for _ in 0..times {
        answers.push(calls(
            "sessions_spawn",
            json!({ "task": "[k]", "agent": "explore" }),
        ));
        if waits {
            answers.push(calls("sessions_wait", json!({ "waitSeconds": 240 })));
        }
    }
    answers.push(says("spawned"));
    let child = says("k is done");
    Script::new()
        .on("[many]", answers)
        .on("[k]", [if waits { child } else { child.held_by("go") }])
        .on_announce("*", [says("heard")])
}

/// The refusals that a spawning turn gets.
async fn refusals(place: Place, held: bool) -> Vec<String> {
    let daemon = place.start().await;
    let client = daemon.client().await;
    let turn = client.turn("agent:build:many", "[many]").await;
    client.ended(&turn.id).await;
    if held {
        place.let_go("go");
    }
    client.quiet().await;
    assert_eq!(daemon.stop().await, 0);
    let book = place.book();
    let failed = book.steps.values().filter(|step| step.state == "failed");
    failed.map(|step| step.error.clone().unwrap()).collect()
}

#[test]
fn g4_1_g4_5_only_live_children_of_a_run_count() {
    run(async {
        let place = spawner(3, false);
        let place = Place::new(place).with("defaults.max_children", "2");
        let refused = refusals(place, true).await;
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("max_children = 2"), "{refused:?}");
        // Children that have ended free their places at once.
        let place = Place::new(spawner(3, true)).with("defaults.max_children", "1");
        assert_eq!(refusals(place, false).await, [] as [String; 0]);
    });
}

#[test]
fn g4_6_children_are_bounded_in_all_below_one_root_run() {
    run(async {
        let place = Place::new(spawner(4, true)).with("defaults.max_total_children", "3");
        let refused = refusals(place, false).await;
        assert_eq!(refused.len(), 1, "{refused:?}");
        assert!(refused[0].contains("max_total_children = 3"), "{refused:?}");
    });
}

#[test]
fn g4_5_a_closed_lane_keeps_its_runs_queued_and_says_so() {
    for (lane, method) in [
        ("main", "agent.run"),
        ("subagent", "sessions.spawn"),
        ("nested", "sessions.send"),
        ("global", "agent.run"),
    ] {
        let mut place = Place::new(Script::new().on("*", [says("done")]));
        let key = format!("lanes.{lane}");
        place.set(&key, "0");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let root = client.session("client", "root").await;
            let made = client
                .call(
                    "sessions.create",
                    json!({ "agent": "build", "key": "agent:build:x" }),
                )
                .await;
            let session = &made["session"]["key"];
            let params = match method {
                "agent.run" => json!({ "sessionKey": session, "message": "x" }),
                "sessions.spawn" => json!({ "task": "x", "agent": "explore", "parent": root }),
                _ => json!({ "sessionKey": session, "message": "x", "waitTimeout": 0 }),
            };
            let accepted = client.call(method, params).await;
            let id = accepted["runId"].as_str().unwrap().to_owned();
            // A turn of another lane is not blocked by it.
            if lane == "nested" {
                let turn = client.turn("agent:build:x", "y").await;
                client.ended(&turn.id).await;
            }
            let shown = client.run(&id).await;
            assert_eq!(shown["state"], "queued", "{shown}");
            let why = shown["heldUp"].as_str().unwrap();
            assert!(why.contains(&key), "{why}");
            daemon.kill().await;
            place.set(&key, "1");
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = client.ended(&id).await;
            assert_eq!(ended["result"], "done");
            assert!(ended.get("heldUp").is_none(), "{ended}");
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

/// The stored times of a run and its process: running time used, the time since which more is
/// counted, and the latest clock reading of the process.
fn used(place: &Place, run: &str) -> (i64, Option<i64>, i64) {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let db = rusqlite::Connection::open_with_flags(place.database(), flags).unwrap();
    let id = run.parse::<uuid::Uuid>().unwrap();
    let sql = "SELECT used_ms, counting_since, (SELECT alive_ms FROM boots ORDER BY seq DESC \
               LIMIT 1) FROM runs WHERE id = ?1";
    db.query_row(sql, [id.as_bytes().as_slice()], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })
    .unwrap()
}

#[test]
fn a_limit_counts_over_any_number_of_kills() {
    const LIMIT: i64 = 2000;
    // A step ends in each process, so that no step reaches the limit of recovery attempts.
    let steps = (0..200).map(|_| calls("list", json!({ "path": "." })).after_ms(40));
    let place = Place::new(
        Script::new()
            .on("[c]", [says("c waits for g").held_by("go")])
            .on("[g]", steps.chain([says("never").held_by("never")])),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("recovery.touch_each", "\"50ms\"")
    .with_agent("long", "tools: [list]\nexecution: {max_loops: 1000}");
    run(async {
        let mut daemon = place.start().await;
        let mut client = daemon.client().await;
        // One that works, and one that waits for another.
        let params = json!({ "task": "[g]", "agent": "long", "runTimeout": "2s" });
        let works = client.spawn(params).await;
        let root = client.session("client", "root").await;
        let waits = json!({ "task": "[c]", "parent": root, "runTimeout": "2s" });
        let waits = client.spawn(waits).await;
        let below = json!({ "task": "[g]", "agent": "long", "parent": waits.session });
        let below = client.spawn(below).await;
        // Released only when it has a run to wait for.
        place.let_go("go");
        let mut kills = 0;
        let counted = |(used, since, alive): (i64, Option<i64>, i64)| {
            used + since.map_or(0, |since| (alive - since).max(0))
        };
        loop {
            // Each process lasts until the store has recorded 400 ms more of one of them, and until
            // each working run has finished a step.
            let before = [&works, &waits].map(|one| used(&place, &one.id));
            let mut loops = Vec::new();
            for one in [&works, &below] {
                loops.push(client.run(&one.id).await["loops"].as_u64());
            }
            let over = eventually("a step and 400 ms more, or the end", async || {
                for (one, before) in [&works, &below].into_iter().zip(&loops) {
                    let now = client.run(&one.id).await;
                    if now["endedAt"].is_null() && now["loops"].as_u64() <= *before {
                        return None;
                    }
                }
                let mut over = true;
                for one in [&works, &waits] {
                    over &= !client.run(&one.id).await["endedAt"].is_null();
                }
                let now = [&works, &waits].map(|one| used(&place, &one.id));
                let mut both = now.iter().zip(before);
                let grown = both.any(|(now, before)| counted(*now) >= counted(before) + 400);
                (over || grown).then_some(over)
            })
            .await;
            if over {
                break;
            }
            daemon.kill().await;
            kills += 1;
            let killed = [&works, &waits].map(|one| used(&place, &one.id));
            daemon = place.start().await;
            client = daemon.client().await;
            for (one, before) in [&works, &waits].iter().zip(killed) {
                let (now, ..) = used(&place, &one.id);
                assert!(
                    now >= counted(before),
                    "{now} of {before:?} after kill {kills}"
                );
            }
        }
        for one in [&works, &waits] {
            assert_eq!(client.run(&one.id).await["state"], "timeout");
        }
        assert!(kills >= 3, "{kills}");
        for one in [&works, &waits] {
            let (all, ..) = used(&place, &one.id);
            // The excess over a limit depends on the machine; if counting restarted at each boot,
            // it would be larger.
            assert!((LIMIT..2 * LIMIT).contains(&all), "{all} ms");
        }
        daemon.kill().await;
    });
}

#[test]
fn g4_2_with_every_cap_at_one_a_boss_that_waits_for_its_family_ends() {
    let wait = || calls("sessions_wait", json!({ "waitSeconds": 240 }));
    let spawn = |task: &str| calls("sessions_spawn", json!({ "task": task, "agent": "build" }));
    let place = Place::new(
        Script::new()
            .on("[boss]", [spawn("[child]"), wait(), says("boss: end")])
            .on(
                "[child]",
                [spawn("[grandchild]"), wait(), says("child: end")],
            )
            .on("[grandchild]", [says("grandchild: end")]),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("lanes.main", "1")
    .with("lanes.subagent", "1")
    .with("lanes.nested", "1")
    .with("lanes.global", "1");
    run(async {
        let mut caller = Caller::begin(place, None, false).await;
        let boss = caller.turn("agent:build:boss", "[boss]").await;
        assert_eq!(caller.ended(&boss.id).await["result"], "boss: end");
        let book = caller.finish().await;
        assert_eq!(book.runs.len(), 3);
    });
}
