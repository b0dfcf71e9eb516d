//! Tests with damaged pages: each row that an independent reader still finds is in the store after
//! the next opening, or in its quarantine; or the opening is refused and nothing has changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{Bench, reply, sqlite};
use crate::clock::Clock;
use crate::command::{Deliver, Remember, StepRef};
use crate::kernel::event::Salvage;
use crate::kernel::policy::gate::{Bundle, Decision, Rights, Rule, Subject, WriteScope, Writes};
use crate::store::open::{OpenError, OpenOptions};
use crate::store::repair::consistency;
use crate::store::repair::outline::Outline;
use crate::store::repair::tables::TABLES;
use crate::store::sqlite::{Sqlite, Use};
use crate::store::tables::{bundles, quarantine, read};
use crate::store::threads::Threads;
use crate::store::tx::{Raw, Tx, all, number};
use crate::store::{Store, files};

const PAGE: usize = files::PAGE;

/// The bytes of a store file with a hundred or more rows in every main table.
fn bytes() -> Vec<u8> {
    let mut bench = Bench::new(sqlite);
    bench.settings.limits.max_children = 1000;
    bench.settings.limits.max_total = 1000;
    bench.settings.limits.max_unacked = 1000;
    let root = bench.client_session("client:a");
    for number in 0..120 {
        let run = reply(bench.run(super::spawn(Some(&root)))).run;
        bench.started(run);
        if number % 10 == 9 {
            let by = StepRef {
                run,
                step: 1,
                attempt: 1,
            };
            let text = format!("worth keeping {number}");
            bench.run(Remember { by, text }).unwrap();
        }
        if number % 10 != 9 {
            bench.ended(run, &format!("found {number} {}", "x".repeat(number * 7)));
        }
    }
    let session = crate::store::tables::sessions::by_key(bench.db.as_mut(), "default", &root)
        .unwrap()
        .unwrap()
        .id;
    for _ in 0..3 {
        let deliver = Deliver {
            session,
            wake: None,
            unable: None,
        };
        bench.run(deliver).unwrap();
    }
    let copy = bench.path().with_extension("copy");
    let text = copy.to_str().unwrap();
    bench.db.execute("VACUUM INTO ?1", &[text.into()]).unwrap();
    fs::read(copy).unwrap()
}

/// A random generator that returns the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap()
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() % end
    }
}

/// Damages a file in a random way; returns a description.
fn damage(bytes: &mut Vec<u8>, random: &mut Random) -> String {
    let pages = bytes.len() / PAGE;
    match random.below(6) {
        0 => {
            let count = 1 + random.below(20);
            for _ in 0..count {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
            format!("{count} flipped bits")
        }
        1 => {
            let page = 1 + random.below(pages - 1);
            bytes[page * PAGE..(page + 1) * PAGE].fill(0);
            format!("page {} zeroed", page + 1)
        }
        2 => {
            let page = 1 + random.below(pages - 1);
            for byte in &mut bytes[page * PAGE..(page + 1) * PAGE] {
                *byte = u8::try_from(random.below(256)).unwrap();
            }
            format!("page {} overwritten", page + 1)
        }
        3 => {
            let keep = 2 + random.below(pages - 2);
            bytes.truncate(keep * PAGE);
            format!("cut to {keep} pages")
        }
        4 => {
            bytes[..PAGE].fill(0);
            "the first page zeroed".to_owned()
        }
        _ => {
            let count = 2 + random.below(4);
            for _ in 0..count {
                let page = 1 + random.below(pages - 1);
                let from = page * PAGE + random.below(PAGE / 2);
                bytes[from..from + 64].fill(0xff);
            }
            format!("{count} holes")
        }
    }
}

pub(super) fn options(folder: &Path) -> OpenOptions {
    OpenOptions {
        folder: folder.to_owned(),
        clock: Clock::system(),
        settings: Bench::new(sqlite).settings.clone(),
        on_fatal: Box::new(|why| panic!("{why}")),
    }
}

type Keys = BTreeMap<&'static str, BTreeSet<String>>;

/// The rows that a reader without knowledge of this program finds: keys of rows in order, up to
/// the first error.
fn readable(path: &Path) -> Keys {
    let mut found = Keys::new();
    let Ok(mut db) = Sqlite::open(path, Use::Examine) else {
        return found;
    };
    for table in TABLES {
        let key = table.primary.join(", ");
        let columns = super::damaged_rows::texts_or_none(
            &mut db,
            &format!("SELECT name FROM pragma_table_info('{}')", table.name),
        );
        if columns.is_empty() {
            continue;
        }
        let sql = format!(
            "SELECT {key}, {} FROM {} ORDER BY {key}",
            columns.join(", "),
            table.name
        );
        let keys = found.entry(table.name).or_default();
        let mut last: Option<Vec<Raw>> = None;
        // This reader stops at the first error.
        let _ = db.query(&sql, &[], &mut |row| {
            let place = (0..table.primary.len()).map(|at| row.raw(at));
            let place: Vec<Raw> = place.collect::<Result<_, _>>()?;
            // A row out of order is garbage of another row.
            if last.as_ref().is_none_or(|last| *last < place) {
                keys.insert(key_text(table.primary, &place));
                last = Some(place);
            }
            Ok(())
        });
    }
    found
}

fn key_text(names: &[&'static str], place: &[Raw]) -> String {
    let names = names.iter().map(|name| (*name).to_owned());
    let key: Vec<(String, Raw)> = names.zip(place.iter().cloned()).collect();
    quarantine::to_text(&key)
}

/// The keys of the rows in the store and in its quarantine.
fn stored(store: &Store) -> Keys {
    let mut found = Keys::new();
    for table in TABLES {
        let mut keys = store
            .read_now(|tx| {
                let places = table.places(tx, "true", &[])?;
                let keys = places.iter().map(|place| key_text(table.primary, place));
                Ok(keys.collect::<BTreeSet<String>>())
            })
            .unwrap();
        keys.extend(
            store
                .read_now(|tx| {
                    let sql = "SELECT key FROM quarantine WHERE source = ?1";
                    all(tx, sql, &[table.name.into()], |row| {
                        Ok(row.text(0)?.to_owned())
                    })
                })
                .unwrap(),
        );
        found.insert(table.name, keys);
    }
    found
}

fn close(store: Store, threads: Threads) {
    drop(store);
    threads.close();
}

#[test]
fn g5_1_nothing_that_can_be_read_of_a_damaged_file_is_lost() {
    let whole = bytes();
    let outline = {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(files::DATABASE);
        fs::write(&path, &whole).unwrap();
        let mut db = Sqlite::open(&path, Use::Examine).unwrap();
        Outline::of(&mut db).unwrap()
    };
    let (mut salvaged, mut refused, mut unseen) = (0, 0, 0);
    for seed in 1..=40_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut damaged = whole.clone();
        let what = format!("seed {seed}: {}", damage(&mut damaged, &mut random));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(files::DATABASE);
        fs::write(&path, &damaged).unwrap();
        outline.keep(&path).unwrap();
        // As if an earlier process had found the damage.
        files::mark_suspect(&path, "a test");
        let expected = readable(&path);
        match Store::open(options(folder.path())) {
            Ok(opened) => {
                let report = opened.salvaged.clone();
                let found = stored(&opened.store);
                for (table, keys) in &expected {
                    let lost: Vec<&String> = keys.difference(&found[table]).collect();
                    assert!(
                        lost.is_empty(),
                        "{what}: {table} lost {lost:?}, {report:#?}"
                    );
                }
                let faults = "SELECT count(*) FROM pragma_foreign_key_check";
                let check = |sql: &'static str| opened.store.read_now(|tx| number(tx, sql, &[]));
                assert_eq!(check(faults), Ok(0), "{what}");
                match report {
                    Some(report) => {
                        told(&report, &damaged, &what);
                        salvaged += 1;
                    }
                    None => unseen += 1,
                }
                let unsettled = opened.store.read_now(read::unsettled).unwrap();
                assert_eq!(unsettled.is_some(), opened.salvaged.is_some(), "{what}");
                close(opened.store, opened.threads);
            }
            Err(OpenError::Damaged { .. }) => {
                let rows: usize = ["sessions", "runs", "messages"]
                    .iter()
                    .filter_map(|table| expected.get(table))
                    .map(BTreeSet::len)
                    .sum();
                assert_eq!(rows, 0, "{what}: refused, and rows could be read");
                assert_eq!(fs::read(&path).unwrap(), damaged, "{what}: changed");
                refused += 1;
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
    println!("{salvaged} salvaged, {refused} refused, {unseen} in unused bytes");
    assert!(salvaged > 20, "{salvaged} were salvaged");
}

/// The damaged file is unchanged at the path in the report.
fn told(report: &Salvage, damaged: &[u8], what: &str) {
    assert_eq!(fs::read(&report.set_aside).unwrap(), damaged, "{what}");
    assert!(
        !report.tables.is_empty() && !report.why.is_empty(),
        "{what}"
    );
}

#[test]
fn a_page_in_the_middle_of_a_table_costs_its_own_rows_only() {
    let mut damaged = bytes();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(files::DATABASE);
    fs::write(&path, &damaged).unwrap();
    let before = readable(&path);
    // A page of runs that is neither the first nor the last of them.
    let page = {
        let mut db = Sqlite::open(&path, Use::Examine).unwrap();
        let sql = "SELECT count(*) FROM runs";
        assert_eq!(number(&mut db, sql, &[]).unwrap(), 120);
        let marker = b"found 60 ";
        let at = damaged
            .windows(marker.len())
            .position(|window| window == marker);
        at.unwrap() / PAGE
    };
    damaged[page * PAGE..(page + 1) * PAGE].fill(0);
    fs::write(&path, &damaged).unwrap();
    files::mark_suspect(&path, "a test");
    let opened = Store::open(options(folder.path())).unwrap();
    let report = opened.salvaged.clone().unwrap();
    let after = stored(&opened.store);
    for (table, keys) in &before {
        let lost = keys.difference(&after[table]).count();
        let saved = report.tables.iter().find(|saved| saved.table == *table);
        let saved = saved.unwrap();
        assert!(
            lost as u64 == saved.lost || saved.more,
            "{table}: {lost}, {report:#?}"
        );
        assert!(lost < 40, "{table}: {lost} rows of one page");
    }
    assert!(
        report.tables.iter().any(|saved| saved.lost > 0),
        "{report:#?}"
    );
    assert!(report.summary().contains("lost: "), "{}", report.summary());
    close(opened.store, opened.threads);
    // The next opening finds nothing to salvage.
    let opened = Store::open(options(folder.path())).unwrap();
    assert_eq!(opened.salvaged, None);
    close(opened.store, opened.threads);
}

#[test]
fn a_lost_store_beside_its_log_is_not_taken_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let log = files::log(&folder.path().join(files::DATABASE));
    fs::write(&log, [1; 100]).unwrap();
    let refused = Store::open(options(folder.path())).err().unwrap();
    assert!(matches!(refused, OpenError::OnlyLog { .. }), "{refused}");
    assert_eq!(fs::read(log).unwrap(), [1; 100]);
}

#[test]
fn a_row_that_refers_to_nothing_is_found_and_seen_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(files::DATABASE);
    fs::write(&path, bytes()).unwrap();
    let mut db = Sqlite::open(&path, Use::Write).unwrap();
    assert_eq!(db.check(None, 10), Ok(Vec::new()));
    // As a flipped bit in an id leaves it: every page stays intact.
    db.batch("PRAGMA foreign_keys = 0; DELETE FROM runs WHERE seq = (SELECT min(seq) FROM runs)")
        .unwrap();
    let found = db.check(None, 10).unwrap();
    assert!(
        found[0].contains("refers to a missing row of runs"),
        "{found:?}"
    );
    assert_eq!(db.checkpoint_truncate(), Ok(true));
    drop(db);
    files::mark_suspect(&path, "a test");
    let opened = Store::open(options(folder.path())).unwrap();
    let report = opened.salvaged.clone().unwrap();
    assert!(
        report.why.contains("refers to a missing row of runs"),
        "{report:?}"
    );
    let faults = "SELECT count(*) FROM pragma_foreign_key_check";
    let left = opened.store.read_now(|tx| number(tx, faults, &[]));
    assert_eq!(left, Ok(0));
    close(opened.store, opened.threads);
}

/// If restrictions are lost, nothing is allowed, and the runs that they bound end.
#[test]
fn a_run_whose_restrictions_are_lost_may_do_nothing() {
    let mut bench = Bench::new(sqlite);
    let root = bench.client_session("client:a");
    let mut command = super::spawn(Some(&root));
    command.bundle =
        Some(r#"{"layers":[{"agent":"bound-by-me","rules":[]}],"writes":"nowhere"}"#.to_owned());
    let bound = reply(bench.run(command)).run;
    bench.started(bound);
    let session = bench.row(bound).session;
    let copy = bench.path().with_extension("copy");
    let text = copy.to_str().unwrap();
    bench.db.execute("VACUUM INTO ?1", &[text.into()]).unwrap();
    let mut damaged = fs::read(copy).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(files::DATABASE);
    let marker = b"bound-by-me";
    let at = damaged
        .windows(marker.len())
        .position(|some| some == marker);
    let page = at.unwrap() / PAGE;
    damaged[page * PAGE..(page + 1) * PAGE].fill(0);
    fs::write(&path, &damaged).unwrap();
    files::mark_suspect(&path, "a test");
    let opened = Store::open(options(folder.path())).unwrap();
    let store = &opened.store;
    assert_eq!(
        store.read_now(|tx| bundles::get(tx, session)).unwrap(),
        Some(bundles::lost())
    );
    let lost = store.read_now(|tx| consistency::lost_of(tx, bound));
    assert_eq!(lost.unwrap(), ["its permission bundle"]);
    let unsettled = store.read_now(read::unsettled).unwrap().unwrap();
    assert_eq!(unsettled.broken, [bound]);
    let above = store
        .read_now(|tx| crate::store::tables::sessions::by_key(tx, "default", &root))
        .unwrap()
        .unwrap();
    assert_eq!(
        store.read_now(|tx| bundles::get(tx, above.id)).unwrap(),
        None
    );
    close(opened.store, opened.threads);

    let rights: Bundle = serde_json::from_str(&bundles::lost()).unwrap();
    let allowed = Rule {
        tool: "read".to_owned(),
        pattern: None,
        node: None,
        decision: Decision::Allow,
    };
    let rights = Rights::new("a", &[allowed], WriteScope::Workspace, rights);
    let verdict = rights.judge("read", Decision::Allow, &Subject::default());
    assert_eq!(verdict.decision, Decision::Deny);
    assert_eq!(*rights.writes(), Writes::Nowhere);
}
