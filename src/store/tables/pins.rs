//! A memory cache of bodies that runs pin: runs of one agent share them. A body never changes, as
//! its hash is its name.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::blobs;
use crate::contract::pin::Pin;
use crate::store::tx::{BadRow, DbError, Raw, Tx};

/// Number of cached bodies from which on a new one evicts those that no active run uses. An agent
/// in use needs a few.
const KEPT: usize = 64;

/// Cached bodies by hash.
#[derive(Debug, Default)]
pub struct PinCache(Mutex<HashMap<String, Pin>>);

impl PinCache {
    /// The body with that hash. A run must not continue without it: a missing body is recorded as
    /// an undecodable row, and the open runs that pinned it end.
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
            // Handled like a body that does not decode: the runs that pinned it end.
            let lost = BadRow {
                table: "blobs",
                key: vec![("hash", Raw::Text(hash.as_bytes().to_vec()))],
                why: "a run has pinned it, but it is missing".to_owned(),
            };
            tx.report_undecodable(lost.clone())?;
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
