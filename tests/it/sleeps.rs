//! Suspend of the machine: users get a notice, and no limit counts the time.

use serde_json::json;

use crate::harness::{Faults, Place, Script, eventually, run, says};

const TWO_HOURS_MS: u64 = 2 * 3600 * 1000;

#[test]
fn a_sleep_of_the_machine_is_told_once_and_ends_no_run() {
    run(async {
        let place = Place::new(Script::new().on("[a]", [says("a is done").held_by("go")]))
            .with("defaults.run_timeout", "\"1h\"");
        // The first clock reading is that of the start, every later one is after the suspend.
        let faults = Faults::ordered(&format!("clock.asleep=give:{TWO_HOURS_MS}@2"));
        let daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let run = client.spawn(json!({ "task": "[a]" })).await;
        let kinds = json!({ "since": 0, "kinds": ["gateway.resumed"] });
        let mut events = client.subscribe(kinds).await;
        let told = events.next().await.unwrap().unwrap();
        assert_eq!(told.data["after"], "sleep", "{told:?}");
        assert_eq!(told.data["awayMs"], TWO_HOURS_MS, "{told:?}");
        eventually("the run at work", || async {
            (client.run(&run.id).await["state"] == "running").then_some(())
        })
        .await;
        place.let_go("go");
        let ended = client.ended(&run.id).await;
        assert_eq!(ended["result"], "a is done", "{ended}");
        assert!(ended["elapsedMs"].as_u64().unwrap() < TWO_HOURS_MS);
        assert_eq!(daemon.stop().await, 0);
        let book = place.book();
        let resumed = book
            .events
            .values()
            .filter(|event| event.kind == "gateway.resumed");
        assert_eq!(resumed.count(), 1);
    });
}
