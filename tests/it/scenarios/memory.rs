//! Long-term memory: whatever is killed, a stored memory exists once, and a deleted one is gone.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenario of long-term memory.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "memory",
    place,
    play: |caller| Box::pin(memory(caller)),
}];

fn place() -> Place {
    let keeps = |text: &str| calls("memory_save", json!({ "text": text }));
    let kid = json!({
        "description": "Look", "prompt": "[kid]", "subagent_type": "helper", "session_id": "",
    });
    Place::new(
        Script::new()
            .on("[kid]", [keeps("the gate is green"), says("kid is done")])
            .on(
                "[keep]",
                [
                    keeps("the harbour opens at six")
                        .and("memory_save", json!({ "text": "the harbour opens at six" })),
                    calls("task", kid),
                    says("kept"),
                ],
            )
            .on(
                "[harbour]",
                [
                    calls("memory_search", json!({ "query": "gate" })),
                    says("at six"),
                ],
            ),
    )
    .with_agent(
        "keeper",
        "mode: primary\ntools: [memory_save, memory_search, task]",
    )
    .with_agent("helper", "mode: subagent\ntools: [memory_save]")
}

async fn all(caller: &mut Caller) -> Vec<(String, String)> {
    let listed = caller.call("memory.list", json!({})).await;
    let memories = listed["memories"].as_array().unwrap();
    let mut all: Vec<(String, String)> = memories
        .iter()
        .map(|one| {
            let text = |name: &str| one[name].as_str().unwrap().to_owned();
            (text("namespace"), text("text"))
        })
        .collect();
    all.sort_unstable();
    all
}

/// An agent and its subagent store memories, one of them twice; a later run is given those that
/// match. Then a user deletes one.
async fn memory(caller: &mut Caller) {
    let params = json!({ "key": "agent:keeper:a", "agent": "keeper", "ifExists": "get" });
    caller.call("sessions.create", params).await;
    let keeps = caller.turn("agent:keeper:a", "[keep]").await;
    assert_eq!(caller.ended(&keeps.id).await["result"], "kept");
    let expected = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        let pairs = list.iter();
        pairs
            .map(|(space, text)| ((*space).to_owned(), (*text).to_owned()))
            .collect()
    };
    assert_eq!(
        all(caller).await,
        expected(&[
            ("keeper", "the harbour opens at six"),
            ("keeper/helper", "the gate is green"),
        ])
    );
    let asks = caller.turn("agent:keeper:b", "[harbour] When?").await;
    assert_eq!(caller.ended(&asks.id).await["result"], "at six");
    let found = caller
        .call("memory.search", json!({ "query": "gates" }))
        .await;
    let ids: Vec<&Value> = found["memories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["id"])
        .collect();
    assert_eq!(ids.len(), 1, "{found}");
    caller.call("memory.delete", json!({ "ids": ids })).await;
    assert_eq!(
        all(caller).await,
        expected(&[("keeper", "the harbour opens at six")])
    );
}
