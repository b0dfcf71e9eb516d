//! Access tokens: created, used, revoked; the last use is stored when the daemon stops.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script};

/// The scenarios of access tokens.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "tokens",
    place: || Place::new(Script::new()),
    play: |caller| Box::pin(tokens(caller)),
}];

/// One token works and one is revoked, whichever processes created, used and revoked them.
async fn tokens(caller: &mut Caller) {
    let ann = create(caller, "ann").await;
    let bob = create(caller, "bob").await;
    assert!(works(caller, &ann).await && works(caller, &bob).await);
    let revoke = json!({ "id": bob["token"]["id"] });
    let revoked = caller.call("tokens.revoke", revoke).await;
    assert_eq!(revoked["state"], "revoked");
    assert!(works(caller, &ann).await && !works(caller, &bob).await);
    caller.restart_after(|_| ()).await;
    assert!(works(caller, &ann).await && !works(caller, &bob).await);
    let listed = caller.call("tokens.list", json!({})).await;
    let listed = listed["tokens"].as_array().unwrap();
    let used = listed.iter().find(|one| one["id"] == ann["token"]["id"]);
    assert!(used.unwrap()["usedAt"].is_string());
}

/// A creation that was not answered may have happened; no client knows its token.
async fn create(caller: &mut Caller, user: &str) -> Value {
    let params = json!({ "user": user, "scopes": ["read"] });
    caller.call("tokens.create", params).await
}

/// Whether the daemon accepts a call with this token.
async fn works(caller: &mut Caller, made: &Value) -> bool {
    let text = made["secret"].as_str().unwrap();
    caller
        .until("an answer to the holder", async |caller: &mut Caller| {
            caller.call("gateway.ping", json!({})).await;
            caller.accepts(text).await
        })
        .await
}
