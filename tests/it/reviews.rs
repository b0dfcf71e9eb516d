//! Review of calls that a kill interrupted, as users see and settle them; and runs found by their
//! meta.

use std::process::Output;

use serde_json::{Value, json};

use crate::agents::{config, write};
use crate::harness::{Link, Place, Script, Spawned, calls, eventually, kind_of, run, says};

/// Runs a command; returns exit code, output and standard error.
fn abide(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = place.command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A daemon whose agent `worker` requires a review of interrupted calls, killed while it runs this
/// command.
async fn cut_off(command: &str) -> (Place, Spawned) {
    let place = Place::new(Script::new().on(
        "[go]",
        [
            calls("shell", json!({ "command": command })),
            says("it has come back"),
        ],
    ));
    write(
        &config(&place),
        "worker.md",
        "tools: [shell]\ngate: {shell: allow}\non_uncertain: review\n",
        "Work.",
    );
    let daemon = place.start().await;
    let client = daemon.client().await;
    let params = json!({ "task": "[go]", "agent": "worker" });
    let spawned = client.spawn(params).await;
    eventually("the command", async || {
        place.work().join("begun").exists().then_some(())
    })
    .await;
    daemon.kill().await;
    place.kill_keepers().await;
    (place, spawned)
}

async fn in_review(client: &Link, id: &str) -> Value {
    eventually("the review", async || {
        let run = client.run(id).await;
        (run["needsReview"] == true).then_some(run)
    })
    .await
}

#[test]
fn a_cut_off_call_is_shown_exactly_and_settled_from_the_command_line() {
    run(async {
        let (place, spawned) = cut_off("touch begun\nsleep 4000").await;
        let daemon = place.start().await;
        let client = daemon.client().await;
        let reviewed = in_review(&client, &spawned.id).await;
        assert_eq!(
            (&reviewed["state"], &reviewed["pauseReason"]),
            (&json!("paused"), &json!("review"))
        );
        let short = &spawned.id[spawned.id.len() - 8..];

        let (code, out, err) = abide(&place, &["review"]);
        assert_eq!((code, err.as_str()), (0, ""), "{out}{err}");
        for said in [
            short,
            "step 2, shell, has ended without a known outcome",
            "      touch begun\n      sleep 4000",
            &format!("abide review {short} done|not-done|abort"),
        ] {
            assert!(out.contains(said), "{said}: {out}");
        }
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
        let (code, out, _) = abide(&place, &["review", "--json"]);
        let listed: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((code, &listed["runs"][0]["runId"]), (0, &json!(spawned.id)));
        let (code, out, _) = abide(&place, &["ps"]);
        assert!(code == 0 && out.contains("review"), "{out}");

        // A waiter learns that a user's decision is needed.
        let (code, _, _) = abide(&place, &["wait", short, "--timeout", "10ms"]);
        assert_eq!(code, 8);
        let (code, _, err) = abide(&place, &["review", short, "abort", "--result", "x"]);
        assert!(code == 2 && err.contains("--result"), "{code} {err}");
        let (code, _, err) = abide(&place, &["review", short, "done", "--step", "1"]);
        assert!(
            code == 3 && err.contains("steps that need one: 2"),
            "{code} {err}"
        );
        let (code, _, err) = abide(&place, &["review", short]);
        assert!(code == 2, "{code} {err}");

        let done = ["review", short, "done", "--result", "slept well"];
        let (code, _, err) = abide(&place, &done);
        assert!(code == 0 && err.contains("continues"), "{code} {err}");
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["result"], "it has come back", "{ended}");
        let params = json!({ "sessionKey": spawned.session });
        let history = client.call("sessions.history", params).await;
        assert!(history.to_string().contains("slept well"), "{history}");
        let (code, _, err) = abide(&place, &done);
        assert!(code == 3 && err.contains("needs no review"), "{code} {err}");
        let (code, out, err) = abide(&place, &["review"]);
        assert_eq!((code, out.as_str()), (0, ""));
        assert!(err.contains("no run needs a review"), "{err}");
        assert_eq!(daemon.stop().await, 0);
        let (code, _, err) = abide(&place, &["review"]);
        assert!(code == 10 && err.contains("abide serve"), "{code} {err}");
    });
}

#[test]
fn a_review_stands_over_restarts_and_may_end_its_run() {
    run(async {
        let (place, spawned) = cut_off("touch begun; sleep 4000").await;
        for _ in 0..2 {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let reviewed = in_review(&client, &spawned.id).await;
            // The second attempt is the one that found nothing.
            assert_eq!(reviewed["reviews"][0]["attempts"], 2, "{reviewed}");
            daemon.kill().await;
        }
        let daemon = place.start().await;
        let client = daemon.client().await;
        let reviewed = in_review(&client, &spawned.id).await;
        let step = &reviewed["reviews"][0]["stepId"];
        let resolve =
            |decision: &str| json!({ "runId": spawned.id, "stepId": step, "decision": decision });
        for (params, kind) in [
            (
                json!({ "runId": spawned.id, "stepId": spawned.id, "decision": "done" }),
                "not_found",
            ),
            (resolve("perhaps"), "invalid_params"),
            (
                json!({ "runId": spawned.id, "stepId": step, "decision": "abort", "result": "x" }),
                "invalid_params",
            ),
        ] {
            let refused = client.refused("runs.resolve", params.clone()).await;
            assert_eq!(kind_of(&refused), kind, "{params}: {refused}");
        }
        let run = client.call("runs.resolve", resolve("abort")).await;
        assert_eq!(run["state"], "interrupted", "{run}");
        assert_eq!(run["error"]["kind"], "uncertain", "{run}");
        let refused = client.refused("runs.resolve", resolve("done")).await;
        assert_eq!(kind_of(&refused), "conflict", "{refused}");
        let params = json!({ "runId": spawned.id });
        let steps = client.call("runs.steps", params).await;
        assert_eq!(steps["steps"][1]["state"], "uncertain", "{steps}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn runs_are_found_by_the_fields_of_their_meta() {
    run(async {
        let place = Place::new(Script::new().on("", [says("ok")]));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut made = Vec::new();
        for meta in [
            json!({ "chat": "42", "thread": 7, "quiet": false }),
            json!({ "chat": "42", "thread": 8 }),
            json!({ "chat": 42 }),
        ] {
            let params = json!({ "task": "x", "agent": "build", "meta": meta });
            made.push(client.spawn(params).await.id);
        }
        for (meta, expected) in [
            (json!({ "chat": "42" }), vec![&made[1], &made[0]]),
            (json!({ "chat": 42 }), vec![&made[2]]),
            (json!({ "chat": "42", "quiet": false }), vec![&made[0]]),
            (json!({ "chat": "43" }), vec![]),
            (json!({ "other": "42" }), vec![]),
        ] {
            let found = client.call("runs.list", json!({ "meta": meta })).await;
            let found = found["runs"].as_array().unwrap().iter();
            let found: Vec<&str> = found.map(|run| run["runId"].as_str().unwrap()).collect();
            assert_eq!(found, expected, "{meta}");
        }
        for meta in [
            json!("42"),
            json!({ "chat": ["42"] }),
            json!({ "chat": 4.5 }),
        ] {
            let refused = client.refused("runs.list", json!({ "meta": meta })).await;
            assert_eq!(kind_of(&refused), "invalid_params", "{meta}: {refused}");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
