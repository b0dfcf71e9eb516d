//! Recovers the intact part of a damaged WAL. SQLite stops at the first damaged frame, although
//! each later frame can be verified with the checksum of the one before it, and frames before the
//! damage may be older than pages already in the database file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::store::files;

/// Size in bytes of the WAL header, and of the header of each of its frames.
const LOG_HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

/// A temporary copy of the database with every intact WAL frame applied, up to the last commit.
/// Deleted on drop.
pub struct Redone(PathBuf);

impl Redone {
    /// The path of the copy.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Redone {
    fn drop(&mut self) {
        if let Err(fault) = files::discard(&self.0) {
            tracing::warn!(%fault, "the temporary copy of a damaged store could not be removed");
        }
    }
}

/// Creates the copy; the database and its WAL are not changed.
pub fn redo(path: &Path) -> io::Result<Redone> {
    let redone = Redone(files::beside(path, ".redone"));
    copy(path, &redone.0)?;
    Ok(redone)
}

/// Once this returns, `to` is a copy of the database with every intact WAL frame applied, up to
/// the last commit. Page contents are not checked, so they may be damaged in any way.
pub fn copy(path: &Path, to: &Path) -> io::Result<()> {
    files::discard(to)?;
    files::private(to)?;
    fs::copy(path, to)?;
    let copy = OpenOptions::new().write(true).open(to)?;
    let mut waiting: Vec<(u32, Vec<u8>)> = Vec::new();
    read(&files::log(path), &mut |frame| {
        waiting.push((frame.page, frame.bytes.to_vec()));
        if frame.pages > 0 {
            for (page, bytes) in waiting.drain(..) {
                let at = u64::from(page.saturating_sub(1)) * files::PAGE as u64;
                copy.write_all_at(&bytes, at)?;
            }
            copy.set_len(u64::from(frame.pages) * files::PAGE as u64)?;
        }
        Ok(())
    })
}

/// An intact WAL frame.
struct Frame<'a> {
    /// Number of its page.
    page: u32,
    /// For a commit frame, the number of pages of the database; else 0.
    pages: u32,
    /// The content of the page.
    bytes: &'a [u8],
}

/// Passes every intact frame of the WAL's current generation to `each`.
fn read(log: &Path, each: &mut dyn FnMut(&Frame<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut file = match File::open(log) {
        Ok(file) => io::BufReader::new(file),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(fault),
    };
    let mut head = [0; LOG_HEAD];
    if file.read_exact(&mut head).is_err() {
        return Ok(());
    }
    let magic = number(&head, 0);
    let is_head_whole = magic & !1 == 0x377f_0682 && {
        let sum = checksum(magic & 1 == 1, (0, 0), &[&head[..24]]);
        sum == (number(&head, 24), number(&head, 28))
    };
    // If the header is damaged, the first salt is unknown: take that of the first frame.
    let mut salt = is_head_whole.then(|| head[16..24].to_vec());
    let mut before = is_head_whole.then(|| (number(&head, 24), number(&head, 28)));
    let mut frame = vec![0; FRAME_HEAD + files::PAGE];
    while file.read_exact(&mut frame).is_ok() {
        let salt = salt.get_or_insert_with(|| frame[8..16].to_vec());
        if frame[8..16] != **salt {
            // The damage may be in this frame's header; the next frame can be verified again.
            before = None;
            continue;
        }
        let (own, bytes) = frame.split_at(FRAME_HEAD);
        let says = (number(own, 16), number(own, 20));
        let is_whole = before.is_some_and(|before| {
            [false, true]
                .into_iter()
                .filter(|big| !is_head_whole || *big == (magic & 1 == 1))
                .any(|big| checksum(big, before, &[&own[..8], bytes]) == says)
        });
        if is_whole {
            each(&Frame {
                page: number(own, 0),
                pages: number(own, 4),
                bytes,
            })?;
        }
        before = Some(says);
    }
    Ok(())
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The cumulative WAL checksum over pairs of 32-bit words.
fn checksum(is_big_endian: bool, from: (u32, u32), parts: &[&[u8]]) -> (u32, u32) {
    let (mut first, mut second) = from;
    for part in parts {
        for pair in part.chunks_exact(8) {
            let word = |at: usize| {
                let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                match is_big_endian {
                    true => u32::from_be_bytes(bytes),
                    false => u32::from_le_bytes(bytes),
                }
            };
            first = first.wrapping_add(word(0)).wrapping_add(second);
            second = second.wrapping_add(word(4)).wrapping_add(first);
        }
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::{Sqlite, Use};
    use crate::store::tx::{Tx, number as count};

    /// A database whose rows are all in its WAL, one commit each.
    fn database(folder: &Path) -> (PathBuf, u64) {
        let path = folder.join(files::DATABASE);
        let mut db = Sqlite::open(&path, Use::Write).unwrap();
        db.batch("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
            .unwrap();
        for n in 1..=50_i64 {
            let text = "x".repeat(3000);
            db.execute("INSERT INTO t VALUES (?1, ?2)", &[n.into(), (&text).into()])
                .unwrap();
        }
        // The files as a kill leaves them, without a close.
        let kept = folder.join("kept");
        fs::create_dir(&kept).unwrap();
        let copy = kept.join(files::DATABASE);
        fs::copy(&path, &copy).unwrap();
        fs::copy(files::log(&path), files::log(&copy)).unwrap();
        let length = files::log(&copy).metadata().unwrap().len();
        (copy, length)
    }

    #[test]
    fn a_damaged_frame_costs_its_own_page_only() {
        let folder = tempfile::tempdir().unwrap();
        let (path, length) = database(folder.path());
        let whole = fs::read(files::log(&path)).unwrap();
        let frames = (length as usize - LOG_HEAD) / (FRAME_HEAD + files::PAGE);
        assert!(frames > 60, "{frames}");
        // The WAL header, a frame's header, a page of an early frame and of a late one.
        let frame = |number: usize| LOG_HEAD + number * (FRAME_HEAD + files::PAGE);
        for (at, least) in [
            (4, 49),
            (frame(20) + 9, 49),
            (frame(20) + FRAME_HEAD + 500, 48),
            (frame(60) + FRAME_HEAD + 500, 48),
        ] {
            let mut damaged = whole.clone();
            for byte in &mut damaged[at..at + 8] {
                *byte ^= 0x55;
            }
            fs::write(files::log(&path), &damaged).unwrap();
            let redone = redo(&path).unwrap();
            let mut db = Sqlite::open(redone.path(), Use::Examine).unwrap();
            let mut found = 0;
            // A lost page ends the scan; the rows before and after it are found.
            let _ = db.query("SELECT n FROM t ORDER BY n", &[], &mut |_| {
                found += 1;
                Ok(())
            });
            let _ = db.query("SELECT n FROM t ORDER BY n DESC", &[], &mut |_| {
                found += 1;
                Ok(())
            });
            assert!(found >= least, "damaged at {at}: {found}");
            assert!(fs::read(files::log(&path)).unwrap() == damaged);
        }
        fs::write(files::log(&path), &whole).unwrap();
        let redone = redo(&path).unwrap();
        let mut db = Sqlite::open(redone.path(), Use::Examine).unwrap();
        assert_eq!(count(&mut db, "SELECT count(*) FROM t", &[]), Ok(50));
        assert_eq!(db.check(None, 10), Ok(Vec::new()));
    }
}
