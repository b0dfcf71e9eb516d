//! Turns of outside agents: whatever is killed, the run ends once, and the agent is never prompted
//! twice without being told.

use serde_json::json;

use super::Scenario;
use crate::harness::{Caller, Place, Script};
use crate::runner_acp::played::{lines, with_agent};

/// The scenarios of outside agents.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "outside agent",
        place: || place("load"),
        play: |caller| Box::pin(outside(caller)),
    },
    Scenario {
        name: "outside agent without memory",
        place: || place(""),
        play: |caller| Box::pin(outside(caller)),
    },
    Scenario {
        name: "dropped question",
        place: || with_agent(Place::new(Script::new()), "load", ""),
        play: |caller| Box::pin(dropped(caller)),
    },
];

fn place(manner: &str) -> Place {
    let gate = "gate: {shell: allow}";
    with_agent(Place::new(Script::new()), manner, gate)
}

/// A question to people that the agent withdraws.
async fn dropped(caller: &mut Caller) {
    let call = json!({
        "toolCallId": "a", "title": "make", "kind": "execute", "rawInput": { "command": "make" },
    });
    let task = json!([
        { "asking": call }, { "until": "asked" }, { "withdraw": 1 }, { "say": "it is over" },
    ]);
    let spawn = json!({ "task": task.to_string(), "agent": "outside" });
    let run = caller.spawn(spawn).await;
    let id = run.id.clone();
    caller
        .until(
            "a question, or the end of its program",
            async |caller: &mut Caller| {
                let open = caller
                    .call("approvals.list", json!({ "state": "open" }))
                    .await;
                let state = caller.call("runs.get", json!({ "runId": id })).await;
                let is_asked = open["approvals"] != json!([]);
                (is_asked || state["endedAt"].is_string()).then_some(())
            },
        )
        .await;
    std::fs::write(caller.place().work().join("asked"), "").unwrap();
    let ended = caller.ended(&run.id).await;
    let was_killed = !caller.history.kills.is_empty();
    assert_eq!(ended["status"], "ok", "{ended}");
    assert!(
        ended["result"] == "it is over"
            || was_killed && ended["result"] == "finished after the interruption",
        "{ended}"
    );
    let open = caller
        .call("approvals.list", json!({ "state": "open" }))
        .await;
    assert_eq!(open["approvals"], json!([]));
}

/// A turn with a call of the agent, a question that a rule answers, a file that is written, and a
/// command in a terminal.
async fn outside(caller: &mut Caller) {
    let file = caller.place().work().join("made.txt");
    let task = json!([
        { "call": { "toolCallId": "a", "title": "look", "kind": "search", "status": "in_progress" } },
        { "done": { "toolCallId": "a", "status": "completed" } },
        { "ask": { "toolCallId": "b", "title": "make", "kind": "execute", "rawInput": { "command": "make" } } },
        { "write": { "path": file, "content": "made" } },
        { "terminal": { "command": "/bin/sh", "args": ["-c", "echo made >> commands"] } },
        { "wait_for_exit": 1 },
        { "say": "it is made" },
    ]);
    let spawn = json!({ "task": task.to_string(), "agent": "outside" });
    let run = caller.spawn(spawn).await;
    let ended = caller.ended(&run.id).await;
    let was_killed = !caller.history.kills.is_empty();
    let prompts = lines(caller.place(), "prompts");
    let new = prompts
        .iter()
        .filter(|prompt| !prompt.starts_with("Your previous turn"));
    assert!(new.count() <= 1, "{prompts:?}");
    let effects = lines(caller.place(), "effects").len();
    assert!(effects == 1 || effects == 0 && was_killed, "{effects}");
    let commands = lines(caller.place(), "commands").len();
    assert!(commands == 1 || commands == 0 && was_killed, "{commands}");
    match ended["status"].as_str().unwrap() {
        "ok" if ended["result"] == "it is made" => {}
        "ok" => assert!(
            was_killed && ended["result"] == "finished after the interruption",
            "{ended}"
        ),
        "interrupted" => assert!(
            was_killed && ended["error"]["kind"] == "uncertain",
            "{ended}"
        ),
        _ => panic!("{ended}"),
    }
}
