//! Tests with rows that do not decode: no other row may be affected. Every column of every table
//! is damaged in turn, for a finished run and for an active one.

use super::{Bench, NewRun, Spawn, id, model, new_run, reply, spawn, sqlite, tool};
use crate::command::KeepServer;
use crate::command::{
    Audit, Deliver, Key, NoteAgents, Park, PutAgent, Quarantine, RecordOutcome, Recorded, Remember,
    SettleSalvaged, StepRef, Then, TrustProject,
};
use crate::contract::commit::CommitEffect;
use crate::contract::servers::KnownServer;
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::run::RunState;
use crate::kernel::run::step::EffectClass as Class;
use crate::kernel::run::usage::UsageBy;
use crate::kernel::time::Timestamp;
use crate::store::repair::tables::{OnUndecodable, TABLES, Table};
use crate::store::repair::{consistency, tables};
use crate::store::tables::pins::PinCache;
use crate::store::tables::quarantine::Fate;
use crate::store::tables::transcripts::Transcripts;
use crate::store::tables::{
    agents, audit, dead_letters, events, invites, memories, messages, nodes, outbox, quarantine,
    read, servers, sessions, steps, trust, usage, webhooks,
};
use crate::store::tx::{BadRow, DbErrorKind, Param, Raw, Tx, all, number};

/// A delivered finished run, an active one under an agent's session, and a settling one.
struct Store {
    bench: Bench,
    finished: RunId,
    at_work: RunId,
}

fn keyed(parent: Option<&crate::kernel::ids::SessionKey>, key: &str) -> Spawn {
    Spawn {
        message: MessageId(id()),
        run: NewRun {
            label: Some("label".to_owned()),
            meta: Some(serde_json::json!({ "route": 1 })),
            key: Some(Key {
                scope: "default sessions.spawn".to_owned(),
                key: key.to_owned(),
                digest: vec![7; 32],
            }),
            ..new_run("explore")
        },
        ..spawn(parent)
    }
}

fn store() -> Store {
    let mut bench = Bench::new(sqlite);
    let root = bench.client_session("client:a");
    let finished = reply(bench.run(keyed(Some(&root), "first"))).run;
    bench.started(finished);
    bench.ended(finished, "found");
    let session = bench.row(finished).requester.unwrap().session;
    bench
        .run(Deliver {
            session,
            wake: None,
            unable: None,
        })
        .unwrap();
    let parent = reply(bench.run(keyed(Some(&root), "second")));
    bench.started(parent.run);
    let at_work = reply(bench.run(keyed(Some(&parent.session), "third"))).run;
    bench.started(at_work);
    bench
        .run(RecordOutcome {
            run: at_work,
            step: 1,
            attempt: 1,
            outcome: Recorded::Answer {
                blocks: super::text("looks"),
                used: super::used(),
                warnings: Vec::new(),
                sealed: None,
            },
            then: Then::Steps(vec![tool("call", Class::Read), model()]),
        })
        .unwrap();
    bench
        .run(Remember {
            by: StepRef {
                run: at_work,
                step: 2,
                attempt: 1,
            },
            text: "worth keeping".to_owned(),
        })
        .unwrap();
    // The parent's turn has ended; it waits for the active run.
    bench.ended(parent.run, "waits");
    assert_eq!(bench.row(parent.run).state, RunState::Settling);
    let org = "default".to_owned();
    bench
        .run(PutAgent {
            org: org.clone(),
            name: "kept".to_owned(),
            format: "json".to_owned(),
            text: "{}".to_owned(),
            new: true,
            if_revision: None,
        })
        .unwrap();
    bench
        .run(NoteAgents {
            org: org.clone(),
            now: [("kept".to_owned(), "hash".to_owned())].into(),
            built_in: [].into(),
            reason: "stored".to_owned(),
        })
        .unwrap();
    bench
        .run(TrustProject {
            org: org.clone(),
            user: "admin".to_owned(),
            folder: "/project".to_owned(),
            hash: "hash".to_owned(),
        })
        .unwrap();
    let (node, invite) = super::nodes::samples();
    bench.run(node).unwrap();
    bench.run(invite).unwrap();
    let (configure, record) = super::webhooks::samples();
    bench.run(configure).unwrap();
    bench.run(record).unwrap();
    let known = KnownServer {
        name: "files".to_owned(),
        digest: "digest".to_owned(),
        tools: "[]".to_owned(),
    };
    bench.run(KeepServer { known }).unwrap();
    let servers = super::session_servers::sample(&mut bench, &root);
    bench.run(servers).unwrap();
    bench
        .run(Audit {
            entry: Box::new(audit::AuditedCall {
                org,
                principal: "admin".to_owned(),
                method: "trust.add",
                object: Some("/project".to_owned()),
                client: None,
            }),
            outcome: "ok",
        })
        .unwrap();
    Store {
        bench,
        finished,
        at_work,
    }
}

/// The file of a [`store`], which is copied for each case: making one takes much longer.
struct StoreFile {
    bytes: Vec<u8>,
    finished: RunId,
    at_work: RunId,
}

impl StoreFile {
    fn new() -> StoreFile {
        let mut store = store();
        let db = store.bench.db.as_mut();
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        let busy: Vec<i64> = all(db, checkpoint, &[], |row| row.int(0)).unwrap();
        assert_eq!(busy, [0]);
        StoreFile {
            bytes: std::fs::read(store.bench.path()).unwrap(),
            finished: store.finished,
            at_work: store.at_work,
        }
    }

    fn copy(&self) -> Store {
        Store {
            bench: Bench::with(|folder| {
                std::fs::write(folder.join("abide.db"), &self.bytes).unwrap();
                sqlite(folder)
            }),
            finished: self.finished,
            at_work: self.at_work,
        }
    }
}

/// A value that is invalid in any row, by the type of its column.
fn garbage(kind: &str) -> &'static str {
    match kind {
        "TEXT" => "CAST(x'ff7b' AS TEXT)",
        "BLOB" => "x'0102'",
        _ => "-9223372036854775807",
    }
}

pub(super) fn texts(db: &mut dyn Tx, sql: &str) -> Vec<String> {
    all(db, sql, &[], |row| Ok(row.text(0)?.to_owned())).unwrap()
}

/// As [`texts`], for a file whose queries may fail.
pub(super) fn texts_or_none(db: &mut dyn Tx, sql: &str) -> Vec<String> {
    all(db, sql, &[], |row| Ok(row.text(0)?.to_owned())).unwrap_or_default()
}

/// Writes past every check and trigger, as a damaged page would.
fn overwrite(db: &mut dyn Tx, sql: &str, params: &[Param<'_>]) -> bool {
    // A value that a unique index refuses would damage the index, not the row.
    past_all_checks(db, |db| db.execute(sql, params).is_ok())
}

/// Does `work` in a transaction without any check or trigger.
fn past_all_checks<T>(db: &mut dyn Tx, work: impl FnOnce(&mut dyn Tx) -> T) -> T {
    for pragma in ["ignore_check_constraints = 1", "foreign_keys = 0"] {
        db.execute(&format!("PRAGMA {pragma}"), &[]).unwrap();
    }
    db.execute("BEGIN", &[]).unwrap();
    let triggers = "SELECT sql FROM sqlite_master WHERE type = 'trigger'";
    let triggers = texts(db, triggers);
    let names = texts(db, "SELECT name FROM sqlite_master WHERE type = 'trigger'");
    for name in names {
        db.execute(&format!("DROP TRIGGER {name}"), &[]).unwrap();
    }
    let done = work(db);
    for trigger in triggers {
        db.execute(&trigger, &[]).unwrap();
    }
    db.execute("COMMIT", &[]).unwrap();
    for pragma in ["ignore_check_constraints = 0", "foreign_keys = 1"] {
        db.execute(&format!("PRAGMA {pragma}"), &[]).unwrap();
    }
    done
}

fn key_of(table: &Table, place: &tables::RowKey) -> Vec<(&'static str, Raw)> {
    let names = table.primary.iter().copied();
    names.zip(place.iter().cloned()).collect()
}

/// Reads every list and every history as the API does.
fn everything_opens(db: &mut dyn Tx) {
    let query = read::RunQuery {
        org: "default".to_owned(),
        limit: 500,
        ..read::RunQuery::default()
    };
    let runs = read::runs(db, &query).unwrap();
    let query = sessions::ListQuery {
        org: "default".to_owned(),
        limit: 500,
        ..sessions::ListQuery::default()
    };
    for (_, session) in sessions::list(db, &query).unwrap() {
        messages::last(db, session.id, 500).unwrap();
        outbox::inbox(db, session.id, true, 0, 500).unwrap();
        outbox::pending_for(db, session.id, 500).unwrap();
    }
    for shown in runs {
        steps::after(db, shown.run.id, 0, 500).unwrap();
    }
    outbox::pending_targets(db).unwrap();
    agents::every(db).unwrap();
    trust::every(db).unwrap();
    servers::every(db).unwrap();
    nodes::every(db).unwrap();
    invites::count_open(db, "default", Timestamp(0)).unwrap();
    webhooks::every(db).unwrap();
    dead_letters::list(db, "audit", i64::MAX, 500).unwrap();
    let always = (Timestamp(0), Timestamp(i64::MAX / 2));
    usage::summary(
        db,
        "default",
        UsageBy::Agent,
        always,
        &usage::Only::default(),
    )
    .unwrap();
    memories::list(db, "default", None, None, 500).unwrap();
    audit::page(db, "default", None, i64::MAX, 500).unwrap();
    events::after(db, 0, 10_000).unwrap();
}

#[test]
fn g5_3_a_damaged_column_costs_its_row_and_nothing_else() {
    let file = StoreFile::new();
    let mut damaged = 0;
    for table in TABLES {
        let mut first = file.copy();
        let sql = format!(
            "SELECT name || ' ' || type FROM pragma_table_info('{}')",
            table.name
        );
        for column in texts(first.bench.db.as_mut(), &sql) {
            let (name, kind) = column.split_once(' ').unwrap();
            if table.primary.contains(&name) {
                continue;
            }
            let mut store = file.copy();
            let db = store.bench.db.as_mut();
            past_all_checks(db, |db| damage(db, table, name, garbage(kind)));
            damaged += set_all_aside(&mut store, table, name);
        }
    }
    assert!(damaged > 300, "only {damaged} rows were damaged");
}

/// Each row of the table has `garbage` in this column, unless it can be read even so.
fn damage(db: &mut dyn Tx, table: &Table, name: &str, garbage: &str) {
    for place in table.places(db, "true", &[]).unwrap() {
        let row = table.whole_row(db, &place).unwrap().unwrap();
        let sql = format!(
            "UPDATE {} SET {name} = {garbage} WHERE {}",
            table.name,
            place_clause(table)
        );
        let params: Vec<Param<'_>> = place.iter().map(Param::Raw).collect();
        // A value that a unique index refuses would damage the index, not the row.
        let is_set = db.execute(&sql, &params).is_ok();
        if !is_set || table.check(db, &place).unwrap().is_ok() {
            let old = row.iter().find(|(column, _)| column == name).unwrap();
            let mut params = params.clone();
            params.push(Param::Raw(&old.1));
            let sql = format!(
                "UPDATE {} SET {name} = ?{} WHERE {}",
                table.name,
                params.len(),
                place_clause(table)
            );
            let _ = db.execute(&sql, &params);
        }
    }
}

fn place_clause(table: &Table) -> String {
    let names = table.primary.iter().enumerate();
    let parts: Vec<String> = names
        .map(|(at, name)| format!("{name} = ?{}", at + 1))
        .collect();
    parts.join(" AND ")
}

/// Quarantines every bad row of the table; returns their number.
fn set_all_aside(store: &mut Store, table: &'static Table, column: &str) -> usize {
    let what = format!("{}.{column}", table.name);
    let bench = &mut store.bench;
    let places = table.places(bench.db.as_mut(), "true", &[]).unwrap();
    let mut count = 0;
    for place in places {
        let db = bench.db.as_mut();
        // An earlier one may have removed or repaired it.
        let (Some(row), Err((bad, _))) = (
            table.whole_row(db, &place).unwrap(),
            table.check(db, &place).unwrap(),
        ) else {
            continue;
        };
        assert!(bad == column || table.name == "runs", "{what}: {bad}");
        let bad = BadRow {
            table: table.name,
            key: key_of(table, &place),
            why: "damaged".to_owned(),
        };
        count += 1;
        bench
            .run(Quarantine { row: bad.clone() })
            .unwrap_or_else(|fault| panic!("{what}: {fault}"));
        let db = bench.db.as_mut();
        let key: Vec<(String, Raw)> = bad
            .key
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let key = quarantine::to_text(&key);
        assert!(
            quarantine::holds(db, table.name, &key, &row).unwrap(),
            "{what}: bytes were lost"
        );
        assert!(
            table.on_undecodable == OnUndecodable::Kept || table.check(db, &place).unwrap().is_ok(),
            "{what}: still unreadable"
        );
        // A repeat changes nothing.
        let before = everything(bench);
        bench.run(Quarantine { row: bad }).unwrap();
        assert_eq!(everything(bench), before, "{what}");
    }
    let db = bench.db.as_mut();
    everything_opens(db);
    for (sql, what) in [
        (
            "SELECT count(*) FROM pragma_foreign_key_check",
            "references",
        ),
        (
            "SELECT count(*) FROM quarantine WHERE mending IS NOT NULL",
            "mending",
        ),
    ] {
        assert_eq!(number(db, sql, &[]).unwrap(), 0, "{what}");
    }
    if count > 0 {
        no_run_waits_for_ever(store, table, &what);
    }
    count
}

fn everything(bench: &mut Bench) -> Vec<i64> {
    let mut rows = bench.rows();
    rows.push(bench.count("SELECT count(*) FROM quarantine"));
    rows
}

/// Every run that needed the row has ended, and every waiter for such a run continues.
fn no_run_waits_for_ever(store: &mut Store, table: &Table, what: &str) {
    let db = store.bench.db.as_mut();
    let open = crate::store::tables::runs::live(db).unwrap();
    // An id is unique, so the same garbage in every row damages only one of them.
    if matches!(table.name, "runs" | "steps") && what != "runs.id" {
        assert!(
            open.iter().all(|run| run.id != store.at_work),
            "{what}: the run at work goes on without its rows"
        );
    }
    for run in &open {
        let waits = run.state == RunState::Settling;
        let children = crate::store::tables::runs::count_live_children(db, run.session).unwrap();
        let untold = outbox::has_pending(db, run.session).unwrap();
        assert!(!waits || children > 0 || untold, "{what}: {run:?}");
    }
    // The finished run is unchanged, unless its own row was damaged.
    if table.name != "runs" {
        let run = store.bench.row(store.finished);
        assert_eq!(run.result.as_deref(), Some("found"), "{what}");
    }
}

/// Needed rows of the active run are missing, as after the salvage of a file.
#[test]
fn an_open_run_of_which_anything_needed_is_lost_ends_and_says_what() {
    for (sql, what) in [
        ("DELETE FROM blobs", "the definition of its agent"),
        (
            "DELETE FROM blobs WHERE hash IN (SELECT pin_tools FROM runs)",
            "the list of its tools",
        ),
        (
            "UPDATE runs SET pin_skills = 'lost', skills_version = 1",
            "the list of its skills",
        ),
        ("DELETE FROM steps WHERE seq = 1", "some of its steps"),
        (
            "DELETE FROM messages WHERE seq = 1",
            "a part of its transcript",
        ),
        (
            "UPDATE steps SET waits = 'child' WHERE seq = 2",
            "what one of its steps waits for",
        ),
        (
            "UPDATE steps SET waits = 'child' WHERE seq = 2; \
             INSERT INTO waits (awaited, run_id, step) SELECT x'09090909090909090909090909090909', run_id, seq FROM steps WHERE waits = 'child'",
            "what one of its steps waits for",
        ),
    ] {
        let mut store = store();
        let id = store.at_work;
        let db = store.bench.db.as_mut();
        assert_eq!(consistency::lost_of(db, id), Ok(Vec::new()));
        for sql in sql.split("; ") {
            assert!(overwrite(db, sql, &[]), "{sql}");
        }
        overwrite(
            db,
            "INSERT INTO meta (name, value) VALUES ('salvage_unsettled', '1')",
            &[],
        );
        let unsettled = read::unsettled(db).unwrap().unwrap();
        assert!(unsettled.broken.contains(&id), "{sql}");
        let settle = SettleSalvaged {
            broken: unsettled.broken,
            untold: unsettled.unannounced,
        };
        store.bench.run(settle).unwrap();
        let run = store.bench.row(id);
        assert_eq!(run.state.as_str(), "interrupted", "{sql}");
        let error = run.error.unwrap();
        assert_eq!(error.kind, "damaged");
        assert!(error.message.contains(what), "{sql}: {}", error.message);
        assert!(error.message.contains(&format!("abide retry {id}")));
    }
}

#[test]
fn a_body_that_is_looked_for_and_not_there_ends_what_has_pinned_it() {
    let mut store = store();
    let hash = store.bench.row(store.at_work).pins.agent;
    let (pins, transcripts) = (PinCache::default(), Transcripts::default());
    let db = store.bench.db.as_mut();
    overwrite(db, "DELETE FROM blobs", &[]);
    let unread = read::view(db, store.at_work, &pins, &transcripts)
        .err()
        .unwrap();
    let DbErrorKind::Unreadable(row) = unread.kind else {
        panic!("{unread:?}");
    };
    assert_eq!(row.key, [("hash", Raw::Text(hash.into_bytes()))]);
    store.bench.run(Quarantine { row: *row }).unwrap();
    let run = store.bench.row(store.at_work);
    assert_eq!(run.error.unwrap().kind, "damaged");
}

#[test]
fn g1_9_a_damaged_open_run_is_told_to_its_requester() {
    let mut store = store();
    let db = store.bench.db.as_mut();
    overwrite(
        db,
        "UPDATE runs SET warnings = '{' WHERE id = ?1",
        &[(&store.at_work.0).into()],
    );
    // A command that meets the row is refused as a whole, and its fault names the table.
    let refused = store.bench.run(Park { run: store.at_work });
    assert!(refused.unwrap_err().message.contains("a row of runs"));
    let row = BadRow {
        table: "runs",
        key: vec![("id", Raw::Bytes(store.at_work.0.as_bytes().to_vec()))],
        why: String::new(),
    };
    let (_, effects) = store.bench.run(Quarantine { row }).unwrap();
    let run = store.bench.row(store.at_work);
    assert_eq!(run.state.as_str(), "interrupted");
    assert_eq!(run.error.as_ref().unwrap().kind, "damaged");
    let told = run.requester.clone().unwrap().session;
    assert!(
        effects.contains(&CommitEffect::Ended(run.id)),
        "{effects:?}"
    );
    assert!(
        effects.contains(&CommitEffect::Deliverable(told)),
        "{effects:?}"
    );
    assert!(
        effects.contains(&CommitEffect::StopExecutor(run.id)),
        "{effects:?}"
    );
    let entries = quarantine::list(store.bench.db.as_mut(), 0, 10).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].fate, Fate::Repaired.as_str());
    assert!(entries[0].reason.starts_with("warnings"), "{entries:?}");
    // The terminal row is immutable again.
    let change = store.bench.db.execute(
        "UPDATE runs SET result = 'x' WHERE ended_at IS NOT NULL",
        &[],
    );
    assert!(change.is_err());
}

#[test]
fn an_announce_whose_row_was_lost_is_told_once_all_the_same() {
    for delivered in [true, false] {
        let mut store = store();
        if !delivered {
            store.bench.ended(store.at_work, "");
        }
        let sql = "UPDATE outbox SET announce_id = x'01'";
        overwrite(store.bench.db.as_mut(), sql, &[]);
        let outbox = tables::find("outbox").unwrap();
        let places = outbox.places(store.bench.db.as_mut(), "true", &[]).unwrap();
        for place in places {
            let row = BadRow {
                table: "outbox",
                key: key_of(outbox, &place),
                why: String::new(),
            };
            store.bench.run(Quarantine { row }).unwrap();
        }
        let run = store.finished;
        let entry = outbox::of_run(store.bench.db.as_mut(), run)
            .unwrap()
            .unwrap();
        assert_eq!(entry.state, "delivered");
        assert!(entry.message_seq.is_some());
    }
}

/// Tables whose rows are not decoded one by one, with the reason. The list must be exact.
const EXCUSED: &[(&str, &str)] = &[
    ("applied_environments", "every column is part of its key"),
    ("boots", "only its last row is looked at, at a start"),
    ("clearings", "an id, a checked word and a time"),
    (
        "counters",
        "one number; without it the file counts as damaged",
    ),
    ("events_expired", "one number"),
    ("expired", "an id and a time"),
    ("memory_words", "made anew from the memories"),
    ("memory_words_config", "a part of memory_words"),
    ("memory_words_data", "a part of memory_words"),
    ("memory_words_docsize", "a part of memory_words"),
    ("memory_words_idx", "a part of memory_words"),
    ("meta", "two texts; without them the file counts as damaged"),
    ("purges", "an id and a time"),
    ("quarantine", "what lies there was unreadable before"),
    (
        "run_meta",
        "every column is part of its key; what it says stands in the runs",
    ),
    ("skill_bodies", "every column is part of its key"),
    ("stops", "an id, a checked flag and a time"),
    ("usage_alerts", "every column is part of its key"),
    ("waits", "every column is part of its key"),
];

#[test]
fn every_table_of_decoded_rows_can_set_its_rows_aside() {
    let mut store = store();
    let names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name";
    let names = texts(store.bench.db.as_mut(), names);
    let mut known: Vec<&str> = TABLES.iter().map(|table| table.name).collect();
    known.extend(EXCUSED.iter().map(|(name, _)| *name));
    known.sort_unstable();
    assert_eq!(names, known);
}
