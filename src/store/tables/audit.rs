//! The table of audit rows, and how an audit row joins the transaction of the audited command.
//!
//! The API layer executes a call inside [`on_behalf`], with its audit entry. The first command
//! that the call submits takes the entry, and the writer inserts the row in that command's
//! transaction: the row exists exactly if the effect does, and costs no commit of its own. If a
//! call submits no command (it was refused, or had nothing to write), the entry is returned to
//! the caller, which may write it as a soft command.

use std::cell::RefCell;
use std::net::IpAddr;

use super::table::{self, read, table};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Tx, all, execute};

/// The audit entry of a call that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedCall {
    /// The tenant.
    pub org: String,
    /// The principal that made the call.
    pub principal: String,
    /// The API method.
    pub method: &'static str,
    /// The object of the call, as far as the request names it.
    pub object: Option<String>,
    /// The address of the client, of a call over TCP.
    pub client: Option<IpAddr>,
}

/// One audit row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its sequence number: rising, with gaps.
    pub seq: i64,
    /// When the call was made.
    pub at: Timestamp,
    /// The principal that made the call.
    pub principal: String,
    /// The API method.
    pub method: String,
    /// The object of the call; `None` if neither request nor reply names one.
    pub object: Option<String>,
    /// `ok`, or the kind of the fault.
    pub outcome: String,
    /// The address of the client, of a call over TCP.
    pub client: Option<String>,
}

table! {
    audit: AuditRow;
    key { seq }
    insert { at, principal, method, object, outcome, client }
    beside { org: String }
    // Audit data is never invented.
    undecodable Moved {}
}

tokio::task_local! {
    static CALL: RefCell<Option<AuditedCall>>;
}

/// Runs `work` with the audit entry of its call; returns the entry if no command took it.
pub async fn on_behalf<T>(
    entry: AuditedCall,
    work: impl Future<Output = T>,
) -> (T, Option<AuditedCall>) {
    let scoped = async move {
        let done = work.await;
        (done, take())
    };
    CALL.scope(RefCell::new(Some(entry)), scoped).await
}

/// Takes the entry of the current call; only the first caller gets it.
pub(crate) fn take() -> Option<AuditedCall> {
    CALL.try_with(|entry| entry.borrow_mut().take())
        .ok()
        .flatten()
}

/// The outcome word of a call; `None` if the call is not audited, because it was malformed or was
/// refused due to the daemon's own state.
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

/// The row is in the table.
pub fn insert(
    tx: &mut dyn Tx,
    seq: i64,
    at: Timestamp,
    entry: &AuditedCall,
    object: Option<&str>,
    outcome: &str,
) -> Result<(), DbError> {
    let row = AuditRow {
        seq,
        at,
        principal: entry.principal.clone(),
        method: entry.method.to_owned(),
        object: object.map(str::to_owned).or_else(|| entry.object.clone()),
        outcome: outcome.to_owned(),
        client: entry.client.map(|address| address.to_string()),
    };
    table::insert(tx, &row, [(&entry.org).into()])
}

/// Only the newest `keep` rows are left.
pub fn prune(tx: &mut dyn Tx, keep: u32) -> Result<(), DbError> {
    execute(
        tx,
        &format!(
            "DELETE FROM audit WHERE seq <= \
             (SELECT seq FROM audit ORDER BY seq DESC LIMIT 1 OFFSET {keep})"
        ),
        &[],
    )
}

/// A page of the tenant's rows below `before`, newest first, optionally of one method.
pub fn page(
    tx: &mut dyn Tx,
    org: &str,
    method: Option<&str>,
    before: i64,
    limit: u32,
) -> Result<Vec<AuditRow>, DbError> {
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
