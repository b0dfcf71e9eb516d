//! MCP servers that an editor passes along: each belongs to its session, works without the editor, and
//! shows none of its values.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::editor::{Editor, opening};
use crate::environment::servers_of;
use crate::harness::{Daemon, Link, Place, Script, calls, eventually, kind_of, run, says};
use crate::mcp::{TOKEN, http_server, lines, until_state, with_server};

/// A value that must be seen nowhere.
const SECRET: &str = "canary-of-the-editor";

/// The test server as an editor passes it along, with a variable of its own.
fn server(name: &str, start: &str, variable: &str) -> Value {
    json!({
        "name": name,
        "command": std::env::current_exe().unwrap(),
        "args": ["--ignored", "--exact", "mcp::server::serve", "--quiet"],
        "env": [
            { "name": "TEST_MCP_START", "value": start },
            { "name": variable, "value": SECRET },
        ],
    })
}

fn script() -> Script {
    let add = |server: &str| calls(&format!("{server}__add"), json!({ "text": server }));
    let environment = |server: &str| calls(&format!("{server}__environment"), json!({}));
    Script::new()
        .on(
            "[alpha]",
            [add("alpha"), environment("alpha"), says("alpha is done")],
        )
        .on(
            "[beta]",
            [add("beta"), environment("beta"), says("beta is done")],
        )
}

/// Opens a session with these servers and returns its id.
fn opened(editor: &mut Editor, folder: &Path, servers: Value) -> String {
    let params = json!({ "cwd": folder, "mcpServers": servers });
    let answer = editor.call("session/new", params);
    answer["sessionId"].as_str().unwrap().to_owned()
}

/// The names of the tools that a turn of the session would have.
async fn tools(client: &Link, session: &str) -> Vec<String> {
    let set = client
        .call("tools.list", json!({ "sessionKey": session }))
        .await;
    let tools = set["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn has(tools: &[String], name: &str) -> bool {
    tools.iter().any(|tool| tool == name)
}

/// The texts of the results of the session's tool calls.
async fn results(client: &Link, session: &str) -> Vec<String> {
    let of = json!({ "sessionKey": session, "tools": true });
    let history = client.call("sessions.history", of).await;
    let messages = history["messages"].as_array().unwrap().iter();
    let blocks = messages.flat_map(|message| message["content"].as_array().unwrap());
    let results = blocks.filter(|block| block["type"] == "tool_result");
    results
        .map(|result| result["text"].as_str().unwrap().to_owned())
        .collect()
}

fn notices(editor: &Editor) -> Vec<String> {
    let notices = editor.of_kind("notice").into_iter();
    notices
        .map(|notice| notice["title"].as_str().unwrap().to_owned())
        .collect()
}

fn rows(place: &Place) -> i64 {
    let db = Connection::open(place.database()).unwrap();
    let sql = "SELECT count(*) FROM session_servers";
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Nothing that the daemon keeps or tells has the secret: the whole state folder and all events.
async fn is_secret(place: &Place, daemon: &Daemon) {
    let client = daemon.client().await;
    let calls = [
        ("mcp.list", json!({})),
        ("gateway.audit", json!({})),
        ("sessions.list", json!({})),
        ("runs.list", json!({})),
    ];
    for (method, params) in calls {
        let told = client.call(method, params).await.to_string();
        assert!(!told.contains(SECRET), "{method}: {told}");
    }
    assert!(!daemon.logged().contains(SECRET));
    let mut folders = vec![place.state()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(path),
                kind if kind.is_file() => {
                    let bytes = fs::read(&path).unwrap_or_default();
                    let found = bytes
                        .windows(SECRET.len())
                        .any(|part| part == SECRET.as_bytes());
                    assert!(!found, "{}", path.display());
                }
                _ => {}
            }
        }
    }
}

#[test]
fn two_sessions_have_servers_of_their_own_which_end_with_the_turn() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = Editor::open(&place);
        let (one, two) = (place.work().join("one"), place.work().join("two"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&two).unwrap();
        let alpha = opened(&mut editor, &one, json!([server("Alpha", "", "OF_ALPHA")]));
        let beta = opened(&mut editor, &two, json!([server("Beta", "", "OF_BETA")]));
        assert_eq!(notices(&editor), Vec::<String>::new());
        let offered = tools(&client, &alpha).await;
        assert!(has(&offered, "alpha__add") && !has(&offered, "beta__add"));
        let offered = tools(&client, &beta).await;
        assert!(has(&offered, "beta__add") && !has(&offered, "alpha__add"));
        for (session, name) in [(&alpha, "alpha"), (&beta, "beta")] {
            let prompt = editor.prompt(session, &format!("[{name}]"));
            assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
            let told = results(&client, session).await;
            assert_eq!(told[0], format!("added {name}"));
            let own = format!("OF_{}", name.to_uppercase());
            for variable in ["OF_ALPHA", "OF_BETA"] {
                assert_eq!(told[1].contains(variable), own == variable, "{told:?}");
            }
            let runs = client
                .call("runs.list", json!({ "sessionKey": session }))
                .await;
            let ended = &runs["runs"][0];
            let id = ended["runId"].as_str().unwrap();
            let set = client
                .call("tools.list", json!({ "sessionKey": session }))
                .await;
            assert_eq!(client.run(id).await["pins"]["tools"], set["hash"]);
            eventually("the end of its server", async || {
                servers_of(id).is_empty().then_some(())
            })
            .await;
        }
        // They work in the folders of their sessions: one start lists the tools, one is of the turn.
        for (folder, name) in [(&one, "alpha"), (&two, "beta")] {
            assert_eq!(
                fs::read_to_string(folder.join("added")).unwrap().trim(),
                name
            );
            let starts = fs::read_to_string(folder.join("starts")).unwrap();
            assert_eq!(starts.lines().count(), 2, "{starts}");
        }
        // An agent without the tool cannot call it by its name.
        let prompt = editor.prompt(&beta, "[alpha]");
        editor.result(prompt);
        let told = results(&client, &beta).await;
        assert!(told[2].contains("alpha__add"), "{told:?}");
        assert_eq!(fs::read_to_string(one.join("added")).unwrap(), "alpha\n");
        is_secret(&place, &daemon).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn servers_of_a_session_survive_the_editor_and_the_daemon() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let mut editor = Editor::open(&place);
        let servers = json!([server("Alpha", "", "OF_ALPHA")]);
        let session = opened(&mut editor, &place.work(), servers);
        editor.kill();
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = client.turn(&session, "[alpha]").await;
        assert_eq!(client.ended(&turn.id).await["result"], "alpha is done");
        assert_eq!(results(&client, &session).await[0], "added alpha");
        assert_eq!(lines(&place, "added"), 1);
        assert_eq!(daemon.stop().await, 0);

        // Without the key the turn says so, and the servers can still be removed.
        fs::remove_file(place.state().join("env.key")).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let turn = client.turn(&session, "[alpha]").await;
        client.ended(&turn.id).await;
        let told = results(&client, &session).await.pop().unwrap();
        assert!(told.contains("another key"), "{told}");
        assert_eq!(lines(&place, "added"), 1);
        assert_eq!(rows(&place), 1);
        let mut editor = Editor::open(&place);
        editor.call("session/resume", opening(&place, &session));
        assert_eq!(rows(&place), 0);
        assert!(!has(&tools(&client, &session).await, "alpha__add"));
        assert_eq!(notices(&editor), Vec::<String>::new());
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn closing_a_session_removes_its_servers_and_a_failure_is_told() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let mut editor = Editor::open(&place);
        let servers = json!([server("Alpha", "", "OF_ALPHA")]);
        let session = opened(&mut editor, &place.work(), servers);
        let broken = Connection::open(place.database()).unwrap();
        broken
            .execute_batch(
                "CREATE TRIGGER stays BEFORE DELETE ON session_servers \
                 BEGIN SELECT RAISE(ABORT, 'it stays'); END;",
            )
            .unwrap();
        let of = json!({ "sessionId": session });
        let error = editor.refused("session/close", of.clone());
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("servers were not removed"), "{message}");
        // It is still open, and can be closed once that works.
        let prompt = editor.prompt(&session, "[alpha]");
        assert_eq!(editor.result(prompt)["stopReason"], "end_turn");
        broken.execute_batch("DROP TRIGGER stays;").unwrap();
        editor.call("session/close", of);
        assert_eq!(rows(&place), 0);
        let error = editor.prompt(&session, "[alpha]");
        assert_eq!(editor.response(error)["error"]["code"], -32002);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_refused_list_leaves_the_earlier_servers_and_closing_removes_them() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let mut editor = Editor::open(&place);
        let session = opened(
            &mut editor,
            &place.work(),
            json!([server("Alpha", "", "OF_ALPHA")]),
        );
        let of = json!({ "sessionId": session });
        let bad = json!([{
            "name": "Bad", "command": "/bin/true", "args": [],
            "env": [{ "name": "A=B", "value": SECRET }],
        }]);
        let again = json!({ "sessionId": session, "cwd": place.work(), "mcpServers": bad });
        editor.call("session/resume", again);
        editor.until(|update| update["title"].to_string().contains("are not used"));
        let told = notices(&editor).join(" ");
        assert!(told.contains("earlier ones of this session stay"), "{told}");
        assert!(!told.contains(SECRET), "{told}");
        assert_eq!(rows(&place), 1);
        editor.call("session/close", of);
        assert_eq!(rows(&place), 0);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_is_wrong_with_a_server_is_told_without_its_values() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut editor = Editor::open(&place);
        let shell = |name: &str, line: &str| {
            json!({
                "name": name, "command": "/bin/sh", "args": ["-c", line],
                "env": [{ "name": "PASS", "value": SECRET }],
            })
        };
        let url = http_server();
        let headers = |token: &str| {
            json!([
                { "name": "Authorization", "value": format!("Bearer {token}") },
                { "name": "X-Team", "value": "tests" },
            ])
        };
        let servers = json!([
            shell("Talks", "echo \"no licence for $PASS\" >&2; exit 3"),
            { "name": "Missing", "command": "/no/such/program", "args": [SECRET], "env": [] },
            { "type": "http", "name": "Far", "url": url, "headers": headers(TOKEN) },
            { "type": "http", "name": "Shut", "url": format!("{url}?key={SECRET}"), "headers": headers(SECRET) },
            { "type": "sse", "name": "Old", "url": url, "headers": [] },
        ]);
        let session = opened(&mut editor, &place.work(), servers);
        // The last one by name.
        editor.until(|update| update["title"].to_string().contains("Talks"));
        let told = notices(&editor);
        let of = |name: &str| {
            let mut found = told.iter().filter(|told| told.contains(name));
            let one = found.next().unwrap_or_else(|| panic!("{name}: {told:?}"));
            assert!(found.next().is_none(), "{told:?}");
            one.clone()
        };
        assert!(of("Talks").contains("no licence for [secret:PASS]"));
        assert!(of("Missing").contains("failed"));
        assert!(of("Shut").contains("401"), "{told:?}");
        assert!(of("Old").contains("sse"));
        assert_eq!(told.len(), 4, "{told:?}");
        let offered = tools(&client, &session).await;
        assert!(has(&offered, "far__add"), "{offered:?}");
        // The address and arguments are secrets, too.
        assert!(!told.join(" ").contains(SECRET), "{told:?}");
        is_secret(&place, &daemon).await;
        // A list that is no list of servers changes nothing.
        let broken = json!({ "name": "Bad", "command": "/bin/true", "env": { "A=B": SECRET } });
        let params = json!({ "sessionKey": session, "servers": [broken] });
        let error = client.refused("sessions.set_servers", params).await;
        assert_eq!(kind_of(&error), "invalid_params");
        assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
        assert_eq!(rows(&place), 4);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn names_of_settings_stay_and_agents_keep_their_rules() {
    run(async {
        let place = with_server(Place::new(script()), "alpha", "")
            .with_agent("plain", "mode: primary\ntools: [read]\nmcp_servers: []")
            .with_agent(
                "strict",
                "mode: primary\ngate: {session-alpha__add: deny}\ntools: {session-alpha__set: false}",
            );
        let daemon = place.start().await;
        let client = daemon.client().await;
        until_state(&client, "alpha", "ready").await;
        let mut editor = Editor::open(&place);
        let servers = json!([server("Alpha", "", "OF_ALPHA")]);
        let session = opened(&mut editor, &place.work(), servers);
        let offered = tools(&client, &session).await;
        assert!(has(&offered, "alpha__add") && has(&offered, "session-alpha__add"));
        // The editor's server is the user's own for this session, whatever the agent names.
        let of = async |agent: &str| {
            let params = json!({ "sessionKey": session, "agent": agent });
            let set = client.call("tools.list", params).await;
            let tools = set["tools"].as_array().unwrap().iter();
            let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
            names.collect::<Vec<String>>()
        };
        let plain = of("plain").await;
        assert!(has(&plain, "session-alpha__add") && !has(&plain, "alpha__add"));
        // Its rules and switches hold for the tools.
        let strict = of("strict").await;
        assert!(has(&strict, "session-alpha__look"), "{strict:?}");
        assert!(!has(&strict, "session-alpha__add") && !has(&strict, "session-alpha__set"));
        // Another session has none of it.
        let other = editor.session(&place);
        assert!(!has(&tools(&client, &other).await, "session-alpha__add"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_client_that_leaves_is_in_the_audit_and_its_servers_are_listed() {
    run(async {
        let place = Place::new(script());
        let daemon = place.start().await;
        let client = daemon.client().await;
        let session = client.session("agent", "desk").await;
        let given = json!({
            "name": "Alpha",
            "command": "/bin/sh",
            "args": ["-c", "while [ ! -e go ]; do sleep 0.01; done; exec \"$0\" \"$@\"",
                std::env::current_exe().unwrap(),
                "--ignored", "--exact", "mcp::server::serve", "--quiet"],
            "env": { "TEST_MCP_START": "", "OF_ALPHA": SECRET },
        });
        let patch = json!({ "sessionKey": session, "cwd": place.work() });
        client.call("sessions.patch", patch).await;
        let leaving = daemon.client().await;
        let params = json!({ "sessionKey": session, "servers": [given] });
        tokio::select! {
            _ = leaving.call("sessions.set_servers", params) => panic!("it does not start"),
            () = async {
                eventually("the rows", async || (rows(&place) == 1).then_some(())).await;
            } => {}
        }
        drop(leaving);
        let of = json!({ "method": "sessions.set_servers" });
        let audit = client.call("gateway.audit", of).await.to_string();
        assert!(
            audit.contains(&session) && audit.contains("\"ok\""),
            "{audit}"
        );
        assert!(!audit.contains(SECRET));
        fs::write(place.work().join("go"), "").unwrap();
        eventually("its tools", async || {
            has(&tools(&client, &session).await, "alpha__add").then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}
