//! Area 1, faults inside a living daemon: they are logged, and its runs go on.

use rusqlite::Connection;
use serde_json::json;

use crate::harness::{Faults, Place, Script, run, says};

#[test]
fn g1_9_a_fault_in_ending_a_run_is_logged_with_its_id_and_the_run_ends_all_the_same() {
    run(async {
        let place = Place::new(Script::new().on("[a]", [says("a is done")]));
        // The commands are begin_boot, create_session, spawn, start_run and, as the fifth, the
        // run's end.
        let faults = Faults::ordered("store.command_panics=panic@5");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        assert_eq!(client.ended(&a.id).await["result"], "a is done");
        client.quiet().await;
        let steps = client.call("runs.steps", json!({ "runId": a.id })).await;
        assert_eq!(
            steps["steps"][0]["attempts"], 2,
            "the outcome was lost, so the step is repeated"
        );
        assert_eq!(daemon.stop().await, 0);
        let log = place.log();
        let told = log
            .lines()
            .any(|line| line.contains("ERROR") && line.contains(&a.id));
        assert!(told, "{log}");
    });
}

#[test]
fn g1_9_a_fault_in_telling_is_logged_and_the_report_is_tried_again() {
    run(async {
        let place = Place::new(Script::new().on("[a]", [says("a is done")]));
        let faults = Faults::ordered("store.command_panics=panic@6");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
        assert_eq!(client.ended(&a.id).await["result"], "a is done");
        client.quiet().await;
        let inbox = client
            .call("sessions.inbox", json!({ "sessionKey": root }))
            .await;
        assert_eq!(inbox["announces"].as_array().unwrap().len(), 1);
        assert_eq!(daemon.stop().await, 0);
        assert!(
            place.log().contains("announces were not delivered"),
            "{}",
            place.log()
        );
    });
}

#[test]
fn g1_7_an_open_row_that_no_task_cares_for_is_found_and_carried_on() {
    let place = Place::new(
        Script::new()
            .on("[a]", [says("a is done")])
            .on("[lost]", [says("lost and found")]),
    )
    .with("recovery.compare_each", "\"100ms\"");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.turn("agent:build:talk", "[a]").await;
        client.ended(&a.id).await;
        // The daemon itself loses no row, so the test adds one behind its back.
        let db = Connection::open(place.database()).unwrap();
        let columns = "org, user, session_id, session_key, generation, root_session, agent, title, model, \
                       lane, depth, used_ms, recoveries, announce, loops, tool_calls, steps, \
                       model_calls, input_tokens, output_tokens, pin_agent, pin_tools, warnings, \
                       trace_id, created_at, last_activity_at";
        let lost = "01936f0e-0000-7000-8000-000000000001";
        let id = uuid::Uuid::parse_str(lost).unwrap();
        let insert = format!(
            "INSERT INTO runs (seq, id, root_run, origin, state, input, ver, {columns}) \
             SELECT seq + 1000000, ?1, ?1, 'turn', 'queued', '[lost]', 1, {columns} FROM runs"
        );
        assert_eq!(db.execute(&insert, [id.as_bytes()]).unwrap(), 1);
        drop(db);
        assert_eq!(client.ended(lost).await["result"], "lost and found");
        assert_eq!(daemon.stop().await, 0);
        assert!(
            place.log().contains("defect: a queued run was in no lane"),
            "{}",
            place.log()
        );
    });
}
