//! Questions as forms, for editors that can show one.

use serde_json::{Value, json};

use super::editor::{Editor, opening};
use crate::harness::{Place, Script, calls, run, says};

fn place() -> Place {
    let port = json!({ "question": "which port?", "choices": ["80", "8080"] });
    let name = json!({ "question": "which name?" });
    let script = Script::new()
        .on("[port]", [calls("ask", port), says("the port is set")])
        .on("[name]", [calls("ask", name), says("the name is set")]);
    Place::new(script)
}

fn open(place: &Place) -> Editor {
    let forms = json!({ "elicitation": { "form": {} } });
    Editor::open_as(place, &[], forms)
}

fn accepted(content: Value) -> Value {
    json!({ "action": "accept", "content": content })
}

#[test]
fn a_question_is_a_form_and_its_answer_reaches_the_run() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = open(&place);
        let session = editor.session(&place);
        for (input, content, answer) in [
            ("[port]", json!({ "choice": "8080" }), "8080"),
            ("[port]", json!({ "choice": "80", "text": "443" }), "443"),
            ("[name]", json!({ "text": "the shed" }), "the shed"),
        ] {
            let prompt = editor.prompt(&session, input);
            let asked = editor.asked();
            assert_eq!(asked["method"], "elicitation/create");
            let form = &asked["params"];
            assert_eq!(
                (&form["mode"], &form["sessionId"]),
                (&json!("form"), &json!(session))
            );
            assert!(
                form["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("build asks: which")
            );
            let fields = &form["requestedSchema"]["properties"];
            match input {
                "[port]" => assert_eq!(fields["choice"]["enum"], json!(["80", "8080"])),
                _ => assert_eq!(form["requestedSchema"]["required"], json!(["text"])),
            }
            editor.respond(&asked, accepted(content));
            assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
            let of = json!({ "sessionKey": session });
            let all = client.call("questions.list", of).await;
            let last = all["questions"].as_array().unwrap().last().unwrap();
            assert_eq!(
                (&last["state"], &last["answer"]),
                (&json!("answered"), &json!(answer))
            );
        }
        // No text tells of it, since the form does.
        assert!(!editor.text("agent_message_chunk").contains("abide answer"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_question_without_an_answer_stays_open_and_one_that_is_answered_is_withdrawn() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = open(&place);
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[port]");
        let asked = editor.asked();
        editor.respond(&asked, json!({ "action": "decline" }));
        let shown = editor.until(|update| {
            update["content"]["text"]
                .to_string()
                .contains("abide answer")
        });
        assert!(
            shown["content"]["text"]
                .as_str()
                .unwrap()
                .contains("- 8080")
        );
        // Another editor that opens the session is asked; the command in a terminal is faster.
        let mut other = open(&place);
        other.call("session/load", opening(&place, &session));
        let asked = other.asked();
        let open = json!({ "state": "open" });
        let open = client.call("questions.list", open).await;
        let id = open["questions"][0]["id"].as_str().unwrap();
        let answered = place.command(&["answer", id, "8080"]).output().unwrap();
        assert!(answered.status.success(), "{answered:?}");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        other.until_said("the port is set");
        while other.withdrawn.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            other.look();
        }
        assert_eq!(other.withdrawn, [asked["id"].clone()]);
        // A late answer to the withdrawn form changes nothing.
        other.respond(&asked, accepted(json!({ "choice": "80" })));
        other.call("session/list", json!({}));
        let all = client.call("questions.list", json!({})).await;
        assert_eq!(all["questions"][0]["answer"], "8080");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn an_answer_during_a_crash_of_the_daemon_is_passed_on() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let mut editor = open(&place);
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[port]");
        let asked = editor.asked();
        daemon.kill().await;
        // The answer is passed on once there is a daemon again.
        editor.respond(&asked, accepted(json!({ "choice": "80" })));
        let daemon = place.start().await;
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        let client = daemon.client().await;
        let all = client.call("questions.list", json!({})).await;
        assert_eq!(all["questions"][0]["answer"], "80");
        assert_eq!(daemon.stop().await, 0);
    });
}
