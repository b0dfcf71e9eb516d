//! Environment values: sealed, read from their source, missing, provided, replaced.

use std::fs;

use serde_json::json;

use super::{WORKER, go, place, traces};
use crate::harness::{Place, Script, calls, eventually, kind_of, run, says};
use crate::scenarios::environment::seen;

#[test]
fn values_are_sealed_until_the_end_and_a_backup_without_the_key_opens_none() {
    let place = place("echo $PLAIN >> seen.txt; while [ ! -e go ]; do sleep 0.01; done")
        .with_agent("worker", &format!("{WORKER}\non_uncertain: retry"));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let env = json!({ "PLAIN": "canary-plain-1", "A_TOKEN": "canary-token-1" });
        let spawned = go(&client, env).await;
        eventually("the command", async || {
            (!seen(&place).is_empty()).then_some(())
        })
        .await;
        let canaries = ["canary-plain-1", "canary-token-1"].map(str::to_owned);
        let copy = place.path().join("copy.db");
        client.call("gateway.backup", json!({ "path": copy })).await;
        assert_eq!(traces(&place, &canaries), [""; 0]);
        let sealed = |path: &std::path::Path| -> Vec<(String, Option<Vec<u8>>)> {
            let db = rusqlite::Connection::open(path).unwrap();
            let mut rows = db
                .prepare("SELECT name, sealed FROM run_values ORDER BY name")
                .unwrap();
            let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
            rows.unwrap().map(Result::unwrap).collect()
        };
        let kept = sealed(&copy);
        assert_eq!(kept.len(), 4, "{kept:?}");
        assert!(kept.iter().all(|(_, value)| value.is_some()), "{kept:?}");
        let mode = fs::metadata(place.state().join("env.key")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
        assert_eq!(mode & 0o777, 0o600);
        fs::write(place.work().join("go"), "").unwrap();
        client.ended(&spawned.id).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let kept = sealed(&place.database());
        assert!(kept.iter().all(|(_, value)| value.is_none()), "{kept:?}");

        // With a different key, its restored runs pause instead of running without the values.
        fs::remove_file(place.work().join("go")).unwrap();
        fs::remove_file(place.state().join("env.key")).unwrap();
        fs::copy(&copy, place.database()).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.in_state(&spawned.id, "paused").await;
        let shown = client.run(&spawned.id).await;
        for one in shown["env"].as_array().unwrap() {
            let why = one["missing"].as_str().unwrap();
            assert!(why.contains("env.key"), "{shown}");
        }
        client
            .call("runs.cancel", json!({ "runId": spawned.id }))
            .await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

/// The run has noticed the missing value before it is provided, and waits for it only afterwards.
#[test]
fn a_value_that_is_provided_before_it_is_waited_for_is_not_waited_for() {
    let shell = calls("shell", json!({ "command": "echo $A_TOKEN >> seen.txt" }));
    let script = Script::new()
        .on("[go]", [says("first").held_by("never")])
        .on("[work]", [shell.held_by("token-asked"), says("done")]);
    let place = Place::new(script)
        .with_agent("worker", WORKER)
        .with("lanes.main", "1");
    let file = place.path().join("token");
    fs::write(&file, "canary-first").unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let env = json!({ "A_TOKEN": { "from": format!("file:{}", file.display()) } });
        let params = json!({ "task": "[work]", "agent": "worker", "env": env });
        let spawned = client.spawn(params).await;
        fs::remove_file(&file).unwrap();
        client
            .call("runs.cancel", json!({ "runId": first.id }))
            .await;
        client.in_state(&spawned.id, "running").await;
        let env = json!({ "A_TOKEN": "canary-second" });
        let given = json!({ "runId": spawned.id, "env": env });
        client.call("runs.provide_env", given).await;
        place.let_go("token-asked");
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        assert_eq!(seen(&place), ["canary-second"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_value_that_cannot_be_read_any_more_is_named_waited_for_and_provided_also_after_a_kill() {
    let shell = calls(
        "shell",
        json!({ "command": "echo $A_TOKEN-$PLAIN >> seen.txt" }),
    );
    let script = Script::new().on("[go]", [says("first").held_by("never"), says("unused")]);
    let script = script.on("[work]", [shell, says("done")]);
    let place = Place::new(script)
        .with_agent("worker", WORKER)
        .with("lanes.main", "1");
    let file = place.path().join("token");
    fs::write(&file, "canary-first").unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = client
            .spawn(json!({ "task": "[go]", "agent": "worker" }))
            .await;
        let env =
            json!({ "A_TOKEN": { "from": format!("file:{}", file.display()) }, "PLAIN": "plain" });
        let params = json!({ "task": "[work]", "agent": "worker", "env": env });
        let spawned = client.spawn(params).await;
        fs::remove_file(&file).unwrap();
        client
            .call("runs.cancel", json!({ "runId": first.id }))
            .await;
        client.in_state(&spawned.id, "paused").await;
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        let shown = client.run(&spawned.id).await;
        assert_eq!(shown["state"], "paused", "{shown}");
        assert_eq!(shown["pauseReason"], "input", "{shown}");
        let missing = &shown["env"][0];
        assert_eq!(missing["name"], "A_TOKEN", "{shown}");
        let why = missing["missing"].as_str().unwrap();
        assert!(why.contains(file.to_str().unwrap()), "{shown}");
        let listed = place.command(&["env"]).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.contains("A_TOKEN"), "{listed}");
        for (env, kind) in [
            (json!({ "OTHER": "x" }), "invalid_params"),
            (
                json!({ "A_TOKEN": { "from": "env:NOT_THERE" } }),
                "invalid_params",
            ),
        ] {
            let params = json!({ "runId": spawned.id, "env": env });
            let refused = client.refused("runs.provide_env", params).await;
            assert_eq!(kind_of(&refused), kind, "{refused}");
        }
        // Providing a different name does not resume the run.
        let params = json!({ "runId": spawned.id, "env": { "PLAIN": "other" } });
        let still = client.call("runs.provide_env", params).await;
        assert_eq!(still["state"], "paused", "{still}");
        let given = place
            .command(&["env", &spawned.id, "A_TOKEN"])
            .env("A_TOKEN", "canary-second")
            .output()
            .unwrap();
        assert!(given.status.success(), "{given:?}");
        assert_eq!(client.ended(&spawned.id).await["result"], "done");
        assert_eq!(seen(&place), ["canary-second-other"]);
        let late = json!({ "runId": spawned.id, "env": { "PLAIN": "late" } });
        let refused = client.refused("runs.provide_env", late).await;
        assert_eq!(kind_of(&refused), "conflict", "{refused}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let kinds: Vec<String> = place
            .book()
            .events
            .into_values()
            .filter(|event| event.kind.starts_with("env."))
            .filter(|event| event.run.as_ref() == Some(&spawned.id))
            .map(|event| event.kind)
            .collect();
        assert_eq!(
            kinds,
            [
                "env.applied",
                "env.missing",
                "env.provided",
                "env.provided",
                "env.restored"
            ]
        );
        let canaries = ["canary-first", "canary-second"].map(str::to_owned);
        assert_eq!(traces(&place, &canaries), [""; 0]);
    });
}

#[test]
fn a_retry_has_the_places_of_values_and_asks_for_those_that_are_not_kept() {
    let place = place("echo $A_TOKEN-$PLAIN >> seen.txt");
    run(async {
        let mut command = place.command(&["serve"]);
        command.env("KEPT_HERE", "canary-kept");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let env = json!({ "A_TOKEN": { "from": "env:KEPT_HERE" }, "PLAIN": "given-once" });
        let first = go(&client, env).await;
        client.ended(&first.id).await;
        let again = client
            .call("runs.retry", json!({ "runId": first.id }))
            .await;
        let again = again["runId"].as_str().unwrap().to_owned();
        client.in_state(&again, "paused").await;
        let shown = client.run(&again).await;
        let missing: Vec<&str> = shown["env"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["missing"].is_string())
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(missing, ["PLAIN"], "{shown}");
        let params = json!({ "runId": again, "env": { "PLAIN": "given-again" } });
        client.call("runs.provide_env", params).await;
        client.ended(&again).await;
        assert_eq!(
            seen(&place),
            ["canary-kept-given-once", "canary-kept-given-again"]
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A supervisor's credential is a file in a folder that the supervisor names; a kill does not
/// affect it.
#[test]
fn a_credential_of_the_supervisors_is_read_again_after_a_kill_and_seen_nowhere() {
    let look = "echo $A_TOKEN >> seen.txt; while [ ! -e go ]; do sleep 0.05; done; echo $A_TOKEN";
    let place = place(look).with_agent("worker", &format!("{WORKER}\non_uncertain: retry"));
    let credentials = place.path().join("credentials");
    fs::create_dir_all(&credentials).unwrap();
    fs::write(credentials.join("deploy"), "canary-credential\n").unwrap();
    run(async {
        let start = async || {
            let mut command = place.command(&["serve"]);
            command.env("CREDENTIALS_DIRECTORY", &credentials);
            place.start_command(command).await.unwrap()
        };
        let daemon = start().await;
        let client = daemon.client().await;
        let spawned = go(&client, json!({ "A_TOKEN": { "from": "cred:deploy" } })).await;
        eventually("the command", async || {
            (!seen(&place).is_empty()).then_some(())
        })
        .await;
        daemon.kill().await;
        place.kill_keepers().await;

        let daemon = start().await;
        let client = daemon.client().await;
        eventually("the command again", async || {
            (seen(&place).len() == 2).then_some(())
        })
        .await;
        fs::write(place.work().join("go"), "").unwrap();
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "done", "{ended}");
        assert_eq!(seen(&place), ["canary-credential"; 2]);
        let history = json!({ "sessionKey": spawned.session, "tools": true });
        let history = client.call("sessions.history", history).await.to_string();
        assert!(history.contains("[secret:A_TOKEN]"), "{history}");
        assert!(!history.contains("canary"), "{history}");
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        // The credential file itself contains the value.
        fs::remove_dir_all(&credentials).unwrap();
        assert_eq!(traces(&place, &["canary-credential".to_owned()]), [""; 0]);
    });
}
