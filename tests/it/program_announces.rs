//! Runs of agents that are programs, and the announces of runs below them: each announce costs one
//! turn, and then the run ends.

use std::fs;

use serde_json::json;

use crate::harness::{Place, Script, eventually, run, says};
use crate::runner_acp::played;

/// A program that repeats its input once the file `finish` is there.
const PROGRAM: &str = "runner: command\ncommand:\n  argv: [/bin/sh, -c, 'echo turn >> turns; \
                       while [ ! -e finish ]; do sleep 0.02; done; echo heard; cat']\n";

/// A place with the agents `program` and `outside`, and a model for the run below them.
fn place() -> Place {
    let script = Script::new().on("[below]", [says("below is done").held_by("go")]);
    let place = Place::new(script)
        .with("defaults.max_spawn_depth", "2")
        .with_agent("program", PROGRAM);
    played::with_agent(place, "", "")
}

/// The task with which this agent has one turn that waits for the file `finish`.
fn task(agent: &str) -> String {
    match agent {
        "program" => "work".to_owned(),
        _ => json!([{ "effect": "turn" }, { "until": "finish" }, { "say": "waited" }]).to_string(),
    }
}

/// Each agent is told of the end of a run below it: while its turn is under way, and after its turn.
#[test]
fn a_program_has_one_turn_for_the_end_of_a_run_below_it() {
    run(async {
        for agent in ["program", "outside"] {
            for is_told_in_its_turn in [true, false] {
                let case = format!("{agent}, told in its turn: {is_told_in_its_turn}");
                let place = place();
                let daemon = place.start().await;
                let client = daemon.client().await;
                let root = client.session("client", "bot").await;
                let params = json!({ "task": task(agent), "agent": agent, "parent": root });
                let above = client.spawn(params).await;
                let begun = place.work().join(match agent {
                    "program" => "turns",
                    _ => "effects",
                });
                eventually("the turn", async || begun.exists().then_some(())).await;
                let params = json!({
                    "task": "[below]", "agent": "explore", "parent": above.session,
                });
                let below = client.spawn(params).await;
                if is_told_in_its_turn {
                    place.let_go("go");
                    client.ended(&below.id).await;
                    fs::write(place.work().join("finish"), "").unwrap();
                } else {
                    fs::write(place.work().join("finish"), "").unwrap();
                    client.in_state(&above.id, "settling").await;
                    place.let_go("go");
                }
                let ended = client.ended(&above.id).await;
                assert_eq!(ended["status"], "ok", "{case}: {ended}");
                let result = ended["result"].as_str().unwrap();
                assert!(result.contains("below is done"), "{case}: {result}");
                let steps = client
                    .call("runs.steps", json!({ "runId": above.id }))
                    .await;
                assert_eq!(
                    steps["steps"].as_array().unwrap().len(),
                    2,
                    "{case}: {steps}"
                );
                assert_eq!(daemon.stop().await, 0);
                // It settles once and is queued once more, not over and over.
                let book = place.book();
                let events = &book.events_by_run()[above.id.as_str()];
                for (kind, times) in [
                    ("run.started", 1),
                    ("run.settling", 1),
                    ("run.resumed", 1),
                    ("run.ended", 1),
                ] {
                    let count = events.iter().filter(|event| event.kind == kind).count();
                    assert_eq!(count, times, "{case}: {kind}");
                }
            }
        }
    });
}
