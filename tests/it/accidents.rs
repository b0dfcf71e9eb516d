//! Recovery by a user after an accident, and the messages shown: the daemon was killed, its store
//! is missing or damaged, a backup exists.

use std::fs;
use std::path::Path;

use abide::clock::Clock;
use rusqlite::Connection;
use serde_json::Value;

use crate::harness::TEST_TIMEOUT;
use crate::home::{CommandOutput, Home};

/// A home folder with a background daemon, which is stopped when the test ends.
struct Usual(Home);

impl Usual {
    fn start() -> Usual {
        let usual = Usual(Home::new());
        fs::write(usual.0.path().join("notes.txt"), "the needle is here\n").unwrap();
        usual.serve();
        usual
    }

    fn serve(&self) -> CommandOutput {
        let said = self.abide(&["serve", "--detach", "--listen", "127.0.0.1:0"]);
        assert_eq!(said.code, 0, "{}", said.err);
        said
    }

    fn abide(&self, arguments: &[&str]) -> CommandOutput {
        self.0
            .abide(&[arguments, &["--state-dir", "state"]].concat())
    }

    /// The number of runs that `ps --all` lists.
    fn runs(&self) -> usize {
        let said = self.abide(&["ps", "--all", "--json"]);
        let listed: Value = serde_json::from_str(&said.out).unwrap();
        listed["runs"].as_array().unwrap().len()
    }
}

impl Drop for Usual {
    fn drop(&mut self) {
        self.abide(&["stop", "--timeout", "0s"]);
    }
}

#[test]
fn g5_10_a_store_that_is_gone_is_said_to_be_gone_and_a_backup_brings_it_back() {
    let usual = Usual::start();
    let run = usual.abide(&["run", "where is the needle?"]);
    assert_eq!(run.code, 0, "{}", run.err);
    let kept = usual.abide(&["backup", "kept.db"]);
    assert_eq!(kept.code, 0, "{}", kept.err);
    let restore = format!("abide restore {} --force", kept.out.trim());
    assert!(kept.err.contains(&restore), "{}", kept.err);
    assert_eq!(usual.abide(&["stop"]).code, 0);
    let state = usual.0.path().join("state");
    for ending in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(state.join(format!("abide.db{ending}")));
    }

    let said = usual.serve();
    assert!(
        said.err.contains("is missing; a new, empty one is created"),
        "{}",
        said.err
    );
    assert!(
        said.err.contains("abide restore FILE --force"),
        "{}",
        said.err
    );
    assert_eq!(usual.runs(), 0);
    let held = usual.abide(&["restore", "kept.db", "--force"]);
    assert_eq!(held.code, 75, "{}", held.err);
    assert_eq!(usual.abide(&["stop"]).code, 0);
    let missing = usual.abide(&["restore", "lost.db", "--force"]);
    assert_eq!(missing.code, 3, "{}", missing.err);
    assert!(missing.err.contains("state/backups"), "{}", missing.err);
    let refused = usual.abide(&["restore", "kept.db"]);
    assert_eq!(refused.code, 9, "{}", refused.err);
    let (first, advice) = refused.err.split_once('\n').unwrap();
    assert!(first.ends_with("; nothing was changed"), "{}", refused.err);
    assert!(advice.contains("--force"), "{}", refused.err);
    let restored = usual.abide(&["restore", "kept.db", "--force"]);
    assert_eq!(restored.code, 0, "{}", restored.err);
    assert!(!restored.err.contains("0 open runs"), "{}", restored.err);
    let said = usual.serve();
    assert!(!said.err.contains("is missing"), "{}", said.err);
    assert_eq!(usual.runs(), 1);
}

/// Overwrites the first page of a table or index.
fn overwrite(database: &Path, name: &str) {
    let page: u32 = Connection::open(database)
        .unwrap()
        .query_row(
            "SELECT rootpage FROM sqlite_master WHERE name = ?1",
            [name],
            |row| row.get(0),
        )
        .unwrap();
    let page = usize::try_from(page).unwrap();
    let mut bytes = fs::read(database).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0x5a);
    fs::write(database, bytes).unwrap();
}

#[test]
fn g5_1_damage_that_a_start_meets_is_repaired_by_that_start() {
    let usual = Usual::start();
    let run = usual.abide(&["run", "where is the needle?"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(usual.abide(&["stop"]).code, 0);
    // The daemon reads this index for running work only after it is ready.
    overwrite(&usual.0.path().join("state/abide.db"), "runs_live");
    let said = usual.serve();
    assert!(said.err.contains("restarting to repair"), "{}", said.err);
    assert!(said.err.contains("abide doctor"), "{}", said.err);
    assert_eq!(usual.runs(), 1);
}

#[test]
fn g14_8_damage_that_a_read_meets_says_how_it_is_repaired() {
    let usual = Usual::start();
    let run = usual.abide(&["run", "where is the needle?"]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert_eq!(usual.abide(&["stop"]).code, 0);
    overwrite(&usual.0.path().join("state/abide.db"), "runs");
    usual.serve();
    let said = usual.abide(&["ps"]);
    assert_ne!(said.code, 0, "{}", said.out);
    assert!(said.err.contains("damaged"), "{}", said.err);
    assert!(said.err.contains("abide stop --restart"), "{}", said.err);
    let again = usual.abide(&["stop", "--restart"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(usual.abide(&["ps"]).code, 0);
    let doctor = usual.abide(&["doctor"]).out;
    assert!(doctor.contains("the file was found damaged"), "{doctor}");
}

#[test]
fn g1_3_a_start_after_a_kill_says_what_goes_on() {
    let usual = Usual::start();
    let key = usual.abide(&[
        "rpc",
        "sessions.create",
        r#"{"owner": "client", "key": "client:x"}"#,
    ]);
    assert_eq!(key.code, 0, "{}", key.err);
    assert_eq!(usual.abide(&["stop"]).code, 0);
    fs::write(
        usual.0.path().join("slow.toml"),
        "[runner]\npace = \"1h\"\n",
    )
    .unwrap();
    let slow = [
        "serve",
        "--detach",
        "--listen",
        "127.0.0.1:0",
        "--config",
        "slow.toml",
    ];
    assert_eq!(usual.abide(&slow).code, 0);
    assert_eq!(usual.abide(&["spawn", "where is the needle?"]).code, 0);
    let said = usual.abide(&["status", "--json"]);
    let status: Value = serde_json::from_str(&said.out).unwrap();
    let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    // The signal takes effect a moment later.
    let gone = loop {
        let said = usual.abide(&["ps"]);
        if said.err.contains("was killed or crashed") {
            break said;
        }
        assert!(Clock::system().monotonic() < TEST_TIMEOUT, "{}", said.err);
    };
    assert_eq!(gone.code, 10, "{}", gone.err);
    let said = usual.abide(&slow);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(
        said.err.contains("1 run continues where it stopped"),
        "{}",
        said.err
    );
}
