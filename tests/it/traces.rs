//! One trace through parent, child and restarts: in the rows, the events, the log and a collector.

use std::os::unix::process::ExitStatusExt;

use serde_json::{Value, json};

use crate::harness::{
    Daemon, Faults, Link, ModelServer, Place, Reply, Script, calls, eventually, run, says,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn place() -> Place {
    let asked = json!({
        "description": "Look", "prompt": format!("[kid] {}", "x".repeat(500)),
        "subagent_type": "explore", "session_id": "",
    });
    Place::new(
        Script::new()
            .on(
                "[kid]",
                [
                    calls("list", json!({ "path": "." })),
                    says("kid is done").held_by("go"),
                ],
            )
            .on("[boss]", [calls("task", asked), says("boss is done")]),
    )
}

/// Starts a turn whose caller passes its own trace context.
async fn asked(client: &Link, message: &str) -> String {
    let params = json!({
        "sessionKey": "agent:build:a", "message": message,
        "meta": { "traceparent": format!("00-{TRACE}-00f067aa0ba902b7-01") },
    });
    let turn = client.call("agent.run", params).await;
    turn["runId"].as_str().unwrap().to_owned()
}

async fn start(place: &Place) -> Daemon {
    let mut command = place.command(&["serve"]);
    command.env("ABIDE_LOG", "info,abide::spans=debug");
    place.start_command(command).await.unwrap()
}

/// Log lines with this message.
fn logged(place: &Place, about: &str) -> Vec<Value> {
    let log = place.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| {
            line["message"]
                .as_str()
                .is_some_and(|text| text.contains(about))
        })
        .collect()
}

#[test]
fn b3_one_trace_goes_through_parent_child_and_a_restart() {
    let place = place();
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let boss = asked(&client, "[boss]").await;
        // A line follows the commit that it reports: a kill between the two leaves none.
        eventually("the line", async || {
            let begun = logged(&place, "delegation started");
            (!begun.is_empty()).then_some(())
        })
        .await;
        client.in_state(&boss, "paused").await;
        daemon.kill().await;
        let daemon = start(&place).await;
        let client = daemon.client().await;
        place.let_go("go");
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        client.quiet().await;
        let runs = client.call("runs.list", json!({ "tree": boss })).await;
        let runs = runs["runs"].as_array().unwrap();
        assert_eq!(runs.len(), 2, "{runs:?}");
        assert!(runs.iter().all(|run| run["traceId"] == TRACE), "{runs:?}");
        // An invalid trace context is ignored, and a new trace is started.
        let params = json!({ "task": "[kid]", "agent": "explore", "meta": { "traceparent": "x" } });
        let other = client.spawn(params).await;
        let other = client.ended(&other.id).await;
        assert_ne!(other["traceId"], TRACE);
        assert_eq!(other["traceId"].as_str().unwrap().len(), 32);
        daemon.stop().await;
    });
    let events = place.book().events.into_values();
    let of_tree = events.filter(|event| event.kind == "run.ended").count();
    assert_eq!(of_tree, 3);

    // What may not have been said before the kill is said again, and marked.
    let (again, begun): (Vec<Value>, Vec<Value>) = logged(&place, "delegation started")
        .into_iter()
        .partition(|line| line["again"] == true);
    assert!(
        again.iter().all(|line| line["run"] == begun[0]["run"]),
        "{again:?}"
    );
    let over = logged(&place, "delegation ended");
    assert_eq!((begun.len(), over.len()), (1, 1), "{begun:?} {over:?}");
    assert_eq!(begun[0]["level"], "INFO");
    assert_eq!(begun[0]["trace"], TRACE);
    assert_eq!(begun[0]["agent"], "explore");
    assert_eq!(begun[0]["supervisor"], "build");
    assert_eq!(begun[0]["mode"], "task");
    let task = begun[0]["task"].as_str().unwrap();
    assert_eq!(task.chars().count(), 200, "{task}");
    assert_eq!(over[0]["outcome"], "ok");
    assert_eq!(over[0]["result"], "kid is done");
    assert_eq!(over[0]["run"], begun[0]["run"]);

    let spans: Vec<Value> = ["invoke_agent", "chat", "execute_tool"]
        .into_iter()
        .flat_map(|name| logged(&place, name))
        .filter(|span| span["trace"] == TRACE)
        .collect();
    let of = |name: &str| {
        let mut spans = spans.iter().filter(|span| span["message"] == name);
        let found = spans
            .next()
            .unwrap_or_else(|| panic!("no {name}: {spans:?}"));
        assert_eq!(spans.next(), None, "{name} twice");
        found
    };
    let (boss, kid) = (of("invoke_agent build"), of("invoke_agent explore"));
    assert_eq!(boss["parent"], "00f067aa0ba902b7");
    assert_eq!(kid["parent"], boss["span"]);
    assert_eq!(of("execute_tool task")["parent"], boss["span"]);
    let list = of("execute_tool list");
    assert_eq!(list["parent"], kid["span"]);
    assert!(
        list["attributes"].to_string().contains("sub_agent:explore"),
        "{list}"
    );
}

#[test]
fn what_a_kill_came_before_is_said_after_the_restart() {
    let place = place();
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let boss = asked(&client, "[boss]").await;
        client.in_state(&boss, "paused").await;
        let runs = client.call("runs.list", json!({ "tree": boss })).await;
        let kid = runs["runs"][0]["runId"].clone();
        let last = ("[kid]".to_owned(), 1);
        eventually("its last call", async || {
            place.model_calls().contains_key(&last).then_some(())
        })
        .await;
        daemon.kill().await;

        // A process whose log lines are lost: the end is committed but not logged.
        place.let_go("go");
        let orders = "store.record_outcome.committed=kill";
        let died = match place.start_with(&Faults::ordered(orders)).await {
            Ok(mut daemon) => daemon.ended().await,
            Err(status) => status,
        };
        assert_eq!(died.signal(), Some(9), "{died}");
        let ended = place.book().runs[kid.as_str().unwrap()].ended;
        assert!(ended, "the end of the child is committed");
        let said = |about: &str| -> Vec<Value> {
            let lines = logged(&place, about).into_iter();
            lines.filter(|line| line["run"] == kid).collect()
        };
        assert_eq!(said("delegation ended"), [Value::Null; 0]);

        let daemon = start(&place).await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        eventually("the line", async || {
            (!said("delegation ended").is_empty()).then_some(())
        })
        .await;
        let over = said("delegation ended");
        assert_eq!(over.len(), 1, "{over:?}");
        assert_eq!(
            (&over[0]["again"], &over[0]["outcome"]),
            (&json!(true), &json!("ok"))
        );
        assert_eq!(over[0]["result"], "kid is done");
        let spans = logged(&place, "invoke_agent explore");
        assert_eq!(spans.len(), 1, "{spans:?}");
        assert_eq!(daemon.stop().await, 0);
        // A start after a clean stop logs nothing again.
        let daemon = start(&place).await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(said("delegation ended").len(), 1);
    });
}

#[test]
fn b3_lines_of_delegations_are_short_cut_at_characters_and_hold_no_secret() {
    const SECRET: &str = "canary-token-1";
    // The model's text contains it, near the beginning and where the line is cut.
    let long = format!("{SECRET} {} {SECRET} {}", "ä".repeat(170), "子".repeat(300));
    let asked = json!({
        "description": "Look", "prompt": format!("[kid] {long}"),
        "subagent_type": "other", "session_id": "",
    });
    let script = Script::new().on("[kid]", [says(&long)]).on(
        "[boss]",
        [
            calls("task", asked)
                .and(
                    "subagent_sealed",
                    json!({ "task_summary": format!("[kid] {long}") }),
                )
                .and("call_called", json!({ "message": format!("[kid] {long}") })),
            says("boss is done"),
        ],
    );
    let place = Place::new(script);
    let secret = place.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    let env = format!(
        "env: {{A_TOKEN: {{from: {:?}}}}}",
        format!("file:{}", secret.display())
    );
    let mut place = place.with_agent(
        "boss",
        &format!(
            "mode: primary\ntools: [task]\n{env}\nlinked_agents:\n  - {{agent: sealed, session: \
             own}}\n  - {{agent: called, session: shared}}"
        ),
    );
    for kid in ["other", "sealed", "called"] {
        place = place.with_agent(kid, &format!("mode: subagent\ntools: []\n{env}"));
    }
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:boss:a", "agent": "boss" });
        client.call("sessions.create", params).await;
        let boss = client.turn("agent:boss:a", "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        client.quiet().await;
        daemon.stop().await;
    });
    for (about, field) in [
        ("delegation started", "task"),
        ("delegation ended", "result"),
    ] {
        let lines = logged(&place, about);
        let mut modes: Vec<&str> = lines
            .iter()
            .map(|line| line["mode"].as_str().unwrap())
            .collect();
        modes.sort_unstable();
        assert_eq!(modes, ["call", "subagent", "task"], "{about}");
        for line in &lines {
            assert_eq!(line["level"], "INFO");
            let shown = line[field].as_str().unwrap();
            assert_eq!(shown.chars().count(), 200, "{shown}");
            assert!(shown.contains("[secret:A_TOKEN] ä"), "{shown}");
        }
    }
    assert!(!place.log().contains(SECRET), "{}", place.log());
}

#[test]
fn a_message_to_another_session_is_no_delegation_also_after_a_kill() {
    let sent = json!({ "sessionKey": "agent:build:b", "message": "[b]", "waitSeconds": 0 });
    let asked_for = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "explore", "session_id": "",
    });
    let place = Place::new(
        Script::new()
            .on("[kid]", [says("kid is done").held_by("go")])
            .on("[b]", [says("b has heard").held_by("go")])
            .on(
                "[boss]",
                [
                    calls("sessions_send", sent).and("task", asked_for),
                    says("boss is done"),
                ],
            ),
    )
    .with("sessions.visibility", "\"agent\"");
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:build:b", "agent": "build" });
        client.call("sessions.create", params).await;
        let boss = asked(&client, "[boss]").await;
        for who in ["[kid]", "[b]"] {
            let call = (who.to_owned(), 0);
            eventually(who, async || {
                place.model_calls().contains_key(&call).then_some(())
            })
            .await;
        }
        daemon.kill().await;
        let before = logged(&place, "delegation started");
        let daemon = start(&place).await;
        let client = daemon.client().await;
        place.let_go("go");
        assert_eq!(client.ended(&boss).await["result"], "boss is done");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let all = logged(&place, "delegation started");
        let modes: Vec<&Value> = all.iter().map(|line| &line["mode"]).collect();
        assert_eq!(modes.len(), before.len() + 1, "said again: {all:?}");
        assert!(modes.iter().all(|mode| **mode == "task"), "{all:?}");
    });
}

#[test]
fn b3_a_collector_gets_the_spans() {
    let collector = ModelServer::start();
    collector.on("resourceSpans", (0..20).map(|_| Reply::whole(&json!({}))));
    let endpoint = format!("{:?}", collector.url("/v1/traces"));
    let place = place().with("telemetry.otlp_endpoint", &endpoint);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        place.let_go("go");
        let boss = asked(&client, "[boss]").await;
        client.ended(&boss).await;
        // The child's spans may come in a separate request.
        let spans = eventually("both runs", async || {
            let spans: Vec<Value> = collector
                .requests()
                .iter()
                .flat_map(|request| {
                    let spans = &request.json()["resourceSpans"][0]["scopeSpans"][0]["spans"];
                    spans.as_array().unwrap().clone()
                })
                .collect();
            let agents = spans
                .iter()
                .filter(|span| span["name"].as_str().unwrap().starts_with("invoke_agent"));
            (agents.count() == 2).then_some(spans)
        })
        .await;
        assert!(
            spans.iter().all(|span| span["traceId"] == TRACE),
            "{spans:?}"
        );
        let kid = spans
            .iter()
            .find(|span| span["name"] == "invoke_agent explore");
        assert!(
            kid.unwrap().to_string().contains("sub_agent:explore"),
            "{kid:?}"
        );
    });
    assert_eq!(collector.requests()[0].path, "/v1/traces");
}
