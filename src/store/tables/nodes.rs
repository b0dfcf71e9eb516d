//! The tables of paired nodes and of invitations.

use crate::kernel::ids::NodeId;
use crate::kernel::node::PairedNode;
use crate::store::tables::table::{self, read, table};
use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

table! {
    nodes: PairedNode;
    key { id }
    insert { org, public_key, created_at }
    update {
        name,
        token_hash,
        generation,
        machine,
        offered,
        approved,
        denied,
        programs,
        approved_by,
        seen_at,
        removed_at,
    }
    version { ver }
    // A node with an invented key, name or token is none. What is lost of a decision is not approved.
    undecodable Moved {
        "machine" => "machine = '{\"host\":\"\",\"platform\":\"\",\"arch\":\"\",\"version\":\"\"}'",
        "offered" => "offered = '{\"commands\":[]}'",
        "approved" => "approved = '{\"commands\":[]}'",
        "denied" => "denied = '{\"commands\":[]}', approved = '{\"commands\":[]}'",
        "programs" => "programs = '{}'",
        "approved_by" => "approved_by = ''",
    }
}

/// All nodes, by tenant and name, then removed ones.
pub fn every(tx: &mut dyn Tx) -> Result<Vec<PairedNode>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM nodes ORDER BY removed_at IS NOT NULL, org, name, id");
    all(tx, sql, &[], read)
}

/// The tenant's node with that id; a removed one, too.
pub fn get(tx: &mut dyn Tx, org: &str, id: NodeId) -> Result<Option<PairedNode>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM nodes WHERE id = ?1 AND org = ?2");
    first(tx, sql, &[(&id).into(), org.into()], read)
}

/// The node with that public key that is not removed.
pub fn by_key(tx: &mut dyn Tx, key: &str) -> Result<Option<PairedNode>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM nodes WHERE public_key = ?1 AND removed_at IS NULL");
    first(tx, sql, &[key.into()], read)
}

/// The tenant's node with that name that is not removed.
pub fn by_name(tx: &mut dyn Tx, org: &str, name: &str) -> Result<Option<PairedNode>, DbError> {
    let sql =
        sql!("SELECT {COLUMNS} FROM nodes WHERE org = ?1 AND name = ?2 AND removed_at IS NULL");
    first(tx, sql, &[org.into(), name.into()], read)
}

/// The number of the tenant's nodes that are not removed.
pub fn count(tx: &mut dyn Tx, org: &str) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM nodes WHERE org = ?1 AND removed_at IS NULL";
    number(tx, sql, &[org.into()])
}

/// The node is stored.
pub fn insert(tx: &mut dyn Tx, node: &PairedNode) -> Result<(), DbError> {
    table::insert(tx, node, [])
}

/// The row has the values of `node`, and the next version.
pub fn update(tx: &mut dyn Tx, node: &PairedNode) -> Result<(), DbError> {
    table::update(tx, node)
}

/// Of the tenant's removed nodes, those removed last are kept, at most `most`.
pub fn forget_removed(tx: &mut dyn Tx, org: &str, most: u32) -> Result<(), DbError> {
    let sql = format!(
        "DELETE FROM nodes WHERE org = ?1 AND removed_at IS NOT NULL AND id NOT IN \
         (SELECT id FROM nodes WHERE org = ?1 AND removed_at IS NOT NULL \
          ORDER BY removed_at DESC, id LIMIT {most})"
    );
    execute(tx, &sql, &[org.into()])
}

/// The table of invitations.
pub mod invites {
    use crate::kernel::node::NodeInvite;
    use crate::kernel::time::Timestamp;
    use crate::store::tables::table::{self, read, table};
    use crate::store::tx::{DbError, Tx, execute, first, number, sql};

    table! {
        invites: NodeInvite;
        key { code_hash }
        insert { org, name, limits, created_by, created_at, expires_at }
        update { used_at, node }
        // Another invitation can be made.
        undecodable Moved {}
    }

    /// The invitation with this hash of its code.
    pub fn get(tx: &mut dyn Tx, code_hash: &str) -> Result<Option<NodeInvite>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM invites WHERE code_hash = ?1");
        first(tx, sql, &[code_hash.into()], read)
    }

    /// The number of the tenant's invitations that can still be used.
    pub fn count_open(tx: &mut dyn Tx, org: &str, now: Timestamp) -> Result<i64, DbError> {
        let sql = "SELECT count(*) FROM invites \
                   WHERE org = ?1 AND used_at IS NULL AND expires_at > ?2";
        number(tx, sql, &[org.into(), now.0.into()])
    }

    /// The invitation is stored.
    pub fn insert(tx: &mut dyn Tx, invite: &NodeInvite) -> Result<(), DbError> {
        table::insert(tx, invite, [])
    }

    /// The row says by which node it was used.
    pub fn update(tx: &mut dyn Tx, invite: &NodeInvite) -> Result<(), DbError> {
        table::update(tx, invite)
    }

    /// Invitations that expired before this time are deleted.
    pub fn forget(tx: &mut dyn Tx, before: Timestamp) -> Result<(), DbError> {
        let sql = "DELETE FROM invites WHERE expires_at < ?1";
        execute(tx, sql, &[before.0.into()])
    }
}
