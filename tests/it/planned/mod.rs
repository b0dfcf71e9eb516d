//! Strategy `plan`: what a planner does itself, what it delegates, and the events about both. Tests
//! are named after their requirements.

mod leased;
mod pool;

use serde_json::{Value, json};

use crate::delegations::{children, tool_results, until_ended};
use crate::harness::{
    Answer, Link, ModelServer, Place, Script, Spawned, calls, chat, fails, run, says,
};

const BOSS: &str = "agent:boss:a";

/// A plan of these steps, each a tool with its arguments.
fn acts(steps: &[(&str, Value)]) -> Answer {
    let steps: Vec<Value> = steps
        .iter()
        .map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments, "why": "so" }))
        .collect();
    says(&json!({ "steps": steps, "requires_delegation": false }).to_string())
}

/// A plan that delegates to this agent.
fn delegates(to: &str) -> Answer {
    let plan = json!({
        "steps": [], "requires_delegation": true, "delegate_to": to, "task": "[kid]",
    });
    says(&plan.to_string())
}

fn answers_at_once() -> Answer {
    acts(&[])
}

fn boss(script: Script, fields: &str) -> Place {
    Place::new(script)
        .with_agent("boss", &format!("mode: primary\nstrategy: plan\n{fields}"))
        .with_agent("helper", "title: The Helper\nmode: subagent\ntools: [read]")
}

async fn turn(client: &Link, text: &str) -> Spawned {
    let params = json!({ "key": BOSS, "agent": "boss", "ifExists": "get" });
    client.call("sessions.create", params).await;
    client.turn(BOSS, text).await
}

/// The run's steps in order: the tool of each, or the planner node.
async fn steps(client: &Link, id: &str) -> Vec<String> {
    let steps = client.call("runs.steps", json!({ "runId": id })).await;
    let steps = steps["steps"].as_array().unwrap().iter();
    steps
        .map(|step| match step["tool"].as_str() {
            Some(tool) => tool.to_owned(),
            None => {
                let summary = step["paramsSummary"].as_str().unwrap();
                summary.split(':').next().unwrap().to_owned()
            }
        })
        .collect()
}

#[test]
fn a3_plan_act_reflect_respond_are_steps_of_the_journal() {
    let place = boss(
        Script::new().on(
            "[boss]",
            [
                acts(&[
                    ("write", json!({ "path": "new.txt", "content": "made" })),
                    ("read", json!({ "path": "new.txt" })),
                ]),
                says("it is there\nNEXT: PLAN"),
                acts(&[("read", json!({ "path": "nowhere.txt" }))]),
                says("enough\nNEXT: RESPOND"),
                says("boss is done"),
            ],
        ),
        "tools: [read, write]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = turn(&client, "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        assert_eq!(
            steps(&client, &boss.id).await,
            [
                "plan", "write", "read", "reflect", "plan", "read", "reflect", "respond"
            ]
        );
        let results = tool_results(&client, BOSS).await;
        assert!(
            results[1].to_string().contains("made"),
            "one after another: {results:?}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a3_what_a_planner_remembers_takes_no_step_away() {
    let keep = json!({ "text": "Releases are cut on Fridays" });
    let place = boss(
        Script::new()
            .on(
                "[keep]",
                [
                    acts(&[("memory_save", keep)]),
                    says("kept"),
                    says("keep is done"),
                ],
            )
            .on(
                "[ask]",
                [
                    acts(&[("read", json!({ "path": "notes.txt" }))]),
                    says("seen"),
                    says("on Fridays"),
                ],
            ),
        "tools: [read, memory_save]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let keep = turn(&client, "[keep]").await;
        assert_eq!(client.ended(&keep.id).await["result"], "keep is done");
        let ask = turn(&client, "[ask] When are releases cut?").await;
        assert_eq!(client.ended(&ask.id).await["result"], "on Fridays");
        let nodes = steps(&client, &ask.id).await;
        assert_eq!(nodes, ["plan", "read", "reflect", "respond"]);
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        let of_ask = book.steps.values().filter(|step| step.run == ask.id);
        let recalled = of_ask.filter(|step| step.input["memory"].is_object());
        assert_eq!(recalled.count(), 3, "it was given to no call");
        // Both plans are in one session, and a request may contain the calls of both.
        let names = book
            .steps
            .values()
            .filter_map(|step| step.tool_call.as_ref());
        let mut names: Vec<&String> = names.collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!((all, names.len()), (2, 2), "{names:?}");
    });
}

#[test]
fn b4_a_plan_ends_with_a_failed_call_where_the_setting_says_so() {
    let call = json!({ "message": "[kid]" });
    let place = boss(
        Script::new().on("[kid]", [fails("no model today")]).on(
            "[boss]",
            [
                acts(&[
                    ("call_helper", call),
                    ("read", json!({ "path": "notes.txt" })),
                ]),
                says("never said"),
            ],
        ),
        "tools: [read]\nlinked_agents: [{agent: helper, session: shared, on_failure: abort}]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let boss = turn(&client, "[boss]").await;
        let ended = client.ended(&boss.id).await;
        assert_eq!(ended["error"]["kind"], "child_failed", "{ended}");
        assert_eq!(steps(&client, &boss.id).await, ["plan", "call_helper"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a3_own_tools_go_before_delegation_and_a_simple_answer_needs_neither() {
    let both = json!({
        "steps": [{ "tool": "read", "arguments": { "path": "notes.txt" } }],
        "requires_delegation": true, "delegate_to": "helper",
    });
    let place = boss(
        Script::new()
            .on(
                "[both]",
                [says(&both.to_string()), says("seen"), says("both is done")],
            )
            .on("[simple]", [answers_at_once(), says("simple is done")]),
        "tools: [read]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let both = turn(&client, "[both]").await;
        assert_eq!(client.ended(&both.id).await["result"], "both is done");
        assert_eq!(
            steps(&client, &both.id).await,
            ["plan", "read", "reflect", "respond"]
        );
        let simple = turn(&client, "[simple]").await;
        assert_eq!(client.ended(&simple.id).await["result"], "simple is done");
        assert_eq!(steps(&client, &simple.id).await, ["plan", "respond"]);
        assert_eq!(children(&client, BOSS).await.len(), 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a3_a_plan_that_is_none_comes_back_twice_and_not_more_often() {
    let place = boss(
        Script::new()
            .on(
                "[mends]",
                [
                    says("I would read it."),
                    delegates("nobody"),
                    answers_at_once(),
                    says("well"),
                ],
            )
            .on(
                "[never]",
                [says("no"), says("no"), says("no"), says("not asked for")],
            ),
        "tools: [read]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mends = turn(&client, "[mends]").await;
        assert_eq!(client.ended(&mends.id).await["result"], "well");
        assert_eq!(
            steps(&client, &mends.id).await,
            ["plan", "plan", "plan", "respond"]
        );
        let never = turn(&client, "[never]").await;
        let ended = client.ended(&never.id).await;
        assert_eq!(ended["error"]["kind"], "bad_plan", "{ended}");
        assert_eq!(steps(&client, &never.id).await, ["plan", "plan", "plan"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a4_a5_a_planner_delegates_and_its_stream_tells_of_it() {
    let long = "x".repeat(600);
    let place = boss(
        Script::new()
            .on(
                "[kid]",
                [calls("read", json!({ "path": "notes.txt" })), says(&long)],
            )
            .on(
                "[boss]",
                [delegates("The Helper"), says("known"), says("boss is done")],
            ),
        "tools: [read]",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut events = client.subscribe(json!({ "since": 0 })).await;
        let boss = turn(&client, "[boss]").await;
        assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
        assert_eq!(
            steps(&client, &boss.id).await,
            ["plan", "delegate", "reflect", "respond"]
        );
        let kids = children(&client, BOSS).await;
        let [kid] = &kids[..] else {
            panic!("{kids:?}");
        };
        assert_eq!(kid["delegated"]["mode"], "plan");
        assert_ne!(kid["sessionKey"], BOSS);
        let result = &tool_results(&client, BOSS).await[0];
        assert_eq!(result["result"], long);
        assert_eq!(result["agentId"], "helper");
        assert_eq!(result["agentName"], "The Helper");
        assert_eq!(result["supervisor"], "boss");
        // Its own context, and the part of its caller's context that it was given.
        let history = client
            .call(
                "sessions.history",
                json!({ "sessionKey": kid["sessionKey"] }),
            )
            .await;
        let first = history["messages"][0]["content"][0]["text"]
            .as_str()
            .unwrap();
        assert!(first.starts_with("[kid]\n\n"), "{first}");

        let seen = until_ended(&mut events, &boss.id).await;
        let own = |kind: &str| -> Vec<&Value> {
            let own = seen
                .iter()
                .filter(|event| event["runId"] == boss.id.as_str());
            own.filter(|event| event["kind"] == kind)
                .map(|event| &event["data"])
                .collect()
        };
        let start = own("delegation.start");
        assert_eq!(start.len(), 1);
        assert_eq!(start[0]["subAgentId"], "helper");
        assert_eq!(start[0]["subAgentName"], "The Helper");
        assert_eq!(start[0]["task"], "[kid]");
        assert_eq!(start[0]["childRunId"], kid["runId"]);
        let complete = own("delegation.complete");
        assert_eq!(complete.len(), 1);
        assert_eq!(complete[0]["success"], true);
        assert_eq!(complete[0]["subAgentName"], "The Helper");
        assert_eq!(complete[0]["resultPreview"].as_str().unwrap().len(), 500);
        for kind in ["tool.started", "tool.completed"] {
            let told = own(kind);
            let of_kid: Vec<_> = told
                .iter()
                .filter(|data| data["source"] == "subagent:helper")
                .collect();
            assert_eq!(of_kid.len(), 1, "{kind}: {told:?}");
            assert_eq!(of_kid[0]["toolName"], "read");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a4_who_fails_or_takes_too_long_is_a_result_with_its_name() {
    let place = boss(
        Script::new().on("[kid]", [fails("no model today")]).on(
            "[boss]",
            [delegates("helper"), says("known"), says("boss is done")],
        ),
        "tools: [read]",
    );
    let slow = boss(
        Script::new()
            .on("[kid]", [says("never").held_by("never")])
            .on(
                "[boss]",
                [delegates("helper"), says("known"), says("boss is done")],
            ),
        "tools: [read]",
    )
    .with("delegation.timeout", "\"300ms\"");
    run(async {
        for (place, kind) in [(&place, "provider"), (&slow, "run_timeout")] {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut events = client.subscribe(json!({ "since": 0 })).await;
            let boss = turn(&client, "[boss]").await;
            assert_eq!(client.ended(&boss.id).await["result"], "boss is done");
            let result = &tool_results(&client, BOSS).await[0];
            assert_eq!(result["unavailable"], true, "{result}");
            assert_eq!(result["kind"], kind);
            assert_eq!(result["agentId"], "helper");
            let seen = until_ended(&mut events, &boss.id).await;
            let complete = seen
                .iter()
                .find(|event| event["kind"] == "delegation.complete");
            let complete = &complete.unwrap()["data"];
            assert_eq!(complete["success"], false);
            assert_eq!(complete["subAgentName"], "The Helper");
            for error in [&complete["error"], &result["error"]] {
                let error = error.as_str().unwrap();
                let with = "agent helper (The Helper): ";
                assert!(error.starts_with(with), "{error}");
            }
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a1_the_agents_prompt_a_divider_and_the_nodes_instruction_stand_in_every_call() {
    let server = ModelServer::start();
    let plan = json!({
        "steps": [{ "tool": "read", "arguments": { "path": "notes.txt" } }],
        "requires_delegation": false,
    });
    server.on(
        "Do it.",
        [
            chat::says(&["That is", " no plan"]),
            chat::says(&[&plan.to_string()]),
            chat::says(&["It is known.\n", "NEXT: RESPOND"]),
            chat::says(&["boss is done"]),
            chat::says(&["{\"steps\": [], \"requires_delegation\": false}"]),
            chat::says(&["done again"]),
        ],
    );
    let mut place = boss(Script::new(), "tools: [read]");
    for (field, value) in [
        ("kind", "openai".to_owned()),
        ("base_url", server.url("/v1")),
    ] {
        place.set(&format!("providers.chat.{field}"), &format!("{value:?}"));
    }
    let place = place.with("defaults.model", "\"chat/big\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = turn(&client, "look").await;
        let ended = client.ended(&first.id).await;
        assert_eq!(ended["result"], "boss is done", "{ended}");
        let second = turn(&client, "and now").await;
        assert_eq!(client.ended(&second.id).await["result"], "done again");
        let requests: Vec<Value> = server.requests().iter().map(|one| one.json()).collect();
        let words = [
            "one JSON object",
            "one JSON object",
            "NEXT: RESPOND",
            "Now answer the latest message",
            "one JSON object",
            "Now answer the latest message",
        ];
        assert_eq!(requests.len(), words.len());
        for (request, words) in requests.iter().zip(words) {
            let said = request["messages"].as_array().unwrap();
            let system = said[0]["content"].as_str().unwrap();
            assert!(system.starts_with("Do it."), "{system}");
            let (_, instruction) = system.rsplit_once("\n\n---\n\n").unwrap();
            assert!(instruction.contains(words), "{instruction}");
            assert!(request.get("tools").is_none(), "a text is wanted");
            let roles: Vec<&str> = said
                .iter()
                .map(|message| message["role"].as_str().unwrap())
                .collect();
            assert!(roles.windows(2).all(|two| two[0] != two[1]), "{roles:?}");
            assert_eq!(roles.last(), Some(&"user"), "{roles:?}");
        }
        assert!(
            requests[1]
                .to_string()
                .contains("does not match the schema")
        );
        assert!(
            requests[2].to_string().contains("alpha"),
            "the result of its plan"
        );
        let last = requests[5].to_string();
        assert!(
            last.contains("boss is done") && !last.contains("It is known"),
            "{last}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}
