//! Chat Completions API: whole turns.

use serde_json::json;

use super::{messages_of, place};
use crate::harness::{ModelServer, chat, run};

#[test]
fn a_turn_with_parallel_tools_is_carried_out_over_http() {
    let server = ModelServer::start();
    let arguments = r#"{"path": "notes.txt"}"#;
    let (read, list) = (("a", "read", arguments), ("b", "list", "{}"));
    server.on(
        "[job]",
        [
            chat::calls(&[read, list]),
            chat::says(&["It says ", "beta ✓."]),
        ],
    );
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[job] look", "thinking": "low" });
        let spawned = client.spawn(params).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "It says beta ✓.", "{ended}");
        assert_eq!(ended["usage"]["modelCalls"], 2);
        assert_eq!(ended["usage"]["inputTokens"], 22);
        assert_eq!(ended["usage"]["outputTokens"], 6);
        assert_eq!(ended["warnings"], json!([]));

        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].path, "/v1/chat/completions");
        assert_eq!(
            requests[0].header("authorization"),
            None,
            "no key, no header"
        );
        let first = requests[0].json();
        assert_eq!(
            (&first["model"], &first["stream"]),
            (&json!("small"), &json!(true))
        );
        assert_eq!(first["reasoning_effort"], "low");
        let system = messages_of(&first)[0]["content"].as_str().unwrap();
        assert!(system.contains("You are agent explore"), "{system}");
        let second = requests[1].json();
        let roles: Vec<&str> = messages_of(&second)
            .iter()
            .map(|m| m["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
        assert_eq!(messages_of(&second)[3]["tool_call_id"], "a");
        assert!(
            messages_of(&second)[3]["content"]
                .as_str()
                .unwrap()
                .contains("beta")
        );

        let history = json!({ "sessionKey": spawned.session });
        let history = client.call("sessions.history", history).await;
        let text = history.to_string();
        assert!(
            !text.contains("native"),
            "only providers see their own JSON: {text}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn characters_that_are_cut_between_two_pieces_are_whole_again() {
    let server = ModelServer::start();
    let text = "größer ✓ 漢字 🦀";
    server.on("[job]", [chat::says(&[text]).in_bytes(1)]);
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        assert_eq!(client.ended(&spawned.id).await["result"], text);
    });
}

#[test]
fn what_an_agent_sets_goes_into_the_request() {
    let server = ModelServer::start();
    server.on("[job]", [chat::says(&["done"])]);
    let place = place(&server, "chat/small");
    let agents = place.path().join(".config/abide/agents");
    std::fs::create_dir_all(&agents).unwrap();
    let file = "---\ndescription: d\ntemperature: 0.2\nmax_tokens: 77\n---\nBe brief.\n";
    std::fs::write(agents.join("brief.md"), file).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[job]", "agent": "brief" });
        let spawned = client.spawn(params).await;
        client.ended(&spawned.id).await;
        let request = server.requests()[0].json();
        assert_eq!(request["temperature"], 0.2);
        assert_eq!(request["max_tokens"], 77);
        assert!(
            messages_of(&request)[0]["content"]
                .as_str()
                .unwrap()
                .starts_with("Be brief.")
        );
    });
}

#[test]
fn g11_4_g11_5_arguments_that_are_no_json_run_no_tool_and_are_told_twice() {
    let server = ModelServer::start();
    let broken = chat::calls(&[("a", "read", r#"{"path": "notes.t"#)]);
    let good = chat::calls(&[("b", "read", r#"{"path": "notes.txt"}"#)]);
    server.on(
        "[better]",
        [broken.clone(), broken.clone(), good, chat::says(&["ok"])],
    );
    server.on("[worse]", vec![broken; 9]);
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let better = client.spawn(json!({ "task": "[better]" })).await;
        assert_eq!(client.ended(&better.id).await["result"], "ok");
        let told = server.requests()[1].json();
        let told = messages_of(&told).last().unwrap()["content"]
            .as_str()
            .unwrap()
            .to_owned();
        assert!(
            told.contains("was not run") && told.contains("not valid JSON"),
            "{told}"
        );

        let before = server.requests().len();
        let worse = client.spawn(json!({ "task": "[worse]" })).await;
        let ended = client.ended(&worse.id).await;
        assert_eq!(ended["error"]["kind"], "bad_arguments", "{ended}");
        assert_eq!(server.requests().len() - before, 3);
        let steps = client
            .call("runs.steps", json!({ "runId": worse.id }))
            .await;
        let steps = steps["steps"].as_array().unwrap();
        let tools: Vec<_> = steps.iter().filter(|step| step["kind"] == "tool").collect();
        assert_eq!(tools.len(), 2);
        assert!(
            tools.iter().all(|step| step["state"] == "failed"),
            "{tools:?}"
        );
    });
}
