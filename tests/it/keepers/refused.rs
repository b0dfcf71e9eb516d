//! What goes wrong around a keeper without its fault: it cannot launch or record, its files cannot be
//! read for a while or at all, its record is lost, or its daemon is stopped for a moment.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{WAITS, let_go, recorded, started};
use crate::agents::{config, write};
use crate::harness::{Faults, Place, Script, calls, eventually, run, says};
use crate::processes::{self, command_result, go, is_alive, pids};
use crate::unread::may_open;

#[test]
fn a_keeper_that_cannot_launch_says_why_and_its_program_has_not_begun() {
    run(async {
        let place = processes::place("echo once >> begun.txt");
        // A full disk, at each attempt and at the first alone.
        for (orders, begins, says) in [
            (
                "keeper.launching=give:28@1+",
                0,
                "its keeper ended 3 times before the start: No space left on device",
            ),
            ("", 1, "exit status 0"),
        ] {
            let daemon = place.start_with(&Faults::ordered(orders)).await.unwrap();
            let client = daemon.client().await;
            let spawned = go(&client).await;
            client.ended(&spawned.id).await;
            let told = command_result(&client, &spawned.session).await;
            assert!(told.contains(says), "{orders}: {told}");
            assert_eq!(processes::begun(&place), begins, "{orders}");
            assert_eq!(daemon.stop().await, 0);
            assert!(place.keeper_folders().is_empty());
        }
    });
}

#[test]
fn an_end_that_cannot_be_read_for_lack_of_descriptors_is_not_a_loss() {
    run(async {
        // With its keeper alive, and after its keeper was killed behind the record of the exit.
        for is_killed in [false, true] {
            let place = processes::place(&format!("{WAITS}; echo over"));
            let (daemon, client, spawned) = started(&place).await;
            let before = may_open(&daemon, Some(3));
            let_go(&place);
            recorded(&place).await;
            if is_killed {
                place.kill_keepers().await;
            }
            eventually("a refused read", async || {
                let logged = daemon.logged();
                logged.contains("cannot be read now").then_some(())
            })
            .await;
            may_open(&daemon, before);
            let ended = client.ended(&spawned.id).await;
            assert_eq!(ended["result"], "it has come back", "{ended}");
            let told = command_result(&client, &spawned.session).await;
            assert_eq!(told, "exit status 0\nstdout:\nover");
            assert_eq!(daemon.stop().await, 0);
            assert_eq!(processes::begun(&place), 1);
        }
    });
}

#[test]
fn a_program_whose_end_can_never_be_read_is_ended_and_uncertain() {
    run(async {
        let place = processes::place(processes::TREE);
        let (daemon, client, spawned) = started(&place).await;
        let tree = pids(&place).await;
        let keepers = place.keepers();
        // A folder in its place is an error that stays, as of a damaged disk.
        let folder = place.keeper_folders().pop().unwrap();
        fs::create_dir(folder.join("exit")).unwrap();
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        let says = "uncertain: what its keeper has written cannot be read: Is a directory";
        assert!(told.starts_with(says), "{told}");
        assert!(!tree.iter().any(|pid| is_alive(*pid)), "{tree:?}");
        assert!(keepers.len() == 1 && !is_alive(keepers[0]), "{keepers:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_keeper_that_is_told_to_end_ends_though_it_can_record_nothing() {
    run(async {
        let place = processes::place(processes::TREE);
        let (daemon, _, _) = started(&place).await;
        let tree = pids(&place).await;
        let keepers = place.keepers();
        daemon.kill().await;
        // The record is written under this name first, so each attempt fails, as on a full disk.
        let folder = place.keeper_folders().pop().unwrap();
        fs::create_dir(folder.join("exit.new")).unwrap();
        assert_eq!(keepers.len(), 1);
        let pid = Pid::from_raw(i32::try_from(keepers[0]).unwrap()).unwrap();
        // Once: the signal is not repeated.
        kill_process(pid, Signal::TERM).unwrap();
        eventually("its end", async || (!is_alive(keepers[0])).then_some(())).await;
        assert!(!tree.iter().any(|pid| is_alive(*pid)), "{tree:?}");
    });
}

#[test]
fn a_launched_program_whose_record_is_lost_is_uncertain_and_not_begun_again() {
    run(async {
        // Empty, cut, and gone, as a loss of power leaves what was not synced.
        for rest in [Some(""), Some("{\"version\":1,"), None] {
            let place = processes::place(processes::TREE);
            let (daemon, _, spawned) = started(&place).await;
            let tree = pids(&place).await;
            daemon.kill().await;
            place.kill_keepers().await;
            let record = place.keeper_folders().pop().unwrap().join("keeper");
            match rest {
                Some(rest) => fs::write(&record, rest).unwrap(),
                None => fs::remove_file(&record).unwrap(),
            }
            let daemon = place.start().await;
            let client = daemon.client().await;
            client.ended(&spawned.id).await;
            let told = command_result(&client, &spawned.session).await;
            let says = "uncertain: the record of its keeper is lost";
            assert!(told.starts_with(says), "{rest:?}: {told}");
            assert!(!tree.iter().any(|pid| is_alive(*pid)), "{rest:?}: {tree:?}");
            assert_eq!(processes::begun(&place), 1, "{rest:?}");
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_program_goes_on_while_its_daemon_is_stopped_by_a_signal() {
    run(async {
        let place = processes::place(&format!("{WAITS}; echo over; exit 3"));
        let (daemon, client, spawned) = started(&place).await;
        let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let_go(&place);
        assert_eq!(recorded(&place).await["ending"], json!({ "exited": 3 }));
        kill_process(pid, Signal::CONT).unwrap();
        client.ended(&spawned.id).await;
        let told = command_result(&client, &spawned.session).await;
        assert_eq!(told, "exit status 3\nstdout:\nover");
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(processes::begun(&place), 1);
    });
}

#[test]
fn a_detached_command_that_never_stops_writing_has_a_result() {
    run(async {
        let noise = "echo once >> begun.txt; (while :; do echo noise; done) & \
                     echo $! > pids.new; mv pids.new pids; echo over";
        let script = Script::new().on(
            "[go]",
            [
                calls("shell", json!({ "command": noise, "detach": true })),
                says("it has come back").held_by("answer"),
            ],
        );
        let place = Place::new(script);
        let rights = "tools: [shell]\ngate: {shell: allow}\n";
        write(&config(&place), "worker.md", rights, "Work.");
        let (daemon, client, spawned) = started(&place).await;
        let left = pids(&place).await;
        // The call returns while the noise goes on.
        eventually("the answer's call", async || {
            let called = place.model_calls();
            called.contains_key(&("[go]".to_owned(), 1)).then_some(())
        })
        .await;
        assert!(is_alive(left[0]));
        let told = command_result(&client, &spawned.session).await;
        let says = format!(
            "exit status 0; still running in the background: {}",
            left[0]
        );
        // A noise of this length is cut in the middle.
        assert!(told.starts_with(&says), "{told}");
        place.let_go("answer");
        client.ended(&spawned.id).await;
        eventually("its end", async || (!is_alive(left[0])).then_some(())).await;
        assert_eq!(daemon.stop().await, 0);
    });
}
