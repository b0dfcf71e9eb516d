//! Spawned runs, turns, announces and restarts.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, fails, says};

/// The scenarios of spawned runs, turns, announces and restarts.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "spawn",
        place: spawn_place,
        play: |caller| Box::pin(spawn(caller)),
    },
    Scenario {
        name: "steps",
        place: steps_place,
        play: |caller| Box::pin(steps(caller)),
    },
    Scenario {
        name: "turns",
        place: turns_place,
        play: |caller| Box::pin(turns(caller)),
    },
    Scenario {
        name: "settle",
        place: settle_place,
        play: |caller| Box::pin(settle(caller)),
    },
    Scenario {
        name: "busy",
        place: busy_place,
        play: |caller| Box::pin(busy(caller)),
    },
    Scenario {
        name: "many",
        place: many_place,
        play: |caller| Box::pin(many(caller)),
    },
    Scenario {
        name: "wait",
        place: wait_place,
        play: |caller| Box::pin(wait(caller)),
    },
    Scenario {
        name: "fall",
        place: fall_place,
        play: |caller| Box::pin(fall(caller)),
    },
    Scenario {
        name: "limit",
        place: limit_place,
        play: |caller| Box::pin(limit(caller)),
    },
    Scenario {
        name: "drain",
        place: drain_place,
        play: |caller| Box::pin(drain(caller)),
    },
    Scenario {
        name: "crash",
        place: crash_place,
        play: |caller| Box::pin(crash(caller)),
    },
];

/// Checks that the inbox has the announces of these runs, in any order.
fn assert_announced(inbox: &[Value], expected: &[(&str, &str, &str)]) {
    let mut found: Vec<(&str, &str, &str)> = inbox
        .iter()
        .map(|announce| {
            let text = |name: &str| announce[name].as_str().unwrap();
            (text("runId"), text("outcome"), text("result"))
        })
        .collect();
    found.sort_unstable();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

fn spawn_place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done")]),
    )
}

/// A run of a client's session and one without a parent; the announce is acknowledged.
async fn spawn(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller
        .spawn(json!({ "task": "[a]", "parent": root, "label": "a" }))
        .await;
    let b = caller.spawn(json!({ "task": "[b]" })).await;
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
    assert_eq!(caller.ended(&b.id).await["result"], "b is done");
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    assert_announced(&inbox, &[(&a.id, "ok", "a is done")]);
    assert_eq!(caller.ack_all(&root).await, Vec::<Value>::new());
}

fn steps_place() -> Place {
    Place::new(
        Script::new().on(
            "[a]",
            [
                calls("grep", json!({ "pattern": "alpha" }))
                    .and("read", json!({ "path": "notes.txt" }))
                    .and("glob", json!({ "pattern": "**/*.rs" })),
                calls("list", json!({ "path": "src" }))
                    // A failing tool has a result too.
                    .and("read", json!({ "path": "missing.txt" })),
                says("alpha stands in notes.txt:1"),
            ],
        ),
    )
}

/// A run of three model calls with parallel tool calls.
async fn steps(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller.spawn(json!({ "task": "[a]", "parent": root })).await;
    let ended = caller.ended(&a.id).await;
    assert_eq!(ended["result"], "alpha stands in notes.txt:1");
    assert_eq!(
        (&ended["loops"], &ended["toolCalls"]),
        (&json!(3), &json!(5))
    );
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    assert_announced(&inbox, &[(&a.id, "ok", "alpha stands in notes.txt:1")]);
}

fn turns_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[a]",
                [calls("read", json!({ "path": "notes.txt" })), says("first")],
            )
            .on("[b]", [says("second")])
            .on("[c]", [says("third")]),
    )
}

/// Three turns that queue in one session.
async fn turns(caller: &mut Caller) {
    let session = "agent:build:talk";
    let mut runs = Vec::new();
    for message in ["[a]", "[b]", "[c]"] {
        let turn = caller.turn(session, message).await;
        assert_eq!(turn.session, session);
        runs.push(turn);
    }
    for (run, expected) in runs.iter().zip(["first", "second", "third"]) {
        assert_eq!(caller.ended(&run.id).await["result"], expected);
    }
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let said: Vec<&str> = history["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["kind"] == "text")
        .map(|message| message["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["[a]", "first", "[b]", "second", "[c]", "third"]);
}

fn settle_place() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [says("c waits for g").held_by("go-c")])
            .on("[g]", [says("g found it").held_by("go-g")])
            .on_announce("g found it", [says("c heard of g")]),
    )
    .with("defaults.max_spawn_depth", "2")
}

/// A child's turn ends while its own child runs: it settles, resumes as the same run, and its
/// requester gets one announce with its last text.
async fn settle(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let c = caller
        .spawn(json!({ "task": "[c]", "parent": root, "label": "c" }))
        .await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": c.session, "label": "g" }))
        .await;
    caller.place().let_go("go-c");
    caller.in_state(&c.id, "settling").await;
    caller.place().let_go("go-g");
    assert_eq!(caller.ended(&g.id).await["result"], "g found it");
    assert_eq!(caller.ended(&c.id).await["result"], "c heard of g");
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    assert_announced(&inbox, &[(&c.id, "ok", "c heard of g")]);
}

fn busy_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[talk]",
                [
                    calls("list", json!({ "path": "." })).held_by("go"),
                    says("done talking"),
                ],
            )
            .on("[k]", [says("k is done")])
            .on_announce("k is done", [says("k was heard")]),
    )
}

/// A child ends while its requester's agent is in the middle of a turn: the announce comes after
/// that turn and triggers a separate turn.
async fn busy(caller: &mut Caller) {
    let session = caller.session("agent", "agent:build:talk").await;
    let talk = caller.turn(&session, "[talk]").await;
    caller.until_model_called("[talk]", 0).await;
    let k = caller
        .spawn(json!({ "task": "[k]", "parent": session, "label": "k" }))
        .await;
    assert_eq!(caller.ended(&k.id).await["result"], "k is done");
    caller.place().let_go("go");
    assert_eq!(caller.ended(&talk.id).await["result"], "done talking");
    caller.quiet().await;
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap();
    let kinds: Vec<&str> = entries
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap())
        .filter(|kind| *kind != "restart_notice")
        .collect();
    assert_eq!(
        kinds,
        [
            "text",
            "tool_call",
            "tool_result",
            "text",
            "announce",
            "text"
        ]
    );
    assert_eq!(entries.last().unwrap()["content"][0]["text"], "k was heard");
}

fn many_place() -> Place {
    let script = ["[a]", "[b]", "[c]", "[d]"]
        .iter()
        .fold(Script::new(), |script, task| {
            let read = calls("read", json!({ "path": "notes.txt" }));
            script.on(task, [read, says(&format!("{task} is done"))])
        });
    Place::new(script.on_announce("*", [says("heard")]))
}

/// Several children of a client's session and of an agent's, all at once.
async fn many(caller: &mut Caller) {
    let client = caller.session("client", "bot:one").await;
    let agent = caller.session("agent", "agent:build:two").await;
    let mut runs = Vec::new();
    for (task, parent) in [
        ("[a]", &client),
        ("[b]", &agent),
        ("[c]", &client),
        ("[d]", &agent),
    ] {
        let params = json!({ "task": task, "parent": parent, "label": task });
        runs.push((task, caller.spawn(params).await));
    }
    for (task, run) in &runs {
        assert_eq!(
            caller.ended(&run.id).await["result"],
            format!("{task} is done")
        );
    }
    caller.quiet().await;
    let inbox = caller.ack_all(&client).await;
    let expected = [
        (runs[0].1.id.as_str(), "ok", "[a] is done"),
        (runs[2].1.id.as_str(), "ok", "[c] is done"),
    ];
    assert_announced(&inbox, &expected);
}

fn wait_place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[b]", [says("b is done").held_by("go")]),
    )
}

/// Waits for one of several runs and for all of them.
async fn wait(caller: &mut Caller) {
    let a = caller.spawn(json!({ "task": "[a]" })).await;
    let b = caller.spawn(json!({ "task": "[b]" })).await;
    let ids = [&b.id, &a.id];
    let params = json!({ "runIds": ids, "mode": "any", "waitTimeout": 60 });
    let waited = caller.call("agent.wait", params).await;
    assert_eq!(
        (&waited["done"], &waited["cause"]),
        (&json!(true), &json!("ended"))
    );
    assert_eq!(waited["runs"][0]["status"], "pending");
    assert_eq!(waited["runs"][1]["status"], "ok");
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");

    let params = json!({ "runIds": ids, "waitTimeout": 0 });
    let waited = caller.call("agent.wait", params).await;
    assert_eq!(
        (&waited["done"], &waited["cause"]),
        (&json!(false), &json!("window"))
    );
    caller.place().let_go("go");
    let params = json!({ "runIds": ids, "mode": "all", "waitTimeout": 60 });
    let waited = caller.call("agent.wait", params).await;
    assert_eq!(
        (&waited["done"], &waited["cause"]),
        (&json!(true), &json!("ended"))
    );
    assert_eq!(caller.ended(&b.id).await["result"], "b is done");
}

fn fall_place() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [fails("out of service").held_by("go-c")])
            .on("[g]", [says("g is never done").held_by("never")])
            .on("[h]", [says("h is done")]),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("lanes.subagent", "2")
}

/// A child fails, which cascades to its own children: one that runs, one that is queued.
async fn fall(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let c = caller.spawn(json!({ "task": "[c]", "parent": root })).await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": c.session }))
        .await;
    caller.until_model_called("[g]", 0).await;
    let queued = caller
        .spawn(json!({ "task": "[h]", "parent": c.session }))
        .await;
    caller.place().let_go("go-c");
    let ended = caller.ended(&c.id).await;
    assert_eq!(ended["state"], "error");
    assert!(
        ended["error"]["message"]
            .as_str()
            .unwrap()
            .contains("out of service"),
        "{ended}"
    );
    assert_eq!(caller.ended(&g.id).await["state"], "cancelled");
    assert_eq!(caller.ended(&queued.id).await["state"], "cancelled");
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    assert_announced(&inbox, &[(&c.id, "error", "")]);
}

fn limit_place() -> Place {
    Place::new(
        Script::new()
            .on("[c]", [says("c waits for g")])
            .on("[g]", [says("g is never done").held_by("never")]),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("recovery.touch_each", "\"20ms\"")
}

/// A run reaches its time limit. Its used time is stored meanwhile.
async fn limit(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": root, "runTimeout": "250ms" }))
        .await;
    let ended = caller.ended(&g.id).await;
    assert_eq!(
        (&ended["state"], &ended["error"]["kind"]),
        (&json!("timeout"), &json!("run_timeout"))
    );
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    assert_announced(&inbox, &[(&g.id, "timeout", "")]);
}

fn drain_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[a]",
                [
                    calls("grep", json!({ "pattern": "alpha" })).held_by("go"),
                    calls("read", json!({ "path": "notes.txt" })),
                    says("a is done"),
                ],
            )
            .on("[b]", [says("b is done")]),
    )
    .with("lanes.global", "1")
}

/// The daemon is stopped while a run is in the middle of a step: the step finishes, and the run and
/// those queued behind it continue at the next start.
async fn drain(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let a = caller.spawn(json!({ "task": "[a]", "parent": root })).await;
    caller.until_model_called("[a]", 0).await;
    let b = caller.spawn(json!({ "task": "[b]", "parent": root })).await;
    caller.restart_once("go").await;
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
    assert_eq!(caller.ended(&b.id).await["result"], "b is done");
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    assert_announced(
        &inbox,
        &[(&a.id, "ok", "a is done"), (&b.id, "ok", "b is done")],
    );
}

fn crash_place() -> Place {
    Place::new(
        Script::new()
            .on(
                "[c]",
                [
                    calls("grep", json!({ "pattern": "alpha" })),
                    says("c waits for g").held_by("go-c"),
                ],
            )
            .on(
                "[g]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    calls("grep", json!({ "pattern": "one" })).held_by("go-g"),
                    says("g found it"),
                ],
            )
            .on("[h]", [says("h is done").held_by("go-g")])
            .on("[i]", [says("i is done")])
            .on_announce("g found it", [says("c heard of g")]),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("lanes.subagent", "2")
}

/// A kill finds one run settling, one in the middle of a step, one in its first model call and one
/// queued; the scenario is about the start after it.
async fn crash(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let c = caller
        .spawn(json!({ "task": "[c]", "parent": root, "label": "c" }))
        .await;
    let g = caller
        .spawn(json!({ "task": "[g]", "parent": c.session, "label": "g" }))
        .await;
    caller.place().let_go("go-c");
    caller.in_state(&c.id, "settling").await;
    let h = caller.spawn(json!({ "task": "[h]", "parent": root })).await;
    caller.until_model_called("[g]", 1).await;
    caller.until_model_called("[h]", 0).await;
    let i = caller.spawn(json!({ "task": "[i]" })).await;
    caller.kill_once().await;
    caller.place().let_go("go-g");
    for (run, expected) in [
        (&g, "g found it"),
        (&c, "c heard of g"),
        (&h, "h is done"),
        (&i, "i is done"),
    ] {
        assert_eq!(caller.ended(&run.id).await["result"], expected);
    }
    caller.quiet().await;
    let inbox = caller.ack_all(&root).await;
    let expected = [
        (c.id.as_str(), "ok", "c heard of g"),
        (h.id.as_str(), "ok", "h is done"),
    ];
    assert_announced(&inbox, &expected);
}
