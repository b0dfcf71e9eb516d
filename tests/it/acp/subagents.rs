//! Subagents in an editor: a tool call with progress, permissions of their own, and results that come
//! later.

use serde_json::{Value, json};

use super::editor::{Editor, begun, opening};
use crate::harness::{Place, Script, calls, fails, run, says};

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

/// The updates of a session, in order.
fn of_session<'a>(editor: &'a Editor, session: &str) -> Vec<&'a Value> {
    let updates = editor.updates.iter();
    let of = updates.filter(|(of, _)| of == session);
    of.map(|(_, update)| update).collect()
}

#[test]
fn an_editor_that_shows_subagents_gets_their_sessions() {
    run(async {
        let task = json!({
            "description": "look around", "prompt": "[child]", "subagent_type": "explore",
        });
        let script = Script::new()
            .on(
                "[child]",
                [calls("list", json!({})), says("seen").held_by("go")],
            )
            .on("[a]", [calls("task", task), says("a is done")])
            .on("[bad]", [fails("it is out of order").held_by("bad")]);
        let place = Place::new(script);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = Editor::open_as(&place, &[], json!({ "subagents": {} }));
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[a]");
        editor.until(|update| update["sessionUpdate"] == "subagent_update");
        place.let_go("go");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        let idle = editor.until(|update| update["state"]["state"] == "idle");
        assert_eq!(idle["state"]["stopReason"], "end_turn");
        let child = idle["sessionId"].as_str().unwrap().to_owned();
        let told = of_session(&editor, &session);
        let about = |update: &&&Value| update["sessionUpdate"] == "subagent_update";
        let first = told.iter().find(about).unwrap();
        assert_eq!(first["state"], json!({ "state": "running" }));
        assert_eq!(first["title"], "explore: look around (@explore)");
        // The announcement comes before all that is of the child.
        let place_of =
            |fits: &dyn Fn(&(String, Value)) -> bool| editor.updates.iter().position(fits).unwrap();
        let announced = place_of(&|(_, update)| update["sessionUpdate"] == "subagent_update");
        assert!(announced < place_of(&|(of, _)| *of == child));
        let texts: String = of_session(&editor, &child)
            .iter()
            .filter(|update| update["sessionUpdate"] == "agent_message_chunk")
            .map(|update| update["content"]["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, "seen");
        let calls = of_session(&editor, &child).into_iter();
        assert_eq!(
            calls
                .filter(|update| update["sessionUpdate"] == "tool_call")
                .count(),
            1
        );
        // The text of the child is not that of its requester, whose call still tells the progress.
        assert!(
            of_session(&editor, &session)
                .iter()
                .all(|update| update["sessionUpdate"] != "agent_message_chunk"
                    || update["content"]["text"] != "seen")
        );
        // One that fails says why.
        let spawn =
            json!({ "task": "[bad]", "agent": "explore", "parent": session, "announce": "none" });
        client.spawn(spawn).await;
        editor.until(|update| update["title"] == "explore: [bad]");
        place.let_go("bad");
        let failed = editor.until(|update| update["state"]["stopReason"] == "error");
        let why = failed["state"]["error"]["message"].as_str().unwrap();
        assert!(why.contains("out of order"), "{why}");
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Takes about ten seconds: two connections' worth of subscriptions.
#[test]
fn sessions_of_subagents_that_have_ended_are_followed_no_more() {
    run(async {
        const EACH: usize = 90;
        let script = Script::new()
            .on("[one]", [says("one is done").held_by("one")])
            .on("[two]", [says("two is done").held_by("two")]);
        let place = Place::new(script);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = Editor::open_as(&place, &[], json!({ "subagents": {} }));
        let session = editor.session(&place);
        // Each has two subscriptions, and a connection has 256 at most.
        for (round, name) in ["one", "two"].into_iter().enumerate() {
            for _ in 0..EACH {
                let task = format!("[{name}]");
                let spawn = json!({
                    "task": task, "agent": "explore", "parent": session, "announce": "none",
                });
                client.spawn(spawn).await;
            }
            let count = |editor: &Editor, state: &str| {
                let about = editor.of_kind("subagent_update").into_iter();
                about
                    .filter(|update| update["state"]["state"] == state)
                    .count()
            };
            while count(&editor, "running") < EACH * (round + 1) {
                editor.look();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            place.let_go(name);
            while count(&editor, "idle") < EACH * (round + 1) {
                editor.look();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        for update in editor.of_kind("subagent_update") {
            let state = &update["state"];
            assert!(
                state["state"] == "running" || state["stopReason"] == "end_turn",
                "{update}"
            );
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
