//! Tool calls that cannot be executed: one rule for every form of them.

use serde_json::json;

use super::{messages_of, place};
use crate::harness::{ModelServer, chat, run};

/// Tools and arguments that do not form a valid call.
const MALFORMED: [(&str, &str); 8] = [
    ("read", "null"),
    ("read", r#"{"path": 7}"#),
    ("read", r#"{"path": "notes.txt", "unknown": 1}"#),
    ("read", "[]"),
    ("read", r#"{"path": "notes.t"#),
    ("read", r#"{"path": "notes.txt", "path": "other.txt"}"#),
    ("read", "{}"),
    ("no_such_tool", "{}"),
];

#[test]
fn three_answers_without_a_valid_call_end_the_run_whatever_is_wrong_with_them() {
    for (tool, arguments) in MALFORMED {
        let server = ModelServer::start();
        server.on("[job]", vec![chat::calls(&[("a", tool, arguments)]); 9]);
        let place = place(&server, "chat/small");
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let spawned = client.spawn(json!({ "task": "[job]" })).await;
            let ended = client.ended(&spawned.id).await;
            assert_eq!(
                ended["error"]["kind"], "bad_arguments",
                "{tool} {arguments}: {ended}"
            );
            let message = ended["error"]["message"].as_str().unwrap();
            assert!(
                message.contains("3 answers in a row") && message.contains(tool),
                "{message}"
            );
            assert_eq!(server.requests().len(), 3, "{tool} {arguments}");
            let params = json!({ "runId": spawned.id });
            let steps = client.call("runs.steps", params).await;
            let tools = steps["steps"].as_array().unwrap().iter();
            let tools: Vec<_> = tools.filter(|step| step["kind"] == "tool").collect();
            assert!(tools.len() >= 2, "{tools:?}");
            assert!(
                tools.iter().all(|step| step["state"] == "failed"),
                "{tools:?}"
            );
        });
    }
}

#[test]
fn a_valid_call_begins_the_count_anew() {
    let server = ModelServer::start();
    let bad = || chat::calls(&[("a", "read", r#"{"path": 7}"#)]);
    // A valid call beside a malformed one is executed.
    let good = chat::calls(&[
        ("b", "read", r#"{"path": "notes.txt"}"#),
        ("c", "read", "[]"),
    ]);
    let replies = [bad(), bad(), good, bad(), bad(), chat::says(&["done"])];
    server.on("[job]", replies);
    let place = place(&server, "chat/small");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client.spawn(json!({ "task": "[job]" })).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        let request = server.requests()[1].json();
        let told = messages_of(&request).last().unwrap()["content"].to_string();
        assert!(told.contains("was not run: path: expected"), "{told}");
    });
}
