//! Fallback models: when they are used, in which order, and how that is reported.

use serde_json::json;

use super::place;
use crate::harness::{ModelServer, Reply, chat, messages, run};

fn answer(text: &str) -> Reply {
    messages::answers(&[json!({ "type": "text", "text": text })], "end_turn")
}

#[test]
fn another_model_stands_in_and_stays_for_the_rest_of_the_run() {
    let first = ModelServer::start();
    first.on("", vec![Reply::status(503, "busy"); 20]);
    let second = ModelServer::start();
    let call = json!({ "type": "tool_use", "id": "t", "name": "list", "input": {} });
    second.on(
        "[job]",
        [messages::answers(&[call], "tool_use"), answer("done")],
    );
    let place = place(&first, "chat/small")
        .with(
            "providers.claude.base_url",
            &format!("{:?}", second.url("")),
        )
        .with("providers.chat.retries", "1")
        .with("defaults.fallback_models", "[\"gone/x\", \"claude/big\"]");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client.spawn(json!({ "task": "[job] look" })).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        assert_eq!(ended["model"], "chat/small");
        assert_eq!(
            first.requests().len(),
            2,
            "asked once more, and not at the second step"
        );
        let warnings = ended["warnings"].to_string();
        assert!(
            warnings.contains("claude/big answered instead of chat/small"),
            "{warnings}"
        );
        assert!(
            warnings.contains("tried 2 times") && warnings.contains("gone/x"),
            "{warnings}"
        );
        let steps = client
            .call("runs.steps", json!({ "runId": spawned.id }))
            .await;
        let summary = steps["steps"][0]["resultSummary"].as_str().unwrap();
        assert!(summary.starts_with("[claude/big]"), "{summary}");

        // The warning and the step survive a restart.
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let again = client.run(&spawned.id).await;
        assert_eq!(again["warnings"], ended["warnings"]);
    });
}

#[test]
fn a_wrong_key_and_an_unknown_model_switch_and_a_wrong_request_does_not() {
    for (status, switches) in [(401, true), (404, true), (400, false), (422, false)] {
        let first = ModelServer::start();
        first.on("", [Reply::status(status, "because")]);
        let second = ModelServer::start();
        second.on("", [answer("stood in")]);
        let place = place(&first, "chat/small")
            .with(
                "providers.claude.base_url",
                &format!("{:?}", second.url("")),
            )
            .with("defaults.fallback_models", "[\"claude/big\"]");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let spawned = client.spawn(json!({ "task": "[job]" })).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(first.requests().len(), 1, "{status}");
            assert_eq!(second.requests().len(), usize::from(switches), "{status}");
            match switches {
                true => assert_eq!(ended["result"], "stood in", "{status}: {ended}"),
                false => assert_eq!(ended["error"]["kind"], "provider_request", "{ended}"),
            }
        });
    }
}

#[test]
fn an_account_without_credit_switches_and_the_error_says_what_to_do() {
    let anthropic = json!({ "type": "error", "error": { "type": "invalid_request_error",
        "message": "Your credit balance is too low for this API." } });
    for refusal in [
        Reply::status(402, "Insufficient Balance"),
        Reply::whole(&anthropic).refuses(400),
        Reply::status(
            429,
            "Over your current quota, please check your plan and billing details.",
        ),
        Reply::bytes(b"insufficient credits")
            .with_type("text/plain")
            .refuses(400),
        Reply::bytes(b"").with_type("").refuses(402),
        Reply::whole(&json!({ "code": 30001, "data": null,
            "message": "Sorry, your account balance is insufficient" }))
        .refuses(400),
        Reply::status(400, "Your account is in arrears. Top up to continue."),
    ] {
        let first = ModelServer::start();
        first.on("", vec![refusal.clone(); 2]);
        let second = ModelServer::start();
        second.on("", [answer("stood in")]);
        let url = format!("{:?}", second.url(""));
        let place = place(&first, "chat/small").with("providers.claude.base_url", &url);
        let others = place.with_agent("alone", "mode: all\nfallback_models: []\ntools: [list]");
        let place = others.with("defaults.fallback_models", "[\"claude/big\"]");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let spawned = client.spawn(json!({ "task": "[job]" })).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "stood in", "{refusal:?}: {ended}");
            let spawned = client
                .spawn(json!({ "task": "[job]", "agent": "alone" }))
                .await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["error"]["kind"], "provider_credit", "{ended}");
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(message.contains("fallback_models"), "{message}");
            assert_eq!(first.requests().len(), 2, "{refusal:?}: tried once each");
        });
    }
}

/// Falling back from a partly streamed answer withdraws that text, and thinking of one provider is
/// not sent to another.
#[test]
fn g11_8_g11_9_a_child_has_the_fall_backs_and_the_address_of_its_own_agent() {
    let first = ModelServer::start();
    first.on("", vec![Reply::status(500, "down"); 9]);
    let second = ModelServer::start();
    second.on("[child]", [chat::says(&["from the other address"])]);
    let place = place(&first, "script/x")
        .with("providers.chat.retries", "0")
        .with("providers.spare.kind", "\"openai\"")
        .with(
            "providers.spare.base_url",
            &format!("{:?}", second.url("/v1")),
        );
    let agents = place.path().join(".config/abide/agents");
    std::fs::create_dir_all(&agents).unwrap();
    let file = "---\ndescription: d\nmodel: chat/own\nfallback_models: [spare/other]\n---\nx\n";
    std::fs::write(agents.join("worker.md"), file).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let parent = client.session("client", "root").await;
        for params in [
            json!({ "task": "[child]", "agent": "worker", "parent": parent }),
            json!({ "task": "[child]", "agent": "worker" }),
        ] {
            second.on("[child]", [chat::says(&["from the other address"])]);
            let spawned = client.spawn(params).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "from the other address", "{ended}");
        }
        let asked: Vec<String> = first
            .requests()
            .iter()
            .map(|one| one.json()["model"].to_string())
            .collect();
        assert_eq!(asked, ["\"own\"", "\"own\""]);
    });
}
