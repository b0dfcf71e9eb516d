//! Subagents in an editor: a tool call with progress, permissions of their own, and results that come
//! later.

use serde_json::json;

use super::editor::{Editor, begun, opening};
use crate::harness::{Place, Script, calls, run, says};

#[test]
fn a_subagent_is_a_tool_call_with_progress() {
    run(async {
        let task = json!({
            "description": "look around", "prompt": "[child]", "subagent_type": "explore",
        });
        let script = Script::new()
            .on(
                "[child]",
                [calls("list", json!({})), says("seen").held_by("go")],
            )
            .on("[a]", [calls("task", task), says("a is done")]);
        let place = Place::new(script);
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a]");
        let call = editor.until(|update| update["sessionUpdate"] == "tool_call");
        assert_eq!(
            (&call["kind"], &call["title"]),
            (&json!("think"), &json!("Task: look around"))
        );
        // Its steps are content of the call, and not text of the agent.
        editor.until(|update| {
            let text = update["content"][0]["content"]["text"].as_str();
            update["toolCallId"] == call["toolCallId"]
                && text.is_some_and(|text| text.contains("✓ list"))
        });
        place.let_go("go");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert_eq!(editor.text("agent_message_chunk"), "a is done");
        assert_eq!(editor.of_kind("tool_call").len(), 1);
        let result = editor.until(|update| {
            update["toolCallId"] == call["toolCallId"] && update["status"] == "completed"
        });
        assert!(result["content"].to_string().contains("seen"), "{result}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_agent_that_is_called_into_the_session_is_content_of_its_call() {
    run(async {
        let script = Script::new()
            .on("[child]", [calls("list", json!({})), says("child says")])
            .on(
                "[a]",
                [
                    calls("call_helper", json!({ "message": "[child]" })),
                    says("a is done"),
                ],
            );
        let place = Place::new(script)
            .with_agent("helper", "mode: subagent")
            .with_agent(
                "caller",
                "mode: primary\nlinked_agents:\n  - {agent: helper, session: shared}",
            );
        let daemon = place.start().await;
        let mut editor = Editor::open_with(&place, &["--agent", "caller"]);
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[a]");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert_eq!(editor.text("agent_message_chunk"), "a is done");
        assert_eq!(editor.of_kind("tool_call").len(), 1);
        let last = editor.of_kind("tool_call_update").into_iter().next_back();
        let last = last.unwrap();
        assert_eq!(last["status"], "completed");
        assert!(last["content"].to_string().contains("child says"), "{last}");
        // A replay shows the same.
        let mut other = Editor::open(&place);
        other.call("session/load", opening(&place, &session));
        assert_eq!(other.text("agent_message_chunk"), "a is done");
        assert_eq!(other.text("user_message_chunk"), "[a]");
        assert_eq!(other.of_kind("tool_call").len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_result_in_the_background_is_shown_when_it_comes() {
    run(async {
        let script = Script::new()
            .on(
                "[child]",
                [
                    calls("shell", json!({ "command": "echo child > child.txt" })),
                    says("found it"),
                ],
            )
            .on_announce("found it", [says("the child has found it")])
            .on(
                "[a]",
                [
                    calls(
                        "sessions_spawn",
                        json!({ "task": "[child]", "agent": "worker" }),
                    ),
                    says("spawned"),
                ],
            );
        let place = Place::new(script)
            .with_agent("worker", "mode: subagent\ntools: [shell]")
            .with_agent("boss", "mode: primary\nallow_agents: [worker]");
        let daemon = place.start().await;
        let mut editor = Editor::open_with(&place, &["--agent", "boss"]);
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[a]");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        // The subagent's own approval is asked here.
        let asked = editor.asked();
        assert_eq!(asked["params"]["sessionId"], session);
        let answer = json!({ "outcome": { "outcome": "selected", "optionId": "allow" } });
        editor.respond(&asked, answer);
        editor.until_said("the child has found it");
        // It is a tool call of its own, from its start to its result.
        let call = editor.until(|update| update["name"] == "subagent");
        assert_eq!(call["status"], "in_progress");
        assert_eq!(call["title"], "worker: [child]");
        editor.until(|update| {
            update["toolCallId"] == call["toolCallId"] && update["status"] == "completed"
        });
        editor.until(|update| {
            update["toolCallId"] == call["toolCallId"]
                && update["content"].to_string().contains("✓ shell")
        });
        editor.until(|update| {
            update["toolCallId"] == call["toolCallId"]
                && update["content"].to_string().contains("found it")
        });
        // A replay shows its result.
        let mut other = Editor::open(&place);
        other.call("session/load", opening(&place, &session));
        let told = other.until(|update| update["name"] == "subagent");
        assert_eq!(told["toolCallId"], call["toolCallId"]);
        assert!(told["content"].to_string().contains("found it"), "{told}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_session_that_is_loaded_again_shows_its_subagents_again() {
    run(async {
        let spawn = json!({ "task": "[child]", "agent": "worker" });
        let script = Script::new()
            .on("[child]", [says("found it").held_by("go")])
            .on_announce("found it", [says("the child has found it")])
            .on("[a]", [calls("sessions_spawn", spawn), says("spawned")]);
        let place = Place::new(script)
            .with_agent("worker", "mode: subagent")
            .with_agent("boss", "mode: primary\nallow_agents: [worker]");
        let daemon = place.start().await;
        let mut editor = Editor::open_with(&place, &["--agent", "boss"]);
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[a]");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        let call = editor.until(|update| update["name"] == "subagent");
        // It is running when the session is loaded again.
        editor.updates.clear();
        editor.call("session/load", opening(&place, &session));
        let again = editor.until(|update| update["name"] == "subagent");
        assert_eq!(again["toolCallId"], call["toolCallId"]);
        assert_eq!(again["status"], "in_progress");
        place.let_go("go");
        editor.until_said("the child has found it");
        editor.until(|update| {
            update["toolCallId"] == call["toolCallId"] && update["status"] == "completed"
        });
        editor.until(|update| {
            update["toolCallId"] == call["toolCallId"]
                && update["content"].to_string().contains("found it")
        });
        let calls = editor.of_kind("tool_call").into_iter();
        assert_eq!(calls.filter(|call| call["name"] == "subagent").count(), 1);
        // It has ended when the session is loaded once more.
        editor.updates.clear();
        editor.call("session/load", opening(&place, &session));
        let ended = editor.until(|update| update["toolCallId"] == call["toolCallId"]);
        assert_eq!(ended["name"], "subagent");
        assert!(ended["content"].to_string().contains("found it"), "{ended}");
        assert_eq!(daemon.stop().await, 0);
    });
}
