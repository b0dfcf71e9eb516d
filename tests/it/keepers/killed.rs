//! The daemon is killed at each of its steps around a keeper: the program runs once, and its result
//! arrives.

use serde_json::json;

use super::{begun, continued, let_go, recorded};
use crate::harness::{Faults, eventually, run};
use crate::processes::{self, go};

#[test]
fn a_kill_of_the_daemon_at_each_step_around_a_keeper_repeats_and_loses_nothing() {
    run(async {
        let points = [
            "drive.prepared",
            "drive.performing",
            "keeper.ready",
            "keeper.handed",
            "drive.recording",
            "drive.recorded",
        ];
        for point in points {
            let place = processes::place("echo once >> begun.txt; echo over");
            let mut faults = Faults::default();
            // The model call comes first.
            let pass = match point {
                "drive.recording" | "drive.performing" => 2,
                _ => 1,
            };
            faults.orders = Some(format!("{point}=kill@{pass}"));
            let mut daemon = place.start_with(&faults).await.unwrap();
            let client = daemon.client().await;
            let spawned = go(&client).await;
            daemon.ended().await;
            let told = continued(&place, &spawned).await;
            assert_eq!(told, "exit status 0\nstdout:\nover", "{point}");
        }
    });
}

#[test]
fn a_kill_in_the_middle_of_a_stop_leaves_the_program_to_the_next_daemon() {
    run(async {
        let place = processes::place(&format!("{}; echo over", super::WAITS));
        let faults = Faults::ordered("store.park.committed=kill@1");
        let mut daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let spawned = go(&client).await;
        begun(&place).await;
        daemon.terminate();
        daemon.ended().await;
        let_go(&place);
        assert_eq!(recorded(&place).await["ending"], json!({ "exited": 0 }));
        let told = continued(&place, &spawned).await;
        assert_eq!(told, "exit status 0\nstdout:\nover");
    });
}

#[test]
fn a_folder_that_a_kill_has_left_is_removed_by_the_next_daemon() {
    run(async {
        let place = processes::place("echo once >> begun.txt");
        let faults = Faults::ordered("drive.recorded=kill@1");
        let mut daemon = place.start_with(&faults).await.unwrap();
        let client = daemon.client().await;
        let spawned = go(&client).await;
        daemon.ended().await;
        assert_eq!(place.keeper_folders().len(), 1);
        // Also the rest of a removal that was interrupted.
        let rest = place.state().join("keepers/.removed-rest");
        std::fs::create_dir(&rest).unwrap();
        let daemon = place.start().await;
        eventually("the removal", async || {
            (place.keeper_folders().is_empty() && !rest.exists()).then_some(())
        })
        .await;
        let client = daemon.client().await;
        assert_eq!(client.ended(&spawned.id).await["status"], "ok");
        assert_eq!(daemon.stop().await, 0);
    });
}
