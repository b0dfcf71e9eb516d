//! Which layer may set which variable, and variables that no layer may set.

use std::fs;

use serde_json::{Value, json};

use super::{place, traces};
use crate::harness::{Link, Spawned, kind_of, run};
use crate::skills::put;

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
        // Marks, the base and the shell's own variables, and nothing else from the daemon.
        assert!(!env.contains("canary-of-the-daemon"), "{env}");
        assert!(!env.contains("KEY_OF_WEATHER"), "{env}");
        assert!(!env.contains("LD_PRELOAD"), "{env}");
        client.quiet().await;
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
        // Without the token, only a secret that the agent declares is accepted.
        let local = Link::local(&place.state().join("abide.sock")).await;
        let secret = json!({ "task": "t", "agent": "worker", "env": { "OTHER_TOKEN": "canary" } });
        let refused = local.unwrap().refused("sessions.spawn", secret).await;
        assert_eq!(kind_of(&refused), "forbidden", "{refused}");
        assert_eq!(refused.data["name"], "OTHER_TOKEN", "{refused}");
        let listed = client.call("runs.list", json!({})).await;
        assert_eq!(listed["runs"], json!([]));
        // A file of the user may set a path; a definition stored over RPC may not, and holds no
        // value.
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

/// An operator may pass it although no file declares the name.
#[test]
fn an_operator_gives_a_secret_that_no_agent_declares_and_it_stays_one() {
    let place = place("env | grep OTHER > $HOME/work/env.txt; echo $OTHER_TOKEN")
        .with_agent("plain", "tools: [shell]\ngate: {shell: allow}");
    run(async {
        let daemon = place.start().await;
        let given = "--env=OTHER_TOKEN=canary-of-operator";
        let told = place
            .command(&["run", "--agent", "plain", "--no-start", given, "[go]"])
            .output()
            .unwrap();
        assert!(
            told.status.success(),
            "{}",
            String::from_utf8_lossy(&told.stderr)
        );
        let env = fs::read_to_string(place.work().join("env.txt")).unwrap();
        assert!(env.contains("OTHER_TOKEN=canary-of-operator\n"), "{env}");
        assert_eq!(daemon.stop().await, 0);
        let canaries = ["canary-of-operator".to_owned()];
        assert_eq!(traces(&place, &canaries), [""; 0]);
    });
}
