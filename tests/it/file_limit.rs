//! The file size limit, as `ulimit -f` sets it: the daemon treats it as a full disk and keeps
//! running, and programs do not inherit it.

use std::fs;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::json;

use crate::harness::{Daemon, Place, Script, calls, eventually, run, says};

fn place() -> Place {
    let look = json!({ "command": "grep SigIgn /proc/self/status" });
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            .on("[look]", [calls("shell", look), says("looked")])
            .on("*", [says("done")]),
    )
    .with_agent("worker", "tools: [shell]\ngate: {shell: allow}")
}

/// Limits the size of files that the daemon may write from now on; `None` lifts the limit.
fn limit(daemon: &Daemon, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(daemon.pid()).unwrap());
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

/// The size of the largest file of the store, in bytes.
fn largest(place: &Place) -> u64 {
    let sizes = ["abide.db", "abide.db-wal"]
        .map(|name| fs::metadata(place.state().join(name)).map_or(0, |about| about.len()));
    sizes.into_iter().max().unwrap()
}

#[test]
fn a_daemon_at_the_limit_on_file_sizes_refuses_new_work_and_goes_on_when_it_may() {
    run(async {
        for (min_free, room) in [("0", 0), ("0", 3000), ("\"1 MiB\"", 100_000)] {
            let place = place().with("storage.min_free", min_free);
            let mut daemon = place.start().await;
            let client = daemon.client().await;
            let first = client.spawn(json!({ "task": "first" })).await;
            client.ended(&first.id).await;
            let held = client.spawn(json!({ "task": "[held]" })).await;
            client.in_state(&held.id, "running").await;
            limit(&daemon, Some(largest(&place) + room));
            let params = json!({ "task": "more ".repeat(2000), "agent": "explore" });
            let refused = eventually("a refusal", || async {
                client
                    .attempt("sessions.spawn", &params)
                    .await
                    .err()
                    .flatten()
            })
            .await;
            assert_eq!(refused.data["kind"], "unavailable", "{refused:?}");
            assert_eq!(client.run(&first.id).await["result"], "done");
            assert!(daemon.has_ended().is_none(), "{}", place.log());
            limit(&daemon, None);
            place.let_go("go");
            assert_eq!(client.ended(&held.id).await["result"], "held is done");
            let more = eventually("work again", || async {
                client.attempt("sessions.spawn", &params).await.ok()
            })
            .await;
            let more = client.ended(more["runId"].as_str().unwrap()).await;
            assert_eq!(more["result"], "done", "{more}");
            client.quiet().await;
            assert_eq!(daemon.stop().await, 0);
        }
    });
}

#[test]
fn a_start_at_the_limit_says_so_and_programs_get_the_systems_own_way_with_signals() {
    run(async {
        let place = place();
        let mut small = std::process::Command::new("sh");
        let line = "ulimit -f 8; exec \"$0\" serve";
        let own = place.command(&[]);
        small.args(["-c", line, env!("CARGO_BIN_EXE_abide")]);
        small.env_clear().current_dir(place.path());
        for (name, value) in own.get_envs() {
            if let Some(value) = value {
                small.env(name, value);
            }
        }
        let output = small.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{said}");
        assert!(said.contains("is full"), "{said}");

        let daemon = place.start().await;
        let client = daemon.client().await;
        let look = json!({ "task": "[look]", "agent": "worker" });
        let run = client.spawn(look).await;
        client.ended(&run.id).await;
        let history = json!({ "sessionKey": run.session, "tools": true });
        let history = client.call("sessions.history", history).await;
        let told = history["messages"].as_array().unwrap().iter();
        let told: Vec<&str> = told
            .filter(|entry| entry["kind"] == "tool_result")
            .map(|entry| entry["content"][0]["text"].as_str().unwrap())
            .collect();
        let line = told[0]
            .lines()
            .find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
        for signal in [
            Signal::XFSZ,
            Signal::XCPU,
            Signal::PIPE,
            Signal::USR1,
            Signal::USR2,
        ] {
            let bit = 1 << (signal.as_raw() - 1);
            assert_eq!(ignored & bit, 0, "{signal:?} {}", told[0]);
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
