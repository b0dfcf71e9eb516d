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
];

fn place(manner: &str) -> Place {
    let gate = "gate: {shell: allow}";
    with_agent(Place::new(Script::new()), manner, gate)
}

/// A turn with a call of the agent, a question that a rule answers, and a file that is written.
async fn outside(caller: &mut Caller) {
    let file = caller.place().work().join("made.txt");
    let task = json!([
        { "call": { "toolCallId": "a", "title": "look", "kind": "search", "status": "in_progress" } },
        { "done": { "toolCallId": "a", "status": "completed" } },
        { "ask": { "toolCallId": "b", "title": "make", "kind": "execute", "rawInput": { "command": "make" } } },
        { "write": { "path": file, "content": "made" } },
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
