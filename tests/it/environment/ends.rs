//! The end of a run removes everything of its environment, whatever its outcome.

use std::fs;

use serde_json::json;

use super::{WORKER, go, place};
use crate::harness::{Daemon, Place, Script, calls, eventually, fails, run, says};
use crate::scenarios::environment::seen;

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

/// The environment with which the daemon was started, from `/proc`.
fn own(daemon: &Daemon) -> Vec<u8> {
    fs::read(format!("/proc/{}/environ", daemon.pid())).unwrap()
}

/// A skill gives its runs a variable and its key. Once a run has ended, in whatever way, the daemon
/// is unchanged, no process carries them any more, and the next run has them only if it has the
/// skill.
#[test]
fn d_question_6_what_skills_put_into_the_environment_is_taken_back_when_the_run_ends() {
    let look = "echo \"${WEATHER_KEY-none} ${UNITS_OF_SKILL-none}\" >> seen.txt";
    let stays = format!("{look}; sleep 4000");
    let shell = |command: &str| calls("shell", json!({ "command": command }));
    let script = Script::new()
        .on("[ok]", [shell(look), says("done")])
        .on("[fail]", [shell(look), fails("it fails")])
        .on("[cancel]", [shell(&stays), says("was not cancelled")]);
    let mut place = Place::new(script)
        .with_agent("worker", WORKER)
        .with_agent("plain", "tools: [shell]\ngate: {shell: allow}\nskills: []");
    let skill = place.path().join(".agents/skills/weather");
    fs::create_dir_all(&skill).unwrap();
    let header = "name: weather\ndescription: d\nmetadata:\n  primaryEnv: WEATHER_KEY";
    fs::write(
        skill.join("SKILL.md"),
        format!("---\n{header}\n---\nLook.\n"),
    )
    .unwrap();
    place.set(
        "skills.entries.weather.env",
        "{ UNITS_OF_SKILL = \"metric\" }",
    );
    place.set("skills.entries.weather.api_key", "\"canary-weather-key\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let before = own(&daemon);
        let (mut expected, mut runs): (Vec<&str>, Vec<(String, &str)>) = Default::default();
        for way in ["ok", "fail", "cancel"] {
            for agent in ["worker", "plain"] {
                let task = json!({ "task": format!("[{way}]"), "agent": agent });
                let spawned = client.spawn(task).await;
                expected.push(match agent {
                    "worker" => "canary-weather-key metric",
                    _ => "none none",
                });
                eventually("the command", async || {
                    (seen(&place).len() == expected.len()).then_some(())
                })
                .await;
                if way == "cancel" {
                    let id = json!({ "runId": spawned.id });
                    client.call("runs.cancel", id).await;
                }
                client.ended(&spawned.id).await;
                assert!(own(&daemon) == before);
                eventually("the end of what carries it", async || {
                    let carries = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
                        let env = fs::read(entry.path().join("environ")).unwrap_or_default();
                        String::from_utf8_lossy(&env).contains(&spawned.id)
                    });
                    (!carries).then_some(())
                })
                .await;
                runs.push((spawned.id, agent));
            }
        }
        assert_eq!(seen(&place), expected);
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        let events: Vec<(Option<String>, String)> = place
            .book()
            .events
            .into_values()
            .filter(|one| one.kind.starts_with("env."))
            .map(|one| (one.run, one.kind))
            .collect();
        for (run, agent) in runs {
            let of_run = events.iter().filter(|(of, _)| of.as_ref() == Some(&run));
            let kinds: Vec<&str> = of_run.map(|(_, kind)| kind.as_str()).collect();
            let expected: &[&str] = match agent {
                "worker" => &["env.applied", "env.restored"],
                _ => &[],
            };
            assert_eq!(kinds, expected, "{agent}");
        }
    });
}
