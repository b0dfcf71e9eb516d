//! Sessions of editors: loaded, resumed, listed, closed, deleted, and what happens without an editor.

use serde_json::json;

use super::editor::{Editor, begun, opening};
use crate::harness::{Place, Script, calls, eventually, run, says};

fn place() -> Place {
    let script = Script::new()
        .on(
            "[a]",
            [calls("list", json!({})), says("a is done").held_by("go")],
        )
        .on("[b]", [says("b is done")]);
    Place::new(script)
}

#[test]
fn a_turn_outlives_its_editor_and_a_load_shows_all_of_it() {
    run(async {
        let place = place();
        let (daemon, mut editor, session) = begun(&place).await;
        let client = daemon.client().await;
        editor.prompt(&session, "[a] first");
        editor.until(|update| update["sessionUpdate"] == "tool_call");
        // The editor is closed in the middle of the turn: nothing is cancelled.
        let (code, said) = editor.hang_up();
        assert_eq!((code, said.as_str()), (0, ""));
        let runs = client
            .call("runs.list", json!({ "sessionKey": session }))
            .await;
        let run = runs["runs"][0]["runId"].as_str().unwrap().to_owned();
        let mut second = Editor::open(&place);
        second.call("session/load", opening(&place, &session));
        assert_eq!(second.text("user_message_chunk"), "[a] first");
        assert_eq!(second.of_kind("tool_call").len(), 1);
        // The turn goes on for the new editor.
        place.let_go("go");
        second.until_said("a is done");
        assert_eq!(client.ended(&run).await["state"], "ok");
        // What another client does is shown, too.
        client.turn(&session, "[b] from elsewhere").await;
        second.until_said("b is done");
        assert_eq!(
            second.text("user_message_chunk"),
            "[a] first[b] from elsewhere"
        );
        second.kill();
        // A replay comes before the answer, in order.
        let mut third = Editor::open(&place);
        third.call("session/load", opening(&place, &session));
        let shown: Vec<&str> = third
            .updates
            .iter()
            .map(|(_, update)| update["sessionUpdate"].as_str().unwrap())
            .collect();
        assert_eq!(
            shown,
            [
                "user_message_chunk",
                "tool_call",
                "tool_call_update",
                "agent_message_chunk",
                "user_message_chunk",
                "agent_message_chunk",
            ]
        );
        // A resume replays nothing.
        let mut fourth = Editor::open(&place);
        fourth.call("session/resume", opening(&place, &session));
        let prompt = fourth.prompt(&session, "[b] again");
        assert_eq!(fourth.result(prompt)["stopReason"], "end_turn");
        assert_eq!(fourth.text("user_message_chunk"), "");
        assert_eq!(fourth.text("agent_message_chunk"), "b is done");
        let unknown = fourth.refused("session/load", opening(&place, "editor:none"));
        assert_eq!(unknown["code"], -32002);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn sessions_are_listed_by_folder_in_pages() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for number in 0..60 {
            let key = format!("editor:{number}");
            let params =
                json!({ "key": key, "cwd": place.work(), "title": format!("no {number}") });
            client.call("sessions.create", params).await;
        }
        client
            .call(
                "sessions.create",
                json!({ "key": "other:one", "cwd": place.path() }),
            )
            .await;
        // A client's session and one without a folder are none that an editor could open.
        client.session("client", "a-client").await;
        client.session("agent", "no-folder").await;
        let mut editor = Editor::open(&place);
        // The folder may be named by a link.
        let link = place.path().join("link");
        std::os::unix::fs::symlink(place.work(), &link).unwrap();
        let first = editor.call("session/list", json!({ "cwd": link }));
        let page = first["sessions"].as_array().unwrap();
        assert_eq!(page.len(), 50);
        assert_eq!(page[0]["title"], "no 59");
        let next = json!({ "cwd": link, "cursor": first["nextCursor"] });
        let second = editor.call("session/list", next);
        assert_eq!(second["sessions"].as_array().unwrap().len(), 10);
        assert!(second.get("nextCursor").is_none(), "{second}");
        let other = editor.call("session/list", json!({ "cwd": place.path() }));
        assert_eq!(other["sessions"].as_array().unwrap().len(), 1);
        assert_eq!(other["sessions"][0]["sessionId"], "other:one");
        let relative = editor.refused("session/list", json!({ "cwd": "work" }));
        assert_eq!(relative["code"], -32602);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn closing_cancels_and_keeps_while_deleting_removes() {
    run(async {
        let place = place();
        let (daemon, mut editor, session) = begun(&place).await;
        let client = daemon.client().await;
        let prompt = editor.prompt(&session, "[a]");
        editor.until(|update| update["sessionUpdate"] == "tool_call");
        let close = editor.request("session/close", json!({ "sessionId": session }));
        assert_eq!(editor.result(prompt)["stopReason"], "cancelled");
        editor.result(close);
        let of = json!({ "sessionId": session });
        assert_eq!(editor.refused("session/close", of.clone())["code"], -32002);
        // It can be opened again, and is deleted with a turn in progress.
        editor.call("session/load", opening(&place, &session));
        let prompt = editor.prompt(&session, "[a] again");
        eventually("the second call", async || {
            let call = ("[a]".to_owned(), 1);
            let calls = place.model_calls();
            (calls.get(&call).copied().unwrap_or(0) > 1).then_some(())
        })
        .await;
        let delete = editor.request("session/delete", of.clone());
        assert_eq!(editor.result(prompt)["stopReason"], "cancelled");
        editor.result(delete);
        let gone = client
            .refused("sessions.get", json!({ "sessionKey": session }))
            .await;
        assert_eq!(crate::harness::kind_of(&gone), "not_found");
        // A repeat does nothing more.
        editor.call("session/delete", of);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_daemon_is_started_unless_that_is_forbidden() {
    run(async {
        let place = place();
        let mut editor = Editor::open_with(&place, &["--no-start"]);
        let params = json!({ "cwd": place.work(), "mcpServers": [] });
        let refused = editor.refused("session/new", params.clone());
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("abide serve"), "{message}");
        let daemon = place.start().await;
        // The next request finds it.
        editor.call("session/new", params.clone());
        assert_eq!(daemon.stop().await, 0);

        // Two editors that are opened at once start one daemon.
        let mut editors = [Editor::open(&place), Editor::open(&place)];
        let ids = editors
            .each_mut()
            .map(|editor| editor.request("session/new", params.clone()));
        for (editor, id) in editors.iter_mut().zip(ids) {
            editor.result(id);
        }
        let stop = place.command(&["stop"]).output().unwrap();
        assert!(stop.status.success(), "{stop:?}");
    });
}
