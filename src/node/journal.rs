//! The journal of the programs that a node has run for a gateway: a file for each call, so that a
//! repeated call is answered and not carried out again.
//!
//! A file is named by the call's id and has one JSON line for each change: `begun` before the
//! program is started, `launched` with its process, `ended` with the result. It is removed when the
//! gateway has stored the result. `begun` and `ended` are on disk before the node goes on;
//! `launched` only has to survive this process, since no program survives the machine.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::error::NodeError;
use super::folder::make_private;
use crate::file_work::sync_folder;
use crate::kernel::ids::CallId;
use crate::kernel::node::CallEnd;
use crate::kernel::time::Timestamp;
use crate::process::ProcessIdentity;

/// Maximum number of calls that the gateway has not released, and of bytes of their files.
const CALL_LIMIT: usize = 1000;
const BYTE_LIMIT: u64 = 64 * 1024 * 1024;
/// Results that no gateway has asked for are dropped after this time, milliseconds.
const KEPT_MS: u64 = 30 * 24 * 3600 * 1000;

/// A line of a call's file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallRecord {
    /// The program is about to be started.
    Begun {
        /// When, milliseconds since the epoch.
        at: i64,
        /// The program.
        program: String,
    },
    /// The program was started.
    Launched(ProcessIdentity),
    /// The call has ended.
    Ended(CallEnd),
}

/// A call that is in the journal when the node starts.
#[derive(Debug, PartialEq)]
pub(super) struct FoundCall {
    /// The call.
    pub id: CallId,
    /// Its program, if its start was recorded.
    pub program: Option<ProcessIdentity>,
    /// Whether its result is stored.
    pub has_ended: bool,
}

/// The journal of one gateway.
#[derive(Debug)]
pub(super) struct Journal {
    folder: PathBuf,
    /// The size of each call's file.
    sizes: Mutex<HashMap<CallId, u64>>,
}

impl Journal {
    /// Opens the journal; also returns the calls in it.
    pub(super) fn open(
        folder: PathBuf,
        now: Timestamp,
    ) -> Result<(Journal, Vec<FoundCall>), NodeError> {
        make_private(&folder)?;
        let journal = Journal {
            sizes: Mutex::default(),
            folder,
        };
        let fault = |fault: io::Error| NodeError::file(&journal.folder, fault);
        let mut found = Vec::new();
        for entry in fs::read_dir(&journal.folder).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
                tracing::warn!(file = ?name, "a file in the journal of calls is not a call; it is ignored");
                continue;
            };
            found.extend(journal.examine(id, now).map_err(fault)?);
        }
        found.sort_by_key(|call| call.id);
        Ok((journal, found))
    }

    /// Reads a call at the start; one that never began, or is too old, is removed.
    fn examine(&self, id: CallId, now: Timestamp) -> io::Result<Option<FoundCall>> {
        let path = self.path(id);
        let mut call = FoundCall {
            id,
            program: None,
            has_ended: false,
        };
        let mut begun_at = None;
        for record in self.records(id)? {
            match record {
                CallRecord::Begun { at, .. } => begun_at = Some(Timestamp(at)),
                CallRecord::Launched(program) => call.program = Some(program),
                CallRecord::Ended(_) => call.has_ended = true,
            }
        }
        let is_kept = begun_at.is_some_and(|at| !call.has_ended || at.plus_ms(KEPT_MS) > now);
        if !is_kept {
            fs::remove_file(&path)?;
            return Ok(None);
        }
        let text = fs::read(&path)?;
        self.sizes().insert(id, text.len() as u64);
        if !text.ends_with(b"\n") {
            // What follows begins on a line of its own.
            self.append(id)?.write_all(b"\n")?;
        }
        Ok(Some(call))
    }

    /// The records of a call. A line that was not written completely is none.
    fn records(&self, id: CallId) -> io::Result<Vec<CallRecord>> {
        let text = fs::read(self.path(id))?;
        let lines = text.split(|byte| *byte == b'\n');
        Ok(lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect())
    }

    /// True if another call can be stored.
    pub(super) fn has_room(&self) -> bool {
        let sizes = self.sizes();
        sizes.len() < CALL_LIMIT && sizes.values().sum::<u64>() < BYTE_LIMIT
    }

    /// Once this returns, the call has begun, also after a power failure.
    pub(super) fn begin(&self, id: CallId, program: &str, now: Timestamp) -> io::Result<()> {
        let record = CallRecord::Begun {
            at: now.0,
            program: program.to_owned(),
        };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.path(id))?;
        let written = self
            .write(&mut file, id, &record)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_folder(&self.folder));
        if written.is_err() {
            // Nothing was started, so nothing must be found later.
            self.forget(id);
        }
        written
    }

    /// Notes the process of the call's program.
    pub(super) fn launched(&self, id: CallId, program: ProcessIdentity) -> io::Result<()> {
        let mut file = self.append(id)?;
        self.write(&mut file, id, &CallRecord::Launched(program))
    }

    /// Once this returns, the result is stored, also after a power failure.
    pub(super) fn end(&self, id: CallId, end: &CallEnd) -> io::Result<()> {
        let mut file = self.append(id)?;
        self.write(&mut file, id, &CallRecord::Ended(end.clone()))?;
        file.sync_data()
    }

    /// The result of a call; `None` if it has none.
    pub(super) fn result(&self, id: CallId) -> io::Result<Option<CallEnd>> {
        let last = self.records(id)?.pop();
        Ok(match last {
            Some(CallRecord::Ended(end)) => Some(end),
            _ => None,
        })
    }

    /// The call is forgotten.
    pub(super) fn forget(&self, id: CallId) {
        self.sizes().remove(&id);
        match fs::remove_file(self.path(id)) {
            Err(fault) if fault.kind() != ErrorKind::NotFound => {
                tracing::warn!(%fault, call = %id, "a released call could not be removed from the journal");
            }
            _ => {}
        }
    }

    fn append(&self, id: CallId) -> io::Result<File> {
        OpenOptions::new().append(true).open(self.path(id))
    }

    /// Writes one line at once.
    fn write(&self, file: &mut File, id: CallId, record: &CallRecord) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        file.write_all(&line)?;
        *self.sizes().entry(id).or_default() += line.len() as u64;
        Ok(())
    }

    fn path(&self, id: CallId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    fn sizes(&self) -> MutexGuard<'_, HashMap<CallId, u64>> {
        // Each change is one insertion or removal.
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn id(number: u128) -> CallId {
        CallId(Uuid::from_u128(number))
    }

    fn end(message: &str) -> CallEnd {
        CallEnd::Uncertain {
            message: message.to_owned(),
        }
    }

    #[test]
    fn calls_are_found_again_as_far_as_they_came() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("calls");
        let open = || Journal::open(folder.clone(), NOW).unwrap();
        let (journal, found) = open();
        assert!(found.is_empty() && journal.has_room());
        let program = ProcessIdentity { pid: 7, start: 8 };
        for number in 1..=3 {
            journal.begin(id(number), "/bin/true", NOW).unwrap();
        }
        assert!(
            journal.begin(id(1), "/bin/true", NOW).is_err(),
            "a call begins once"
        );
        journal.launched(id(2), program).unwrap();
        journal.launched(id(3), program).unwrap();
        journal.end(id(3), &end("done")).unwrap();
        assert_eq!(journal.result(id(3)).unwrap(), Some(end("done")));
        assert_eq!(journal.result(id(2)).unwrap(), None);
        assert!(journal.result(id(9)).is_err());
        // Files that are no calls, or of calls that never began, or were cut within a line.
        fs::write(folder.join("note"), "x").unwrap();
        fs::write(folder.join(id(4).to_string()), "").unwrap();
        fs::write(folder.join(id(5).to_string()), "{\"begun\":{\"at\"").unwrap();
        let cut =
            "{\"begun\":{\"at\":1000000000000,\"program\":\"x\"}}\n{\"ended\":{\"type\":\"unc";
        fs::write(folder.join(id(6).to_string()), cut).unwrap();
        let (journal, found) = open();
        let found: Vec<_> = found
            .iter()
            .map(|call| (call.id, call.program.is_some(), call.has_ended))
            .collect();
        assert_eq!(
            found,
            [
                (id(1), false, false),
                (id(2), true, false),
                (id(3), true, true),
                (id(6), false, false)
            ]
        );
        journal.end(id(6), &end("lost")).unwrap();
        assert_eq!(journal.result(id(6)).unwrap(), Some(end("lost")));
        journal.forget(id(3));
        journal.forget(id(3));
        assert_eq!(open().1.len(), 3);
    }

    #[test]
    fn old_results_are_dropped_and_old_calls_without_one_are_not() {
        let place = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(place.path().to_owned(), NOW).unwrap();
        journal.begin(id(1), "x", NOW).unwrap();
        journal.begin(id(2), "x", NOW).unwrap();
        journal.end(id(2), &end("")).unwrap();
        let later = NOW.plus_ms(KEPT_MS + 1);
        let (_, found) = Journal::open(place.path().to_owned(), later).unwrap();
        let found: Vec<_> = found.iter().map(|call| call.id).collect();
        assert_eq!(found, [id(1)]);
    }

    #[test]
    fn the_journal_is_bounded() {
        let place = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(place.path().to_owned(), NOW).unwrap();
        journal.sizes().insert(id(1), BYTE_LIMIT);
        assert!(!journal.has_room());
        journal.sizes().clear();
        journal
            .sizes()
            .extend((0..1000).map(|number| (id(number), 1)));
        assert!(!journal.has_room());
        journal.sizes().remove(&id(5));
        assert!(journal.has_room());
    }
}
