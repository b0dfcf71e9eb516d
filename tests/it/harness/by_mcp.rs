//! Calls of the client through the MCP server of the daemon.

use serde_json::{Value, json};

use super::caller::{Caller, RunCreatingCall};
use super::client::Spawned;
use crate::mcp_server::host::{Era, HttpHost, structured};

impl Caller {
    /// Calls a tool and repeats the call until it is answered, whenever the daemon is killed.
    pub(crate) async fn by_mcp(&mut self, tool: &str, arguments: Value) -> Value {
        self.until(tool, async |caller: &mut Caller| {
            // Restarts a daemon that was killed meanwhile.
            caller.call("gateway.ping", json!({})).await;
            let host = HttpHost::of(caller.daemon.as_ref()?, Era::Modern);
            let answer = host.call(tool, arguments.clone()).await?;
            let text = answer["result"]["content"][0]["text"].as_str();
            let is_starting = text.is_some_and(|text| text.starts_with("unavailable: "));
            (!is_starting).then(|| structured(&answer))
        })
        .await
    }

    /// Spawns by the tool, with an idempotency key. The call of the API with the same key is the
    /// same call.
    pub(crate) async fn spawn_by_mcp(&mut self, task: &str) -> Spawned {
        let key = format!("key-{}", self.history.run_calls.len());
        let mut params = json!({ "task": task, "agent": "explore", "idempotencyKey": key });
        let arguments = params.clone();
        params["parent"] = "mcp:inbox".into();
        self.history.run_calls.push(RunCreatingCall {
            method: "sessions.spawn",
            params: params.clone(),
            answer: None,
        });
        let at = self.history.run_calls.len() - 1;
        let spawned = self.by_mcp("spawn", arguments).await;
        let answer = self.call("sessions.spawn", params).await;
        assert_eq!(answer["runId"], spawned["runId"]);
        let same = Spawned::of(&answer);
        self.history.run_calls[at].answer = Some(answer);
        same
    }
}
