//! A run that waits for its provider.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, ModelServer, Place, Reply, chat};
use crate::providers;

/// The scenarios of providers.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "provider",
    place,
    play: |caller| Box::pin(waits(caller)),
}];

fn place() -> Place {
    let server = ModelServer::start();
    let busy = Reply::status(503, "busy").with_header("retry-after", "2");
    server
        .on("[job]", [busy])
        .otherwise(chat::says(&["answered"]));
    providers::place(&server, "chat/small")
}

/// The provider accepts no requests at first. The run continues, whatever is killed during the
/// wait.
async fn waits(caller: &mut Caller) {
    let run = caller.spawn(json!({ "task": "[job] look" })).await;
    let ended = caller.ended(&run.id).await;
    assert_eq!(ended["result"], "answered", "{ended}");
    assert_eq!(ended["loops"], 1, "{ended}");
}
