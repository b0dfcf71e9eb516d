//! The choices of a session in an editor: agent, model, thinking level; and commands, plan, usage.

use serde_json::{Value, json};

use super::editor::{Editor, begun, opening};
use crate::harness::{Place, Script, calls, run, says};

fn current<'a>(options: &'a Value, id: &str) -> &'a Value {
    let options = options.as_array().unwrap().iter();
    let mut found = options.filter(|option| option["id"] == id);
    &found.next().unwrap()["currentValue"]
}

#[test]
fn agents_are_modes_and_model_and_thinking_are_options() {
    run(async {
        let script = Script::new().on("[a]", [says("first")]);
        let place = Place::new(script)
            .with_agent("second", "mode: primary\ntitle: The Second")
            .with_agent("helper", "mode: subagent");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = Editor::open(&place);
        let params = json!({ "cwd": place.work(), "mcpServers": [] });
        let opened = editor.call("session/new", params);
        let session = opened["sessionId"].as_str().unwrap().to_owned();
        let modes = &opened["modes"];
        assert_eq!(modes["currentModeId"], "build");
        let ids: Vec<&str> = modes["availableModes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mode| mode["id"].as_str().unwrap())
            .collect();
        assert!(
            ids.contains(&"second") && !ids.contains(&"helper"),
            "{ids:?}"
        );
        assert_eq!(current(&opened["configOptions"], "model"), "default");
        assert_eq!(current(&opened["configOptions"], "thinking"), "default");

        let of = |mode: &str| json!({ "sessionId": session, "modeId": mode });
        editor.call("session/set_mode", of("second"));
        let told = editor.until(|update| update["sessionUpdate"] == "current_mode_update");
        assert_eq!(told["currentModeId"], "second");
        assert_eq!(
            editor.refused("session/set_mode", of("helper"))["code"],
            -32603
        );
        assert_eq!(
            editor.refused("session/set_mode", of("none"))["code"],
            -32002
        );
        // The next turn is answered by the agent that was chosen.
        let prompt = editor.prompt(&session, "[a]");
        editor.result(prompt);
        let runs = client
            .call("runs.list", json!({ "sessionKey": session }))
            .await;
        assert_eq!(runs["runs"][0]["agent"], "second");

        let set =
            |id: &str, value: &str| json!({ "sessionId": session, "configId": id, "value": value });
        let answer = editor.call("session/set_config_option", set("thinking", "high"));
        assert_eq!(current(&answer["configOptions"], "thinking"), "high");
        let answer = editor.call("session/set_config_option", set("model", "script/y"));
        assert_eq!(current(&answer["configOptions"], "model"), "script/y");
        let stored = client
            .call("sessions.get", json!({ "sessionKey": session }))
            .await;
        assert_eq!(
            (&stored["thinking"], &stored["model"], &stored["agent"]),
            (&json!("high"), &json!("script/y"), &json!("second"))
        );
        for (id, value) in [("thinking", "most"), ("other", "x")] {
            let refused = editor.refused("session/set_config_option", set(id, value));
            assert_eq!(refused["code"], -32602);
        }
        let answer = editor.call("session/set_config_option", set("thinking", "default"));
        assert_eq!(current(&answer["configOptions"], "thinking"), "default");

        // They belong to the session: another editor finds them.
        let mut other = Editor::open(&place);
        let loaded = other.call("session/load", opening(&place, &session));
        assert_eq!(loaded["modes"]["currentModeId"], "second");
        assert_eq!(current(&loaded["configOptions"], "model"), "script/y");
        assert!(loaded.get("sessionId").is_none());
        // A change elsewhere is told.
        let patch = json!({ "sessionKey": session, "agent": "build", "title": "Other title" });
        client.call("sessions.patch", patch).await;
        other.until(|update| update["currentModeId"] == "build");
        other.until(|update| update["title"] == "Other title");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn skills_are_commands_and_the_todo_list_is_a_plan() {
    run(async {
        let items = json!({ "items": [
            { "text": "one", "status": "done" },
            { "text": "two", "status": "in_progress" },
            { "text": "three", "status": "open" },
        ] });
        let script = Script::new()
            .on(
                "Load the skill \"tidy\"",
                [calls("todo", items), says("tidied")],
            )
            .on("/unknown", [says("as typed")]);
        let place = Place::new(script);
        let folder = place.path().join(".agents/skills");
        crate::skills::put(&folder, "tidy", "Tidies up.", "Tidy up.");
        // One that only agents are to find.
        let inner = "Inner.\nuser-invocable: false";
        crate::skills::put(&folder, "inner", inner, "Do it.");
        let (daemon, mut editor, session) = begun(&place).await;
        let told = editor.until(|update| update["sessionUpdate"] == "available_commands_update");
        let commands = told["availableCommands"].as_array().unwrap();
        let tidy = commands.iter().find(|command| command["name"] == "tidy");
        assert_eq!(tidy.unwrap()["description"], "Tidies up.");
        assert!(commands.iter().all(|command| command["name"] != "inner"));
        let prompt = editor.prompt(&session, "/tidy the kitchen");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        let plan = editor.until(|update| update["sessionUpdate"] == "plan");
        let entries: Vec<(&str, &str)> = plan["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| {
                let text = |name: &str| entry[name].as_str().unwrap();
                (text("content"), text("status"))
            })
            .collect();
        assert_eq!(
            entries,
            [
                ("one", "completed"),
                ("two", "in_progress"),
                ("three", "pending")
            ]
        );
        // The plan stands for the call.
        assert_eq!(editor.of_kind("tool_call").len(), 0);
        assert_eq!(editor.of_kind("tool_call_update").len(), 0);
        let prompt = editor.prompt(&session, "/unknown stays");
        editor.result(prompt);
        assert!(editor.text("agent_message_chunk").ends_with("as typed"));
        assert_eq!(daemon.stop().await, 0);
    });
}
