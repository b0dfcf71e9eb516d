//! A keeper is killed, or what it needs is gone: what is known is used, the rest is
//! uncertain, and nothing of the program is left running.

use std::fs;

use serde_json::json;

use super::{WAITS, begun, let_go, started};
use crate::agents::{config, write};
use crate::harness::{Faults, Place, Script, eventually, run};
use crate::processes::{self, command_result, go, is_alive, pids};

#[test]
fn a_killed_keeper_leaves_its_command_uncertain_and_nothing_running() {
    run(async {
        // With the daemon there, and while it is down.
        for is_down in [false, true] {
            let place = processes::place(processes::TREE);
            let (mut daemon, mut client, spawned) = started(&place).await;
            let tree = pids(&place).await;
            if is_down {
                daemon.kill().await;
                place.kill_keepers().await;
                daemon = place.start().await;
                client = daemon.client().await;
            } else {
                place.kill_keepers().await;
            }
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "it has come back", "{ended}");
            assert!(!tree.iter().any(|pid| is_alive(*pid)), "{tree:?}");
            let told = command_result(&client, &spawned.session).await;
            let says = "uncertain: its keeper was killed while the program ran.";
            assert!(told.starts_with(says), "{told}");
            assert_eq!(processes::begun(&place), 1);
            assert_eq!(daemon.stop().await, 0);
            assert!(place.keeper_folders().is_empty());
        }
    });
}

#[test]
fn a_run_whose_program_is_lost_ends_as_uncertain() {
    run(async {
        let place = Place::new(Script::new());
        let argv = json!(["/bin/sh", "-c", processes::TREE]);
        let fields = format!("runner: command\ncommand:\n  argv: {argv}\n");
        write(&config(&place), "program.md", &fields, "Works.");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client
            .spawn(json!({ "task": "x", "agent": "program" }))
            .await;
        let tree = pids(&place).await;
        place.kill_keepers().await;
        let ended = client.ended(&spawned.id).await;
        assert_eq!(ended["status"], "interrupted", "{ended}");
        assert_eq!(ended["error"]["kind"], "uncertain", "{ended}");
        let message = ended["error"]["message"].as_str().unwrap();
        assert!(message.contains("its keeper was killed"), "{message}");
        assert!(!tree.iter().any(|pid| is_alive(*pid)), "{tree:?}");
        let steps = client.call("runs.steps", json!({ "runId": spawned.id }));
        assert_eq!(steps.await["steps"][0]["state"], "uncertain");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_lost_command_is_repeated_only_if_its_agent_allows_it() {
    run(async {
        let place = processes::place(&format!("{WAITS}; echo over"));
        let fields = "tools: [shell]\ngate: {shell: allow}\non_uncertain: retry\n";
        write(&config(&place), "worker.md", fields, "Work.");
        let (daemon, client, spawned) = started(&place).await;
        place.kill_keepers().await;
        eventually("the second attempt", async || {
            (processes::begun(&place) == 2).then_some(())
        })
        .await;
        let_go(&place);
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        assert_eq!(told, "exit status 0\nstdout:\nover");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_kill_of_the_keeper_at_each_of_its_steps_is_uncertain_until_the_end_is_recorded() {
    run(async {
        for (point, begins, says) in [
            // From here on the program may have been started.
            ("keeper.launched", 0, "uncertain: its keeper was killed"),
            ("keeper.ended", 1, "uncertain: its keeper was killed"),
            ("keeper.renaming", 1, "uncertain: its keeper was killed"),
            ("keeper.recorded", 1, "exit status 0"),
        ] {
            let place = processes::place("echo once >> begun.txt");
            let faults = Faults::ordered(&format!("{point}=kill@1"));
            let daemon = place.start_with(&faults).await.unwrap();
            let client = daemon.client().await;
            let spawned = go(&client).await;
            client.ended(&spawned.id).await;
            let told = command_result(&client, &spawned.session).await;
            assert!(told.starts_with(says), "{point}: {told}");
            assert_eq!(processes::begun(&place), begins, "{point}");
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_program_whose_key_is_gone_is_ended_and_uncertain() {
    run(async {
        let place = processes::place(&format!("echo text; {}", processes::TREE));
        let (daemon, _, spawned) = started(&place).await;
        let tree = pids(&place).await;
        daemon.kill().await;
        fs::remove_file(place.state().join("env.key")).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        let says = "uncertain: its output was sealed with another key";
        assert!(told.starts_with(says), "{told}");
        assert!(!tree.iter().any(|pid| is_alive(*pid)), "{tree:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_started_step_without_a_folder_is_uncertain_as_after_the_restore_of_a_backup() {
    run(async {
        let place = processes::place(&format!("{WAITS}; true"));
        let (daemon, client, spawned) = started(&place).await;
        let copy = place.path().join("copy.db");
        client.call("gateway.backup", json!({ "path": copy })).await;
        let_go(&place);
        client.ended(&spawned.id).await;
        assert_eq!(daemon.stop().await, 0);
        fs::copy(&copy, place.database()).unwrap();
        let daemon = place.start().await;
        let client = daemon.client().await;
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        let says = "uncertain: nothing of its keeper is there";
        assert!(told.starts_with(says), "{told}");
        assert_eq!(processes::begun(&place), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_program_whose_state_folder_is_gone_is_ended() {
    run(async {
        let place = processes::place(processes::TREE).with("process.orphan_max", "\"80ms\"");
        let (daemon, _, _) = started(&place).await;
        let tree = pids(&place).await;
        begun(&place).await;
        daemon.kill().await;
        fs::remove_dir_all(place.state()).unwrap();
        eventually("its end", async || {
            (!tree.iter().any(|pid| is_alive(*pid))).then_some(())
        })
        .await;
    });
}
