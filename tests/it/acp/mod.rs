//! `abide acp`: a scripted editor over real standard input and output, with the real daemon.

pub(crate) mod editor;
mod forms;
mod options;
mod outside;
mod permissions;
pub(crate) mod schema;
mod servers;
mod sessions;
mod subagents;

use serde_json::{Value, json};

use self::editor::{Editor, begun};
use crate::harness::{ModelServer, Place, Script, calls, eventually, fails, messages, run, says};
use crate::providers;

/// The updates of tool calls, as `status` of each, in order.
fn statuses(editor: &Editor, call: &Value) -> Vec<String> {
    let updates = editor.updates.iter().map(|(_, update)| update);
    let of_call = updates.filter(|update| update["toolCallId"] == *call);
    let statuses = of_call.filter_map(|update| update["status"].as_str());
    statuses.map(str::to_owned).collect()
}

#[test]
fn what_an_editor_is_told_at_first_is_true() {
    run(async {
        let place = Place::new(Script::new());
        let daemon = place.start().await;
        let mut editor = Editor::start(&place, &[]);
        // Nothing is answered before `initialize`, and another version gets the one that is spoken.
        let early = editor.refused("session/list", json!({}));
        assert_eq!(early["code"], -32600);
        let hello = editor.request("initialize", json!({ "protocolVersion": 99 }));
        // What follows at once is carried out.
        let listed = editor.request("session/list", json!({}));
        let answer = editor.result(hello);
        editor.result(listed);
        assert_eq!(answer["protocolVersion"], 1);
        assert_eq!(answer["agentInfo"]["name"], "abide");
        let can = &answer["agentCapabilities"];
        assert_eq!(can["loadSession"], true);
        assert_eq!(can["promptCapabilities"]["image"], false);
        // What is announced is there, and what is not is refused.
        for method in ["list", "resume", "close", "delete"] {
            assert!(can["sessionCapabilities"][method].is_object(), "{can}");
            let error = editor.request(&format!("session/{method}"), json!({ "sessionId": "a:b" }));
            let response = editor.response(error);
            assert_ne!(response["error"]["code"], -32601, "{response}");
        }
        assert_eq!(editor.refused("session/fork", json!({}))["code"], -32601);
        assert_eq!(editor.refused("_mine/own", json!({}))["code"], -32601);
        // Bad lines are answered and do not affect the next one.
        for (line, code) in [
            ("{\"id\":", -32700),
            ("[]", -32600),
            ("\"x\"", -32600),
            ("{\"id\":null}", -32600),
        ] {
            editor.send(format!("{line}\n").as_bytes());
            let response = editor.response(Value::Null);
            assert_eq!(response["error"]["code"], code, "{line}: {response}");
        }
        editor.send(b"\xff\xfe\n\n  \n");
        assert_eq!(editor.response(Value::Null)["error"]["code"], -32700);
        editor.notify("no/such", json!({}));
        let relative = editor.refused("session/new", json!({ "cwd": "work", "mcpServers": [] }));
        assert_eq!(relative["code"], -32602);
        let missing = editor.refused("session/new", json!({ "mcpServers": [] }));
        assert_eq!(missing["code"], -32602);
        let unknown = json!({ "sessionId": "a:b", "prompt": [{ "type": "text", "text": "x" }] });
        assert_eq!(editor.refused("session/prompt", unknown)["code"], -32002);
        let (code, said) = editor.hang_up();
        assert_eq!((code, said.as_str()), (0, ""));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_prompt_streams_text_and_tool_calls_and_ends_with_its_reason() {
    run(async {
        let script = Script::new().on(
            "[a]",
            [
                calls("read", json!({ "path": "notes.txt", "offset": 2 })),
                calls("write", json!({ "path": "new.txt", "content": "made\n" })),
                calls(
                    "edit",
                    json!({ "path": "notes.txt", "old_text": "beta", "new_text": "delta" }),
                ),
                calls("read", json!({ "path": "missing.txt" })),
                says("It is a long answer in pieces.").in_pieces(5, 3, "go"),
            ],
        );
        let place = Place::new(script);
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a] do it");
        // Text arrives before the answer is whole.
        editor.until(|update| update["sessionUpdate"] == "agent_message_chunk");
        assert_eq!(editor.taken(prompt), None);
        place.let_go("go");
        assert_eq!(editor.result(prompt), json!({ "stopReason": "end_turn" }));
        assert_eq!(
            editor.text("agent_message_chunk"),
            "It is a long answer in pieces."
        );
        // The editor shows the prompt itself.
        assert_eq!(editor.text("user_message_chunk"), "");
        let all: Vec<Value> = editor.of_kind("tool_call").into_iter().cloned().collect();
        let shown: Vec<(&str, &str)> = all
            .iter()
            .map(|call| {
                (
                    call["kind"].as_str().unwrap(),
                    call["title"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("read", "Read notes.txt"),
                ("edit", "Write new.txt"),
                ("edit", "Edit notes.txt"),
                ("read", "Read missing.txt"),
            ]
        );
        let file = place.work().canonicalize().unwrap().join("notes.txt");
        assert_eq!(all[0]["locations"], json!([{ "path": file, "line": 2 }]));
        assert_eq!(
            all[2]["content"],
            json!([{ "type": "diff", "path": file, "oldText": "beta", "newText": "delta" }])
        );
        assert_eq!(all[1]["content"][0]["newText"], "made\n");
        for (call, last) in all
            .iter()
            .zip(["completed", "completed", "completed", "failed"])
        {
            let seen = statuses(&editor, &call["toolCallId"]);
            assert_eq!(seen.first().unwrap(), "pending", "{seen:?}");
            assert_eq!(seen.last().unwrap(), last, "{call}: {seen:?}");
        }
        let read = editor.until(|update| {
            update["toolCallId"] == all[0]["toolCallId"] && update["content"].is_array()
        });
        let text = read["content"][0]["content"]["text"].as_str().unwrap();
        assert!(text.starts_with("```\n") && text.contains("beta"), "{text}");
        // The first prompt names the session.
        let named = editor.until(|update| update["sessionUpdate"] == "session_info_update");
        assert_eq!(named["title"], "[a] do it");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn parts_of_a_prompt_reach_the_model_in_order() {
    run(async {
        let place = Place::new(Script::new().on("quoted", [says("seen")]));
        let (daemon, mut editor, session) = begun(&place).await;
        let client = daemon.client().await;
        let prompt = json!([
            { "type": "text", "text": "Look at " },
            { "type": "resource_link", "name": "one.rs", "uri": "file:///w/one.rs" },
            { "type": "resource", "resource": { "uri": "file:///w/x", "text": "quoted" } },
        ]);
        let params = json!({ "sessionId": session, "prompt": prompt });
        assert_eq!(
            editor.call("session/prompt", params)["stopReason"],
            "end_turn"
        );
        let history = client
            .call("sessions.history", json!({ "sessionKey": session }))
            .await;
        assert_eq!(
            history["messages"][0]["content"][0]["text"],
            "Look at [one.rs](/w/one.rs)\n\n/w/x:\n```\nquoted\n```"
        );
        let image = json!([{ "type": "image", "mimeType": "image/png", "data": "AA==" }]);
        let params = json!({ "sessionId": session, "prompt": image });
        assert_eq!(editor.refused("session/prompt", params)["code"], -32602);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_cancel_ends_the_turn_and_is_no_error() {
    run(async {
        let script = Script::new()
            .on("[a]", [says("never").held_by("never")])
            .on("[b]", [says("b is done")]);
        let place = Place::new(script);
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a]");
        eventually("the model call", async || {
            let call = ("[a]".to_owned(), 0);
            place.model_calls().contains_key(&call).then_some(())
        })
        .await;
        editor.notify("session/cancel", json!({ "sessionId": session }));
        assert_eq!(editor.result(prompt)["stopReason"], "cancelled");
        // One that comes with the prompt itself counts, too.
        let prompt = editor.prompt(&session, "[a]");
        editor.notify("session/cancel", json!({ "sessionId": session }));
        assert_eq!(editor.result(prompt)["stopReason"], "cancelled");
        // A request can be cancelled by its id.
        let prompt = editor.prompt(&session, "[a]");
        editor.notify("$/cancel_request", json!({ "requestId": prompt }));
        assert_eq!(editor.result(prompt)["stopReason"], "cancelled");
        let prompt = editor.prompt(&session, "[b]");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_cancel_does_not_reach_a_prompt_that_comes_after_it() {
    run(async {
        let script = Script::new()
            .on("[a]", [says("never").held_by("never")])
            .on("[b]", [says("b is done")]);
        let place = Place::new(script);
        let (daemon, mut editor, session) = begun(&place).await;
        let of = json!({ "sessionId": session });
        let first = editor.prompt(&session, "[a]");
        eventually("the model call", async || {
            let call = ("[a]".to_owned(), 0);
            place.model_calls().contains_key(&call).then_some(())
        })
        .await;
        let second = editor.together(|editor| {
            editor.notify("session/cancel", of.clone());
            editor.prompt(&session, "[b]")
        });
        assert_eq!(editor.result(first)["stopReason"], "cancelled");
        assert_eq!(editor.result(second)["stopReason"], "end_turn");
        // The same before the first one has reached the daemon.
        let (first, second) = editor.together(|editor| {
            let first = editor.prompt(&session, "[a]");
            editor.notify("session/cancel", of.clone());
            (first, editor.prompt(&session, "[b]"))
        });
        assert_eq!(editor.result(first)["stopReason"], "cancelled");
        assert_eq!(editor.result(second)["stopReason"], "end_turn");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_turn_that_fails_says_why() {
    run(async {
        let script = Script::new()
            .on("[a]", [fails("the model is out of order")])
            .on("[b]", [calls("list", json!({})), calls("list", json!({}))]);
        let place = Place::new(script).with_agent("short", "mode: primary\nmax_loops: 1");
        let daemon = place.start().await;
        let mut editor = Editor::open_with(&place, &["--agent", "short"]);
        let session = editor.session(&place);
        let prompt = editor.prompt(&session, "[a]");
        let error = editor.response(prompt)["error"].clone();
        assert_eq!(error["code"], -32603, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("out of order"), "{message}");
        assert_eq!(error["data"]["state"], "error");
        let prompt = editor.prompt(&session, "[b]");
        assert_eq!(editor.result(prompt)["stopReason"], "max_turn_requests");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_retried_answer_is_not_shown_twice() {
    run(async {
        let whole = "one two three four five six";
        let script = Script::new().on("[a]", [says(whole).in_pieces(4, 3, "go")]);
        let place = Place::new(script);
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a]");
        editor.until(|update| update["sessionUpdate"] == "agent_message_chunk");
        // The daemon is killed in the middle of the answer; the prompt stays open.
        daemon.kill().await;
        let daemon = place.start().await;
        assert_eq!(editor.taken(prompt), None);
        place.let_go("go");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert_eq!(editor.text("agent_message_chunk"), whole);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn thoughts_the_size_of_the_context_and_a_refusal_are_shown_as_such() {
    run(async {
        let server = ModelServer::start();
        let thinking = json!({ "type": "thinking", "thinking": "hm, so", "signature": "c2ln" });
        let text = |text: &str| json!({ "type": "text", "text": text });
        server.on(
            "[a]",
            [messages::answers(
                &[thinking, text("a is done")],
                "end_turn",
            )],
        );
        server.on("[b]", [messages::answers(&[text("half")], "refusal")]);
        let place = providers::place(&server, "claude/x").with("sessions.window", "5000");
        let (daemon, mut editor, session) = begun(&place).await;
        let prompt = editor.prompt(&session, "[a]");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        assert_eq!(editor.text("agent_thought_chunk"), "hm, so");
        assert_eq!(editor.text("agent_message_chunk"), "a is done");
        let usage = editor.of_kind("usage_update");
        assert_eq!(usage.len(), 1);
        assert_eq!(
            (&usage[0]["used"], &usage[0]["size"]),
            (&json!(29), &json!(5000))
        );
        let prompt = editor.prompt(&session, "[b]");
        assert_eq!(editor.result(prompt)["stopReason"], "refusal");
        assert_eq!(daemon.stop().await, 0);
    });
}
