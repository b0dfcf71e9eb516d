//! The outcome of a run when a called agent fails: the default of the agent's definition, and the
//! setting of a link that overrides it. Tests are named after their requirements.

use serde_json::{Value, json};

use crate::delegations::{children, tool_results};
use crate::harness::{Link, Place, Script, calls, fails, run, says};

fn message(text: &str) -> Value {
    json!({ "message": text })
}

async fn turn(client: &Link, agent: &str, text: &str) -> Value {
    let key = format!("agent:{agent}:a");
    let params = json!({ "key": key, "agent": agent, "ifExists": "get" });
    client.call("sessions.create", params).await;
    let turn = client.turn(&key, text).await;
    client.ended(&turn.id).await
}

#[test]
fn b4_each_word_of_an_agent_for_all_its_links_and_of_a_link_in_its_place_has_effect() {
    let words = ["", "continue", "abort"];
    let both = || {
        words
            .into_iter()
            .flat_map(|own| words.map(|link| (own, link)))
    };
    let host = |own: &str, link: &str| match (own, link) {
        ("", "") => "host".to_owned(),
        _ => format!("host-{own}-{link}"),
    };
    let mut place = Place::new(Script::new().on("[kid]", [fails("no model today")]).on(
        "[host]",
        [calls("call_helper", message("[kid]")), says("host is done")],
    ))
    .with_agent("helper", "mode: subagent\ntools: []");
    for (own, link) in both() {
        let field = |name: &str, word: &str| match word {
            "" => String::new(),
            word => format!("{name}: {word}"),
        };
        let fields = format!(
            "mode: primary\ntools: []\nlinked_agents: [{{agent: helper, session: shared{}{}}}]\n{}",
            if link.is_empty() { "" } else { ", " },
            field("on_failure", link),
            field("on_child_failure", own),
        );
        place = place.with_agent(host(own, link).trim_end_matches('-'), &fields);
    }
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        for (own, link) in both() {
            let agent = host(own, link);
            let agent = agent.trim_end_matches('-');
            let ended = turn(&client, agent, "[host]").await;
            let aborts = match link {
                "" => own == "abort",
                link => link == "abort",
            };
            let answers = tool_results(&client, &format!("agent:{agent}:a")).await;
            assert_eq!(answers.len(), 1, "{agent}: one result in any case");
            assert_eq!(answers[0]["kind"], "provider", "{agent}: {answers:?}");
            if aborts {
                assert_eq!(ended["state"], "error", "{agent}: {ended}");
                assert_eq!(ended["error"]["kind"], "child_failed", "{agent}");
                let error = ended["error"]["message"].as_str().unwrap();
                assert!(error.contains("no model today"), "{agent}: {error}");
            } else {
                assert_eq!(ended["result"], "host is done", "{agent}: {ended}");
            }
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b4_a_word_for_called_ones_says_nothing_of_the_other_tools() {
    let task = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "helper", "session_id": "",
    });
    let place = Place::new(Script::new().on("[kid]", [fails("no model today")]).on(
        "[host]",
        [
            calls("task", task).and("subagent_helper", json!({ "task_summary": "[kid]" })),
            says("host is done"),
        ],
    ))
    .with_agent(
        "host",
        "mode: primary\ntools: [task]\non_child_failure: abort\nlinked_agents: [{agent: helper, \
         session: own}]",
    )
    .with_agent("helper", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = turn(&client, "host", "[host]").await;
        assert_eq!(ended["result"], "host is done", "{ended}");
        let answers = tool_results(&client, "agent:host:a").await;
        assert_eq!(answers.len(), 2);
        assert!(
            answers.iter().all(|one| one["unavailable"] == true),
            "{answers:?}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b4_a_failure_that_ends_its_caller_does_so_also_after_a_kill_and_leaves_nothing_open() {
    let place = Place::new(
        Script::new()
            .on("[kid a]", [fails("no model today").held_by("go")])
            .on("[kid b]", [says("b is done")])
            .on(
                "[host]",
                [
                    calls("call_helper", message("[kid a]")).and("call_second", message("[kid b]")),
                    says("never said"),
                ],
            ),
    )
    .with_agent(
        "host",
        "mode: primary\ntools: []\non_child_failure: abort\nlinked_agents:\n  - {agent: helper, \
         session: shared}\n  - {agent: second, session: shared}",
    )
    .with_agent("helper", "mode: subagent\ntools: []")
    .with_agent("second", "mode: subagent\ntools: []");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:host:a", "agent": "host" });
        client.call("sessions.create", params).await;
        let host = client.turn("agent:host:a", "[host]").await;
        client.in_state(&host.id, "paused").await;
        daemon.kill().await;
        place.let_go("go");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let ended = client.ended(&host.id).await;
        assert_eq!(ended["error"]["kind"], "child_failed", "{ended}");
        let kids = children(&client, "agent:host:a").await;
        assert_eq!(kids.len(), 2, "{kids:?}");
        // Each call of the answer has one result.
        assert_eq!(tool_results(&client, "agent:host:a").await.len(), 2);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn b4_a_plan_that_goes_on_sees_the_failure_and_one_that_does_not_ends() {
    for (word, aborts) in [("continue", false), ("abort", true)] {
        let plan = json!({
            "steps": [{ "tool": "call_helper", "arguments": { "message": "[kid]" } }],
            "requires_delegation": false,
        });
        let place = Place::new(Script::new().on("[kid]", [fails("no model today")]).on(
            "[host]",
            [
                says(&plan.to_string()),
                says("it has failed"),
                says("host is done"),
            ],
        ))
        .with_agent(
            "host",
            &format!(
                "mode: primary\nstrategy: plan\ntools: []\non_child_failure: {word}\n\
                 linked_agents: [{{agent: helper, session: shared}}]"
            ),
        )
        .with_agent("helper", "mode: subagent\ntools: []");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let ended = turn(&client, "host", "[host]").await;
            match aborts {
                true => assert_eq!(ended["error"]["kind"], "child_failed", "{ended}"),
                false => assert_eq!(ended["result"], "host is done", "{ended}"),
            }
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn b4_a_word_that_is_none_leaves_the_agent_out_and_says_which_there_are() {
    let place = Place::new(Script::new()).with_agent("host", "on_child_failure: maybe");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let listed = client.call("agents.list", json!({})).await;
        let reason = listed["rejected"][0]["reason"].as_str().unwrap();
        for word in ["on_child_failure", "continue", "abort"] {
            assert!(reason.contains(word), "{reason}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
