//! Versions of skills, and what runs pin of them.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};
use crate::skills::put;

/// The scenario of skills.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "skills",
    place,
    play: |caller| Box::pin(versions(caller)),
}];

fn place() -> Place {
    let place = Place::new(Script::new().on(
        "[a]",
        [calls("skill", json!({ "name": "one" })), says("a is done")],
    ))
    // Without a watcher, versions are recorded only by the calls below.
    .with("skills.watch", "\"off\"");
    put(&place.work(), "skills/one", "One.", "the first text");
    place
}

/// A change raises the version once, and a run keeps the version with which it began.
async fn versions(caller: &mut Caller) {
    let folder = caller.place().work();
    let workspace = folder.to_str().unwrap().to_owned();
    let here = json!({ "workspace": workspace });
    let first = caller.call("skills.snapshot", here.clone()).await;
    assert_eq!(first["version"], 1, "{first}");
    let task = json!({ "task": "[a]", "agent": "explore", "cwd": workspace });
    let a = caller.spawn(task).await;
    let a = caller.ended(&a.id).await;
    assert_eq!(a["result"], "a is done");
    assert_eq!(a["pins"]["skills"]["version"], 1, "{a}");
    put(&folder, "skills/one", "One.", "the second text");
    let refreshed = caller.call("skills.refresh", here.clone()).await;
    assert_eq!(refreshed["after"], 2, "{refreshed}");
    let second = caller.call("skills.snapshot", here).await;
    assert_eq!(second["version"], 2, "{second}");
    assert_ne!(second["hash"], first["hash"]);
}
