//! Operator interfaces: settings and their reload, audit rows.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::harness::{Link, Place, Script, eventually, fails, kind_of, run, says};
use crate::metrics::{get, number, numbers};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[say]", [says("said")])
            .on("[fail]", [fails("the model is down")])
            .on("[hold]", [says("held").held_by("go")]),
    )
}

/// A setting as `gateway.config` shows it.
async fn setting(client: &Link, key: &str) -> Value {
    let config = client.call("gateway.config", json!({})).await;
    let settings = config["settings"].as_array().unwrap();
    let found = settings.iter().find(|setting| setting["key"] == key);
    found
        .unwrap_or_else(|| panic!("no {key}: {config}"))
        .clone()
}

#[test]
fn a_reload_applies_what_it_can_and_names_the_rest() {
    run(async {
        let mut place = place().with("lanes.main", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let waiting = client.spawn(json!({ "task": "[say]" })).await;
        client.in_state(&waiting.id, "queued").await;
        let queued = "abide_queue_depth{lane=\"main\"}";
        assert_eq!(number(&numbers(&daemon), queued), 1.0);
        let alias = "host: abide.lan\r\n";
        let token = format!("authorization: Bearer {}\r\n{alias}", daemon.token());
        assert_eq!(get(&daemon, "/metrics", &token).0, 403);

        place.set("lanes.main", "2");
        place.set("gateway.allowed_hosts", "[\"abide.lan\"]");
        place.set("defaults.agent", "\"explore\"");
        place.set("defaults.run_timeout", "\"7m\"");
        place.set("lanes.mian", "3");
        let reloaded = client.call("gateway.reload", json!({})).await;
        let keys = |list: &str| -> Vec<String> {
            let list = reloaded[list].as_array().unwrap().iter();
            list.map(|change| change["key"].as_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(
            keys("applied"),
            [
                "gateway.allowed_hosts",
                "defaults.run_timeout",
                "lanes.main"
            ]
        );
        assert_eq!(keys("needsRestart"), ["defaults.agent"]);
        assert_eq!(reloaded["applied"][2]["before"], 0);
        assert_eq!(reloaded["applied"][2]["after"], 2);
        let warning = reloaded["warnings"][0].as_str().unwrap();
        assert!(
            warning.contains("did you mean \"lanes.main\"?"),
            "{warning}"
        );

        // The lane is open, for runs that were already queued too.
        assert_eq!(client.ended(&waiting.id).await["state"], "ok");
        assert_eq!(get(&daemon, "/metrics", &token).0, 200);
        let limited = client.spawn(json!({ "task": "[hold]" })).await;
        client.in_state(&limited.id, "running").await;
        let shown = client.run(&limited.id).await;
        let left = seconds_between(&shown["startedAt"], &shown["deadlineAt"]);
        assert!((400..=420).contains(&left), "{left} s: {shown}");
        place.let_go("go");
        let lane = setting(&client, "lanes.main").await;
        assert_eq!(
            (&lane["value"], &lane["source"]),
            (&json!(2), &json!("file"))
        );
        assert_eq!(lane["live"], true);
        let agent = setting(&client, "defaults.agent").await;
        assert_eq!(agent["value"], "build");
        assert_eq!(agent["pending"], "explore");
        let untouched = setting(&client, "recovery.max_attempts").await;
        assert_eq!(untouched["source"], "default");

        // An invalid file changes nothing, and the error names the reason.
        place.set("lanes.subagent", "-1");
        place.set("lanes.main", "1");
        let refused = client.refused("gateway.reload", json!({})).await;
        assert_eq!(kind_of(&refused), "conflict");
        assert!(refused.message.contains("lanes.subagent = -1"), "{refused}");
        assert!(refused.message.contains("from 0 to 10000"), "{refused}");
        assert_eq!(setting(&client, "lanes.main").await["value"], 2);
        assert_eq!(daemon.stop().await, 0);
    });
}

fn seconds_between(from: &Value, to: &Value) -> u64 {
    let read = |at: &Value| serde_json::from_value::<abide::kernel::time::Timestamp>(at.clone());
    read(to).unwrap().since(read(from).unwrap()) / 1000
}

#[test]
fn a_hang_up_is_a_reload() {
    run(async {
        let mut place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        place.set("defaults.max_spawn_depth", "0");
        let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        eventually("the new limit is in force", async || {
            let depth = setting(&client, "defaults.max_spawn_depth").await;
            (depth["value"] == 0).then_some(())
        })
        .await;
        let spawn = json!({ "task": "[say]", "agent": "explore", "parent": root });
        let refused = client.refused("sessions.spawn", spawn).await;
        assert_eq!(kind_of(&refused), "limit");
        assert_eq!(refused.data["value"], 0);
        // An invalid file is logged and the daemon continues.
        place.set("defaults.max_spawn_depth", "\"deep\"");
        kill_process(pid, Signal::HUP).unwrap();
        eventually("it says why", async || {
            let said = daemon.logged().contains(
                "the configuration was not reloaded; the settings in force are unchanged",
            );
            said.then_some(())
        })
        .await;
        assert_eq!(
            setting(&client, "defaults.max_spawn_depth").await["value"],
            0
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Method, object and outcome of the newest audit rows.
async fn audit(client: &Link, params: Value) -> Vec<(String, String, String)> {
    let page = client.call("gateway.audit", params).await;
    let entries = page["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            assert_eq!(entry["principal"], "owner");
            (text("method"), text("object"), text("outcome"))
        })
        .collect()
}

#[test]
fn who_changed_what_is_kept_with_the_change() {
    run(async {
        let place = place().with("defaults.max_client_children", "1");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let row = |method: &str, object: &str, outcome: &str| {
            (method.to_owned(), object.to_owned(), outcome.to_owned())
        };
        let root = client.session("client", "root").await;
        let spawn = json!({
            "task": "[hold]", "agent": "explore", "parent": root, "idempotencyKey": "k",
        });
        let held = client.call("sessions.spawn", spawn.clone()).await;
        let held = held["runId"].as_str().unwrap().to_owned();
        let more = json!({ "task": "[say]", "agent": "explore", "parent": root });
        let refused = client.refused("sessions.spawn", more).await;
        assert_eq!(kind_of(&refused), "limit");
        // Reads and invalid calls leave no row.
        client.call("runs.list", json!({})).await;
        client.refused("sessions.spawn", json!({ "task": 1 })).await;
        let expected = [
            row("sessions.spawn", &root, "limit"),
            row("sessions.spawn", &held, "ok"),
            row("sessions.create", &root, "ok"),
        ];
        assert_eq!(audit(&client, json!({})).await, expected);

        // An answered call is in the store, and so is its audit row.
        daemon.kill().await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(audit(&client, json!({})).await, expected);
        let created = audit(&client, json!({ "method": "sessions.create" })).await;
        assert_eq!(created, expected[2..]);

        // A repeat and an early refusal have their rows a moment later.
        client.call("sessions.spawn", spawn).await;
        let nobody = json!({ "sessionKey": "none", "announceIds": [held] });
        client.refused("sessions.ack", nobody).await;
        let newest = eventually("both rows", async || {
            let rows = audit(&client, json!({})).await;
            (rows.len() == 5).then_some(rows)
        })
        .await;
        assert!(
            newest.contains(&row("sessions.ack", "none", "not_found")),
            "{newest:?}"
        );
        assert!(
            newest.contains(&row("sessions.spawn", &root, "ok")),
            "{newest:?}"
        );

        place.let_go("go");
        client.ended(&held).await;
        client
            .call("gateway.drain", json!({ "then": "stop" }))
            .await;
        let mut daemon = daemon;
        assert_eq!(daemon.ended().await.code(), Some(0));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let drains = audit(&client, json!({ "method": "gateway.drain" })).await;
        assert_eq!(drains, [row("gateway.drain", "", "ok")]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn old_audit_rows_go() {
    run(async {
        let place = place().with("retention.audit_rows", "10");
        let daemon = place.start().await;
        let client = daemon.client().await;
        for _ in 0..1100 {
            client
                .call(
                    "sessions.create",
                    json!({ "key": "client:a", "owner": "client" }),
                )
                .await;
        }
        let page = client.call("gateway.audit", json!({ "limit": 500 })).await;
        let kept = page["entries"].as_array().unwrap().len();
        // Old rows are removed after every 1,024 new ones; 76 came since.
        assert_eq!(kept, 10 + 76);
        assert_eq!(daemon.stop().await, 0);
    });
}
