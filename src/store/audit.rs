//! The table of audit rows, and how a row comes into the transaction of what it tells of.
//!
//! A door says on whose behalf it works while it carries out a call ([`on_behalf`]). The first
//! command that is submitted meanwhile takes the entry along, and the writer puts the row into
//! that command's own transaction: it is there exactly if the effect is, and costs no commit of
//! its own. A call that ends without a command (refused before, or nothing to write) leaves its
//! entry to the caller, who may write it as a command that rides along.

use std::cell::RefCell;

use super::columns::{at, opt_string, time, whole};
use super::command::Reply;
use super::tx::{self, DbError, Param, Tx, all, insert_row};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::time::Timestamp;

/// A call that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The tenant.
    pub org: String,
    /// Who called.
    pub principal: String,
    /// What was called.
    pub method: &'static str,
    /// What it is about, as far as the request says.
    pub object: Option<String>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its place: rising, with gaps.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// Who called.
    pub principal: String,
    /// What was called.
    pub method: String,
    /// What it was about.
    pub object: Option<String>,
    /// `ok`, or the kind of the refusal.
    pub outcome: String,
}

/// The columns that [`read`] reads.
pub const COLUMNS: &str = "seq, at, principal, method, object, outcome";

fn read(row: &dyn tx::Row) -> Result<Row, DbError> {
    whole(row, "audit", &[("seq", at!(seq))], decode)
}

/// An audit row out of [`COLUMNS`].
pub fn decode(row: &dyn tx::Row) -> Result<Row, DbError> {
    Ok(Row {
        seq: row.int(at!(seq))?,
        at: time(row, at!(at))?,
        principal: row.text(at!(principal))?.to_owned(),
        method: row.text(at!(method))?.to_owned(),
        object: opt_string(row, at!(object))?,
        outcome: row.text(at!(outcome))?.to_owned(),
    })
}

tokio::task_local! {
    static CALL: RefCell<Option<Entry>>;
}

/// Carries out `work` on behalf of `entry`; gives the entry back if no command took it along.
pub async fn on_behalf<T>(entry: Entry, work: impl Future<Output = T>) -> (T, Option<Entry>) {
    let scoped = async move {
        let done = work.await;
        (done, take())
    };
    CALL.scope(RefCell::new(Some(entry)), scoped).await
}

/// The entry of the call that is being carried out here, for the first who asks.
pub(super) fn take() -> Option<Entry> {
    CALL.try_with(|entry| entry.borrow_mut().take())
        .ok()
        .flatten()
}

/// The word for how a call ended; `None` for one that is not kept: it made no sense, or was not
/// looked at because of the daemon's own state.
pub fn outcome<T>(done: &Result<T, Fault>) -> Option<&'static str> {
    let kind = match done {
        Ok(_) => return Some("ok"),
        Err(fault) => fault.kind,
    };
    let kept = !matches!(
        kind,
        Kind::ParseError
            | Kind::InvalidRequest
            | Kind::UnknownMethod
            | Kind::InvalidParams
            | Kind::RateLimited
            | Kind::Unavailable
            | Kind::Busy
    );
    kept.then(|| kind.as_str())
}

/// What a command made or moved, where its answer says so.
pub(super) fn object_of(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Accepted(accepted) => Some(accepted.run.to_string()),
        Reply::Session(session, _) => Some(session.key.to_string()),
        Reply::Run(after) => Some(after.run.id.to_string()),
        _ => None,
    }
}

/// The row is in the table.
pub fn insert(
    tx: &mut dyn Tx,
    seq: i64,
    at: Timestamp,
    entry: &Entry,
    object: Option<&str>,
    outcome: &str,
) -> Result<(), DbError> {
    insert_row(
        tx,
        "audit",
        &[
            ("seq", seq.into()),
            ("at", at.0.into()),
            ("org", (&entry.org).into()),
            ("principal", (&entry.principal).into()),
            ("method", entry.method.into()),
            ("object", object.or(entry.object.as_deref()).into()),
            ("outcome", outcome.into()),
        ],
    )
}

/// Only the newest `keep` rows are left.
pub fn prune(tx: &mut dyn Tx, keep: u32) -> Result<(), DbError> {
    tx.execute(
        &format!(
            "DELETE FROM audit WHERE seq <= \
             (SELECT seq FROM audit ORDER BY seq DESC LIMIT 1 OFFSET {keep})"
        ),
        &[],
    )
    .map(|_| ())
}

/// A page of rows, newest first: those of the tenant, and of the method if one is given, below
/// `before`.
pub fn page(
    tx: &mut dyn Tx,
    org: &str,
    method: Option<&str>,
    before: i64,
    limit: u32,
) -> Result<Vec<Row>, DbError> {
    let mut params: Vec<Param<'_>> = vec![org.into(), before.into()];
    let mut clause = "";
    if let Some(method) = method {
        params.push(method.into());
        clause = "AND method = ?3";
    }
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM audit \
             WHERE org = ?1 AND seq < ?2 {clause} ORDER BY seq DESC LIMIT {limit}"
        ),
        &params,
        read,
    )
}
