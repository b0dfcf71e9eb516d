//! Area 3, waiting, limits and outcomes: the timeout of a wait does not end a run, and outcomes are
//! not confused.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Place, Script, eventually, fails, kind_of, panics, run, says};

fn held() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done").held_by("go")])
            .on("[b]", [says("b is done")]),
    )
}

#[test]
fn g3_1_a_run_whose_wait_ran_out_is_still_reported() {
    run(async {
        let place = held();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        let params = json!({ "runId": a.id, "waitTimeout": 0.01 });
        let waited = client.call("agent.wait", params).await;
        assert_eq!(waited["cause"], "window");
        place.let_go("go");
        eventually("the report", || async {
            let inbox = client
                .call("sessions.inbox", json!({ "sessionKey": root }))
                .await;
            (inbox["announces"].as_array().unwrap().len() == 1).then_some(())
        })
        .await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g3_2_every_outcome_has_a_word_of_its_own() {
    let place = Place::new(
        Script::new()
            .on("[ok]", [says("done")])
            .on("[error]", [fails("out of service").held_by("go")])
            .on("[timeout]", [says("too late").held_by("never")])
            .on("[cancelled]", [says("never").held_by("never")])
            .on("[interrupted]", [panics()]),
    )
    .with("defaults.max_spawn_depth", "2")
    .with("recovery.max_attempts", "1");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let spawn = async |task: &str, parent: &str, limit: &str| {
            let params = json!({ "task": task, "parent": parent, "runTimeout": limit });
            client.spawn(params).await
        };
        let error = spawn("[error]", &root, "1h").await;
        // It is cancelled by the cascade from its requester.
        let cancelled = spawn("[cancelled]", &error.session, "1h").await;
        client.in_state(&cancelled.id, "running").await;
        place.let_go("go");
        let timeout = spawn("[timeout]", &root, "100ms").await;
        let ok = spawn("[ok]", &root, "1h").await;
        let interrupted = spawn("[interrupted]", &root, "1h").await;
        for (run, outcome) in [
            (&ok, "ok"),
            (&error, "error"),
            (&timeout, "timeout"),
            (&cancelled, "cancelled"),
            (&interrupted, "interrupted"),
        ] {
            let ended = client.ended(&run.id).await;
            assert_eq!(
                (&ended["state"], &ended["status"]),
                (&json!(outcome), &json!(outcome))
            );
            assert_eq!(ended["result"].is_string(), outcome == "ok", "{ended}");
            assert_eq!(
                ended["error"].is_null(),
                matches!(outcome, "ok" | "cancelled"),
                "{ended}"
            );
        }
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        let mut told: Vec<&str> = inbox["announces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|announce| announce["outcome"].as_str().unwrap())
            .collect();
        told.sort_unstable();
        assert_eq!(told, ["error", "interrupted", "ok", "timeout"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g3_3_a_run_without_a_limit_has_the_default_one_and_zero_is_for_the_configuration() {
    run(async {
        let mut place = held();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        assert!(
            client.run(&a.id).await["deadlineAt"].is_string(),
            "no limit out of the box"
        );
        let zero = json!({ "task": "[b]", "agent": "explore", "runTimeout": 0 });
        let refused = client.refused("sessions.spawn", zero).await;
        assert_eq!(kind_of(&refused), "invalid_params", "{refused}");
        daemon.kill().await;

        place.set("defaults.run_timeout", "\"200ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let limited = client.spawn(json!({ "task": "[a] again" })).await;
        assert_eq!(client.ended(&limited.id).await["state"], "timeout");
        daemon.kill().await;

        place.set("defaults.run_timeout", "0");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let free = client.spawn(json!({ "task": "[a] for ever" })).await;
        client.in_state(&free.id, "running").await;
        assert!(client.run(&free.id).await["deadlineAt"].is_null());
        daemon.kill().await;
    });
}

#[test]
fn g3_4_a_restored_run_gets_only_what_is_left_of_its_limit() {
    run(async {
        let place = held().with("recovery.touch_each", "\"20ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let params = json!({ "task": "[a]", "runTimeout": "2s" });
        let a = client.spawn(params).await;
        let used = eventually("used time", || async {
            let run = client.run(&a.id).await;
            run["elapsedMs"].as_u64().filter(|used| *used >= 1200)
        })
        .await;
        daemon.kill().await;
        // A kill loses only the time used since the last write.
        let daemon = place.start().await;
        let client = daemon.client().await;
        let after = client.run(&a.id).await["elapsedMs"].as_u64().unwrap();
        assert!(
            after + 1000 >= used,
            "{after} of {used} ms are known after the restart"
        );
        let ended = client.ended(&a.id).await;
        assert_eq!(ended["state"], "timeout");
        let all = ended["elapsedMs"].as_u64().unwrap();
        assert!(
            (2000..2000 + used).contains(&all),
            "it began anew: {all} ms"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g3_5_the_end_of_a_window_is_an_answer_with_progress() {
    run(async {
        let place = held();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        let params = json!({ "runId": a.id, "waitTimeout": 0 });
        let waited = client.call("agent.wait", params).await;
        let run = &waited["runs"][0];
        assert_eq!(run["runId"], a.id.as_str());
        assert_eq!(
            (&run["status"], &run["state"]),
            (&json!("pending"), &json!("running"))
        );
        assert_eq!(run["step"], json!({ "seq": 1, "what": "model" }));
        assert!(run["elapsedMs"].is_u64(), "{run}");
        daemon.kill().await;
    });
}

#[test]
fn g3_6_waiters_of_a_run_that_can_not_go_on_are_released_at_once() {
    let place = Place::new(
        Script::new()
            .on("[c]", [fails("out of service").held_by("go")])
            .on("[g]", [says("never").held_by("never")]),
    )
    .with("defaults.max_spawn_depth", "2");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let c = client.spawn(json!({ "task": "[c]" })).await;
        let g = client
            .spawn(json!({ "task": "[g]", "parent": c.session }))
            .await;
        client.in_state(&g.id, "running").await;
        // With a timeout of an hour, only the run's end can complete the wait.
        let params = json!({ "runIds": [&c.id, &g.id], "waitTimeout": 3600 });
        let wait = client.call("agent.wait", params);
        let release = async {
            client.call("gateway.ping", json!({})).await;
            place.let_go("go");
        };
        let (waited, ()) = futures_util::join!(wait, release);
        assert_eq!(waited["cause"], "ended");
        assert_eq!(waited["runs"][0]["status"], "error");
        assert_eq!(waited["runs"][1]["status"], "cancelled");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g3_8_a_wait_says_why_it_answers() {
    run(async {
        let place = held().with("gateway.drain_timeout", "\"100ms\"");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        let b = client.spawn(json!({ "task": "[b]" })).await;
        let wait = async |run: &str, window: f64| {
            let params = json!({ "runId": run, "waitTimeout": window });
            client.call("agent.wait", params).await
        };
        let ended = wait(&b.id, 60.0).await;
        assert_eq!(
            (&ended["cause"], &ended["done"]),
            (&json!("ended"), &json!(true))
        );
        let over = wait(&a.id, 0.0).await;
        assert_eq!(
            (&over["cause"], &over["done"]),
            (&json!("window"), &json!(false))
        );
        let stop = async {
            client.call("gateway.ping", json!({})).await;
            daemon.terminate();
        };
        let (drained, ()) = futures_util::join!(wait(&a.id, 3600.0), stop);
        assert_eq!(
            (&drained["cause"], &drained["done"]),
            (&json!("draining"), &json!(false))
        );
        assert_eq!(drained["runs"][0]["status"], "pending");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g3_9_a_model_call_that_hangs_ends_its_run_and_the_parent_goes_on() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("never").held_by("never")])
            .on_announce("gave no answer", [says("then without it")]),
    )
    .with("runner.model_timeout", "\"100ms\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let root = client.session("agent", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        let ended = client.ended(&a.id).await;
        assert_eq!(ended["state"], "error");
        assert_eq!(ended["error"]["kind"], "provider_timeout");
        client.quiet().await;
        let history = client
            .call("sessions.history", json!({ "sessionKey": root }))
            .await;
        let last = history["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(last["content"][0]["text"], "then without it");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn g3_1_the_answer_of_a_wait_is_the_same_after_any_number_of_restarts() {
    run(async {
        let place = held();
        let mut answers: Vec<Value> = Vec::new();
        let mut ids = Vec::new();
        for life in 0..3 {
            let daemon = place.start().await;
            let client = daemon.client().await;
            if life == 0 {
                let b = client.spawn(json!({ "task": "[b]" })).await;
                client.ended(&b.id).await;
                ids = vec![b.id, "01936f0e-0000-7000-8000-000000000001".to_owned()];
            }
            let params = json!({ "runIds": ids, "waitTimeout": 0 });
            answers.push(client.call("agent.wait", params).await);
            if life == 1 {
                daemon.kill().await;
            } else {
                assert_eq!(daemon.stop().await, 0);
            }
        }
        assert_eq!(answers[0]["runs"][0]["status"], "ok");
        assert_eq!(
            answers[0]["runs"][1],
            json!({ "status": "not_found", "runId": ids[1] })
        );
        assert!(
            answers.iter().all(|answer| *answer == answers[0]),
            "{answers:#?}"
        );
    });
}

#[test]
fn a_thousand_waits_stand_on_one_connection_at_once() {
    run(async {
        let place = held();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        let waits = (0..1000).map(|_| client.ended(&a.id));
        let release = async {
            // Other calls are answered meanwhile.
            for _ in 0..10 {
                client.call("gateway.ping", json!({})).await;
            }
            assert_eq!(client.run(&a.id).await["state"], "running");
            place.let_go("go");
        };
        let (ended, ()) = futures_util::join!(join_all(waits), release);
        assert_eq!(ended.len(), 1000);
        assert!(ended.iter().all(|run| run["result"] == "a is done"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_client_that_leaves_right_after_its_spawn_leaves_all_of_it_or_nothing() {
    run(async {
        let place = held();
        let daemon = place.start().await;
        let params = |number: usize| {
            let key = format!("key-{number}");
            json!({ "task": "[b]", "agent": "explore", "idempotencyKey": key })
        };
        for number in 0..20 {
            let leaving = daemon.client().await;
            let params = params(number);
            let mut call = Box::pin(leaving.attempt("sessions.spawn", &params));
            assert!(futures_util::poll!(&mut call).is_pending());
            // Some disconnect before the daemon has read the call, some after.
            if number % 2 == 0 {
                leaving.call("gateway.ping", json!({})).await;
            }
        }
        let client = daemon.client().await;
        for number in 0..20 {
            // A repeat with the same key gets the same run.
            let run = client.spawn(params(number)).await;
            assert_eq!(client.spawn(params(number)).await, run);
            assert_eq!(client.ended(&run.id).await["result"], "b is done");
        }
        client.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.book().runs.len(), 20);
    });
}
