//! Events, duration and token usage of a called agent. Tests are named after their requirements.

use std::collections::BTreeMap;

use abide::kernel::time::Timestamp;
use serde_json::{Value, json};

use crate::delegations::{children, until_ended};
use crate::harness::{Link, ModelServer, Place, Reply, Script, calls, chat, run, says};
use crate::providers;

const HOST: &str = "agent:host:a";

/// A host that calls `helper`; `link` adds fields to the link.
fn with_agents(place: Place, link: &str) -> Place {
    let links = format!(
        "mode: primary\ntools: []\nlinked_agents: [{{agent: helper, session: shared{link}}}]"
    );
    place
        .with_agent("host", &links)
        .with_agent("helper", "mode: subagent\ntools: []")
}

async fn turn(client: &Link, text: &str) -> Value {
    let params = json!({ "key": HOST, "agent": "host", "ifExists": "get" });
    client.call("sessions.create", params).await;
    let turn = client.turn(HOST, text).await;
    client.ended(&turn.id).await
}

/// The milliseconds between two timestamps.
fn between(from: &Value, to: &Value) -> u64 {
    let at = |value: &Value| serde_json::from_value::<Timestamp>(value.clone()).unwrap();
    at(to).since(at(from))
}

#[test]
fn b2_words_are_gathered_unless_the_link_says_that_they_come_as_they_are_said() {
    let text = "so many words ".repeat(20);
    let mut hurried = Vec::new();
    for link in ["", ", stream: aggregated", ", stream: direct"] {
        let place = with_agents(
            Place::new(
                Script::new()
                    .on(
                        "[kid]",
                        [says(&text).in_pieces(7, 1000, "never").each_after_ms(20)],
                    )
                    .on(
                        "[host]",
                        [
                            calls("call_helper", json!({ "message": "[kid]" })),
                            says("done"),
                        ],
                    ),
            ),
            link,
        );
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut events = client.subscribe(json!({ "since": 0 })).await;
            let ended = turn(&client, "[host]").await;
            let id = ended["runId"].as_str().unwrap();
            let seen = until_ended(&mut events, id).await;
            let partial: Vec<&Value> = seen
                .iter()
                .filter(|event| event["kind"] == "sub_agent.partial")
                .map(|event| &event["data"])
                .collect();
            let heard: String = partial
                .iter()
                .map(|one| one["text"].as_str().unwrap())
                .collect();
            assert_eq!(heard, text, "{link}");
            // The last chunk comes with the end, without the minimum interval.
            let (_, before) = partial.split_last().unwrap();
            let gaps = before
                .windows(2)
                .map(|two| between(&two[0]["at"], &two[1]["at"]));
            hurried.push(gaps.filter(|gap| *gap < 240).count());
            let complete = seen
                .iter()
                .find(|event| event["kind"] == "sub_agent.complete");
            let took = complete.unwrap()["data"]["durationMs"].as_u64().unwrap();
            // At least the time of its chunks, and at most that of its caller.
            assert!(took >= 40 * 20, "{took}");
            assert!(
                took <= between(&ended["createdAt"], &ended["endedAt"]),
                "{took}: {ended}"
            );
            assert_eq!(daemon.stop().await, 0);
        });
    }
    assert_eq!(hurried[..2], [0, 0], "one in 250 ms");
    assert!(hurried[2] > 0, "as they are said");
}

/// The same answer with a provider count of `tokens` input and 10 output tokens.
fn counted(reply: &Value, reason: &str, tokens: u64) -> Reply {
    let piece = json!({ "choices": [{ "index": 0, "delta": reply }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
    let usage = json!({ "choices": [],
        "usage": { "prompt_tokens": tokens, "completion_tokens": 10 } });
    let events = [piece, end, usage].map(|event| event.to_string());
    chat::events(&[&events[0], &events[1], &events[2], "[DONE]"])
}

/// Calls, tokens and cost of each row of a usage summary, by row name.
async fn rows(client: &Link, params: Value) -> BTreeMap<String, [u64; 4]> {
    let summary = client.call("usage.summary", params).await;
    let rows = summary["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        let of = |name: &str| row[name].as_u64().unwrap();
        let name = row["name"].as_str().unwrap().to_owned();
        (
            name,
            ["calls", "inputTokens", "outputTokens", "costMicros"].map(of),
        )
    })
    .collect()
}

#[test]
fn b3_what_a_called_one_takes_is_its_callers_users_and_part_of_the_tree() {
    let server = ModelServer::start();
    let call = json!({ "tool_calls": [{
        "index": 0, "id": "c1", "type": "function",
        "function": { "name": "call_helper", "arguments": "{\"message\":\"look\"}" },
    }] });
    server.on_agent(
        "host",
        [
            counted(&call, "tool_calls", 100),
            counted(&json!({ "content": "host is done" }), "stop", 200),
            counted(&json!({ "content": "host is done again" }), "stop", 50),
        ],
    );
    server.on_agent(
        "helper",
        [counted(
            &json!({ "content": "helper is done" }),
            "stop",
            1000,
        )],
    );
    let place = with_agents(providers::place(&server, "chat/small"), "")
        .with("prices.\"chat/small\".input", "1.0")
        .with("prices.\"chat/small\".output", "10.0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = turn(&client, "one").await;
        assert_eq!(first["result"], "host is done", "{first}");
        let kid = children(&client, HOST).await.remove(0);
        let second = turn(&client, "two").await;
        let [id, other] = [&first, &second].map(|run| run["runId"].as_str().unwrap().to_owned());
        let helper = [1, 1000, 10, 1100];
        let host = [1, 300, 20, 500];
        let tree = [2, 1300, 30, 1600];
        let next = [1, 50, 10, 150];
        let all = [3, 1350, 40, 1750];
        assert_eq!(kid["usage"]["inputTokens"], 1000, "{kid}");
        assert_eq!(kid["usage"]["costMicros"], 1100, "{kid}");

        let check = async |client: &Link| {
            let by_tree = rows(client, json!({ "by": "tree" })).await;
            assert_eq!(by_tree[&id], tree, "{by_tree:?}");
            assert_eq!(by_tree[&other], next, "{by_tree:?}");
            assert_eq!(
                by_tree.len(),
                2,
                "a called one is the root of nothing: {by_tree:?}"
            );
            let in_tree = rows(client, json!({ "by": "agent", "tree": id })).await;
            assert_eq!(in_tree["helper"], helper);
            assert_eq!(in_tree["host"], host);
            let by_user = rows(client, json!({ "by": "user" })).await;
            assert_eq!(by_user.into_values().collect::<Vec<_>>(), [all], "one user");
            let of_session = rows(client, json!({ "by": "session" })).await;
            assert_eq!(of_session[HOST], all);
            assert_eq!(of_session.len(), 1);
        };
        check(&client).await;
        daemon.kill().await;
        let daemon = place.start().await;
        check(&daemon.client().await).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
