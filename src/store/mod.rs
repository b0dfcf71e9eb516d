//! The only folder that contains SQL. Writes are named commands that one thread executes and
//! answers after their commit; reads use connections of their own.
//!
//! SQL is written once, over [`tx::Tx`], in a subset that another engine can execute: `?1`
//! parameters; no constraint error as control flow (use `ON CONFLICT` or a read first); numbers
//! from the stored counter, never `max() + 1`; no U+0000 in text; literal `LIMIT`; ids and
//! keys compared bytewise. Each engine has its own migrations.

pub(crate) mod repair;
pub mod tables;
pub mod tx;

mod backup;
mod before_migration;
mod checkpoint;
mod files;
mod handle;
mod migrate;
mod open;
mod own_backups;
mod placement;
mod readers;
mod room;
mod seal;
mod sqlite;
mod threads;
pub mod write;
mod writer;

pub use crate::store::repair::health::{StoreHealth, Unexamined, examine};
pub use crate::store::repair::noticed::CheckProgress;
pub use backup::{CheckedBackup, Placed, RestoreError, newest_copy, place};
pub use files::{DATABASE, suspect};
pub use handle::Store;
pub use migrate::SCHEMA;
pub use open::{OpenError, OpenOptions, OpenedStore};
pub use own_backups::{BackupFile, BackupPolicy, newest_in};
pub use room::{DiskSpace, free};
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
            DbErrorKind::NoDescriptor => Fault::new(
                Kind::Unavailable,
                "the daemon can open no more files, so nothing was read; nothing was changed",
            )
            .hint("raise its limit of open files (LimitNOFILE, ulimit -n), or close connections")
            .with("retryAfterMs", 1000),
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
