//! Results, errors and events of delegations carry the agent's title besides its id, as it was at
//! the time of the call.

use serde_json::{Value, json};

use super::{children, host_turn, tool_results, until_ended};
use crate::harness::{Place, Script, calls, fails, run, says};

const HOST: &str = "agent:host:a";

#[test]
fn a4_c1_every_face_tells_the_agents_name_beside_its_id_and_an_edit_changes_none() {
    let task = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "helper", "session_id": "",
    });
    let place = Place::new(
        Script::new()
            .on("[kid]", [says("kid is done").held_by("go")])
            .on("[fail]", [fails("no model today")])
            .on("[two]", [says("two is done")])
            .on(
                "[host]",
                [
                    calls("task", task),
                    calls("subagent_helper", json!({ "task_summary": "[fail]" })),
                    calls("call_second", json!({ "message": "[two]" })),
                    calls("call_second", json!({ "message": "[fail]" })),
                    calls("call_plain", json!({ "message": "[two]" })),
                    says("host is done"),
                ],
            ),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: [task]\nlinked_agents:\n  - {agent: helper, session: own}\n  - \
         {agent: second, session: shared}\n  - {agent: plain, session: shared}",
    )
    .with_agent("helper", "title: The Helper\nmode: subagent")
    .with_agent("second", "title: Number Two\nmode: subagent")
    .with_agent("plain", "mode: subagent");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let host = host_turn(&client, "[host]").await;
        client.in_state(&host.id, "paused").await;
        // The agent is renamed while the first call is active.
        let place = place.with_agent("helper", "title: Renamed\nmode: subagent");
        client.call("agents.reload", json!({})).await;
        place.let_go("go");
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let answers = tool_results(&client, HOST).await;
        let names: Vec<(&str, &str)> = answers
            .iter()
            .map(|answer| {
                let text = |name: &str| answer[name].as_str().unwrap();
                (text("agentId"), text("agentName"))
            })
            .collect();
        assert_eq!(
            names,
            [
                ("helper", "The Helper"),
                ("helper", "Renamed"),
                ("second", "Number Two"),
                ("second", "Number Two"),
                ("plain", "plain"),
            ]
        );
        assert_eq!(answers[0]["metadata"]["agentName"], "The Helper");
        let starts = |answer: &Value, with: &str| {
            let error = answer["error"].as_str().unwrap();
            assert!(error.starts_with(with), "{error}");
            assert!(error.contains("no model today"), "{error}");
        };
        starts(&answers[1], "agent helper (Renamed): ");
        starts(&answers[3], "agent second (Number Two): ");

        let seen = until_ended(&mut events, &host.id).await;
        let of = |kind: &str| -> Vec<&Value> {
            let own = seen.iter().filter(|event| event["kind"] == kind);
            own.map(|event| &event["data"]).collect()
        };
        let begun = of("sub_agent.call_start");
        let begun: Vec<&Value> = begun.iter().map(|data| &data["agentName"]).collect();
        assert_eq!(begun, ["Number Two", "Number Two", "plain"]);
        assert_eq!(of("sub_agent.complete")[0]["agentName"], "Number Two");
        assert_eq!(of("sub_agent.partial")[0]["agentName"], "Number Two");
        let failed = of("sub_agent.error");
        assert_eq!(failed[0]["agent"], "second");
        assert_eq!(failed[0]["agentName"], "Number Two");
        starts(failed[0], "agent second (Number Two): ");

        // The same from the rows of a daemon that was killed.
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let kids = children(&client, HOST).await;
        let first = kids.last().unwrap();
        assert_eq!(first["delegated"]["agentName"], "The Helper", "{first}");
        let params = json!({ "sessionKey": HOST });
        let history = client.call("sessions.history", params).await;
        let entries = history["messages"].as_array().unwrap().iter();
        let shown: Vec<&Value> = entries
            .filter_map(|entry| entry["subAgentSummary"].as_array())
            .flatten()
            .map(|summary| &summary["agentName"])
            .collect();
        assert!(shown.contains(&&json!("The Helper")), "{shown:?}");
        assert_eq!(tool_results(&client, HOST).await, answers);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b4_a_run_that_does_not_go_on_says_whose_failure_has_ended_it() {
    let place = Place::new(Script::new().on("[fail]", [fails("no model today")]).on(
        "[host]",
        [calls("call_second", json!({ "message": "[fail]" }))],
    ))
    .with_agent(
        "host",
        "mode: primary\ntools: []\non_child_failure: abort\n\
         linked_agents: [{agent: second, session: shared}]",
    )
    .with_agent("second", "title: Number Two\nmode: subagent");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = host_turn(&client, "[host]").await;
        let ended = client.ended(&host.id).await;
        assert_eq!(ended["error"]["kind"], "child_failed", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("agent second (Number Two): "), "{message}");
        assert!(message.contains("no model today"), "{message}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b4_who_is_held_back_by_the_breaker_is_told_of_by_name() {
    let fail = || calls("subagent_helper", json!({ "task_summary": "[fail]" }));
    let place = Place::new(
        Script::new()
            .on("[fail]", [fails("no model today")])
            .on("[host]", [fail(), fail(), says("host is done")]),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: []\nlinked_agents: [{agent: helper, session: own}]",
    )
    .with_agent("helper", "title: The Helper\nmode: subagent")
    .with("delegation.breaker.failures", "1")
    .with("delegation.breaker.cool_off", "\"1h\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let host = host_turn(&client, "[host]").await;
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let held_back = &tool_results(&client, HOST).await[1];
        assert_eq!(held_back["kind"], "breaker", "{held_back}");
        assert_eq!(held_back["agentId"], "helper");
        assert_eq!(held_back["agentName"], "The Helper");
        let error = held_back["error"].as_str().unwrap();
        assert!(error.contains("agent helper (The Helper)"), "{error}");
        let seen = until_ended(&mut events, &host.id).await;
        let mut opened = seen
            .iter()
            .filter(|event| event["kind"] == "delegation.breaker");
        let opened = &opened.next().unwrap()["data"];
        assert_eq!(opened["agentName"], "The Helper", "{opened}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn c1_who_is_refused_at_a_limit_is_told_of_by_name_and_nothing_fails_in_the_host() {
    let ask = json!({ "task_summary": "[kid]" });
    let both = calls("subagent_helper", ask.clone()).and("subagent_helper", ask);
    let place = Place::new(
        Script::new()
            .on("[kid]", [says("kid is done").held_by("go")])
            .on("[host]", [both, says("host is done")]),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: []\nlinked_agents: [{agent: helper, session: own}]",
    )
    .with_agent("helper", "title: The Helper\nmode: subagent")
    .with("defaults.max_children", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let host = host_turn(&client, "[host]").await;
        client.in_state(&host.id, "paused").await;
        place.let_go("go");
        assert_eq!(client.ended(&host.id).await["result"], "host is done");
        let answers = tool_results(&client, HOST).await;
        let (well, refused): (Vec<&Value>, Vec<&Value>) = answers
            .iter()
            .partition(|answer| answer["unavailable"].is_null());
        assert_eq!((well.len(), refused.len()), (1, 1), "{answers:?}");
        assert_eq!(refused[0]["kind"], "limit", "{refused:?}");
        assert_eq!(refused[0]["agentName"], "The Helper");
        let error = refused[0]["error"].as_str().unwrap();
        assert!(error.starts_with("agent helper (The Helper): "), "{error}");
        assert!(error.contains("max_children = 1"), "{error}");
        assert_eq!(daemon.stop().await, 0);
    });
}
