//! Environment values in the arguments of a model's calls: the tool gets the model's text, also
//! after a kill; the store, lists and users get the masked text.

use std::fs;

use serde_json::{Value, json};

use super::traces;
use crate::harness::{Daemon, Link, Place, Script, Spawned, calls, eventually, run, says};

const TOKEN: &str = "canary-token-1";
const HOST: &str = "build.example.org";

/// `A_TOKEN` is a secret by its name, `DSN` by declaration, `HOST_NAME` is not a secret.
const FIELDS: &str = "on_uncertain: retry\nenv:\n  A_TOKEN: {from: \"env:TOKEN_OF_DAEMON\"}\n  \
                      DSN: {from: \"env:DSN_OF_DAEMON\", secret: true}\n  \
                      HOST_NAME: {from: \"env:HOST_OF_DAEMON\"}";

async fn start(place: &Place) -> Daemon {
    let mut command = place.command(&["serve"]);
    command
        .env("TOKEN_OF_DAEMON", TOKEN)
        .env("DSN_OF_DAEMON", "dsn://canary-dsn-1")
        .env("HOST_OF_DAEMON", HOST);
    place.start_command(command).await.unwrap()
}

/// Everything that the API returns about a run.
async fn told(client: &Link, spawned: &Spawned) -> String {
    let history = json!({ "sessionKey": spawned.session, "tools": true });
    let mut told = client.call("sessions.history", history).await.to_string();
    told += &client.run(&spawned.id).await.to_string();
    let id = json!({ "runId": spawned.id });
    told += &client.call("runs.steps", id).await.to_string();
    told += &client.call("approvals.list", json!({})).await.to_string();
    told
}

fn text(place: &Place, name: &str) -> String {
    fs::read_to_string(place.work().join(name)).unwrap_or_default()
}

/// Checks that no file contains the values, except those that the test has written.
fn has_no_traces(place: &Place) {
    let mut traces = traces(place, &[TOKEN.to_owned(), "canary-dsn-1".to_owned()]);
    traces.retain(|one| !one.ends_with("script.json"));
    assert_eq!(traces, [""; 0]);
}

#[test]
fn tools_get_what_the_model_said_and_everything_else_the_masked_text() {
    let written = format!("token={TOKEN}\ndsn=dsn://canary-dsn-1\nhost={HOST}\n");
    let old = format!("token={TOKEN}\n");
    let script = Script::new().on(
        "[go]",
        [
            calls("write", json!({ "path": "settings", "content": written }))
                .and("shell", json!({ "command": format!("printf %s '{TOKEN} {HOST}' > shell.txt") })),
            calls(
                "edit",
                json!({ "path": "settings", "old_text": old, "new_text": format!("{old}port=1\n") }),
            ),
            // The mask as literal text of the model stays unchanged.
            calls("write", json!({ "path": "manual", "content": "shown as [secret:A_TOKEN]" })),
            calls(
                "edit",
                json!({ "path": "settings", "old_text": "token=[secret:A_TOKEN]", "new_text": "x" }),
            )
            .and("write", json!({ "path": "settings", "content": "token=[secret:A_TOKEN]\n" })),
            calls("memory_save", json!({ "text": format!("the token is {TOKEN}") })),
            says("done"),
        ],
    );
    let fields = format!(
        "tools: [read, write, edit, shell, memory_save]\ngate: {{shell: allow, write: allow, edit: \
         allow}}\n{FIELDS}"
    );
    let place = Place::new(script).with_agent("worker", &fields);
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        assert_eq!(text(&place, "shell.txt"), format!("{TOKEN} {HOST}"));
        assert_eq!(
            text(&place, "settings"),
            format!("token={TOKEN}\nport=1\ndsn=dsn://canary-dsn-1\nhost={HOST}\n")
        );
        assert_eq!(text(&place, "manual"), "shown as [secret:A_TOKEN]");
        let told = told(&client, &spawned).await;
        for shown in [
            "token=[secret:A_TOKEN]",
            "dsn=[secret:DSN]",
            &format!("host={HOST}"),
            // The reasons why an edit by a mask finds nothing, and why a file is not overwritten
            // with one.
            "is a mask for an environment value",
            "settings contains an environment value where content has",
        ] {
            assert!(told.contains(shown), "{shown}: {told}");
        }
        assert!(!told.contains("canary"), "{told}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        has_no_traces(&place);
        let db = rusqlite::Connection::open(place.database()).unwrap();
        let sealed = "SELECT count(*) FROM run_values WHERE name LIKE 'arguments %'";
        let sealed: i64 = db.query_row(sealed, [], |row| row.get(0)).unwrap();
        assert_eq!(sealed, 0);
    });
}

fn asking(calls_of_model: Vec<Value>) -> Place {
    let calls_of_model = calls_of_model.into_iter();
    let answers = calls_of_model.map(|arguments| calls("shell", arguments));
    let script = Script::new().on("[go]", answers.chain([says("done")]));
    Place::new(script).with_agent("worker", &format!("tools: [shell]\n{FIELDS}"))
}

async fn open(client: &Link) -> Value {
    eventually("an approval", async || {
        let listed = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        listed["approvals"].get(0).cloned()
    })
    .await
}

#[test]
fn a_call_that_waits_for_approval_over_a_kill_is_made_as_the_model_said_it() {
    let command = |text: &str| json!({ "command": format!("echo {text} >> out.txt") });
    let place = asking(vec![
        command(TOKEN),
        command("'[secret:A_TOKEN]'"),
        command(TOKEN),
    ]);
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let asked = open(&client).await;
        assert_eq!(
            asked["covers"], "echo [secret:A_TOKEN] >> out.txt",
            "{asked}"
        );
        assert!(!asked.to_string().contains("canary"), "{asked}");
        daemon.kill().await;

        let daemon = start(&place).await;
        let client = daemon.client().await;
        let allow = |asked: &Value| json!({ "id": asked["id"], "decision": "allow" });
        let mut remembered = allow(&asked);
        remembered["remember"] = json!("session");
        client.call("approvals.resolve", remembered).await;
        // The literal text is a different command; the third, with the value, is the first again.
        let asked = open(&client).await;
        assert!(
            asked["covers"]
                .as_str()
                .unwrap()
                .contains("[literal:secret:A_TOKEN]"),
            "{asked}"
        );
        client.call("approvals.resolve", allow(&asked)).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        let lines = format!("{TOKEN}\n[secret:A_TOKEN]\n{TOKEN}\n");
        assert_eq!(text(&place, "out.txt"), lines);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        has_no_traces(&place);
    });
}

#[test]
fn without_the_key_a_call_with_masked_arguments_is_not_made() {
    let place = asking(vec![
        json!({ "command": format!("echo {TOKEN} >> out.txt") }),
    ]);
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let asked = open(&client).await;
        daemon.kill().await;
        fs::remove_file(place.state().join("env.key")).unwrap();

        let daemon = start(&place).await;
        let client = daemon.client().await;
        let allow = json!({ "id": asked["id"], "decision": "allow" });
        client.call("approvals.resolve", allow).await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        assert_eq!(text(&place, "out.txt"), "");
        let told = told(&client, &spawned).await;
        assert!(
            told.contains("was not called and nothing was done"),
            "{told}"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn every_step_of_a_plan_gets_what_the_plan_said_also_after_a_kill() {
    let step = |name: &str| {
        let content = format!("{name} {TOKEN}");
        json!({ "tool": "write", "arguments": { "path": name, "content": content } })
    };
    let wait = json!({ "tool": "shell", "arguments": { "command": format!(
        "echo {TOKEN} >> waits.txt; while [ ! -e go ]; do sleep 0.01; done"
    ) } });
    let plan = json!({ "steps": [step("one"), wait, step("two")], "requires_delegation": false });
    let script = Script::new().on(
        "[go]",
        [says(&plan.to_string()), says("NEXT: RESPOND"), says("done")],
    );
    let fields = format!(
        "strategy: plan\ntools: [write, shell]\ngate: {{shell: allow, write: allow}}\n{FIELDS}"
    );
    let place = Place::new(script).with_agent("worker", &fields);
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let begun = async || (!text(&place, "waits.txt").is_empty()).then_some(());
        eventually("the second step", begun).await;
        daemon.kill().await;
        fs::write(place.work().join("go"), "").unwrap();

        let daemon = start(&place).await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        for name in ["one", "two"] {
            assert_eq!(text(&place, name), format!("{name} {TOKEN}"));
        }
        assert!(text(&place, "waits.txt").lines().all(|line| line == TOKEN));
        assert!(!told(&client, &spawned).await.contains("canary"));
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        has_no_traces(&place);
    });
}

#[test]
fn a_task_that_is_handed_on_is_masked_with_a_warning() {
    let script = Script::new().on("[child]", [says("child is done")]).on(
        "[go]",
        [
            calls(
                "task",
                json!({
                    "description": "d", "subagent_type": "helper",
                    "prompt": format!("[child] on {HOST} with {TOKEN}"),
                }),
            ),
            says("done"),
        ],
    );
    let place = Place::new(script)
        .with_agent(
            "worker",
            &format!("mode: primary\ntools: [task]\nallow_agents: [helper]\n{FIELDS}"),
        )
        .with_agent("helper", "mode: subagent\ntools: [read]");
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let params = json!({ "key": "agent:worker:a", "agent": "worker" });
        client.call("sessions.create", params).await;
        let turn = client.turn("agent:worker:a", "[go]").await;
        let ended = client.ended(&turn.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        let warned = ended["warnings"].to_string();
        assert!(
            warned.contains("values of this run's environment are masked"),
            "{ended}"
        );
        let listed = client.call("runs.list", json!({})).await;
        assert!(!listed.to_string().contains("canary"), "{listed}");
        let steps = client.call("runs.steps", json!({ "runId": turn.id })).await;
        let steps = steps["steps"].as_array().unwrap().iter();
        let child = steps
            .filter_map(|step| step["childRunId"].as_str())
            .next_back()
            .unwrap();
        let child = client.run(child).await["sessionKey"].clone();
        let history = client
            .call("sessions.history", json!({ "sessionKey": child }))
            .await;
        let said = history.to_string();
        assert!(
            said.contains(&format!("on {HOST} with [secret:A_TOKEN]")),
            "{said}"
        );
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        has_no_traces(&place);
    });
}
