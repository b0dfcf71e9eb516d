//! Tests of an open store: its threads, pragmas and files.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use super::super::Store;
use super::super::open::{OpenError, OpenOptions};
use super::super::sqlite::{Sqlite, Use};
use super::{CommandSettings, id, spawn};
use crate::clock::Clock;
use crate::command::{BeginBoot, EndBoot};
use crate::kernel::delegation::breaker::BreakerPolicy;
use crate::kernel::fault::Kind;
use crate::kernel::ids::BootId;
use crate::kernel::run::budget::Budget;
use crate::kernel::run::limits::SpawnLimits;
use crate::kernel::run::recover::RecoveryPolicy;
use crate::store::BackupPolicy;
use crate::store::open::OpenedStore;

fn open(folder: &std::path::Path) -> OpenedStore {
    Store::open(options(folder)).unwrap()
}

fn options(folder: &std::path::Path) -> OpenOptions {
    OpenOptions {
        folder: folder.to_owned(),
        clock: Clock::system(),
        settings: CommandSettings {
            breaker: BreakerPolicy::OFF,
            tree_budget: Budget::default(),
            audit_rows: 1000,
            max_memories: 1000,
            thresholds: Default::default(),
            limits: SpawnLimits {
                max_depth: 1,
                max_children: 5,
                max_run_children: 5,
                max_total: 100,
                max_unacked: 10,
                max_undelivered: 10,
                max_queued_turns: 3,
            },
            recovery: RecoveryPolicy::default(),
            policy: crate::kernel::policy::Policy::default(),
            max_ping_pong: 5,
        },
        on_fatal: Box::new(|why| panic!("{why}")),
    }
}

#[test]
fn every_pragma_is_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let db = Sqlite::open(&folder.path().join("abide.db"), Use::Write).unwrap();
    for (name, value) in [
        ("synchronous", 2),
        ("foreign_keys", 1),
        ("busy_timeout", 5000),
        ("wal_autocheckpoint", 0),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("cache_size", -8192),
    ] {
        assert_eq!(db.read_pragma(name).unwrap(), value, "{name}");
    }
    let reader = Sqlite::open(&folder.path().join("abide.db"), Use::Read).unwrap();
    assert_eq!(reader.read_pragma("query_only").unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_commands_at_once_are_each_whole() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let nobody = crate::kernel::ids::SessionKey::parse("client:nobody").unwrap();
    // A refused command in the middle of a batch does not affect the others.
    let commands = (0..300).map(|n| {
        let parent = (n % 3 == 0).then_some(&nobody);
        opened.store.submit(spawn(parent))
    });
    let replies = futures_util::future::join_all(commands).await;
    let (good, bad): (Vec<_>, Vec<_>) = replies.into_iter().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (200, 100));
    let runs = opened
        .store
        .read(|tx| super::number(tx, "SELECT count(*) FROM runs", &[]))
        .await
        .unwrap();
    assert_eq!(runs, 200);
    assert_eq!(
        opened
            .store
            .read_now(|tx| super::number(tx, "SELECT count(*) FROM sessions", &[])),
        Ok(200)
    );
    drop(opened.store);
    tokio::task::spawn_blocking(|| opened.threads.close())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_fails_after_it_has_written_spoils_only_itself() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    // No command fails that late by itself, so the schema is changed to refuse some: their
    // sessions are written before their runs are.
    let mut schema = Sqlite::open(&folder.path().join("abide.db"), Use::Write).unwrap();
    schema
        .batch(
            "CREATE TRIGGER spoils BEFORE INSERT ON runs WHEN NEW.label = 'spoilt' \
             BEGIN SELECT RAISE(ABORT, 'spoilt'); END",
        )
        .unwrap();
    drop(schema);
    let commands = (0..300).map(|n| {
        let mut command = spawn(None);
        if let (0, spawn) = (n % 10, &mut command) {
            spawn.run.label = Some("spoilt".to_owned());
        }
        opened.store.submit(command)
    });
    let replies = futures_util::future::join_all(commands).await;
    for (n, reply) in replies.iter().enumerate() {
        assert_eq!(reply.is_err(), n % 10 == 0, "{n}: {reply:?}");
    }
    let count = |sql: &'static str| opened.store.read_now(move |tx| super::number(tx, sql, &[]));
    assert_eq!(count("SELECT count(*) FROM runs"), Ok(270));
    assert_eq!(count("SELECT count(*) FROM sessions"), Ok(270));
    assert_eq!(count("SELECT count(*) FROM messages"), Ok(270));
    // session.created, message.added and run.queued of each, with distinct cursors.
    assert_eq!(count("SELECT count(DISTINCT cursor) FROM events"), Ok(810));
    let places = "SELECT count(DISTINCT seq) FROM \
                  (SELECT seq FROM runs UNION ALL SELECT seq FROM sessions)";
    assert_eq!(count(places), Ok(540));
    let ahead = "SELECT value >= (SELECT max(cursor) FROM events) FROM counters";
    assert_eq!(count(ahead), Ok(1));
    drop(opened.store);
    tokio::task::spawn_blocking(|| opened.threads.close())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn g5_8_a_clean_stop_empties_the_log_and_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    for unclean in [false, false, true] {
        let opened = open(folder.path());
        let boot = BootId(id());
        let begun = opened
            .store
            .submit(BeginBoot { boot, pid: 1 })
            .await
            .unwrap();
        assert_eq!(begun.unclean, unclean);
        opened.store.submit(spawn(None)).await.unwrap();
        if !unclean {
            // The second boot ends without this, so the third sees an unclean end.
            let first = folder.path().join("first");
            if !first.exists() {
                std::fs::write(first, "").unwrap();
                opened.store.submit(EndBoot { boot }).await.unwrap();
            }
        }
        let store = opened.store.clone();
        tokio::task::spawn_blocking(|| opened.threads.close())
            .await
            .unwrap();
        let log = folder.path().join("abide.db-wal");
        assert!(!log.exists() || log.metadata().unwrap().len() == 0);
        assert_eq!(
            store.submit(spawn(None)).await.unwrap_err().kind,
            Kind::Unavailable
        );
    }
}

#[test]
fn g10_7_the_files_are_their_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    for file in ["abide.db", "abide.db-wal"] {
        let mode = folder
            .path()
            .join(file)
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    opened.threads.close();
}

#[test]
fn g5_1_an_empty_file_is_damage_and_no_new_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("abide.db");
    // Remains of a kill during the creation of a store do not prevent the next one.
    std::fs::write(folder.path().join("abide.db.new"), "half").unwrap();
    let first = open(folder.path());
    first.threads.close();
    assert!(!folder.path().join("abide.db.new").exists());
    std::fs::write(&path, "").unwrap();
    let refused = Store::open(options(folder.path())).err().unwrap();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[test]
fn a_store_keeps_its_id_and_its_digest_key() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let (id, digest) = (first.store.id().to_owned(), first.store.digest("x"));
    first.threads.close();
    let second = open(folder.path());
    assert_eq!(second.store.id(), id);
    assert_eq!(second.store.digest("x"), digest);
    assert_ne!(second.store.digest("y"), digest);
    second.threads.close();
    let other = tempfile::tempdir().unwrap();
    let stranger = open(other.path());
    assert_ne!(stranger.store.digest("x"), digest);
    stranger.threads.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_two_tables_sees_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let (store, writer) = (opened.store.clone(), opened.store.clone());
    let handle = tokio::runtime::Handle::current();
    let counts = tokio::task::spawn_blocking(move || {
        store.read_now(|tx| {
            let before = super::number(tx, "SELECT count(*) FROM runs", &[])?;
            // A spawn is committed in the middle of this read.
            handle.block_on(writer.submit(spawn(None))).unwrap();
            let after = super::number(tx, "SELECT count(*) FROM runs", &[])?;
            Ok((before, after))
        })
    })
    .await
    .unwrap();
    assert_eq!(counts, Ok((0, 0)));
    let store = opened.store.clone();
    assert_eq!(
        store.read_now(|tx| super::number(tx, "SELECT count(*) FROM runs", &[])),
        Ok(1)
    );
    drop(store);
    drop(opened.store);
    tokio::task::spawn_blocking(|| opened.threads.close())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_made_when_it_is_due_and_only_of_changes() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let store = &opened.store;
    let began = BeginBoot {
        boot: BootId(Clock::system().new_id()),
        pid: 1,
    };
    store.submit(began).await.unwrap();
    let policy = BackupPolicy {
        every: Some(Duration::from_hours(24)),
        folder: Some(folder.path().join("elsewhere")),
        keep: 2,
    };
    let first = Clock::system().now();
    let after = |hours: u64| first.plus_ms(hours * 3_600_000);
    let made = async |hours| {
        let made = store.back_up_if_due(&policy, after(hours)).await.unwrap();
        made.map(|made| made.path)
    };
    assert_eq!(made(23).await, None, "the store is younger than a day");
    let oldest = made(25).await.unwrap();
    assert_eq!(made(60).await, None, "nothing has changed");
    let by_request = policy.folder.as_ref().unwrap().join("abide-mine.db");
    store.backup(Some(by_request.clone())).await.unwrap();
    let (_, is_current) = store.newest_backup(&policy).await.unwrap().unwrap();
    assert!(is_current);
    let mut latest = Vec::new();
    for hours in [61, 62, 63] {
        store.submit(spawn(None)).await.unwrap();
        latest.push(made(hours).await.unwrap());
    }
    assert!(!oldest.exists(), "more than two are kept");
    assert!(latest[2].exists());
    let kept = latest.iter().filter(|path| path.exists()).count();
    assert_eq!(kept, 2);
    assert!(by_request.exists(), "what a user made is not removed");
    let (newest, is_current) = store.newest_backup(&policy).await.unwrap().unwrap();
    assert_eq!((&newest.path, is_current), (&latest[2], true));
    store.submit(spawn(None)).await.unwrap();
    let (_, is_current) = store.newest_backup(&policy).await.unwrap().unwrap();
    assert!(!is_current);
    // A backup from the future was made before the clock was set back: the present one is due.
    let back = first.minus_ms(3_600_000);
    assert_eq!(store.back_up_if_due(&policy, back).await.unwrap(), None);
    let off = BackupPolicy {
        every: None,
        ..policy.clone()
    };
    assert_eq!(store.back_up_if_due(&off, after(900)).await.unwrap(), None);
    drop(opened.store);
    tokio::task::spawn_blocking(|| opened.threads.close())
        .await
        .unwrap();
}
