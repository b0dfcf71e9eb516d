//! The complete environment of a run's programs, name by name and value by value: of an agent that
//! is a program, and of programs that child runs start, also after a kill.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::servers_of;
use crate::delegations::children;
use crate::harness::{Link, Place, Script, calls, eventually, run, says};
use crate::mcp::{until_state, with_server};

type Map = BTreeMap<String, String>;

/// Names and values as the operating system passes them to a program.
fn map_of(environ: &Path) -> Map {
    let text = fs::read_to_string(environ).unwrap();
    let mut map = Map::new();
    for one in text.split('\0').filter(|one| !one.is_empty()) {
        let (name, value) = one.split_once('=').unwrap();
        let before = map.insert(name.to_owned(), value.to_owned());
        assert_eq!(before, None, "{name} is there twice");
    }
    map
}

fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map {
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Variables of the daemon that every program gets.
const BASE: [(&str, &str); 10] = [
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LANG", "C"),
    ("LC_ALL", "C"),
    ("LC_TIME", "C"),
    ("TERM", "dumb"),
    ("TZ", "UTC"),
    ("TMPDIR", "/tmp"),
    ("USER", "somebody"),
    ("SHELL", "/bin/sh"),
    // Changed by the settings.
    ("CARGO_HOME", "/nowhere/cargo"),
];

/// Variables of the daemon that no program gets.
const KEPT_BACK: [(&str, &str); 8] = [
    ("OPENAI_API_KEY", "canary-of-the-daemon"),
    ("NODE_OPTIONS", "--no-warnings"),
    ("GIT_AUTHOR_NAME", "somebody"),
    ("LC", "C"),
    ("PATHS", "/nowhere"),
    ("LOGNAME", "somebody"),
    ("CARGO", "/nowhere/cargo"),
    ("KEY_OF_DAEMON", "canary-key-of-agent"),
];

/// The daemon of this place, started in a shell that sets more variables than programs get.
async fn start(place: &Place) -> crate::harness::Daemon {
    let mut command = place.command(&["serve"]);
    command.envs(BASE).envs(KEPT_BACK);
    place.start_command(command).await.unwrap()
}

/// The variables by which a program finds its daemon and its own run.
async fn marks(client: &Link, place: &Place, run: &str, step: &str) -> Map {
    let endpoint = fs::read_to_string(place.state().join("endpoint.json")).unwrap();
    let endpoint: serde_json::Value = serde_json::from_str(&endpoint).unwrap();
    let steps = client.call("runs.steps", json!({ "runId": run })).await;
    let steps = steps["steps"].as_array().unwrap().iter();
    let mut steps = steps.filter(|one| one["tool"] == step || one["kind"] == step);
    let step = steps.next().unwrap_or_else(|| panic!("no {step}"));
    map([
        ("HOME", place.path().to_str().unwrap()),
        ("ABIDE_STATE_DIR", place.state().to_str().unwrap()),
        ("ABIDE_SOCKET", endpoint["socket"].as_str().unwrap()),
        ("ABIDE_RUN_ID", run),
        ("ABIDE_STEP_ID", step["stepId"].as_str().unwrap()),
    ])
}

/// The program is not a shell: it repeats exactly what it was given.
#[test]
fn g7_2_the_whole_environment_of_an_agent_that_is_a_program_is_exactly_what_is_named() {
    let fields = "runner: command\n\
                  command: {argv: [/bin/cp, /proc/self/environ, environ]}\n\
                  env:\n  A_TOKEN: null\n  OF_AGENT: agent-value\n  UNITS: agent-units\n  \
                  TZ: Europe/Oslo\n  AGENT_KEY: {from: \"env:KEY_OF_DAEMON\"}\n";
    let place = Place::new(Script::new())
        .with_agent("program", fields)
        .with("env.pass", "[\"CARGO_*\", \"NOT_SET\"]");
    // No model loads skills here, so the settings for skills do not apply to a program.
    let place = place.with(
        "skills.entries.delegate.env",
        "{ OF_SKILL = \"skill-value\" }",
    );
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        let env = json!({
            "A_TOKEN": "canary-token-1", "UNITS": "request=units\nand more", "OF_REQUEST": "",
        });
        let params = json!({ "task": "x", "agent": "program", "env": env });
        let spawned = client.spawn(params).await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["status"], "ok", "{ended}");
        let mut expected = map(BASE);
        expected.extend(marks(&client, &place, &spawned.id, "command").await);
        expected.extend(map([
            ("TZ", "Europe/Oslo"),
            ("OF_AGENT", "agent-value"),
            ("AGENT_KEY", "canary-key-of-agent"),
            ("A_TOKEN", "canary-token-1"),
            ("UNITS", "request=units\nand more"),
            ("OF_REQUEST", ""),
        ]));
        assert_eq!(map_of(&place.work().join("environ")), expected);
        assert_eq!(daemon.stop().await, 0);
    });
}

/// A caller's turn delegates to two agents: one runs commands and calls its own MCP server, the
/// other is a program. Both run when the daemon is killed, and afterwards have the same environment
/// as before: that of their own agents and skills, nothing of their caller's.
#[test]
fn g7_2_what_runs_of_children_start_has_the_same_environment_again_after_a_kill() {
    let task = |agent: &str, prompt: &str| {
        json!({
            "description": "Look", "prompt": prompt, "subagent_type": agent, "session_id": "",
        })
    };
    let dump = |file: &str| {
        calls(
            "shell",
            json!({ "command": format!("cp /proc/$$/environ {file}") }),
        )
    };
    let script = Script::new()
        .on(
            "[boss]",
            [
                calls("task", task("worker", "[kid]")).and("task", task("program", "[x]")),
                says("boss is done"),
            ],
        )
        .on(
            "[kid]",
            [
                dump("before"),
                calls("mem__slow", json!({ "text": "x" })),
                dump("after"),
                says("kid is done"),
            ],
        );
    let line = "cp /proc/$$/environ $(mktemp program.XXXXXX); while [ ! -e go ]; do sleep 0.05; \
                done; echo over";
    let own = "mode: subagent\non_uncertain: retry\nenv:\n  OF_AGENT: agent-value\n  UNITS: \
               agent-units\n  AGENT_KEY: {from: \"env:KEY_OF_DAEMON\"}\n  A_TOKEN: {from: \
               \"file:FILE\"}\n";
    let place = Place::new(script);
    let file = place.path().join("token");
    fs::write(&file, "canary-token-1\n").unwrap();
    let own = own.replace("FILE", file.to_str().unwrap());
    let place = with_server(place, "mem", "")
        .with("mcp.mem.scope", "\"run\"")
        .with("env.pass", "[\"CARGO_*\"]")
        .with("skills.entries.delegate.env", "{ UNITS = \"skill-units\" }")
        .with_agent("boss", "mode: primary\ntools: [task]\nenv: {OF_BOSS: boss}")
        .with_agent(
            "worker",
            &format!("{own}mcp_servers: [mem]\ntools: {{shell: true, skill: true}}\ngate: {{shell: allow}}"),
        )
        .with_agent(
            "program",
            &format!("{own}runner: command\ncommand: {{argv: [/bin/sh, -c, '{line}']}}"),
        );
    let work = place.work();
    let programs = || -> Vec<Map> {
        let files = fs::read_dir(&work).unwrap().flatten();
        let files = files.filter(|file| file.file_name().to_str().unwrap().starts_with("program."));
        // A file that is being written is still empty.
        files
            .map(|file| map_of(&file.path()))
            .filter(|map| !map.is_empty())
            .collect()
    };
    let begun = async |times: usize| {
        eventually("both at work", async || {
            let slow = fs::read_to_string(work.join("begun")).unwrap_or_default();
            (slow.lines().count() == times && programs().len() == times).then_some(())
        })
        .await;
    };
    run(async {
        let daemon = start(&place).await;
        let client = daemon.client().await;
        until_state(&client, "mem", "ready").await;
        let params = json!({ "key": "agent:boss:a", "agent": "boss" });
        client.call("sessions.create", params).await;
        let params = json!({
            "sessionKey": "agent:boss:a", "message": "[boss]", "env": { "OF_REQUEST": "boss" },
        });
        let boss = client.call("agent.run", params).await["runId"].clone();
        begun(1).await;
        let kids = children(&client, "agent:boss:a").await;
        let of = |agent: &str| {
            let kid = kids.iter().find(|kid| kid["agent"] == agent);
            let kid = kid.unwrap_or_else(|| panic!("no {agent}: {kids:?}"));
            kid["runId"].as_str().unwrap().to_owned()
        };
        let (worker, program) = (of("worker"), of("program"));
        let server = || {
            let servers = servers_of(&worker);
            assert_eq!(servers.len(), 1, "one process");
            let mut map = map_of(Path::new(&format!("/proc/{}/environ", servers[0])));
            // Each start has a unique id.
            assert!(map.remove("ABIDE_SERVICE_ID").is_some());
            map
        };
        let of_agent = map([
            ("OF_AGENT", "agent-value"),
            ("UNITS", "agent-units"),
            ("AGENT_KEY", "canary-key-of-agent"),
            ("A_TOKEN", "canary-token-1"),
        ]);
        let mut of_program = map(BASE);
        of_program.extend(of_agent.clone());
        of_program.extend(marks(&client, &place, &program, "command").await);
        assert_eq!(programs(), [of_program.clone()]);
        let mut of_command = map(BASE);
        of_command.extend(of_agent);
        of_command.extend(map([("UNITS", "skill-units")]));
        let mut of_server = of_command.clone();
        of_command.extend(marks(&client, &place, &worker, "shell").await);
        assert_eq!(map_of(&work.join("before")), of_command);
        of_server.extend(of_command.clone());
        of_server.remove("ABIDE_STEP_ID");
        of_server.remove("ABIDE_SOCKET");
        of_server.extend(map([("TOKEN", "canary"), ("TEST_MCP_START", "")]));
        assert_eq!(server(), of_server);
        daemon.kill().await;
        place.kill_keepers().await;

        let daemon = start(&place).await;
        let client = daemon.client().await;
        begun(2).await;
        assert_eq!(server(), of_server, "the same again");
        assert_eq!(programs(), [of_program.clone(), of_program]);
        fs::write(work.join("go"), "").unwrap();
        let ended = client.ended(boss.as_str().unwrap()).await;
        assert_eq!(ended["result"], "boss is done", "{ended}");
        for run in [&worker, &program] {
            assert_eq!(client.run(run).await["state"], "ok");
        }
        let mut after = map_of(&work.join("after"));
        // A different step of the same run.
        let step = after.insert(
            "ABIDE_STEP_ID".to_owned(),
            of_command["ABIDE_STEP_ID"].clone(),
        );
        assert_ne!(step.as_ref(), Some(&of_command["ABIDE_STEP_ID"]));
        assert_eq!(after, of_command);
        assert_eq!(daemon.stop().await, 0);
    });
}
