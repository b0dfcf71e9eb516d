//! The only folder that contains SQL. Writes are named commands that one thread executes and
//! answers after their commit; reads use connections of their own.
//!
//! SQL is written once, over [`tx::Tx`], in a subset that another engine can execute: `?1`
//! parameters; no constraint error as control flow (use `ON CONFLICT` or a read first); numbers
//! from the stored counter, never `max() + 1`; no U+0000 in text; literal `LIMIT`; ids and
//! keys compared bytewise. Each engine has its own migrations.

pub mod agents;
pub mod approvals;
pub mod asked;
pub mod audit;
pub mod blobs;
pub mod bundles;
pub mod clearings;
pub mod command;
pub mod environment;
pub mod events;
pub mod expired;
pub mod findings;
pub mod gauges;
pub mod memories;
pub mod messages;
pub mod outbox;
pub mod outputs;
pub mod pins;
pub mod purges;
pub mod quarantine;
pub mod questions;
pub mod read;
pub mod remembered;
pub mod runs;
pub mod sends;
pub mod servers;
pub mod sessions;
pub mod skills;
pub mod steers;
pub mod steps;
pub mod stops;
pub mod transcripts;
pub mod trust;
pub mod tx;
pub mod usage;
pub mod waits;

mod backup;
mod boots;
mod check;
mod checkpoint;
mod columns;
mod consistency;
mod downtime;
mod files;
mod filter;
mod handle;
mod health;
mod idempotency;
mod memory_words;
mod migrate;
mod noticed;
mod open;
mod outline;
mod placement;
mod readers;
mod redo;
mod room;
mod salvage;
mod scan;
mod seal;
mod sqlite;
mod tables;
mod threads;
mod writer;

pub use backup::{Backup, Placed, RestoreError, newest_copy, place};
pub use command::{Command, Effect, PendingWait, Reply, Settings, Ticket};
pub use files::{DATABASE, suspect};
pub use handle::Store;
pub use health::{Health, Unexamined, examine};
pub use migrate::SCHEMA;
pub use noticed::Checked;
pub use open::{OpenError, OpenOptions, Opened};
pub use room::{Room, free};
pub use salvage::Report as SalvageReport;
pub use seal::Seal;
pub use sqlite::library_version;
pub use writer::OnFatal;

use crate::kernel::fault::{Fault, Kind};
use tx::{DbError, DbErrorKind};

/// The fault that a caller receives for a database error.
impl From<DbError> for Fault {
    fn from(fault: DbError) -> Fault {
        match fault.kind {
            DbErrorKind::Full => Fault::new(
                Kind::Unavailable,
                "the disk with the state folder is full; accepted work is kept, this request was not",
            )
            .hint("free some space; the daemon continues by itself")
            .with("retryAfterMs", 5000),
            DbErrorKind::Busy => Fault::new(Kind::Busy, "the store is locked; nothing was changed")
                .hint("try again in a moment")
                .with("retryAfterMs", 200),
            DbErrorKind::Unreadable(_) => Fault::new(Kind::Internal, fault.message)
                .hint("the row is quarantined and listed by abide doctor; the other rows are intact"),
            DbErrorKind::Column(_) | DbErrorKind::Undecodable => {
                Fault::internal(format!("a row cannot be read: {fault}"))
            }
            DbErrorKind::Corrupt => Fault::new(
                Kind::Internal,
                format!("the store's file is damaged: {fault}; nothing was changed"),
            )
            .hint("restart the daemon (abide stop --restart): it sets the file aside and salvages what can be read"),
            _ => Fault::internal(format!("the store failed: {fault}")),
        }
    }
}

#[cfg(test)]
mod tests;
