//! Tools that change files: whatever is killed, each change is applied once.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of tools.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "write and edit",
        place: writing_place,
        play: |caller| Box::pin(writing(caller)),
    },
    Scenario {
        name: "long result",
        place: long_result_place,
        play: |caller| Box::pin(long_result(caller)),
    },
];

fn long_result_place() -> Place {
    let list = calls("agents_list", json!({}));
    crate::outputs::long_place(Script::new().on("[look]", [list, says("looked")]))
}

/// The cut part of a result is readable as soon as the result refers to it.
async fn long_result(caller: &mut Caller) {
    let run = caller
        .spawn(json!({ "task": "[look]", "agent": "looker" }))
        .await;
    assert_eq!(caller.ended(&run.id).await["result"], "looked");
    let params = json!({ "runId": run.id, "toolCallId": "script-1-0-0" });
    let part = caller.call("runs.output", params).await;
    let whole = part["text"].as_str().unwrap();
    assert!(whole.len() > 64 * 1024, "{}", whole.len());
    serde_json::from_str::<Value>(whole).unwrap();
}

fn writing_place() -> Place {
    let write = json!({ "path": "new/list.txt", "content": "one\n" });
    let edit =
        |old: &str, new: &str| json!({ "path": "new/list.txt", "old_text": old, "new_text": new });
    let other = json!({ "path": "other.txt", "content": "other\n" });
    Place::new(Script::new().on(
        "[write]",
        [
            calls("write", write).and("write", other),
            // The new text contains the old one: a careless repeat would add it twice.
            calls("edit", edit("one\n", "one\ntwo\n")),
            calls("edit", edit("two\n", "two\nthree\n")),
            says("written"),
        ],
    ))
    .with_agent("writer", "tools: [write, edit]\ngate: {edit: ask}")
}

async fn writing(caller: &mut Caller) {
    let run = caller
        .spawn(json!({ "task": "[write]", "agent": "writer" }))
        .await;
    let mut last = Value::Null;
    for _ in 0..2 {
        let id = caller
            .until("a question", async |caller: &mut Caller| {
                let params = json!({ "state": "open" });
                let listed = caller.call("approvals.list", params).await;
                let id = listed["approvals"][0]["id"].clone();
                (id.is_string() && id != last).then_some(id)
            })
            .await;
        let params = json!({ "id": id, "decision": "allow" });
        caller.call("approvals.resolve", params).await;
        last = id;
    }
    assert_eq!(caller.ended(&run.id).await["result"], "written");
    let read = |path: &str| std::fs::read_to_string(caller.place().work().join(path)).unwrap();
    assert_eq!(read("new/list.txt"), "one\ntwo\nthree\n");
    assert_eq!(read("other.txt"), "other\n");
    let beside = std::fs::read_dir(caller.place().work().join("new"));
    assert_eq!(beside.unwrap().count(), 1);
}
