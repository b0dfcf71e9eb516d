//! Tool calls that need approval: allowed, denied, expired, remembered, forgotten.

use serde_json::{Value, json};

use super::Scenario;
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of approvals.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "approvals",
        place: approvals_place,
        play: |caller| Box::pin(approvals(caller)),
    },
    Scenario {
        name: "remembered approval",
        place: remembered_place,
        play: |caller| Box::pin(remembered(caller)),
    },
    Scenario {
        name: "unresolved approval",
        place: unresolved_place,
        play: |caller| Box::pin(unresolved(caller)),
    },
];

const CAREFUL: &str = "tools: [read, list]\ngate: {read: ask}";

fn read(path: &str) -> Value {
    json!({ "path": path })
}

fn approvals_place() -> Place {
    let looks = calls("read", read("notes.txt"))
        .and("read", read("src/one.rs"))
        .and("list", json!({}));
    Place::new(Script::new().on("[look]", [looks, says("looked")])).with_agent("careful", CAREFUL)
}

/// Waits for `count` open approvals; returns them in call order.
async fn open(caller: &mut Caller, count: usize) -> Vec<Value> {
    caller
        .until("open approvals", async |caller: &mut Caller| {
            let listed = caller
                .call("approvals.list", json!({ "state": "open" }))
                .await;
            let open = listed["approvals"].as_array().unwrap().clone();
            (open.len() == count).then_some(open)
        })
        .await
}

/// The approval for this path.
fn about<'a>(open: &'a [Value], path: &str) -> &'a Value {
    let of_path = |one: &&Value| one["arguments"]["path"] == path;
    open.iter().find(of_path).unwrap()
}

async fn resolve(caller: &mut Caller, approval: &Value, decision: &str) -> Value {
    let params = json!({ "id": approval["id"], "decision": decision });
    caller.call("approvals.resolve", params).await
}

/// The tool results of this session, in call order.
async fn answers(caller: &mut Caller, session: &str) -> Vec<String> {
    let history = caller
        .call("sessions.history", json!({ "sessionKey": session }))
        .await;
    let entries = history["messages"].as_array().unwrap().iter();
    entries
        .filter(|entry| entry["kind"] == "tool_result")
        .map(|entry| entry["content"][0]["text"].as_str().unwrap().to_owned())
        .collect()
}

/// Of three parallel calls, one needs no approval, one is allowed, and one is denied.
async fn approvals(caller: &mut Caller) {
    let run = caller
        .spawn(json!({ "task": "[look]", "agent": "careful" }))
        .await;
    let asked = open(caller, 2).await;
    caller.in_state(&run.id, "paused").await;
    let denied = resolve(caller, about(&asked, "notes.txt"), "deny").await;
    assert_eq!(denied["state"], "denied");
    let allowed = resolve(caller, about(&asked, "src/one.rs"), "allow").await;
    assert_eq!(allowed["state"], "allowed");
    assert_eq!(caller.ended(&run.id).await["result"], "looked");
    let answers = answers(caller, &run.session).await;
    assert_eq!(answers.len(), 3, "{answers:?}");
    let count = |part: &str| answers.iter().filter(|one| one.contains(part)).count();
    assert_eq!(count("fn one()"), 1, "{answers:?}");
    assert_eq!(count("the gate of agent careful has the rule read: ask"), 1);
    assert_eq!(count("alpha"), 1, "{answers:?}");
}

fn remembered_place() -> Place {
    let look = || calls("read", read("notes.txt"));
    Place::new(
        Script::new()
            .on("[one]", [look(), says("one")])
            .on("[two]", [look(), says("two")])
            .on("[three]", [look(), says("three")]),
    )
    .with_agent("careful", &format!("mode: primary\n{CAREFUL}"))
}

/// A remembered decision applies to the next turn, and no longer once it is forgotten.
async fn remembered(caller: &mut Caller) {
    let params = json!({ "agent": "careful", "key": "agent:careful:a" });
    let made = caller.call("sessions.create", params).await;
    let session = made["session"]["key"].as_str().unwrap().to_owned();
    let first = caller.turn(&session, "[one]").await;
    let asked = open(caller, 1).await;
    let params = json!({ "id": asked[0]["id"], "decision": "allow", "remember": "session" });
    caller.call("approvals.resolve", params).await;
    assert_eq!(caller.ended(&first.id).await["result"], "one");
    let second = caller.turn(&session, "[two]").await;
    assert_eq!(caller.ended(&second.id).await["result"], "two");
    let forget = json!({ "id": asked[0]["id"] });
    caller.call("approvals.forget", forget).await;
    let third = caller.turn(&session, "[three]").await;
    let asked = open(caller, 1).await;
    resolve(caller, &asked[0], "allow").await;
    assert_eq!(caller.ended(&third.id).await["result"], "three");
    let answers = answers(caller, &session).await;
    assert!(
        answers.iter().all(|one| one.contains("alpha")),
        "{answers:?}"
    );
    assert_eq!(answers.len(), 3);
}

fn unresolved_place() -> Place {
    let look = calls("read", read("notes.txt"));
    Place::new(Script::new().on("[look]", [look, says("could not look")]))
        .with_agent("careful", CAREFUL)
        .with("approvals.timeout", "\"300ms\"")
}

/// The approval expires: the call is not made, and the run continues with the refusal.
async fn unresolved(caller: &mut Caller) {
    let run = caller
        .spawn(json!({ "task": "[look]", "agent": "careful" }))
        .await;
    assert_eq!(caller.ended(&run.id).await["result"], "could not look");
    let answers = answers(caller, &run.session).await;
    assert!(answers[0].contains("approvals.timeout"), "{answers:?}");
}
