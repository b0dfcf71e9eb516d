//! Webhooks: real receivers that accept, fail, hang, redirect, answer late and close in the middle,
//! while daemons are killed and restarted.

mod faults;
mod letters;
pub(crate) mod receiver;
mod sending;

use serde_json::Value;

use crate::harness::{Link, Place, Script, eventually, says};
use receiver::{Attempt, Receiver};

/// 24 bytes.
pub(crate) const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

/// A place whose webhook `audit` gets the ends of runs.
fn place(receiver: &Receiver) -> Place {
    with_webhook(
        Place::new(Script::new().on("[job]", [says("done")])),
        receiver,
        "[\"run.ended\"]",
    )
}

/// The place has the webhook `audit`, which tries often.
pub(crate) fn with_webhook(place: Place, receiver: &Receiver, kinds: &str) -> Place {
    place
        .with("webhooks.audit.url", &format!("{:?}", receiver.url()))
        .with("webhooks.audit.kinds", kinds)
        .with("webhooks.audit.secret", &format!("{SECRET:?}"))
        .with("webhooks.audit.allow_private", "true")
        .with("webhooks.audit.retry_wait", "\"20ms\"")
}

/// The place has no webhook.
fn without_webhook(place: &mut Place) {
    for field in ["url", "kinds", "secret", "allow_private", "retry_wait"] {
        place.unset(&format!("webhooks.audit.{field}"));
    }
}

/// The webhook as `webhooks.list` shows it.
async fn shown(client: &Link) -> Value {
    let listed = client.call("webhooks.list", serde_json::json!({})).await;
    listed["webhooks"][0].clone()
}

/// The webhook once `is_so`.
async fn until(client: &Link, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let webhook = shown(client).await;
        is_so(&webhook).then_some(webhook)
    })
    .await
}

/// A run that has ended; its id.
async fn ended_run(client: &Link) -> String {
    let run = client.spawn(serde_json::json!({ "task": "[job]" })).await;
    client.ended(&run.id).await;
    run.id
}

/// The accepted attempts of this run.
fn accepted_of(attempts: &[Attempt], run: &str) -> usize {
    let of_run = attempts.iter().filter(|one| one.run() == Some(run));
    of_run.filter(|one| one.accepted).count()
}
