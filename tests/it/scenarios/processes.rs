//! Commands that runs start, and agents that are programs: what was begun is never begun again.

use serde_json::{Value, json};

use super::Scenario;
use crate::agents::{config, write};
use crate::harness::{Caller, Place, Script, calls, says};

/// The scenarios of commands and programs.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "shell",
        place: shell_place,
        play: |caller| Box::pin(shell(caller)),
    },
    Scenario {
        name: "program",
        place: program_place,
        play: |caller| Box::pin(program(caller)),
    },
];

/// How often the command or program here has begun.
fn begun(caller: &Caller) -> usize {
    let file = caller.place().work().join("begun.txt");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().count()
}

fn was_killed(caller: &Caller) -> bool {
    !caller.history.kills.is_empty()
}

fn shell_place() -> Place {
    let command = json!({ "command": "echo once >> begun.txt; echo done" });
    let place = Place::new(Script::new().on(
        "[a]",
        [
            calls("shell", command).and("read", json!({ "path": "notes.txt" })),
            says("a is done"),
        ],
    ));
    write(
        &config(&place),
        "worker.md",
        "tools: [shell, read]\ngate: {shell: allow}\n",
        "Work.",
    );
    place
}

/// A command beside a tool that may be repeated.
async fn shell(caller: &mut Caller) {
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "worker" }))
        .await;
    let run = caller.ended(&a.id).await;
    assert_eq!(run["result"], "a is done", "{run}");
    assert_eq!(run["toolCalls"], 2, "{run}");
    let begun = begun(caller);
    // A kill may come after the step was marked and before its effect.
    assert!(begun == 1 || begun == 0 && was_killed(caller), "{begun}");
    let history = json!({ "sessionKey": a.session, "tools": true });
    let history = caller.call("sessions.history", history).await;
    let told = history.to_string();
    let knows = told.contains("exit status 0");
    assert!(
        knows || was_killed(caller) && told.contains("uncertain"),
        "{told}"
    );
}

fn program_place() -> Place {
    let place = Place::new(Script::new());
    let argv = r#"argv: [/bin/sh, -c, "echo once >> begun.txt; cat"]"#;
    let fields = format!("runner: command\ncommand:\n  {argv}\n");
    write(&config(&place), "echo.md", &fields, "Echoes.");
    place
}

/// A program whose end is told to a client's session.
async fn program(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let spawn = json!({ "task": "say this", "agent": "echo", "parent": root });
    let a = caller.spawn(spawn).await;
    let run = caller.ended(&a.id).await;
    let begun = begun(caller);
    if run["status"] == "ok" {
        assert_eq!(run["result"], "say this", "{run}");
        assert_eq!((begun, &run["loops"]), (1, &json!(1)), "{run}");
    } else {
        assert!(was_killed(caller), "{run}");
        assert_eq!(run["status"], "interrupted", "{run}");
        assert_eq!(run["error"]["kind"], "uncertain", "{run}");
        assert!(begun <= 1, "{begun}");
    }
    caller.quiet().await;
    let announces: Vec<Value> = caller.ack_all(&root).await;
    assert_eq!(announces.len(), 1, "{announces:?}");
    assert_eq!(announces[0]["outcome"], run["status"]);
}
