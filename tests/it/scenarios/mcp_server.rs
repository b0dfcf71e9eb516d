//! Runs of an MCP host: the same key is one run, whatever is killed, and its result waits in the
//! inbox.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, says};

/// The scenarios of the MCP server.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "mcp server",
    place: || Place::new(Script::new().on("[a]", [says("a is done")])),
    play: |caller| Box::pin(hosted(caller)),
}];

async fn hosted(caller: &mut Caller) {
    let run = caller.spawn_by_mcp("[a]").await;
    let wait = json!({ "runIds": [run.id], "timeout": 240 });
    let waited = caller.by_mcp("wait", wait).await;
    assert_eq!(waited["runs"][0]["result"], "a is done");
    assert_eq!(caller.ended(&run.id).await["result"], "a is done");
    caller.quiet().await;
    let inbox = caller.by_mcp("inbox", json!({})).await;
    let results = inbox["results"].as_array().unwrap();
    assert_eq!(results.len(), 1, "{inbox}");
    assert_eq!(results[0]["runId"], run.id);
    let ack = json!({ "announceIds": [results[0]["announceId"]] });
    let acked = caller.by_mcp("ack", ack.clone()).await;
    assert_eq!(acked, ack);
    let inbox = caller.by_mcp("inbox", json!({})).await;
    assert_eq!(inbox["results"], json!([]));
}
