//! Copies the readable rows of a damaged file into a new file, which replaces it. The damaged file
//! is set aside and never changed.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::outline::Outline;
use super::scan::{ScannedTable, scan};
use super::{check, consistency, redo};
use crate::clock::Clock;
use crate::failpoint::reach;
use crate::kernel::event::{Salvage, SavedTable};
use crate::store::sqlite::{Sqlite, Use, header_version};
use crate::store::tables::{boots, memory_words};
use crate::store::tx::{DbError, DbErrorKind, Param, Raw, Tx, all, number};
use crate::store::{files, migrate};

/// Name of the `meta` row with the report of the last salvage.
pub const REPORT: &str = "salvage";
/// Name of the `meta` row that marks a salvaged store whose runs are not settled yet.
pub const UNSETTLED: &str = "salvage_unsettled";

/// Why nothing could be salvaged. The damaged file is in its place, unchanged.
#[derive(Debug)]
pub enum Unsaved {
    /// No row of sessions, runs or messages could be read.
    Nothing,
    /// The new file could not be made.
    Db(DbError),
}

impl From<DbError> for Unsaved {
    fn from(fault: DbError) -> Self {
        Unsaved::Db(fault)
    }
}

impl From<io::Error> for Unsaved {
    fn from(fault: io::Error) -> Self {
        Unsaved::Db(fault.into())
    }
}

/// Salvages the database at `path`. Rows are read from `redone`, if given, instead of the damaged
/// file and its WAL.
///
/// Once this returns, the database at `path` has what could be read of the damaged one. It is
/// consistent, has the schema of this program, and a new store id, because cursors of the damaged
/// one would have unnoticed gaps.
pub fn salvage(
    path: &Path,
    redone: Option<&Path>,
    why: &str,
    clock: &Clock,
) -> Result<Salvage, Unsaved> {
    let source = redone.unwrap_or(path);
    let saved = files::saved(path);
    files::discard(&saved)?;
    files::private(&saved)?;
    let mut target = Sqlite::open(&saved, Use::Write)?;
    let version = match header_version(source) {
        Ok(version) if (1..=migrate::SCHEMA).contains(&version) => version,
        _ => migrate::SCHEMA,
    };
    migrate::make(&mut target, version)?;
    let patched = Patched::of(path, source, &mut target)?;
    let copied = match Sqlite::open(
        patched.as_ref().map_or(source, |copy| copy.0.as_path()),
        Use::Examine,
    ) {
        Ok(mut source) => copy(&mut source, &mut target)?,
        Err(fault) => {
            tracing::error!(%fault, "the damaged store cannot be opened at all");
            Copied::default()
        }
    };
    drop(patched);
    let of_work = ["sessions", "runs", "messages"];
    let kept = copied.tables.iter();
    let kept = kept.filter(|saved| of_work.contains(&saved.table.as_str()));
    if kept.map(|saved| saved.kept).sum::<u64>() == 0 {
        drop(target);
        files::discard(&saved)?;
        return Err(Unsaved::Nothing);
    }
    migrate::migrate(&mut target, None).map_err(|fault| DbError {
        kind: DbErrorKind::Other,
        message: fault.to_string(),
    })?;
    let now = clock.now();
    let misfits = copied.misfits.len();
    let removed = consistency::restore(
        &mut target,
        &copied.misfits,
        copied.may_lack("bundles"),
        now,
    )?;
    let report = Salvage {
        at: now,
        why: why.to_owned(),
        set_aside: files::aside(path, "damaged", now),
        tables: copied.tables,
        quarantined: (misfits + removed) as u64,
    };
    let text = crate::store::tables::columns::to_json(&report);
    boots::set_meta(&mut target, REPORT, &text)?;
    boots::set_meta(&mut target, UNSETTLED, "1")?;
    boots::set_meta(&mut target, "store_id", &clock.new_id().to_string())?;
    target.checkpoint_truncate()?;
    drop(target);
    files::discard_beside(&saved)?;
    reach("store.salvaged");
    files::switch(path, &report.set_aside)?;
    files::clear_suspect(path)?;
    Ok(report)
}

/// A row that violates a constraint of its table.
pub struct Misfit {
    /// Name of the table.
    pub table: String,
    /// Its primary key.
    pub key: Vec<(String, Raw)>,
    /// All of its columns.
    pub row: Vec<(String, Raw)>,
    /// The engine's message.
    pub why: String,
}

#[derive(Default)]
struct Copied {
    tables: Vec<SavedTable>,
    misfits: Vec<Misfit>,
}

impl Copied {
    /// True if rows of this table may be lost.
    fn may_lack(&self, table: &str) -> bool {
        let of_table = self.tables.iter().filter(|saved| saved.table == table);
        let lost = of_table.map(|saved| saved.lost > 0 || saved.more);
        // Nothing is kept of a file that cannot be opened.
        lost.reduce(|any, one| any || one).unwrap_or(true)
            || self.misfits.iter().any(|misfit| misfit.table == table)
    }
}

/// Copies every table.
fn copy(source: &mut Sqlite, target: &mut Sqlite) -> Result<Copied, DbError> {
    let mut copied = Copied::default();
    // Referenced rows may be lost; `consistency` restores the references afterwards.
    target.batch("PRAGMA foreign_keys = 0; BEGIN IMMEDIATE")?;
    let mut tables = check::tables(target)?;
    tables.retain(|table| !memory_words::is_part(table));
    // Tables that show where rows of other tables may be come first.
    let rank = |table: &String| {
        let first = ["meta", "counters", "sessions", "runs"];
        first
            .iter()
            .position(|name| name == table)
            .unwrap_or(first.len())
    };
    tables.sort_by_key(rank);
    for table in tables {
        let saved = copy_table(source, target, &table, &mut copied.misfits)?;
        copied.tables.push(saved);
    }
    for saved in &mut copied.tables {
        count_by_parents(target, saved)?;
    }
    target.batch("COMMIT; PRAGMA foreign_keys = 1")?;
    Ok(copied)
}

fn copy_table(
    source: &mut Sqlite,
    target: &mut Sqlite,
    table: &str,
    misfits: &mut Vec<Misfit>,
) -> Result<SavedTable, DbError> {
    // A fresh store has a few rows of its own, such as its counter.
    target.execute(&format!("DELETE FROM {table}"), &[])?;
    let mut columns = names(target, table, "true ORDER BY cid")?;
    let mut key = names(target, table, "pk > 0 ORDER BY pk")?;
    if key.is_empty() {
        columns.insert(0, "rowid".to_owned());
        key.push("rowid".to_owned());
    }
    let marks: Vec<String> = (1..=columns.len()).map(|at| format!("?{at}")).collect();
    let insert = format!(
        "INSERT INTO {table} ({}) VALUES ({})",
        columns.join(", "),
        marks.join(", ")
    );
    let expected = expected(source, table, &key);
    let mut hints = expected.keys.clone();
    hints.extend(parents(target, table)?);
    let mut kept: BTreeSet<Vec<Raw>> = BTreeSet::new();
    let part = ScannedTable {
        table,
        columns: &columns,
        key: &key,
    };
    let places: Vec<usize> = key
        .iter()
        .filter_map(|name| columns.iter().position(|column| column == name))
        .collect();
    let mut count = 0;
    let track = expected.is_known || !expected.keys.is_empty();
    let complete = scan(source, &part, hints, &mut |values| {
        let place: Vec<Raw> = places.iter().map(|at| values[*at].clone()).collect();
        let params: Vec<Param<'_>> = values.iter().map(Param::Raw).collect();
        match target.execute(&insert, &params) {
            Ok(_) => count += 1,
            Err(fault) if fault.kind == DbErrorKind::Constraint => misfits.push(Misfit {
                table: table.to_owned(),
                key: key.iter().cloned().zip(place.clone()).collect(),
                row: columns.iter().cloned().zip(values.clone()).collect(),
                why: fault.message,
            }),
            Err(fault) => return Err(fault),
        }
        if track {
            kept.insert(place);
        }
        Ok(())
    })?;
    let lost = expected.keys.difference(&kept).count() as u64;
    Ok(SavedTable {
        table: table.to_owned(),
        kept: count,
        lost,
        more: !complete && !expected.is_known,
    })
}

/// Transcripts and journals have no index that lists their rows, but their sessions and runs
/// have the number of rows.
fn count_by_parents(target: &mut Sqlite, saved: &mut SavedTable) -> Result<(), DbError> {
    let forks = names(target, "sessions", "name = 'fork_seq'")?;
    let sql = match saved.table.as_str() {
        // A fork's numbering continues from the seq at which it was forked.
        "messages" if !forks.is_empty() => {
            "SELECT coalesce(sum(messages - coalesce(fork_seq, 0)), 0) FROM sessions"
        }
        "messages" => "SELECT coalesce(sum(messages), 0) FROM sessions",
        "steps" => "SELECT coalesce(sum(steps), 0) FROM runs",
        _ => return Ok(()),
    };
    if saved.more {
        let expected = u64::try_from(number(target, sql, &[])?).unwrap_or(0);
        saved.lost = expected.saturating_sub(saved.kept);
    }
    Ok(())
}

/// The keys that the indexes of a table list, and whether one of them was read completely.
struct ExpectedKeys {
    keys: BTreeSet<Vec<Raw>>,
    is_known: bool,
}

fn expected(source: &mut Sqlite, table: &str, key: &[String]) -> ExpectedKeys {
    let mut expected = ExpectedKeys {
        keys: BTreeSet::new(),
        is_known: false,
    };
    // The schema of a damaged file may be damaged too: then nothing is expected.
    let indexes = all(
        source,
        "SELECT name, partial FROM pragma_index_list(?1) WHERE origin <> 'pk'",
        &[table.into()],
        |row| Ok((row.text(0)?.to_owned(), row.int(1)? == 0)),
    );
    for (index, is_whole) in indexes.unwrap_or_default() {
        if !is_whole {
            continue;
        }
        let sql = format!("SELECT {} FROM {table} INDEXED BY {index}", key.join(", "));
        let asked = source.query(&sql, &[], &mut |row| {
            let place = (0..key.len()).map(|at| row.raw(at));
            expected.keys.insert(place.collect::<Result<_, _>>()?);
            Ok(())
        });
        expected.is_known |= asked.is_ok();
    }
    expected
}

/// Keys that rows of a table may have, derived from the salvaged rows of their parent tables.
fn parents(target: &mut Sqlite, table: &str) -> Result<Vec<Vec<Raw>>, DbError> {
    let sql = match table {
        "messages" => "SELECT id, 0 FROM sessions",
        "steps" => "SELECT id, 0 FROM runs",
        "blobs" => {
            "SELECT pin_agent FROM runs UNION SELECT pin_tools FROM runs \
             UNION SELECT pin_skills FROM runs WHERE pin_skills IS NOT NULL \
             UNION SELECT body FROM skill_bodies"
        }
        "events" => "SELECT value FROM counters WHERE name = 'seq'",
        _ => return Ok(Vec::new()),
    };
    all(target, sql, &[], |row| {
        let width = row.names().len();
        (0..width).map(|at| row.raw(at)).collect()
    })
}

fn names(db: &mut Sqlite, table: &str, clause: &str) -> Result<Vec<String>, DbError> {
    all(
        db,
        &format!("SELECT name FROM pragma_table_info(?1) WHERE {clause}"),
        &[table.into()],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// A temporary copy of a file whose first page or schema is damaged, with the schema that was
/// saved beside it, or else that of a fresh store: tables created in the same order have the same
/// root pages. Deleted on drop.
struct Patched(PathBuf);

impl Patched {
    /// `None` if the file can be read by its own schema, or has no pages after the first.
    fn of(path: &Path, source: &Path, fresh: &mut Sqlite) -> Result<Option<Patched>, Unsaved> {
        let own = match header_version(source) {
            Ok(_) => Sqlite::open(source, Use::Examine).and_then(|mut db| Outline::of(&mut db)),
            Err(fault) => Err(fault),
        };
        let kept = match Outline::kept(path) {
            Some(kept) => kept,
            None => Outline::of(fresh)?,
        };
        let is_whole = own.is_ok_and(|own| own.version > 0 && !kept.differs(&own));
        if is_whole || source.metadata()?.len() < 2 * files::PAGE as u64 {
            return Ok(None);
        }
        let copy = Patched(files::beside(path, ".patched"));
        // With the WAL applied: a page in it would otherwise replace the new first page.
        redo::copy(source, &copy.0)?;
        kept.impose(&copy.0)?;
        Ok(Some(copy))
    }
}

impl Drop for Patched {
    fn drop(&mut self) {
        if let Err(fault) = files::discard(&self.0) {
            tracing::warn!(%fault, "the temporary copy of a damaged store could not be removed");
        }
    }
}

/// The report of the last salvage of this store, if there was one.
pub fn report(tx: &mut dyn Tx) -> Result<Option<Salvage>, DbError> {
    // A report in the format of another version is ignored.
    let text = boots::meta(tx, REPORT)?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// True if the store was salvaged and its runs are not settled yet.
pub fn is_unsettled(tx: &mut dyn Tx) -> Result<bool, DbError> {
    let found = number(
        tx,
        "SELECT count(*) FROM meta WHERE name = ?1",
        &[UNSETTLED.into()],
    )?;
    Ok(found > 0)
}
