//! A new version of the program over the state of an older one, and back. The older version is this
//! build with another version string (`ABIDE_TEST_VERSION`), from a file of its own that is replaced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::harness::{Daemon, Faults, Place, Script, calls, eventually, run, says};

const OLD: &str = "0.0.9";

/// A place with a held answer, an approval and a question.
fn place() -> Place {
    let ask = json!({ "question": "which one?" });
    Place::new(
        Script::new()
            .on("[held]", [says("held is done").held_by("go")])
            .on("[next]", [says("next is done")])
            .on(
                "[look]",
                [
                    calls("read", json!({ "path": "notes.txt" })),
                    says("looked"),
                ],
            )
            .on("[ask]", [calls("ask", ask), says("answered")]),
    )
    .with_agent("careful", "tools: [read, ask]\ngate: {read: ask}")
    .with("lanes.main", "1")
    .with("lanes.subagent", "1")
    .with("lanes.global", "1")
}

/// The program at a path of its own, which can be replaced.
fn program(place: &Place) -> PathBuf {
    let path = place.path().join("abide");
    let built = Path::new(env!("CARGO_BIN_EXE_abide"));
    fs::hard_link(built, &path)
        .or_else(|_| fs::copy(built, &path).map(drop))
        .unwrap();
    path
}

/// Replaces the program as an upgrade does.
fn replace(path: &Path) {
    let new = path.with_extension("new");
    fs::copy(env!("CARGO_BIN_EXE_abide"), &new).unwrap();
    fs::rename(&new, path).unwrap();
}

/// `abide serve` by the program at this path, as a service.
fn serve(place: &Place, path: &Path, version: Option<&str>) -> Command {
    let mut command = Command::new(path);
    command.arg("serve").env_clear().current_dir(place.path());
    let usual = place.command(&[]);
    for (name, value) in usual.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("ABIDE_SUPERVISOR", "test");
    if let Some(version) = version {
        command.env("ABIDE_TEST_VERSION", version);
    }
    command
}

async fn start(place: &Place, path: &Path, version: Option<&str>) -> Daemon {
    place
        .start_command(serve(place, path, version))
        .await
        .unwrap()
}

fn abide(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let output = place.command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap_or(-1),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_new_version_continues_what_an_older_one_has_paused_queued_and_running() {
    run(async {
        let place = place();
        let program = program(&place);
        let old = start(&place, &program, Some(OLD)).await;
        let client = old.client().await;
        let spawn = async |task: &str| {
            let task = json!({ "task": task, "agent": "careful" });
            client.spawn(task).await
        };
        let approval = spawn("[look]").await;
        let question = spawn("[ask]").await;
        for paused in [&approval, &question] {
            client.in_state(&paused.id, "paused").await;
        }
        let running = spawn("[held]").await;
        let queued = spawn("[next]").await;
        client.in_state(&running.id, "running").await;
        client.in_state(&queued.id, "queued").await;

        // The program is replaced under it.
        let before: Value = serde_json::from_str(&abide(&place, &["status", "--json"]).1).unwrap();
        assert_eq!(before["version"], OLD);
        assert_eq!(before["program"]["path"], program.to_str().unwrap());
        assert_eq!(before["program"].get("change"), None);
        replace(&program);
        let after: Value = serde_json::from_str(&abide(&place, &["status", "--json"]).1).unwrap();
        assert_eq!(after["program"]["change"], "replaced");
        let (_, out, err) = abide(&place, &["status"]);
        assert!(out.contains("was replaced after the start"), "{out}");
        let own = env!("CARGO_PKG_VERSION");
        let skew = format!("the daemon is abide {OLD}, older than this program ({own})");
        assert!(err.contains(&skew), "{err}");
        let (_, found, _) = abide(&place, &["doctor", "--json"]);
        let found: Value = serde_json::from_str(&found).unwrap();
        for id in ["daemon.version", "daemon.program"] {
            let findings = found["findings"].as_array().unwrap();
            let finding = findings.iter().find(|one| one["id"] == id).unwrap();
            assert_eq!(finding["status"], "warn", "{finding}");
        }

        // The supervisor starts what is there now.
        let stopping = place
            .command(&["stop", "--restart", "--timeout", "0s"])
            .stderr(Stdio::null())
            .spawn();
        let mut stopping = stopping.unwrap();
        let mut old = old;
        assert_eq!(old.ended().await.code(), Some(79));
        let new = start(&place, &program, None).await;
        assert!(stopping.wait().unwrap().success());
        let (_, out, err) = abide(&place, &["status"]);
        assert!(out.contains(&format!("abide {own} is ready")), "{out}");
        assert!(
            !out.contains("was replaced") && !err.contains("older"),
            "{out}{err}"
        );

        let client = new.client().await;
        let open = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        let allow = json!({ "id": open["approvals"][0]["id"], "decision": "allow" });
        client.call("approvals.resolve", allow).await;
        let open = client.call("questions.list", json!({})).await;
        let answer = json!({ "id": open["questions"][0]["id"], "text": "the first" });
        client.call("questions.answer", answer).await;
        place.let_go("go");
        for (run, result) in [
            (approval, "looked"),
            (question, "answered"),
            (running, "held is done"),
            (queued, "next is done"),
        ] {
            assert_eq!(client.ended(&run.id).await["result"], result);
        }
        assert_eq!(new.stop().await, 0);
    });
}

#[test]
fn a_program_goes_on_while_the_version_of_its_daemon_changes() {
    run(async {
        let waits = "echo once >> begun.txt; until [ -e go ]; do sleep 0.01; done";
        let place = crate::processes::place(&format!("{waits}; echo over; exit 3"));
        let program = program(&place);
        let mut old = start(&place, &program, Some(OLD)).await;
        let client = old.client().await;
        let spawned = crate::processes::go(&client).await;
        eventually("the begin of the program", async || {
            (crate::processes::begun(&place) == 1).then_some(())
        })
        .await;
        let keepers = place.keepers();
        replace(&program);
        let (code, _, error) = abide(&place, &["stop"]);
        assert_eq!(code, 0, "{error}");
        old.ended().await;
        assert!(keepers.len() == 1 && crate::processes::is_alive(keepers[0]));

        let new = start(&place, &program, None).await;
        let client = new.client().await;
        fs::write(place.work().join("go"), "").unwrap();
        client.ended(&spawned.id).await;
        let told = crate::processes::command_result(&client, &spawned.session).await;
        assert_eq!(told, "exit status 3\nstdout:\nover");
        assert_eq!(crate::processes::begun(&place), 1);
        assert_eq!(new.stop().await, 0);
        assert!(place.keeper_folders().is_empty());
    });
}

/// The copies that were made before migrations.
fn copies(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.state().join("backups"));
    let paths = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = paths
        .filter(|path| path.to_str().unwrap().contains("before-schema-"))
        .collect();
    found.sort();
    found
}

fn schema(path: &Path) -> i64 {
    let db = Connection::open(path).unwrap();
    db.pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

/// Takes the last migration back: the store is as an older version left it.
fn make_older(place: &Place) -> i64 {
    let db = Connection::open(place.database()).unwrap();
    let known = schema(&place.database());
    assert_eq!(known, 8, "take back the newest migration here");
    db.execute_batch("DROP TABLE session_servers; PRAGMA user_version = 7;")
        .unwrap();
    known
}

#[test]
fn a_store_is_copied_before_its_migration_and_its_runs_continue() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let task = json!({ "task": "[look]", "agent": "careful" });
        let run = client.spawn(task).await;
        client.in_state(&run.id, "paused").await;
        assert_eq!(daemon.stop().await, 0);
        let known = make_older(&place);

        // Killed after the copy, and after the migration: nothing is lost, and one copy suffices.
        for point in ["store.backup.copied", "migrate.copied", "migrate.step"] {
            let faults = Faults::ordered(&format!("{point}=kill"));
            let ended = place.start_with(&faults).await;
            assert!(ended.is_err(), "{point} was not passed");
        }
        let daemon = place.start().await;
        let made = copies(&place);
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(
            made[0]
                .to_str()
                .unwrap()
                .contains(&format!("before-schema-{known}-"))
        );
        assert_eq!(schema(&made[0]), known - 1);
        let copied = Connection::open(&made[0]).unwrap();
        let runs: i64 = copied
            .query_row("SELECT count(*) FROM runs", [], |row| row.get(0))
            .unwrap();
        assert_eq!(runs, 1);
        let client = daemon.client().await;
        let open = client
            .call("approvals.list", json!({ "state": "open" }))
            .await;
        let allow = json!({ "id": open["approvals"][0]["id"], "decision": "allow" });
        client.call("approvals.resolve", allow).await;
        assert_eq!(client.ended(&run.id).await["result"], "looked");
        assert_eq!(daemon.stop().await, 0);
        // A start without a migration copies nothing.
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(copies(&place), made);
    });
}

#[test]
fn an_older_program_names_the_version_that_reads_the_store_and_the_copy_that_it_reads_itself() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        let known = make_older(&place);
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        let [copy] = &copies(&place)[..] else {
            panic!("one copy was to be made");
        };
        // A newer version, which has recorded itself, migrates further.
        let newer = known + 1;
        let db = Connection::open(place.database()).unwrap();
        let name = format!("schema_{newer}");
        db.execute(
            "INSERT INTO meta (name, value) VALUES (?1, '9.9.9')",
            [name],
        )
        .unwrap();
        db.pragma_update(None, "user_version", newer).unwrap();
        db.close().unwrap();
        let store = fs::read(place.database()).unwrap();

        let (code, _, error) = abide(&place, &["serve"]);
        assert_eq!(code, 74, "{error}");
        let numbers = format!("schema version {newer}, this program");
        assert!(error.contains(&numbers), "{error}");
        assert!(error.contains(&format!("knows {known}")), "{error}");
        assert!(
            error.contains("abide 9.9.9 or a later version reads it"),
            "{error}"
        );
        let restore = format!("abide restore {} --force", copy.display());
        assert!(error.contains(&restore), "{error}");
        assert_eq!(fs::read(place.database()).unwrap(), store);

        let (_, found, _) = abide(&place, &["doctor", "--json"]);
        let found: Value = serde_json::from_str(&found).unwrap();
        let findings = found["findings"].as_array().unwrap();
        let finding = findings.iter().find(|one| one["id"] == "store.schema");
        let message = finding.unwrap()["message"].as_str().unwrap();
        assert!(
            message.contains("abide 9.9.9 or a later version reads it"),
            "{message}"
        );
        assert_eq!(fs::read(place.database()).unwrap(), store);

        // The advice works, and loses nothing.
        let (code, _, error) = abide(&place, &["restore", copy.to_str().unwrap(), "--force"]);
        assert_eq!(code, 0, "{error}");
        let daemon = place.start().await;
        assert_eq!(daemon.stop().await, 0);
        assert_eq!(schema(&place.database()), known);
        let aside = fs::read_dir(place.state()).unwrap().find(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            let name = name.to_str().unwrap();
            name.contains("before-restore") && !name.ends_with("-wal") && !name.ends_with("-shm")
        });
        assert_eq!(schema(&aside.unwrap().unwrap().path()), newer);
    });
}
