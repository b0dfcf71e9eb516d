//! Agents from files, from projects and over RPC, with the real daemon.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::harness::{Event, Link, Place, Script, calls, eventually, kind_of, run, says};

pub(crate) fn place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[held]", [says("held is done").held_by("go")])
            .on_announce("*", [says("heard")])
            .on(
                "[two]",
                [
                    calls("list", json!({ "path": "." })).held_by("go"),
                    says("two is done"),
                ],
            ),
    )
}

/// The folder of the user's agent files.
pub(crate) fn config(place: &Place) -> PathBuf {
    place.path().join(".config/abide/agents")
}

/// Writes an agent definition and creates missing parent folders.
pub(crate) fn write(folder: &Path, name: &str, fields: &str, prompt: &str) {
    fs::create_dir_all(folder).unwrap();
    let text = format!("---\ndescription: Says {prompt}.\n{fields}---\n{prompt}\n");
    fs::write(folder.join(name), text).unwrap();
}

/// Waits until `agents.list` shows `name` in the wanted state; returns the agent.
async fn until(client: &Link, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("agent {name}"), async || {
        let found = client
            .attempt("agents.get", &json!({ "agent": name }))
            .await;
        found.ok().filter(&wanted)
    })
    .await
}

/// Waits until the daemon has no agent of that name.
async fn until_gone(client: &Link, name: &str) {
    eventually(&format!("no agent {name}"), async || {
        let found = client
            .attempt("agents.get", &json!({ "agent": name }))
            .await;
        found.is_err().then_some(())
    })
    .await;
}

/// The `agents.changed` events of the event log.
fn changes(place: &Place) -> Vec<Event> {
    let events = place.book().events.into_values();
    events
        .filter(|event| event.kind == "agents.changed")
        .collect()
}

#[test]
fn a_file_that_is_added_changed_or_broken_while_the_daemon_runs_is_seen() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        // The scan at the start is complete: what comes now is a change.
        client.call("agents.reload", json!({})).await;
        let folder = config(&place);
        // The folder is created together with the first file.
        write(&folder, "reviewer.md", "", "one");
        let found = until(&client, "reviewer", |_| true).await;
        assert_eq!(found["source"], "config");
        assert_eq!(found["systemPrompt"], "one");
        let spawn = |task: &str| json!({ "task": task, "agent": "reviewer" });
        let first = client.spawn(spawn("[a]")).await;
        assert_eq!(client.ended(&first.id).await["result"], "a is done");

        write(&folder, "reviewer.md", "mode: subagent\n", "two");
        until(&client, "reviewer", |agent| agent["systemPrompt"] == "two").await;
        let second = client.spawn(spawn("[a]")).await;
        let (first, second) = (client.run(&first.id).await, client.ended(&second.id).await);
        assert_ne!(first["pins"]["agent"], second["pins"]["agent"]);

        fs::write(folder.join("other.md"), "---\nmode: [\n---\n").unwrap();
        write(&folder, "third.md", "", "three");
        until(&client, "third", |_| true).await;
        let listed = client.call("agents.list", json!({})).await;
        let rejected = &listed["rejected"][0];
        assert!(
            rejected["file"].as_str().unwrap().ends_with("other.md"),
            "{listed}"
        );
        assert_eq!(rejected["line"], 2);
        let error = client.refused("sessions.spawn", json!({ "task": "[a]", "agent": "other" }));
        let error = error.await;
        assert_eq!(kind_of(&error), "not_found");
        assert!(
            error.data["hint"].as_str().unwrap().contains("other.md:2"),
            "{:?}",
            error.data
        );

        fs::remove_file(folder.join("reviewer.md")).unwrap();
        until_gone(&client, "reviewer").await;
        assert_eq!(daemon.stop().await, 0);
        let told = changes(&place);
        assert_eq!(told[0].data["added"], json!(["reviewer"]));
        assert_eq!(told[1].data["changed"], json!(["reviewer"]));
        assert_eq!(told.last().unwrap().data["removed"], json!(["reviewer"]));
        assert!(told.iter().all(|event| event.data["reason"] == "watch"));
    });
}

#[test]
fn g6_13_a_burst_of_files_is_told_in_one_or_two_changes() {
    run(async {
        let place = place();
        let folder = config(&place);
        fs::create_dir_all(&folder).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        for number in 0..200 {
            write(&folder, &format!("agent-{number:03}.md"), "", "x");
        }
        until(&client, "agent-199", |_| true).await;
        let whole = json!({ "limit": 500 });
        let listed = client.call("agents.list", whole).await;
        assert_eq!(listed["agents"].as_array().unwrap().len(), 202);
        // Writing the same content again is not a change.
        write(&folder, "agent-000.md", "", "x");
        let reloaded = client.call("agents.reload", json!({})).await;
        assert!(reloaded["nextCursor"].is_string(), "a page of them");
        let listed = client.call("agents.list", json!({ "limit": 500 })).await;
        assert_eq!(listed["agents"].as_array().unwrap().len(), 202);
        assert_eq!(daemon.stop().await, 0);
        let told = changes(&place);
        assert!((1..=2).contains(&told.len()), "{told:?}");
    });
}

#[test]
fn a_run_goes_on_with_its_pins_when_its_file_is_gone_at_the_restart() {
    run(async {
        let place = place();
        let folder = config(&place);
        write(&folder, "reviewer.md", "tools: [list]\n", "one");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[two]", "agent": "reviewer" });
        let spawned = client.spawn(params).await;
        let asked = ("[two]".to_owned(), 0);
        eventually("the model's call", async || {
            place.model_calls().contains_key(&asked).then_some(())
        })
        .await;
        // Once this is answered, the event log contains the file's change.
        client.call("agents.reload", json!({})).await;
        daemon.kill().await;
        fs::remove_file(folder.join("reviewer.md")).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        place.let_go("go");
        assert_eq!(client.ended(&spawned.id).await["result"], "two is done");
        until_gone(&client, "reviewer").await;
        assert_eq!(daemon.stop().await, 0);
        // The start announces changes made while no daemon ran.
        let told = changes(&place);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!(told[0].data["added"], json!(["reviewer"]));
        assert_eq!(told[1].data["reason"], "start");
        assert_eq!(told[1].data["removed"], json!(["reviewer"]));
    });
}

#[test]
fn a_session_whose_agent_is_gone_is_told_and_answers_as_it_did() {
    run(async {
        let place = place();
        let folder = config(&place);
        write(&folder, "host.md", "", "host");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "agent": "host", "key": "agent:host:main" });
        client.call("sessions.create", params).await;
        let turn = client.turn("agent:host:main", "[a]").await;
        let before = client.ended(&turn.id).await;
        let params = json!({ "task": "[held]", "parent": "agent:host:main" });
        let child = client.spawn(params).await;
        fs::remove_file(folder.join("host.md")).unwrap();
        until_gone(&client, "host").await;
        place.let_go("go");
        client.ended(&child.id).await;
        client.quiet().await;
        let params = json!({ "sessionKey": "agent:host:main" });
        let wake = client.call("runs.list", params).await["runs"][0].clone();
        assert_eq!(
            (&wake["state"], &wake["result"]),
            (&json!("ok"), &json!("heard"))
        );
        assert_eq!(wake["pins"], before["pins"]);
        assert!(
            wake["warnings"]
                .to_string()
                .contains("uses the configuration of the previous turn"),
            "{wake}"
        );
        // A new turn with the removed agent is refused.
        let params = json!({ "sessionKey": "agent:host:main", "message": "[a]" });
        let error = client.refused("agent.run", params).await;
        assert_eq!(kind_of(&error), "not_found");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_projects_agent_counts_for_work_in_that_project_alone() {
    run(async {
        let place = place();
        let project = place.path().join("project");
        fs::create_dir_all(project.join(".git")).unwrap();
        fs::create_dir_all(project.join("src")).unwrap();
        write(&project.join(".abide/agents"), "local.md", "", "local");
        write(
            &project.join(".claude/agents"),
            "theirs.md",
            "name: theirs\n",
            "theirs",
        );
        write(&project.join(".abide/agents"), "explore.md", "", "mine");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let inside = project.join("src").to_str().unwrap().to_owned();
        for agent in ["local", "theirs"] {
            let params = json!({ "task": "[a]", "agent": agent, "cwd": inside });
            let spawned = client.spawn(params).await;
            assert_eq!(client.ended(&spawned.id).await["result"], "a is done");
            let params = json!({ "task": "[a]", "agent": agent });
            let error = client.refused("sessions.spawn", params).await;
            assert_eq!(kind_of(&error), "not_found");
        }
        // It shadows a built-in agent in that project, with a warning.
        let params = json!({ "task": "[a]", "agent": "explore", "cwd": inside });
        let answer = client.call("sessions.spawn", params).await;
        let warnings = answer["warnings"].to_string();
        assert!(
            warnings.contains("shadows the preset agent explore"),
            "{answer}"
        );
        let answer = client.call(
            "sessions.spawn",
            json!({ "task": "[a]", "agent": "explore" }),
        );
        assert_eq!(answer.await["warnings"], json!([]));
        // A child inherits its parent session's folder unless it names one.
        let params = json!({ "owner": "client", "cwd": inside });
        let parent = client.call("sessions.create", params).await["session"]["key"].clone();
        let params = json!({ "task": "[a]", "agent": "local", "parent": parent });
        client.spawn(params).await;
        // A turn of a session in the project uses the project's agent too.
        let params = json!({ "agent": "local", "cwd": inside, "key": "agent:local:main" });
        client.call("sessions.create", params).await;
        let turn = client.turn("agent:local:main", "[a]").await;
        assert_eq!(client.ended(&turn.id).await["result"], "a is done");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        // Project agents do not belong to the global list.
        assert_eq!(changes(&place).len(), 0);
    });
}

#[test]
fn stored_agents_are_made_changed_and_deleted_and_files_are_not() {
    run(async {
        let place = place();
        write(&config(&place), "mine.md", "", "mine");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let text = "---\ndescription: Kept.\ntitel: Kept\n---\nKept.\n";
        let create = json!({ "name": "kept", "text": text });
        let made = client.call("agents.create", create.clone()).await;
        assert!(
            made["warnings"][0].as_str().unwrap().contains("title"),
            "{made}"
        );
        // A repeat returns the same agent; different content is refused.
        assert_eq!(client.call("agents.create", create).await["revision"], 1);
        let other = json!({ "name": "kept", "definition": { "description": "Other." } });
        let error = client.refused("agents.create", other).await;
        assert_eq!(kind_of(&error), "conflict");
        let update = |revision: i64| {
            json!({ "agent": "kept", "definition": { "description": "Two." },
                    "ifRevision": revision })
        };
        assert_eq!(client.call("agents.update", update(1)).await["revision"], 2);
        let mut late = update(1);
        late["definition"]["description"] = json!("Three.");
        let error = client.refused("agents.update", late).await;
        assert_eq!(
            (kind_of(&error), &error.data["revision"]),
            ("conflict", &json!(2))
        );

        for (method, agent, says) in [
            ("agents.update", "mine", "mine.md"),
            ("agents.delete", "mine", "mine.md"),
            ("agents.delete", "build", "built in"),
        ] {
            let mut params = json!({ "agent": agent });
            if method == "agents.update" {
                params["definition"] = json!({ "description": "x" });
            }
            let error = client.refused(method, params).await;
            assert_eq!(kind_of(&error), "conflict", "{method} {agent}");
            assert!(error.message.contains(says), "{}", error.message);
        }
        for (params, path) in [
            (
                json!({ "name": "a b", "definition": { "description": "x" } }),
                "definition",
            ),
            (
                json!({ "definition": { "description": "x" } }),
                "definition",
            ),
            (json!({ "name": "x" }), "definition"),
            (
                json!({ "name": "x", "definition": { "mode": "all" } }),
                "definition",
            ),
        ] {
            let error = client.refused("agents.create", params).await;
            assert_eq!(kind_of(&error), "invalid_params");
            assert_eq!(error.data["path"], path);
        }
        let clash = json!({ "name": "MINE", "definition": { "description": "x" } });
        let error = client.refused("agents.create", clash).await;
        assert_eq!(kind_of(&error), "conflict");

        // A file of the same name shadows it, and it can still be deleted.
        write(&config(&place), "kept.md", "", "file");
        let found = until(&client, "kept", |agent| agent["source"] == "config").await;
        assert_eq!(found["shadowed"][0]["source"], "stored");
        let gone = client
            .call("agents.delete", json!({ "agent": "kept" }))
            .await;
        assert_eq!(gone["deleted"], true);
        let found = until(&client, "kept", |agent| agent["source"] == "config").await;
        assert_eq!(found["shadowed"], json!([]));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn stored_agents_outlive_a_restart_and_their_runs_a_deletion() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let definition = json!({ "description": "Kept.", "thinking": "low",
                                 "execution": { "timeout": "90s" } });
        let params = json!({ "name": "kept", "definition": definition });
        client.call("agents.create", params).await;
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[held]", "agent": "kept" }))
            .await;
        client
            .call("agents.delete", json!({ "agent": "kept" }))
            .await;
        let error = client.refused("sessions.spawn", json!({ "task": "[a]", "agent": "kept" }));
        assert_eq!(kind_of(&error.await), "not_found");
        place.let_go("go");
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "held is done");
        assert_eq!(ended["thinking"], "low");
        assert!(
            ended["warnings"].to_string().contains("no thinking levels"),
            "{ended}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_thinking_level_is_kept_by_run_and_session() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:build:x", "thinking": "medium" });
        let made = client.call("sessions.create", params).await;
        assert_eq!(made["session"]["thinking"], "medium");
        let turn = client.turn("agent:build:x", "[a]").await;
        assert_eq!(client.ended(&turn.id).await["thinking"], "medium");
        let params = json!({ "sessionKey": "agent:build:x", "message": "[a]", "thinking": "off" });
        let turn = client.call("agent.run", params).await;
        assert_eq!(turn["warnings"], json!([]));
        let ended = client.ended(turn["runId"].as_str().unwrap()).await;
        assert_eq!(ended["thinking"], "off");
        let params = json!({ "task": "[a]", "thinking": "deep" });
        let error = client.refused("sessions.spawn", params).await;
        assert_eq!(error.data["path"], "thinking");
        assert!(
            error
                .message
                .contains("off, minimal, low, medium, high, xhigh, max"),
            "{}",
            error.message
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn files_are_polled_or_left_alone_as_the_settings_say() {
    run(async {
        let place = place()
            .with("agents.watch", "\"poll\"")
            .with("agents.poll_each", "\"20ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        write(&config(&place), "one.md", "", "one");
        until(&client, "one", |_| true).await;
        assert_eq!(daemon.stop().await, 0);

        let place = place.with("agents.watch", "\"off\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        // After this reload, the scan of the start is complete.
        client.call("agents.reload", json!({})).await;
        write(&config(&place), "two.md", "", "two");
        // Only this reload reads the file.
        let reloaded = client.call("agents.reload", json!({})).await;
        assert_eq!(reloaded["agents"].as_array().unwrap().len(), 4);
        assert_eq!(daemon.stop().await, 0);
        let told = changes(&place);
        assert_eq!(told.last().unwrap().data["reason"], "manual");
    });
}
