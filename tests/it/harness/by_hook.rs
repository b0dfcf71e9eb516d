//! Deliveries to a webhook of the daemon.

use super::caller::Caller;
use crate::hooks::SECRET;
use crate::hooks::sender::{github, request};

impl Caller {
    /// Sends a delivery to the webhook `hook`, signed as GitHub does, and repeats it until it is
    /// answered, whenever the daemon is killed. Returns the id of its run.
    pub(crate) async fn deliver(&mut self, hook: &str, id: &str, body: &str) -> String {
        self.prompted();
        self.redeliver(hook, id, body).await
    }

    /// As [`Caller::deliver`], for a delivery that was answered before.
    pub(crate) async fn redeliver(&mut self, hook: &str, id: &str, body: &str) -> String {
        let signature = github(SECRET, body.as_bytes());
        let headers = [
            ("x-hub-signature-256", signature.as_str()),
            ("x-github-delivery", id),
        ];
        self.until("an answer to a delivery", async |caller: &mut Caller| {
            // Restarts a daemon that was killed meanwhile.
            caller.call("gateway.ping", serde_json::json!({})).await;
            let daemon = caller.daemon.as_ref()?;
            let first = format!("POST /hooks/{hook}");
            let reply = request(daemon, &first, &headers, body.as_bytes()).await?;
            if reply.status == 503 {
                return None;
            }
            assert_eq!(reply.status, 202, "{reply:?}");
            Some(reply.json()["runId"].as_str().unwrap().to_owned())
        })
        .await
    }
}
