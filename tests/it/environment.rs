//! What runs have in their environment, through the real daemon: who has set what, what is
//! refused, what is sealed, who sees what, and that the daemon's own stays as it is.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{
    Link, Place, Script, Spawned, calls, eventually, fails, kind_of, panics, run, says,
};
use crate::scenarios::environment::seen;
use crate::skills::put;

const WORKER: &str = "tools: [shell, skill]\ngate: {shell: allow}\n\
                      env: {A_TOKEN: null, OF_AGENT: agent-value, UNITS: agent-units}";

fn place(command: &str) -> Place {
    let shell = calls("shell", json!({ "command": command }));
    Place::new(Script::new().on("[go]", [shell, says("done")])).with_agent("worker", WORKER)
}

async fn go(client: &Link, env: Value) -> Spawned {
    let params = json!({ "task": "[go]", "agent": "worker", "env": env });
    client.spawn(params).await
}

/// Every file of the place in which one of these texts stands, but for those that the runs'
/// own commands have written.
fn traces(place: &Place, canaries: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![place.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path == place.work() || path.ends_with(".config") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = fs::read(&path).unwrap_or_default();
            for canary in canaries {
                let canary_bytes = canary.as_bytes();
                if bytes.windows(canary.len()).any(|part| part == canary_bytes) {
                    found.push(format!("{canary} in {}", path.display()));
                }
            }
        }
    }
    found
}

/// The daemon says that its own environment is as it was at its start.
async fn untouched(client: &Link) {
    let said = client.call("gateway.doctor", json!({})).await;
    let findings = said["findings"].as_array().unwrap();
    let found = findings
        .iter()
        .find(|one| one["id"] == "environment.untouched");
    assert_eq!(found.unwrap()["status"], "ok", "{found:?}");
}

#[test]
fn g7_7_each_layer_is_there_and_it_is_told_by_name_who_has_set_what() {
    let mut place = place("env | sort > env.txt");
    let personal = place.path().join(".agents/skills");
    put(&personal, "weather", "Tells the weather.", "Look up.");
    let file = personal.join("weather/SKILL.md");
    let header = "name: weather\ndescription: d\nmetadata:\n  primaryEnv: WEATHER_KEY\n  \
                  requires: {env: [WEATHER_KEY]}";
    fs::write(&file, format!("---\n{header}\n---\nLook.\n")).unwrap();
    place.set(
        "skills.entries.weather.env",
        r#"{ UNITS = "skill-units", OF_SKILL = "skill-value", LD_PRELOAD = "x", A_SECRET = "y" }"#,
    );
    place.set("skills.entries.weather.api_key_env", "\"KEY_OF_WEATHER\"");
    run(async {
        let mut command = place.command(&["serve"]);
        command
            .env("KEY_OF_WEATHER", "canary-weather-key")
            .env("OPENAI_API_KEY", "canary-of-the-daemon");
        let daemon = place.start_command(command).await.unwrap();
        let client = daemon.client().await;
        let given = json!({ "A_TOKEN": "canary-token-1", "OF_REQUEST": "request-value" });
        let accepted = client
            .call(
                "sessions.spawn",
                json!({ "task": "[go]", "agent": "worker", "env": given }),
            )
            .await;
        let warnings = accepted["warnings"].to_string();
        for name in ["LD_PRELOAD", "A_SECRET"] {
            assert!(warnings.contains(name), "{warnings}");
        }
        let spawned = Spawned::of(&accepted);
        let ended = client.ended(&spawned.id).await;
        let expected = [
            ("A_TOKEN", "request", "canary-token-1"),
            ("OF_AGENT", "agent", "agent-value"),
            ("OF_REQUEST", "request", "request-value"),
            ("OF_SKILL", "skill:weather", "skill-value"),
            ("UNITS", "skill:weather", "skill-units"),
            ("WEATHER_KEY", "skill:weather", "canary-weather-key"),
        ];
        let names: Vec<Value> = expected
            .iter()
            .map(|(name, from, _)| json!({ "name": name, "from": from }))
            .collect();
        assert_eq!(ended["env"], json!(names));
        let env = fs::read_to_string(place.work().join("env.txt")).unwrap();
        for (name, _, value) in expected {
            assert!(env.contains(&format!("{name}={value}\n")), "{env}");
        }
        // Marks, the base and the shell's own, and nothing else of the daemon's.
        assert!(!env.contains("canary-of-the-daemon"), "{env}");
        assert!(!env.contains("KEY_OF_WEATHER"), "{env}");
        assert!(!env.contains("LD_PRELOAD"), "{env}");
        client.quiet().await;
        untouched(&client).await;
        assert_eq!(daemon.stop().await, 0);
        let events: Vec<(String, Value)> = place
            .book()
            .events
            .into_values()
            .filter(|event| event.kind.starts_with("env."))
            .map(|event| (event.kind, event.data))
            .collect();
        let only: Vec<&str> = expected.iter().map(|(name, ..)| *name).collect();
        assert_eq!(
            events,
            [
                ("env.applied".to_owned(), json!({ "env": names })),
                ("env.restored".to_owned(), json!({ "names": only })),
            ]
        );
        let canaries = ["canary-token-1", "canary-weather-key", "request-value"];
        assert_eq!(traces(&place, &canaries.map(str::to_owned)), [""; 0]);
    });
}

#[test]
fn g7_2_a_run_without_a_word_about_it_has_the_base_and_nothing_of_the_agents_beside_it() {
    let place =
        place("env | sort > env.txt").with_agent("other", "tools: [shell]\ngate: {shell: allow}");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[go]", "agent": "other" });
        let spawned = client.spawn(params).await;
        assert_eq!(client.ended(&spawned.id).await["env"], json!([]));
        let env = fs::read_to_string(place.work().join("env.txt")).unwrap();
        assert!(!env.contains("OF_AGENT") && !env.contains("UNITS"), "{env}");
        assert_eq!(daemon.stop().await, 0);
        let told = place.book().events.into_values();
        assert!(!told.into_iter().any(|event| event.kind.starts_with("env.")));
    });
}

#[test]
fn g7_4_what_no_request_may_set_is_refused_with_its_name_and_nothing_is_created() {
    let place = place("true").with_agent(
        "loose",
        "tools: [shell]\ngate: {shell: allow}\nenv: {PATH: /opt/bin}",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let key = client.session("agent", "desk").await;
        for (name, value, kind) in [
            ("LD_PRELOAD", json!("canary"), "forbidden"),
            ("PATH", json!("canary"), "forbidden"),
            ("GIT_SSH_COMMAND", json!("canary"), "forbidden"),
            ("ABIDE_RUN_ID", json!("canary"), "forbidden"),
            ("OTHER_TOKEN", json!("canary"), "forbidden"),
            ("A-B", json!("canary"), "invalid_params"),
            ("A", json!({ "from": "env:NOT_THERE" }), "invalid_params"),
            ("A", json!({ "from": "file:/not/there" }), "invalid_params"),
            ("A", json!({ "from": "cred:not-there" }), "invalid_params"),
        ] {
            let env = json!({ name: value });
            for (method, params) in [
                (
                    "sessions.spawn",
                    json!({ "task": "t", "agent": "worker", "env": env }),
                ),
                (
                    "agent.run",
                    json!({ "sessionKey": key, "message": "m", "env": env }),
                ),
            ] {
                let refused = client.refused(method, params).await;
                assert_eq!(kind_of(&refused), kind, "{name}: {refused}");
                assert_eq!(refused.data["name"], name, "{refused}");
                assert!(!refused.to_string().contains("canary"), "{refused}");
            }
        }
        let listed = client.call("runs.list", json!({})).await;
        assert_eq!(listed["runs"], json!([]));
        // A person's own file may set a path; what is stored over the wire may not, and holds
        // no value.
        let loose = json!({ "task": "t", "agent": "loose" });
        client.spawn(loose).await;
        for (env, kind) in [
            (json!({ "PATH": { "from": "env:HOME" } }), "forbidden"),
            (json!({ "A": "canary" }), "invalid_params"),
        ] {
            let definition = json!({ "description": "d", "env": env });
            let params = json!({ "name": "stored", "definition": definition });
            let refused = client.refused("agents.create", params).await;
            assert_eq!(kind_of(&refused), kind, "{env}: {refused}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}

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

        // Its runs, put back beside another key, hold still instead of running without.
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

/// The run has looked what it lacks before the value comes, and waits for it after.
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
        // Another name than the one that is missing does not let it go.
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
fn a_secret_that_a_program_or_a_model_says_is_taken_out_wherever_it_would_be_seen() {
    let long = "yes $A_TOKEN | head -c 200000";
    let script = Script::new()
        .on(
            "[tools]",
            [
                calls(
                    "shell",
                    json!({ "command": "echo $A_TOKEN; echo $A_TOKEN >&2; exit 3" }),
                )
                .and("shell", json!({ "command": long })),
                says("the model says canary-token-1").in_pieces(3, 1000, "never"),
            ],
        )
        .on("[fails]", [fails("401: bad key canary-token-1")]);
    let program = "runner: command\nenv: {A_TOKEN: null}\n\
                   command: {argv: [/bin/sh, -c, 'echo said $A_TOKEN'], progress: text}";
    let failing = "runner: command\nenv: {A_TOKEN: null}\n\
                   command: {argv: [/bin/sh, -c, 'echo $A_TOKEN >&2; exit 1']}";
    let place = Place::new(script)
        .with_agent("worker", WORKER)
        .with_agent("program", program)
        .with_agent("failing", failing);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut said = Vec::new();
        for (task, agent) in [
            ("[tools]", "worker"),
            ("[fails]", "worker"),
            ("[run]", "program"),
            ("[run]", "failing"),
        ] {
            let env = json!({ "A_TOKEN": "canary-token-1" });
            let params = json!({ "task": task, "agent": agent, "env": env });
            let spawned = client.spawn(params).await;
            said.push(client.ended(&spawned.id).await);
            let id = json!({ "runId": spawned.id });
            said.push(client.call("runs.steps", id).await);
            let history = json!({ "sessionKey": spawned.session });
            said.push(client.call("sessions.history", history).await);
        }
        assert_eq!(said[0]["result"], "the model says [secret:A_TOKEN]");
        let results = said[2].to_string();
        assert!(results.contains("[secret:A_TOKEN]"), "{results}");
        assert!(said[3]["error"].to_string().contains("[secret:A_TOKEN]"));
        assert_eq!(said[6]["result"], "said [secret:A_TOKEN]");
        assert!(said[9]["error"].to_string().contains("[secret:A_TOKEN]"));
        for one in &said {
            assert!(!one.to_string().contains("canary-token-1"), "{one}");
        }
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        // The script has the value that its model says; what it was told by the daemon is in
        // the others.
        let mut traces = traces(&place, &["canary-token-1".to_owned()]);
        traces.retain(|one| !one.ends_with("script.json"));
        assert_eq!(traces, [""; 0]);
    });
}

#[test]
fn env_restored_waits_for_the_last_process_that_carries_the_environment() {
    let place = place("(sleep 4000 &) ; echo started >> seen.txt; exit 0");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = go(&client, json!({ "PLAIN": "x" })).await;
        client.ended(&spawned.id).await;
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        let at = |kind: &str| {
            let mut events = book.events.values();
            let found = events.find(|event| event.kind == kind);
            found.unwrap_or_else(|| panic!("no {kind}")).cursor
        };
        assert!(at("env.applied") < at("run.started"));
        assert!(at("run.ended") < at("env.restored"));
        let left = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let env = fs::read(entry.path().join("environ")).unwrap_or_default();
            String::from_utf8_lossy(&env).contains(&spawned.id)
        });
        assert_eq!(left.count(), 0);
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

/// How a run of the crowd is to end.
const WAYS: [&str; 4] = ["ok", "fail", "panic", "cancel"];

/// 64 runs at once, each with values of its own for the same names, through every kind of end and
/// through a kill of the daemon in the middle: nobody sees another's, and nothing is left.
#[test]
fn g7_1_g7_3_64_runs_at_once_never_see_each_others_values() {
    let dump = "env > \"out/$ABIDE_RUN_ID.$$\"; echo token=$A_TOKEN; ";
    let look = || calls("shell", json!({ "command": format!("{dump} sleep 0.1") }));
    let stays = calls("shell", json!({ "command": format!("{dump} sleep 4000") }));
    let script = Script::new()
        .on("[ok]", [look(), look(), says("done")])
        .on("[fail]", [look(), fails("it fails")])
        .on("[panic]", [look(), panics(), panics(), panics()])
        .on("[cancel]", [stays, says("was not cancelled")]);
    let place = Place::new(script)
        .with_agent("worker", &format!("{WORKER}\non_uncertain: retry"))
        .with("lanes.main", "64")
        .with("lanes.global", "64")
        .with("recovery.max_attempts", "1");
    fs::create_dir_all(place.work().join("out")).unwrap();
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut crowd = Vec::new();
        for n in 0..64 {
            let way = WAYS[n % WAYS.len()];
            let (token, plain) = (
                format!("canary-token-{n:02}"),
                format!("canary-plain-{n:02}"),
            );
            let env = json!({ "A_TOKEN": token, "PLAIN": plain, "UNITS": format!("units-{n:02}") });
            let task = format!("[{way}] {n}");
            let params = json!({ "task": task, "agent": "worker", "env": env });
            crowd.push((client.spawn(params).await, way, token, plain));
        }
        let dumps = || -> Vec<(String, String)> {
            let entries = fs::read_dir(place.work().join("out")).unwrap().flatten();
            entries
                .map(|entry| {
                    let name = entry.file_name().into_string().unwrap();
                    let run = name.split('.').next().unwrap().to_owned();
                    (run, fs::read_to_string(entry.path()).unwrap_or_default())
                })
                .collect()
        };
        let begun = async |least: usize| {
            eventually("commands", async || (dumps().len() >= least).then_some(())).await;
        };
        begun(32).await;
        untouched(&client).await;
        daemon.kill().await;

        let daemon = place.start().await;
        let client = daemon.client().await;
        for (spawned, way, ..) in &crowd {
            if *way == "cancel" {
                client
                    .call("runs.cancel", json!({ "runId": spawned.id }))
                    .await;
            }
        }
        for (spawned, way, token, _) in &crowd {
            let ended = client.ended(&spawned.id).await;
            let expected = match *way {
                "ok" => "ok",
                "fail" => "error",
                "panic" => "interrupted",
                _ => "cancelled",
            };
            // The kill may have been the one that was too many.
            let state = ended["state"].as_str().unwrap();
            assert!(
                state == expected || state == "interrupted",
                "{way}: {ended}"
            );
            assert!(!ended.to_string().contains(token), "{ended}");
        }
        client.quiet().await;
        untouched(&client).await;
        assert_eq!(daemon.stop().await, 0);
        let mut looked = 0;
        for (run, env) in dumps() {
            let own = crowd
                .iter()
                .find(|(spawned, ..)| spawned.id == run)
                .unwrap();
            for (spawned, _, token, plain) in &crowd {
                let is_own = spawned.id == own.0.id;
                // A dump that was cut off by a kill has nothing, or its own.
                assert!(is_own || !env.contains(token.as_str()), "{run}: {env}");
                assert!(is_own || !env.contains(plain.as_str()), "{run}: {env}");
            }
            looked += usize::from(env.contains(&format!("A_TOKEN={}\n", own.2)));
        }
        assert!(looked >= 48, "{looked}");
        let secrets = crowd.iter().flat_map(|one| [one.2.clone(), one.3.clone()]);
        assert_eq!(traces(&place, &secrets.collect::<Vec<_>>()), [""; 0]);
        let restored: Vec<String> = place
            .book()
            .events
            .into_values()
            .filter(|event| event.kind == "env.restored")
            .filter_map(|event| event.run)
            .collect();
        for (spawned, ..) in &crowd {
            let times = restored.iter().filter(|run| **run == spawned.id).count();
            assert_eq!(times, 1, "{}", spawned.id);
        }
    });
}
