//! Stored agents and trusted projects.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, says};

/// The scenarios of stored agents and trusted projects.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "stored agents",
        place: stored_place,
        play: |caller| Box::pin(stored(caller)),
    },
    Scenario {
        name: "trust",
        place: trust_place,
        play: |caller| Box::pin(trust(caller)),
    },
];

fn stored_place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]))
}

async fn names(caller: &mut Caller) -> Vec<String> {
    let listed = caller.call("agents.list", json!({})).await;
    let agents = listed["agents"].as_array().unwrap();
    let name = |agent: &Value| agent["name"].as_str().unwrap().to_owned();
    agents.iter().map(name).collect()
}

/// An agent is created, used, changed and deleted; each call is answered once the change is stored.
async fn stored(caller: &mut Caller) {
    let definition = json!({ "description": "Reviews.", "mode": "subagent" });
    let params = json!({ "name": "reviewer", "definition": definition });
    let made = caller.call("agents.create", params).await;
    assert_eq!(
        (&made["source"], &made["revision"]),
        (&json!("stored"), &json!(1))
    );
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "reviewer" }))
        .await;
    let changed = json!({ "description": "Reviews twice." });
    let params = json!({ "agent": "reviewer", "definition": changed, "ifRevision": 1 });
    let made = caller.call("agents.update", params).await;
    assert_eq!(
        (&made["description"], &made["revision"]),
        (&json!("Reviews twice."), &json!(2))
    );
    assert_eq!(names(caller).await, ["build", "explore", "reviewer"]);
    caller
        .call("agents.delete", json!({ "agent": "reviewer" }))
        .await;
    assert_eq!(names(caller).await, ["build", "explore"]);
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
}

fn trust_place() -> Place {
    let place = Place::new(Script::new().on("[a]", [says("a is done")]));
    let folder = place.work().join(".abide/agents");
    std::fs::create_dir_all(&folder).unwrap();
    let text = "---\ndescription: Deploys.\nenv: {A: b}\n---\nDeploy.\n";
    std::fs::write(folder.join("deploy.md"), text).unwrap();
    place
}

/// A project is trusted, its agent used, and the trust revoked.
async fn trust(caller: &mut Caller) {
    let folder = caller.place().work();
    let folder = folder.to_str().unwrap().to_owned();
    let one = json!({ "folder": folder });
    let project = caller.call("trust.add", one.clone()).await;
    assert_eq!(project["state"], "trusted");
    assert_eq!(project["covers"][0]["file"], ".abide/agents/deploy.md");
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "deploy", "cwd": folder }))
        .await;
    assert_eq!(caller.ended(&a.id).await["result"], "a is done");
    caller.call("trust.revoke", one).await;
    let listed = caller.call("trust.list", json!({})).await;
    assert_eq!(listed["projects"], json!([]));
    let params = json!({ "agent": "deploy", "cwd": folder });
    let shown = caller.call("agents.get", params).await;
    assert_eq!(shown["health"]["ok"], false, "{shown}");
}
