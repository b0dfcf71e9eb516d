//! Checks for damage: a short check before a store is opened, a full one if an earlier process
//! found damage, and one table by table in the background.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use super::noticed::{CheckProgress, FoundDamage};
use super::outline::Outline;
use crate::clock::Clock;
use crate::store::checkpoint::Checkpoints;
use crate::store::files;
use crate::store::sqlite::{Sqlite, Use};
use crate::store::tx::{DbError, DbErrorKind, Tx, all};

/// Maximum number of findings that are reported.
pub const MOST_FINDINGS: u32 = 10;

/// What is wrong with a file, in the engine's words; `None` if nothing was found. Reads a few
/// pages of each table, or the whole file if it is marked as suspect.
pub fn at_start(path: &Path) -> Result<Option<String>, DbError> {
    let mut db = match Sqlite::open(path, Use::Examine) {
        Ok(db) => db,
        Err(fault) => return seen(fault),
    };
    let looked = look(&mut db, path);
    match looked {
        Ok(found) => Ok(found),
        Err(fault) => seen(fault),
    }
}

fn look(db: &mut Sqlite, path: &Path) -> Result<Option<String>, DbError> {
    // With schema errors ignored, an unreadable schema looks empty.
    let tables = tables(db)?;
    if tables.is_empty() {
        return Ok(Some("it has no tables".to_owned()));
    }
    let outline = Outline::of(db)?;
    if outline.version <= 0 {
        return Ok(Some("its header has no schema version".to_owned()));
    }
    if Outline::kept(path).is_some_and(|kept| kept.differs(&outline)) {
        return Ok(Some("its schema differs from its saved outline".to_owned()));
    }
    for table in tables {
        db.query(&format!("SELECT 1 FROM {table} LIMIT 1"), &[], &mut |_| {
            Ok(())
        })?;
    }
    if db.read_pragma("page_count")? == 0 || is_shorter_than_it_says(db, path)? {
        return Ok(Some("it is shorter than its header says".to_owned()));
    }
    if files::suspect(path).exists() {
        let found = db.check(None, MOST_FINDINGS)?;
        return Ok((!found.is_empty()).then(|| found.join("; ")));
    }
    Ok(None)
}

/// The names of the tables in the order of their creation, so that referenced tables come first.
/// Includes the tables that a full-text index consists of.
pub fn tables(db: &mut dyn Tx) -> Result<Vec<String>, DbError> {
    all(
        db,
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
         AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY rowid",
        &[],
        |row| Ok(row.text(0)?.to_owned()),
    )
}

/// True if the WAL is empty and the file has fewer pages than its header says.
fn is_shorter_than_it_says(db: &mut Sqlite, path: &Path) -> Result<bool, DbError> {
    let pages = db.read_pragma("page_count")?;
    let size = db.read_pragma("page_size")?;
    let logged = files::log(path).metadata().map_or(0, |log| log.len());
    let bytes = path.metadata().map_or(0, |file| file.len());
    Ok(logged == 0 && bytes < u64::try_from(pages * size).unwrap_or(0))
}

/// Checks the whole file, table by table, until `stopped` is closed. Findings are logged, kept
/// for the doctor, and make the next start repair the file. A table whose check was interrupted
/// in favour of other work is checked again later.
pub fn in_background(
    mut db: Sqlite,
    noticed: &FoundDamage,
    checkpoints: &Arc<Checkpoints>,
    clock: &Clock,
    stopped: &Receiver<()>,
) {
    let tables = match tables(&mut db) {
        Ok(tables) => tables,
        Err(fault) => return noticed.corrupt(&fault.message),
    };
    let mut findings = Vec::new();
    for table in tables {
        if stopped.try_recv() == Err(TryRecvError::Disconnected) {
            return;
        }
        noticed.set_checked(CheckProgress::At(table.clone()));
        loop {
            match check_one(&mut db, &table, checkpoints) {
                Ok(found) => findings.extend(found),
                Err(fault) if fault.kind == DbErrorKind::Corrupt => findings.push(fault.message),
                Err(fault) => {
                    tracing::info!(table, %fault, "the check of a table was interrupted; it will be tried again");
                    if stopped.recv_timeout(AGAIN_AFTER) != Err(RecvTimeoutError::Timeout) {
                        return noticed.set_checked(CheckProgress::NotYet);
                    }
                    continue;
                }
            }
            break;
        }
    }
    if findings.is_empty() {
        tracing::info!("every table of the store was checked; no damage was found");
    } else {
        noticed.corrupt(&findings.join("; "));
    }
    noticed.set_checked(CheckProgress::Done(clock.now(), findings));
}

/// Delay before a table whose check was interrupted is checked again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Checks one table. The WAL can be restarted between two tables.
fn check_one(
    db: &mut Sqlite,
    table: &str,
    checkpoints: &Arc<Checkpoints>,
) -> Result<Vec<String>, DbError> {
    let _long = checkpoints.long_read();
    checkpoints.set_running_check(Some(db.interrupt_handle()));
    let found = db.check(Some(table), MOST_FINDINGS);
    checkpoints.set_running_check(None);
    found
}

/// Turns damage into a result instead of an error.
fn seen(fault: DbError) -> Result<Option<String>, DbError> {
    match fault.kind {
        DbErrorKind::Corrupt => Ok(Some(fault.message)),
        DbErrorKind::Column(_) | DbErrorKind::Undecodable => Ok(Some(format!(
            "its schema cannot be read: {}",
            fault.message
        ))),
        _ => Err(fault),
    }
}

/// Size in bytes of the WAL header, and of the header of each of its frames.
const LOG_HEAD: u64 = 32;
const FRAME_HEAD: u64 = 24;

/// The committed part of the WAL that the engine silently ignores, because a damaged frame ends
/// the log for it; `None` if there is none.
///
/// A kill leaves a torn end that was never acknowledged. It is no damage, and no commit follows
/// it.
pub fn lost_of_log(path: &Path) -> Result<Option<String>, DbError> {
    let log = files::log(path);
    let Ok(file) = File::open(&log) else {
        return Ok(None);
    };
    let length = file.metadata()?.len();
    // A database that cannot be opened is reported by another check.
    let used = match Sqlite::open(path, Use::Examine).and_then(|mut db| db.frames()) {
        Ok(used) => used,
        Err(fault) if fault.is_damage() => return Ok(None),
        Err(fault) => return Err(fault),
    };
    lost_frames(&file, length, u64::try_from(used).unwrap_or(0)).map_err(DbError::from)
}

fn lost_frames(file: &File, length: u64, used: u64) -> io::Result<Option<String>> {
    if length <= LOG_HEAD + FRAME_HEAD {
        return Ok(None);
    }
    let mut head = [0; LOG_HEAD as usize];
    file.read_exact_at(&mut head, 0)?;
    let number = |bytes: &[u8], at: usize| {
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let magic = number(&head, 0) & !1;
    let page = u64::from(number(&head, 8));
    if magic != 0x377f_0682 || !(512..=65536).contains(&page) {
        return Ok(
            (used == 0).then(|| format!("the header of the WAL ({length} bytes) is damaged"))
        );
    }
    let mut committed = false;
    let mut lost = None;
    for number_of in used.. {
        let at = LOG_HEAD + number_of * (FRAME_HEAD + page);
        if at + FRAME_HEAD + page > length {
            break;
        }
        let mut frame = [0; FRAME_HEAD as usize];
        file.read_exact_at(&mut frame, at)?;
        // Frames from before the WAL was restarted have another salt.
        if frame[8..16] != head[16..24] {
            continue;
        }
        // A kill may leave the header of a last frame marked "commit" without its page.
        if committed {
            lost = Some(number_of + 1 - used);
        }
        committed |= number(&frame, 4) != 0;
    }
    Ok(lost.map(|frames| {
        format!(
            "a WAL frame is damaged: {frames} frames from number {} on were \
             not used",
            used + 1
        )
    }))
}
