//! Permissions of agents from their files: gate rules with a real shell, the order of trust between
//! a user's and a project's files, and files of other programs.

use std::fs;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Link, Place, Script, calls, eventually, kind_of, run, says};

/// Calls `shell` once for each of these lines, each in a separate run.
fn shell(lines: &[&str]) -> Place {
    let mut script = Script::new();
    for (number, line) in lines.iter().enumerate() {
        let call = calls("shell", json!({ "command": line }));
        script = script.on(&format!("[{number}]"), [call, says("done")]);
    }
    Place::new(script)
}

/// The outcome of each call: `denied`, `asked` or `made`.
async fn outcomes(client: &Link, agent: &str, count: usize) -> Vec<String> {
    let mut fates = Vec::new();
    for number in 0..count {
        let params = json!({ "task": format!("[{number}]"), "agent": agent });
        let spawned = client.spawn(params).await;
        let fate = eventually("the call is decided on", async || {
            let shown = client.run(&spawned.id).await;
            match shown["state"].as_str() {
                Some("paused") => Some("asked"),
                Some("ok") => Some("ended"),
                _ => None,
            }
        })
        .await;
        let fate = match fate {
            "asked" => {
                let params = json!({ "runId": spawned.id });
                client.call("runs.cancel", params).await;
                "asked".to_owned()
            }
            _ => {
                let params = json!({ "sessionKey": spawned.session });
                let history = client.call("sessions.history", params).await;
                let messages = history["messages"].as_array().unwrap().clone();
                let result = messages.iter().find(|one| one["kind"] == "tool_result");
                let text = result.unwrap()["content"][0]["text"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                if text.starts_with("denied") {
                    "denied"
                } else {
                    "made"
                }
                .to_owned()
            }
        };
        fates.push(fate);
    }
    fates
}

#[test]
fn a_denied_command_stays_denied_in_every_spelling_and_an_allowed_one_runs() {
    let lines = [
        ("echo ok", "made"),
        ("true forbid", "denied"),
        ("true 'for''bid'", "denied"),
        ("A=b command true  forb\\id", "denied"),
        ("echo $(true forbid)", "denied"),
        ("sh -c 'true forbid'", "denied"),
        ("X=forbid; true $X", "denied"),
        ("true $X", "asked"),
        ("true forbi?", "asked"),
        ("echo a > out", "asked"),
        ("echo a; ls", "asked"),
        ("git -c alias.x='!sh' x", "asked"),
    ];
    let texts: Vec<&str> = lines.iter().map(|(line, _)| *line).collect();
    let place = shell(&texts).with_agent(
        "worker",
        "tools: [shell]\ngate:\n  shell:\n    - {match: 'echo *', decision: allow}\n    - \
         {match: 'true*', decision: allow}\n    - {match: 'git *', decision: allow}\n    - \
         {match: '*forbid*', decision: deny}",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let found = outcomes(&client, "worker", lines.len()).await;
        for ((line, expected), found) in lines.iter().zip(&found) {
            assert_eq!(found, expected, "{line}");
        }
        assert!(!place.work().join("out").exists());
        assert_eq!(daemon.stop().await, 0);
    });
}

async fn spawned(client: &Link, agent: &str, cwd: &str) -> Value {
    let params = json!({ "task": "[0]", "agent": agent, "cwd": cwd });
    client.call("sessions.spawn", params).await
}

async fn tools(client: &Link, agent: &str, cwd: &str) -> Vec<String> {
    let params = json!({ "agent": agent, "cwd": cwd });
    let found = client.call("agents.get", params).await;
    let tools = found["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{found}"));
    tools
        .iter()
        .map(|tool| tool.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_projects_file_takes_nothing_from_what_a_users_file_forbids_before_it_is_trusted() {
    let place = Place::new(Script::new().on(
        "[0]",
        [
            calls("write", json!({ "path": "a.txt", "content": "x" })),
            says("done"),
        ],
    ));
    let project = place.path().join("project");
    fs::create_dir_all(project.join(".git")).unwrap();
    write(
        &config(&place),
        "careful.md",
        "tools: [read, write]\ngate: {write: deny}\nmcp_servers: []\nexecution: {max_loops: 3}\n",
        "mine",
    );
    write(
        &project.join(".abide/agents"),
        "careful.md",
        "tools: [read, write, edit, shell]\nexecution: {max_loops: 30}\n",
        "theirs",
    );
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let cwd = project.to_str().unwrap();
        let found = client
            .call("agents.get", json!({ "agent": "careful", "cwd": cwd }))
            .await;
        assert_eq!(found["systemPrompt"], "theirs", "{found}");
        assert_eq!(found["maxLoops"], 3, "{found}");
        assert_eq!(tools(&client, "careful", cwd).await, ["read"]);
        let answer = spawned(&client, "careful", cwd).await;
        let warnings = answer["warnings"].to_string();
        for part in ["is limited by", "tools", "gate", "max_loops", "abide trust"] {
            assert!(warnings.contains(part), "{part} in {warnings}");
        }
        client.ended(answer["runId"].as_str().unwrap()).await;
        assert!(!project.join("a.txt").exists());

        client.call("trust.add", json!({ "folder": cwd })).await;
        assert_eq!(
            tools(&client, "careful", cwd).await,
            ["read", "write", "edit", "shell"]
        );
        let answer = spawned(&client, "careful", cwd).await;
        client.ended(answer["runId"].as_str().unwrap()).await;
        assert!(project.join("a.txt").exists());

        // A new, unreviewed agent revokes the trust in the whole project.
        write(&project.join(".abide/agents"), "more.md", "", "more");
        eventually("the trust is lost", async || {
            (tools(&client, "careful", cwd).await == ["read"]).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_file_that_restricts_itself_in_words_that_are_not_understood_is_not_used() {
    let place = Place::new(Script::new().on("[0]", [says("done")]));
    let theirs = place.path().join(".claude/agents");
    write(
        &theirs,
        "plan.md",
        "name: plan\npermission: {edit: deny, bash: ask}\n",
        "plan",
    );
    write(&theirs, "odd.md", "name: odd\nallowdTools: [Read]\n", "odd");
    write(
        &theirs,
        "named.md",
        "name: Case Reader\ntools: Read, Grep\nmodel: sonnet\n",
        "named",
    );
    // The invalid file shadows an agent that could do more.
    write(&config(&place), "explore.md", "toools: []\n", "explore");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let cwd = place.work().to_str().unwrap().to_owned();
        let plan = tools(&client, "plan", &cwd).await;
        assert!(
            !plan.contains(&"edit".to_owned()) && !plan.contains(&"write".to_owned()),
            "{plan:?}"
        );
        assert_eq!(tools(&client, "case-reader", &cwd).await, ["read", "grep"]);
        let odd = client
            .refused("sessions.spawn", json!({ "task": "[0]", "agent": "odd" }))
            .await;
        assert_eq!(kind_of(&odd), "not_found");
        let hint = odd.data["hint"].to_string();
        assert!(
            hint.contains("odd.md:4") && hint.contains("looks like a restriction"),
            "{hint}"
        );
        let refused = client
            .refused(
                "sessions.spawn",
                json!({ "task": "[0]", "agent": "explore" }),
            )
            .await;
        assert_eq!(kind_of(&refused), "forbidden");
        assert!(refused.message.contains("toools"), "{}", refused.message);
        assert_eq!(daemon.stop().await, 0);
    });
}
