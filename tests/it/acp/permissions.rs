//! Approvals in an editor: answered there, left open, decided elsewhere.

use serde_json::{Value, json};

use super::editor::{Editor, begun, opening};
use crate::harness::{Place, Script, calls, run, says};

fn command(text: &str) -> Value {
    json!({ "command": text })
}

fn place() -> Place {
    let script = Script::new()
        .on(
            "[twice]",
            [
                calls("shell", command("echo one > made.txt")),
                calls("shell", command("echo one > made.txt")),
                says("twice done"),
            ],
        )
        .on(
            "[a]",
            [calls("shell", command("echo a > a.txt")), says("a is done")],
        );
    Place::new(script)
}

fn selected(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

/// The id of the option of this kind.
fn option(request: &Value, kind: &str) -> String {
    let options = request["params"]["options"].as_array().unwrap();
    let found = options.iter().find(|option| option["kind"] == kind);
    found.unwrap()["optionId"].as_str().unwrap().to_owned()
}

#[test]
fn an_approval_is_asked_in_the_editor() {
    run(async {
        let place = place();
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a]");
        let asked = editor.asked();
        assert_eq!(asked["method"], "session/request_permission");
        let call = &asked["params"]["toolCall"];
        assert_eq!(
            (&call["kind"], &call["title"]),
            (&json!("execute"), &json!("echo a > a.txt"))
        );
        // It is the call that the editor was told of.
        let told = editor.until(|update| update["sessionUpdate"] == "tool_call");
        assert_eq!(told["toolCallId"], call["toolCallId"]);
        assert_eq!(editor.taken(prompt), None);
        let id = option(&asked, "reject_once");
        editor.respond(&asked, selected(&id));
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert!(!place.work().join("a.txt").exists());

        // Allowed for the session, it is asked once.
        let prompt = editor.prompt(&session, "[twice]");
        let asked = editor.asked();
        let id = option(&asked, "allow_always");
        editor.respond(&asked, selected(&id));
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert!(place.work().join("made.txt").exists());
        assert!(editor.text("agent_message_chunk").ends_with("twice done"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_the_editor_does_not_answer_is_decided_elsewhere_and_withdrawn() {
    run(async {
        let place = place();
        let (daemon, mut editor, session) = begun(&place).await;
        let client = daemon.client().await;
        let prompt = editor.prompt(&session, "[a]");
        let asked = editor.asked();
        let open = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        let approval = &open["approvals"][0];
        let call = approval["toolCallId"].as_str().unwrap();
        let shown = asked["params"]["toolCall"]["toolCallId"].as_str().unwrap();
        assert!(shown.ends_with(call), "{shown} {call}");
        let decision = json!({ "id": approval["id"], "decision": "allow" });
        client.call("approvals.resolve", decision).await;
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert_eq!(editor.withdrawn, [asked["id"].clone()]);
        // A late answer changes nothing; it is read before the request that follows it.
        editor.respond(&asked, selected("reject"));
        editor.call("session/list", json!({}));
        let all = client.call("approvals.list", json!({})).await;
        let states: Vec<&Value> = all["approvals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|approval| &approval["state"])
            .collect();
        assert_eq!(states, ["allowed"]);
        assert_eq!(editor.taken_request(), None);
        assert!(place.work().join("a.txt").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_approval_survives_the_editor_and_the_daemon() {
    run(async {
        let place = place();
        let (daemon, mut editor, session) = begun(&place).await;
        editor.prompt(&session, "[a]");
        editor.asked();
        editor.hang_up();
        daemon.kill().await;
        let daemon = place.start().await;
        let mut second = Editor::open(&place);
        second.call("session/load", opening(&place, &session));
        let asked = second.asked();
        // An answer that decides nothing leaves it open.
        second.respond(&asked, json!({ "outcome": { "outcome": "cancelled" } }));
        let client = daemon.client().await;
        let open = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        assert_eq!(open["approvals"].as_array().unwrap().len(), 1);
        let mut third = Editor::open(&place);
        third.call("session/resume", opening(&place, &session));
        let asked = third.asked();
        let id = option(&asked, "allow_once");
        third.respond(&asked, selected(&id));
        third.until_said("a is done");
        assert!(place.work().join("a.txt").exists());
        // A cancel closes an approval that is open.
        let prompt = third.prompt(&session, "[a]");
        let asked = third.asked();
        third.notify("session/cancel", json!({ "sessionId": session }));
        third.respond(&asked, json!({ "outcome": { "outcome": "cancelled" } }));
        assert_eq!(third.result(prompt)["stopReason"], "cancelled");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_question_is_shown_with_the_command_that_answers_it() {
    run(async {
        let ask = json!({ "question": "which port?", "choices": ["80", "8080"] });
        let script = Script::new().on("[a]", [calls("ask", ask), says("a is done")]);
        let place = Place::new(script);
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a]");
        editor.until(|update| {
            update["content"]["text"]
                .to_string()
                .contains("which port?")
        });
        assert!(editor.text("agent_message_chunk").contains("- 8080"));
        // Another editor that opens the session sees it, too, and the command works.
        let mut other = Editor::open(&place);
        other.call("session/load", opening(&place, &session));
        other.until(|update| {
            update["content"]["text"]
                .to_string()
                .contains("which port?")
        });
        let text = other.text("agent_message_chunk");
        let id = text.split("abide answer ").nth(1).unwrap();
        let id = id.split(' ').next().unwrap();
        let answered = place.command(&["answer", id, "8080"]).output().unwrap();
        assert!(answered.status.success(), "{answered:?}");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        editor.until_said("a is done");
        assert_eq!(daemon.stop().await, 0);
    });
}
