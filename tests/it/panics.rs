//! A panic inside the daemon fails one call or one attempt, never the daemon.

use serde_json::json;

use crate::harness::{Faults, Place, Script, calls, kind_of, run, says};

fn place() -> Place {
    let read = calls("read", json!({ "path": "notes.txt" }));
    Place::new(Script::new().on("[a]", [read, says("a is done")]))
}

#[test]
fn a_drive_task_that_panics_is_recovered_and_its_run_ends() {
    for point in ["drive.started", "drive.performing", "drive.recording"] {
        run(async {
            let place = place();
            let faults = Faults::ordered(&format!("{point}=panic@1"));
            let daemon = place.start_with(&faults).await.unwrap();
            let client = daemon.client().await;
            let root = client.session("client", "root").await;
            let a = client.spawn(json!({ "task": "[a]", "parent": root })).await;
            let ended = client.ended(&a.id).await;
            assert_eq!(ended["result"], "a is done", "{point}");
            let warnings = ended["warnings"].to_string();
            assert!(
                warnings.contains("the task that drove this run failed: it panicked"),
                "{point}: {ended}"
            );
            client.quiet().await;
            let inbox = client
                .call("sessions.inbox", json!({ "sessionKey": root }))
                .await;
            assert_eq!(inbox["announces"].as_array().unwrap().len(), 1, "{point}");
            assert_eq!(daemon.stop().await, 0);
            assert!(place.log().contains("panicked"), "{point} was never passed");
            let book = place.book();
            let notices = book
                .messages
                .values()
                .filter(|one| one.kind == "restart_notice");
            assert_eq!(notices.count(), 1, "{point}");
        });
    }
}

#[test]
fn a_store_command_that_panics_is_undone_and_answered_as_a_defect() {
    run(async {
        let place = place();
        // The commands are begin_boot, create_session and, as the third, the spawn.
        let faults = Faults::ordered("store.command_panics=panic@3");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let root = client.session("client", "root").await;
        let spawn =
            json!({ "task": "[a]", "agent": "explore", "parent": root, "idempotencyKey": "k" });
        let refused = client.refused("sessions.spawn", spawn.clone()).await;
        assert_eq!(kind_of(&refused), "internal", "{refused}");
        let below = client.call("runs.list", json!({})).await;
        assert_eq!(below["runs"], json!([]), "half of it was kept");
        // The daemon is unaffected, and the idempotency key was not consumed.
        let a = client.spawn(spawn).await;
        assert_eq!(client.ended(&a.id).await["result"], "a is done");
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.book().sessions.len(), 2);
    });
}

#[test]
fn a_handler_that_panics_costs_its_own_call() {
    run(async {
        let place = place();
        let faults = Faults::ordered("gateway.handler=panic@2");
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        client.call("gateway.ping", json!({})).await;
        let refused = client.refused("gateway.ping", json!({})).await;
        assert_eq!(kind_of(&refused), "internal", "{refused}");
        // The same connection continues.
        client.call("gateway.ping", json!({})).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
