//! Runs with their own environment: values that are sealed and read, one that goes missing and is
//! provided, and the state after their ends.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of environments.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "environment",
        place: given_place,
        play: |caller| Box::pin(given(caller)),
    },
    Scenario {
        name: "missing value",
        place: missing_place,
        play: |caller| Box::pin(missing(caller)),
    },
];

const WORKER: &str = "tools: [shell]\ngate: {shell: allow}\non_uncertain: retry\n\
                      env: {A_TOKEN: null, OF_AGENT: agent-value}";

/// Appends the values that the run sees to a file, whatever the file contains.
const LOOK: &str = "printf '%s %s %s\\n' \"$A_TOKEN\" \"$PLAIN\" \"$OF_AGENT\" >> seen.txt";

fn given_place() -> Place {
    let look = calls("shell", json!({ "command": LOOK }));
    Place::new(Script::new().on("[look]", [look, says("looked")])).with_agent("worker", WORKER)
}

/// The values that the commands of the runs have recorded.
pub(crate) fn seen(place: &Place) -> Vec<String> {
    let text = std::fs::read_to_string(place.work().join("seen.txt")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

async fn given(caller: &mut Caller) {
    let run = caller
        .spawn(json!({
            "task": "[look]",
            "agent": "worker",
            "env": { "A_TOKEN": "canary-token", "PLAIN": "plain-value" },
        }))
        .await;
    assert_eq!(caller.ended(&run.id).await["result"], "looked");
    // A command is repeated if the kill comes after it and before its outcome was stored.
    let seen = seen(caller.place());
    assert!(!seen.is_empty());
    for line in seen {
        assert_eq!(line, "canary-token plain-value agent-value");
    }
    let again = caller.run(&run.id).await;
    assert_eq!(
        again["env"],
        json!([
            { "name": "A_TOKEN", "from": "request" },
            { "name": "OF_AGENT", "from": "agent" },
            { "name": "PLAIN", "from": "request" },
        ])
    );
}

fn missing_place() -> Place {
    let look = calls("shell", json!({ "command": LOOK }));
    let script = Script::new()
        .on("[hold]", [says("held").held_by("go")])
        .on("[look]", [look, says("looked")]);
    let place = Place::new(script)
        .with_agent("worker", WORKER)
        .with("lanes.main", "1");
    std::fs::write(place.path().join("token"), "canary-first\n").unwrap();
    place
}

/// The source file of a value is gone when the run gets its slot: it pauses before it starts a
/// program, and resumes with a different value.
async fn missing(caller: &mut Caller) {
    let first = caller
        .spawn(json!({ "task": "[hold]", "agent": "worker" }))
        .await;
    let file = caller.place().path().join("token");
    let from = format!("file:{}", file.display());
    let run = caller
        .spawn(json!({
            "task": "[look]",
            "agent": "worker",
            "env": { "A_TOKEN": { "from": from }, "PLAIN": "plain-value" },
        }))
        .await;
    std::fs::remove_file(&file).unwrap();
    caller.place().let_go("go");
    caller.ended(&first.id).await;
    let shown = caller
        .until("a missing value", async |caller: &mut Caller| {
            let shown = caller.run(&run.id).await;
            (shown["state"] == "paused").then_some(shown)
        })
        .await;
    assert_eq!(shown["pauseReason"], "input", "{shown}");
    assert_eq!(shown["env"][0]["name"], "A_TOKEN", "{shown}");
    assert!(shown["env"][0]["missing"].is_string(), "{shown}");
    let params = json!({ "runId": run.id, "env": { "A_TOKEN": "canary-second" } });
    caller.once("runs.provide_env", params, "conflict").await;
    assert_eq!(caller.ended(&run.id).await["result"], "looked");
    for line in seen(caller.place()) {
        assert_eq!(line, "canary-second plain-value agent-value");
    }
}
