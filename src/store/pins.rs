//! Bodies that runs pin, kept in memory while they are in use: runs of one agent read the same
//! ones. A body never changes, its hash is its name.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::blobs;
use super::tx::{BadRow, DbError, Raw, Tx};
use crate::contract::pin::Pin;

/// From so many bodies on, those that no run at work has are dropped when another is read: there
/// are a few for each agent in use.
const KEPT: usize = 64;

/// Bodies by their hashes.
#[derive(Debug, Default)]
pub struct Pins(Mutex<HashMap<String, Pin>>);

impl Pins {
    /// The body. Without it a run is another one than was accepted: one that is lost is noticed as
    /// a row that cannot be read, and the open runs that have pinned it end.
    pub fn get(&self, tx: &mut dyn Tx, hash: &str) -> Result<Pin, DbError> {
        if let Some(known) = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(hash)
        {
            return Ok(known.clone());
        }
        let Some(body) = blobs::get(tx, hash)? else {
            // As of a body that cannot be read: what has pinned it ends.
            let lost = BadRow {
                table: "blobs",
                key: vec![("hash", Raw::Text(hash.as_bytes().to_vec()))],
                why: "a run has pinned it, and it is not there".to_owned(),
            };
            tx.leave_out(lost.clone())?;
            return Err(DbError::unreadable(lost));
        };
        let pin = Pin::from(body);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.retain(|_, pin| !pin.is_idle());
        }
        kept.insert(hash.to_owned(), pin.clone());
        Ok(pin)
    }
}
