//! Starts right after a kill, and starts that must fail and what they leave unchanged: a second
//! daemon, an occupied address, a folder that is not writable, a locked store, a store of a
//! different kind or a later version.

use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use crate::harness::{Faults, Place, Script, calls, run, says};

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done").held_by("go")])
            .on("[b]", [says("b is done")]),
    )
}

/// `abide serve` that is expected to exit by itself.
fn serve(place: &Place, arguments: &[&str]) -> (i32, String) {
    let mut line = vec!["serve"];
    line.extend(arguments);
    let Output { status, stderr, .. } = place.command(&line).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stderr).unwrap())
}

/// Every file of the state folder with its content.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // A daemon that was killed leaves its socket behind.
        .filter(|path| path.is_file())
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(&path).unwrap())
        })
        // Every starting daemon holds it in turn.
        .filter(|(name, _)| name != "abide.lock")
        .collect();
    files.sort();
    files
}

#[test]
fn a_second_daemon_on_one_folder_gives_up_and_names_the_first() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        let (code, said) = serve(&place, &[]);
        assert_eq!(code, 75, "{said}");
        assert!(said.contains(&format!("pid {}", daemon.pid())), "{said}");
        // The first daemon continues unaffected.
        assert_eq!(daemon.get("/ready").unwrap().0, 200);
        assert_eq!(client.run(&a.id).await["state"], "running");
        assert!(place.state().join("endpoint.json").exists());
        place.let_go("go");
        client.ended(&a.id).await;
        assert_eq!(daemon.stop().await, 0);
    });
}

/// Default number of kills; `ABIDE_STARTS` overrides it, such as 200.
const KILLS: usize = 12;

/// Takes some 8 s: twelve kills, each after programs were started.
#[test]
fn a_start_right_after_a_kill_succeeds_while_runs_start_programs() {
    let kills = std::env::var("ABIDE_STARTS").map_or(KILLS, |text| text.parse().unwrap());
    let forks = json!({ "command": "for i in 1 2 3 4 5 6 7 8; do /bin/true; done" });
    let several = || {
        let mut answer = calls("shell", forks.clone());
        for _ in 0..3 {
            answer = answer.and("shell", forks.clone());
        }
        answer
    };
    let script = Script::new().on("[load]", (0..400).map(|_| several()));
    // A fixed address, so that the test covers its reuse too.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let place = Place::new(script)
        .with("gateway.listen", &format!("\"{address}\""))
        .with_agent(
            "worker",
            "tools: [shell]\ngate: {shell: allow}\non_uncertain: retry",
        );
    // Clients that connect continuously, as many programs and editors do after a lost link.
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let socket = place.state().join("abide.sock");
                while !ended.load(Ordering::Relaxed) {
                    let _ = UnixStream::connect(&socket);
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
        }
        let _end = Ending(&ended);
        kill_and_start(&place, kills);
    });
}

/// Stops the clients, also after a failure.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn kill_and_start(place: &Place, kills: usize) {
    let load = json!({ "task": "[load]", "agent": "worker", "announce": "none" });
    run(async {
        let mut daemon = place.start().await;
        let mut accepted = 0;
        for kill in 0..kills {
            let client = daemon.client().await;
            for _ in 0..4 {
                client.spawn(load.clone()).await;
                accepted += 1;
            }
            let last = client.spawn(load.clone()).await;
            accepted += 1;
            client.in_state(&last.id, "running").await;
            daemon.kill_without_waiting();
            let next = place.start_with(&Faults::default()).await;
            daemon = next.unwrap_or_else(|status| panic!("kill {kill}: {status}\n{}", place.log()));
            // Cancel leftover runs, which must not accumulate.
            let client = daemon.client().await;
            let open = json!({ "states": ["queued", "running"], "limit": 200 });
            for open in client.call("runs.list", open).await["runs"]
                .as_array()
                .unwrap()
            {
                let params = json!({ "runId": open["runId"], "reason": "enough" });
                client.attempt("runs.cancel", &params).await.ok();
            }
        }
        let listed = daemon
            .client()
            .await
            .call("gateway.status", json!({}))
            .await;
        assert_eq!(listed["phase"], "ready", "{listed}");
        daemon.client().await.quiet().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(place.book().runs.len(), accepted);
    });
}

/// Takes some 6 s: a start waits this long for a lock that may be released soon.
#[test]
fn a_store_that_another_process_holds_locked_is_refused_with_the_name_of_that_process() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        daemon.client().await.spawn(json!({ "task": "[b]" })).await;
        assert_eq!(daemon.stop().await, 0);
        let other = Connection::open(place.database()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (code, said) = serve(&place, &[]);
        assert_eq!(code, 75, "{said}");
        let holder = format!("is locked by process {} (", std::process::id());
        assert!(said.contains(&holder), "{said}");
        other.execute_batch("COMMIT").unwrap();
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_taken_address_ends_a_start_before_anything_is_restored() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let a = client.spawn(json!({ "task": "[a]" })).await;
        client.in_state(&a.id, "running").await;
        daemon.kill().await;
        let before = files(&place.state());
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let (code, said) = serve(&place, &["--listen", &address]);
        assert_eq!(code, 75, "{said}");
        assert!(said.contains(&address), "{said}");
        assert!(
            before == files(&place.state()),
            "the state folder was touched"
        );

        // With a free address the run continues.
        place.let_go("go");
        let daemon = place.start().await;
        assert_eq!(
            daemon.client().await.ended(&a.id).await["result"],
            "a is done"
        );
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_state_folder_that_cannot_be_written_is_a_matter_of_permissions() {
    let place = place();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let mut folders = vec![file.join("state")];
    // Root may write everywhere except where the kernel itself refuses.
    folders.push(match rustix::process::geteuid().is_root() {
        true => Path::new("/sys/state").to_owned(),
        false => {
            let closed = place.path().join("closed");
            fs::create_dir(&closed).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o500);
            fs::set_permissions(&closed, mode).unwrap();
            closed.join("state")
        }
    });
    for folder in folders {
        let name = folder.to_str().unwrap();
        let (code, said) = serve(&place, &["--state-dir", name]);
        assert_eq!(code, 77, "{name}: {said}");
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn g5_11_a_store_of_a_newer_program_is_refused_with_both_numbers_and_left_alone() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        daemon.client().await.spawn(json!({ "task": "[b]" })).await;
        assert_eq!(daemon.stop().await, 0);
        let db = Connection::open(place.database()).unwrap();
        let known: i64 = db
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .unwrap();
        db.pragma_update(None, "user_version", 4711).unwrap();
        drop(db);
        let before = files(&place.state());
        let (code, said) = serve(&place, &[]);
        assert_eq!(code, 74, "{said}");
        assert!(
            said.contains("4711") && said.contains(&format!("knows {known}")),
            "{said}"
        );
        assert!(before == files(&place.state()), "the store was touched");
    });
}

#[test]
fn g5_1_a_store_of_which_nothing_can_be_saved_is_refused_and_never_replaced() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        daemon.client().await.spawn(json!({ "task": "[b]" })).await;
        assert_eq!(daemon.stop().await, 0);
        let whole = fs::read(place.database()).unwrap();
        for damaged in [
            &b"this was a database once".repeat(500),
            &whole[..5000].to_vec(),
            &Vec::new(),
        ] {
            fs::write(place.database(), damaged).unwrap();
            let (code, said) = serve(&place, &[]);
            assert_eq!(code, 74, "{said}");
            assert!(said.contains("abide.db"), "{said}");
            assert!(
                *damaged == fs::read(place.database()).unwrap(),
                "the file was touched"
            );
        }
        // With the original file back, the store is unchanged.
        fs::write(place.database(), &whole).unwrap();
        let daemon = place.start().await;
        let runs = daemon.client().await.call("runs.list", json!({})).await;
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
        assert_eq!(daemon.stop().await, 0);
    });
}
