//! Commands of runs, and agents that are programs: a program that was started is never started
//! again.

use serde_json::{Value, json};

use super::Scenario;
use crate::agents::{config, write};
use crate::harness::{Caller, Place, Script, calls, says};
use crate::processes::is_alive;

/// The scenarios of commands and programs.
pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "shell",
        place: shell_place,
        play: |caller| Box::pin(shell(caller)),
    },
    Scenario {
        name: "stopped shell",
        place: stopped_place,
        play: |caller| Box::pin(stopped(caller)),
    },
    Scenario {
        name: "program",
        place: program_place,
        play: |caller| Box::pin(program(caller)),
    },
    Scenario {
        name: "review",
        place: review_place,
        play: |caller| Box::pin(review(caller)),
    },
];

/// The number of times that the command or program was started.
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

/// A command in parallel with a tool that may be repeated.
async fn shell(caller: &mut Caller) {
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "worker" }))
        .await;
    let run = caller.ended(&a.id).await;
    assert_eq!(run["result"], "a is done", "{run}");
    assert_eq!(run["toolCalls"], 2, "{run}");
    assert_eq!(begun(caller), 1);
    let history = json!({ "sessionKey": a.session, "tools": true });
    let history = caller.call("sessions.history", history).await;
    let told = history.to_string();
    assert!(told.contains("exit status 0"), "{told}");
}

fn stopped_place() -> Place {
    let command = "echo once >> begun.txt; setsid sleep 4000 & \
                   echo $$ $! > pids.new; mv pids.new pids; wait";
    let place = Place::new(Script::new().on(
        "[a]",
        [
            calls("shell", json!({ "command": command })),
            says("a goes on"),
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

/// A cancel during a command that would not end by itself.
async fn stopped(caller: &mut Caller) {
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "worker" }))
        .await;
    let file = caller.place().work().join("pids");
    caller
        .until("the command, or its end", async |caller: &mut Caller| {
            let ended = caller.run(&a.id).await.get("endedAt").is_some();
            (ended || file.exists()).then_some(())
        })
        .await;
    caller.call("runs.cancel", json!({ "runId": a.id })).await;
    let run = caller.ended(&a.id).await;
    // After a kill it may have continued, or ended, before the cancel.
    let status = &run["status"];
    assert!(
        status == "cancelled" || status == "ok" && was_killed(caller),
        "{run}"
    );
    let begun = begun(caller);
    assert!(begun == 1 || begun == 0 && was_killed(caller), "{begun}");
    let pids = std::fs::read_to_string(&file).unwrap_or_default();
    for pid in pids.split_whitespace() {
        let pid = pid.parse().unwrap();
        assert!(!is_alive(pid), "{pid} of {run}");
    }
}

fn program_place() -> Place {
    let place = Place::new(Script::new());
    let argv = r#"argv: [/bin/sh, -c, "echo once >> begun.txt; cat"]"#;
    let fields = format!("runner: command\ncommand:\n  {argv}\n");
    write(&config(&place), "echo.md", &fields, "Echoes.");
    place
}

/// A program whose end is announced to a client's session.
async fn program(caller: &mut Caller) {
    let root = caller.session("client", "bot:one").await;
    let spawn = json!({ "task": "say this", "agent": "echo", "parent": root });
    let a = caller.spawn(spawn).await;
    let run = caller.ended(&a.id).await;
    assert_eq!(run["status"], "ok", "{run}");
    assert_eq!(run["result"], "say this", "{run}");
    assert_eq!((begun(caller), &run["loops"]), (1, &json!(1)), "{run}");
    caller.quiet().await;
    let announces: Vec<Value> = caller.ack_all(&root).await;
    assert_eq!(announces.len(), 1, "{announces:?}");
    assert_eq!(announces[0]["outcome"], run["status"]);
}

fn review_place() -> Place {
    let line = "echo once >> begun.txt; until [ -e go ]; do sleep 0.05; done; echo over";
    let place = Place::new(Script::new().on(
        "[a]",
        [
            calls("shell", json!({ "command": line })),
            says("a is done"),
        ],
    ));
    write(
        &config(&place),
        "worker.md",
        "tools: [shell]\ngate: {shell: allow}\non_uncertain: review\n",
        "Work.",
    );
    let echo = "runner: command\non_uncertain: review\ncommand:\n  argv: [/bin/sh, -c, \
                \"echo once >> echoed.txt; until [ -e go ]; do sleep 0.05; done; cat\"]\n";
    write(&config(&place), "echo.md", echo, "Echoes.");
    place
}

/// A command and a program run when the daemon is killed, and so are their keepers; a user decides that the first did not
/// happen, and gives the result of the second.
async fn review(caller: &mut Caller) {
    let a = caller
        .spawn(json!({ "task": "[a]", "agent": "worker" }))
        .await;
    let b = caller
        .spawn(json!({ "task": "say this", "agent": "echo" }))
        .await;
    for (run, file) in [(&a, "begun.txt"), (&b, "echoed.txt")] {
        caller
            .until("the call is at work", async |caller: &mut Caller| {
                let run = caller.run(&run.id).await;
                let begun = caller.place().work().join(file).exists();
                (begun || run["needsReview"] == true).then_some(())
            })
            .await;
    }
    caller.kill_once().await;
    caller.place().kill_keepers().await;
    std::fs::write(caller.place().work().join("go"), "").unwrap();
    let mut asked = 0;
    for run in [&a, &b] {
        let reviewed = caller
            .until("the review", async |caller: &mut Caller| {
                let run = caller.run(&run.id).await;
                (run["needsReview"] == true).then_some(run)
            })
            .await;
        let list = json!({ "needsReview": true });
        let waiting = caller.call("runs.list", list).await;
        assert!(waiting.to_string().contains(&run.id), "{waiting}");
        let review = &reviewed["reviews"][0];
        let mut params = json!({ "runId": run.id, "stepId": review["stepId"] });
        if run.id == a.id {
            let line = review["arguments"]["command"].as_str().unwrap();
            assert!(line.contains("begun.txt"), "{review}");
            params["decision"] = json!("not_done");
            let step = review["stepId"].as_str().unwrap().to_owned();
            caller.history.not_done.push(step);
        } else {
            params["decision"] = json!("done");
            params["result"] = json!("said by ann");
        }
        // If the answer was lost, the decision had been accepted.
        caller.once("runs.resolve", params, "conflict").await;
        asked += 1;
    }
    assert_eq!(asked, 2);
    // A kill during the second attempt needs another review.
    let ended = caller
        .until("the end", async |caller: &mut Caller| {
            let run = caller.run(&a.id).await;
            if run["needsReview"] == true {
                let step = &run["reviews"][0]["stepId"];
                let params = json!({ "runId": a.id, "stepId": step, "decision": "done" });
                caller.once("runs.resolve", params, "conflict").await;
            }
            run["endedAt"].is_string().then_some(run)
        })
        .await;
    assert_eq!(ended["result"], "a is done", "{ended}");
    assert!((1..=2).contains(&begun(caller)));
    let ended = caller.ended(&b.id).await;
    assert_eq!(
        (&ended["status"], &ended["result"]),
        (&json!("ok"), &json!("said by ann"))
    );
    let echoed = caller.place().work().join("echoed.txt");
    let echoed = std::fs::read_to_string(echoed).unwrap_or_default();
    assert!(echoed.lines().count() <= 1, "{echoed}");
}
