//! The table of access tokens.

use super::columns::columns_of;
use super::table::{self, read, table};
use crate::kernel::ids::TokenId;
use crate::kernel::time::Timestamp;
use crate::kernel::token::{AccessToken, TokenLimits};
use crate::store::tx::{DbError, Param, Tx, all, execute, first, number, sql};

table! {
    tokens: AccessToken;
    key { id }
    insert {
        org, user, label, hash, scopes, limits(calls_per_minute, connections, open_runs),
        created_by, created_at, expires_at, revoked_at, used_at
    }
    // A token whose rights or end would have to be invented is refused.
    undecodable Moved {
        "label" => "label = NULL",
        "created_by" => "created_by = ''",
        "created_at" => "created_at = 0",
        "used_at" => "used_at = NULL",
    }
}

columns_of!(TokenLimits {
    calls_per_minute,
    connections,
    open_runs
});

/// All tokens of all orgs, oldest first.
pub fn every(tx: &mut dyn Tx) -> Result<Vec<AccessToken>, DbError> {
    all(
        tx,
        sql!("SELECT {COLUMNS} FROM tokens ORDER BY id"),
        &[],
        read,
    )
}

/// A page of tokens below `before`, newest first, of one org or of all.
pub fn page(
    tx: &mut dyn Tx,
    org: Option<&str>,
    before: Option<TokenId>,
    limit: u32,
) -> Result<Vec<AccessToken>, DbError> {
    let mut params: Vec<Param<'_>> = Vec::new();
    let mut clause = String::from("1 = 1");
    if let Some(before) = &before {
        params.push(before.into());
        clause.push_str(&format!(" AND id < ?{}", params.len()));
    }
    if let Some(org) = org {
        params.push(org.into());
        clause.push_str(&format!(" AND org = ?{}", params.len()));
    }
    let sql = format!("SELECT {COLUMNS} FROM tokens WHERE {clause} ORDER BY id DESC LIMIT {limit}");
    all(tx, &sql, &params, read)
}

/// The token with this id.
pub fn get(tx: &mut dyn Tx, id: TokenId) -> Result<Option<AccessToken>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM tokens WHERE id = ?1");
    first(tx, sql, &[(&id).into()], read)
}

/// The number of tokens of the org, those that have ended included.
pub fn count(tx: &mut dyn Tx, org: &str) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM tokens WHERE org = ?1",
        &[org.into()],
    )
}

/// The row is stored.
pub fn insert(tx: &mut dyn Tx, token: &AccessToken) -> Result<(), DbError> {
    table::insert(tx, token, [])
}

/// The token is revoked.
pub fn revoke(tx: &mut dyn Tx, id: TokenId, at: Timestamp) -> Result<(), DbError> {
    let sql = "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
    execute(tx, sql, &[(&id).into(), at.0.into()])
}

/// The last use of the token is not before `at`.
pub fn note_use(tx: &mut dyn Tx, id: TokenId, at: Timestamp) -> Result<(), DbError> {
    let sql = "UPDATE tokens SET used_at = ?2 \
               WHERE id = ?1 AND (used_at IS NULL OR used_at < ?2)";
    execute(tx, sql, &[(&id).into(), at.0.into()])
}

/// Tokens of the org that ended before `before` have no rows.
pub fn remove_ended(tx: &mut dyn Tx, org: &str, before: Timestamp) -> Result<(), DbError> {
    let sql = "DELETE FROM tokens WHERE org = ?1 AND (revoked_at < ?2 OR expires_at < ?2)";
    execute(tx, sql, &[org.into(), before.0.into()])
}
