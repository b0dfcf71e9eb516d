//! Tests that opening a store reads a bounded part of it, however large it is.

use std::fs;
use std::path::Path;

use super::damaged_files::options;
use crate::store::repair::check;
use crate::store::sqlite::{Sqlite, Use};
use crate::store::{Store, files, migrate};

/// Maximum number of additional pages read of a larger file, whose trees are a little deeper.
const MORE_PAGES: u64 = 64;
const PAGE: u64 = 4096;

/// Bytes that this thread has read by system calls; `None` if the system does not report it.
fn read_so_far() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "))?;
    line.parse().ok()
}

/// A store with `events` events; returns the size of its file.
fn store(folder: &Path, events: u32) -> u64 {
    let path = folder.join(files::DATABASE);
    let mut db = Sqlite::open(&path, Use::Write).unwrap();
    migrate::migrate(&mut db, None).unwrap();
    db.batch(&format!(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {events}) \
         INSERT INTO events (cursor, at, kind, org, data) \
         SELECT i, 0, 'gateway.started', '', '{{\"bootId\":\"' || hex(zeroblob(100)) || '\"}}' FROM n"
    ))
    .unwrap();
    assert_eq!(db.checkpoint_truncate(), Ok(true));
    drop(db);
    path.metadata().unwrap().len()
}

#[test]
fn a_start_reads_as_much_of_a_large_store_as_of_a_small_one() {
    if read_so_far().is_none() {
        println!("skipped: this system does not say how much is read");
        return;
    }
    let measure = |events| {
        let folder = tempfile::tempdir().unwrap();
        let size = store(folder.path(), events);
        let path = folder.path().join(files::DATABASE);
        let before = read_so_far().unwrap();
        assert_eq!(check::lost_of_log(&path).unwrap(), None);
        assert_eq!(check::at_start(&path).unwrap(), None);
        let checked = read_so_far().unwrap() - before;
        let before = read_so_far().unwrap();
        let opened = Store::open(options(folder.path())).unwrap();
        let all = read_so_far().unwrap() - before;
        drop(opened.store);
        opened.threads.close();
        (size, checked, all)
    };
    let (small, checked, opened) = measure(100);
    let (large, checked_large, opened_large) = measure(60_000);
    println!("{small} bytes: {checked}, {opened}; {large} bytes: {checked_large}, {opened_large}");
    assert!(checked > 0 && opened > checked, "nothing was counted");
    let bound = MORE_PAGES * PAGE;
    assert!(
        large > small + 20 * bound,
        "{large} bytes are no large store"
    );
    assert!(
        checked_large <= checked + bound,
        "{checked_large} of {large}"
    );
    assert!(opened_large <= opened + bound, "{opened_large} of {large}");
}
