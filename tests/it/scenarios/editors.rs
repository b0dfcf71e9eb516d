//! A prompt of an editor: its process outlives the daemon, and the prompt is answered once. Its session
//! has an MCP server of its own.

use serde_json::{Value, json};

use super::Scenario;
use crate::acp::editor::{Editor, opening};
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of editors.
pub(crate) const SCENARIOS: &[Scenario] = &[Scenario {
    name: "editor",
    place: editor_place,
    play: |caller| Box::pin(editor(caller)),
}];

fn editor_place() -> Place {
    let shell = json!({ "command": "echo once >> made.txt" });
    Place::new(
        Script::new()
            .on(
                "[a]",
                [
                    calls("list", json!({})),
                    calls("shell", shell),
                    says("a is done"),
                ],
            )
            .on("[b]", [calls("mem__look", json!({})), says("b is done")]),
    )
}

/// Waits for the result of a request; the daemon is started again if it was killed meanwhile.
async fn result(caller: &mut Caller, editor: &mut Editor, id: u64) -> Value {
    let response = caller
        .until("an answer of the agent", async |caller: &mut Caller| {
            caller.call("gateway.ping", json!({})).await;
            editor.taken(id)
        })
        .await;
    assert!(response.get("result").is_some(), "{response}");
    response["result"].clone()
}

/// A session of an editor with an MCP server, two prompts and a permission; a second editor loads it.
async fn editor(caller: &mut Caller) {
    let mut editor = Editor::open(caller.place());
    // Its tools are known when the session is, whatever is killed.
    let server = json!({
        "name": "mem",
        "command": std::env::current_exe().unwrap(),
        "args": ["--ignored", "--exact", "mcp::server::serve", "--quiet"],
        "env": [{ "name": "TEST_MCP_START", "value": "" }],
    });
    let params = json!({ "cwd": caller.place().work(), "mcpServers": [server] });
    let made = editor.request("session/new", params);
    let made = result(caller, &mut editor, made).await;
    let session = made["sessionId"].as_str().unwrap().to_owned();
    caller.prompted();
    let first = editor.prompt(&session, "[a]");
    let asked = caller
        .until("the permission", async |caller: &mut Caller| {
            caller.call("gateway.ping", json!({})).await;
            editor.look();
            editor.taken_request()
        })
        .await;
    let answer = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
    editor.respond(&asked, answer);
    let ended = loop {
        // A decision that was lost with the daemon is asked for again.
        if let Some(again) = editor.taken_request() {
            let answer = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
            editor.respond(&again, answer);
        }
        caller.call("gateway.ping", json!({})).await;
        if let Some(response) = editor.taken(first) {
            break response;
        }
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    };
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    caller.prompted();
    let second = editor.prompt(&session, "[b]");
    let ended = result(caller, &mut editor, second).await;
    assert_eq!(ended["stopReason"], "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "a is doneb is done");
    caller.quiet().await;

    let mut other = Editor::open(caller.place());
    let load = other.request("session/load", opening(caller.place(), &session));
    result(caller, &mut other, load).await;
    assert_eq!(other.text("user_message_chunk"), "[a][b]");
    assert_eq!(other.text("agent_message_chunk"), "a is doneb is done");
    assert_eq!(other.of_kind("tool_call").len(), 3);
}
