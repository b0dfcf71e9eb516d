//! Calls of the client through the OpenAI-compatible API of the daemon.

use serde_json::{Value, json};

use super::caller::{Caller, RunCreatingCall};
use super::client::Spawned;
use crate::openai::{CHAT, Sent};

impl Caller {
    /// Asks the agent by a chat completion with an idempotency key, and repeats it until it is
    /// answered, whenever the daemon is killed. The call of the API with the same key is the same
    /// call.
    pub(crate) async fn chat_by_openai(&mut self, text: &str) -> (Spawned, Value) {
        let name = format!("key-{}", self.history.run_calls.len());
        let key = format!("openai:{name}");
        let session = format!("openai:{}", &blake3::hash(key.as_bytes()).to_hex()[..32]);
        let params = json!({
            "sessionKey": session, "message": text, "agent": "build", "idempotencyKey": key,
        });
        self.history.run_calls.push(RunCreatingCall {
            method: "agent.run",
            params: params.clone(),
            answer: None,
        });
        let at = self.history.run_calls.len() - 1;
        let answer = self.chat_until_answered(text, &name).await;
        let accepted = self.call("agent.run", params).await;
        let same = Spawned::of(&accepted);
        self.history.run_calls[at].answer = Some(accepted);
        (same, answer)
    }

    async fn chat_until_answered(&mut self, text: &str, key: &str) -> Value {
        let request = json!({
            "model": "abide/build", "messages": [{ "role": "user", "content": text }],
        });
        let header = format!("idempotency-key: {key}\r\n");
        self.until("a chat completion", async |caller: &mut Caller| {
            // Restarts a daemon that was killed meanwhile.
            caller.call("gateway.ping", json!({})).await;
            let daemon = caller.daemon.as_ref()?;
            let sent = Sent::to(daemon, &format!("POST {CHAT}"), &header, &request).await?;
            let reply = sent.reply().await?;
            (reply.status != 503).then(|| reply.json())
        })
        .await
    }
}
