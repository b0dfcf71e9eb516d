//! The tables of webhooks and of their dead letters.

use super::columns::values;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::Webhook;
use crate::store::tables::table::{self, read, table};
use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

table! {
    webhooks: Webhook;
    key { name }
    insert { created_at }
    update {
        selection,
        digest,
        read_to,
        open,
        delivered,
        failed,
        given_up,
        missed,
        delivered_at,
        failed_at,
        failure,
        stopped_at,
        removed_at,
    }
    // Without a place in the log it is a new one. Which of the open events are delivered is in no
    // other row: they are read again.
    undecodable Moved {
        "selection" => "selection = '{\"kinds\":[],\"sessions\":[]}'",
        "digest" => "digest = ''",
        "created_at" => "created_at = 0",
        "open" => "open = '{}'",
        "delivered" => "delivered = 0",
        "failed" => "failed = 0",
        "given_up" => "given_up = 0",
        "missed" => "missed = 0",
        "delivered_at" => "delivered_at = NULL",
        "failed_at" => "failed_at = NULL",
        "failure" => "failure = NULL",
        "stopped_at" => "stopped_at = NULL",
        "removed_at" => "removed_at = NULL",
    }
}

/// All webhooks, by name.
pub fn every(tx: &mut dyn Tx) -> Result<Vec<Webhook>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM webhooks ORDER BY name");
    all(tx, sql, &[], read)
}

/// The webhook with that name.
pub fn get(tx: &mut dyn Tx, name: &str) -> Result<Option<Webhook>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM webhooks WHERE name = ?1");
    first(tx, sql, &[name.into()], read)
}

/// True if there is any webhook.
pub fn exist(tx: &mut dyn Tx) -> Result<bool, DbError> {
    number(tx, "SELECT EXISTS (SELECT 1 FROM webhooks)", &[]).map(|found| found != 0)
}

/// The row has these values; there is one from now on.
pub fn put(tx: &mut dyn Tx, webhook: &Webhook) -> Result<(), DbError> {
    table::put(tx, webhook, [])
}

/// The names of webhooks whose tables were removed from the settings before this time.
pub fn removed_before(tx: &mut dyn Tx, before: Timestamp) -> Result<Vec<String>, DbError> {
    let sql = "SELECT name FROM webhooks WHERE removed_at <= ?1";
    all(tx, sql, &[before.0.into()], values)
}

/// The webhook and its dead letters are deleted.
pub fn delete(tx: &mut dyn Tx, name: &str) -> Result<(), DbError> {
    execute(
        tx,
        "DELETE FROM dead_letters WHERE webhook = ?1",
        &[name.into()],
    )?;
    execute(tx, "DELETE FROM webhooks WHERE name = ?1", &[name.into()])
}

/// The dead letters.
pub mod dead {
    use crate::kernel::time::Timestamp;
    use crate::kernel::webhook::DeadLetter;
    use crate::store::tables::columns::values;
    use crate::store::tables::table::{self, read, table};
    use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

    table! {
        dead_letters: DeadLetter;
        key { webhook, cursor }
        insert { at, kind, session_key, run(run_id), body }
        update { attempts, failure, died_at, replay }
        // A message with an invented body is none.
        undecodable Moved {
            "at" => "at = 0",
            "kind" => "kind = ''",
            "session_key" => "session_key = NULL",
            "run_id" => "run_id = NULL",
            "attempts" => "attempts = 0",
            "failure" => "failure = ''",
            "died_at" => "died_at = 0",
            "replay" => "replay = NULL",
        }
    }

    /// The dead letters of a webhook before the event with this cursor, newest first, at most `limit`.
    pub fn list(
        tx: &mut dyn Tx,
        webhook: &str,
        before: i64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM dead_letters WHERE webhook = ?1 AND cursor < ?2 \
             ORDER BY cursor DESC LIMIT {limit}"
        );
        all(tx, &sql, &[webhook.into(), before.into()], read)
    }

    /// The dead letter of a webhook with the event at this cursor.
    pub fn get(tx: &mut dyn Tx, webhook: &str, cursor: i64) -> Result<Option<DeadLetter>, DbError> {
        let sql = sql!("SELECT {COLUMNS} FROM dead_letters WHERE webhook = ?1 AND cursor = ?2");
        first(tx, sql, &[webhook.into(), cursor.into()], read)
    }

    /// The dead letters that wait to be delivered again after this cursor, oldest first, at most
    /// `limit`.
    pub fn queued(
        tx: &mut dyn Tx,
        webhook: &str,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM dead_letters WHERE webhook = ?1 AND replay IS NOT NULL AND cursor > ?2 \
             ORDER BY cursor LIMIT {limit}"
        );
        all(tx, &sql, &[webhook.into(), after.into()], read)
    }

    /// The cursors of all dead letters of a webhook, oldest first.
    pub fn cursors(tx: &mut dyn Tx, webhook: &str) -> Result<Vec<i64>, DbError> {
        let sql = "SELECT cursor FROM dead_letters WHERE webhook = ?1 ORDER BY cursor";
        all(tx, sql, &[webhook.into()], values)
    }

    /// The number of dead letters of a webhook.
    pub fn count(tx: &mut dyn Tx, webhook: &str) -> Result<i64, DbError> {
        let sql = "SELECT count(*) FROM dead_letters WHERE webhook = ?1";
        number(tx, sql, &[webhook.into()])
    }

    /// The number of all dead letters.
    pub fn count_all(tx: &mut dyn Tx) -> Result<i64, DbError> {
        number(tx, "SELECT count(*) FROM dead_letters", &[])
    }

    /// The row has these values.
    pub fn put(tx: &mut dyn Tx, letter: &DeadLetter) -> Result<(), DbError> {
        table::put(tx, letter, [])
    }

    /// The dead letter is deleted; false if there was none.
    pub fn delete(tx: &mut dyn Tx, webhook: &str, cursor: i64) -> Result<bool, DbError> {
        let sql = "DELETE FROM dead_letters WHERE webhook = ?1 AND cursor = ?2";
        tx.execute(sql, &[webhook.into(), cursor.into()])
            .map(|gone| gone > 0)
    }

    /// Of the dead letters of a webhook those with the latest events are kept, at most `most`; returns
    /// the number of others.
    pub fn keep(tx: &mut dyn Tx, webhook: &str, most: u32) -> Result<u64, DbError> {
        let sql = format!(
            "DELETE FROM dead_letters WHERE webhook = ?1 AND cursor <= coalesce( \
             (SELECT cursor FROM dead_letters WHERE webhook = ?1 \
              ORDER BY cursor DESC LIMIT 1 OFFSET {most}), 0)"
        );
        tx.execute(&sql, &[webhook.into()])
    }

    /// True if a dead letter is from before this time.
    pub fn exist_before(tx: &mut dyn Tx, before: Timestamp) -> Result<bool, DbError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM dead_letters WHERE died_at <= ?1)";
        number(tx, sql, &[before.0.into()]).map(|found| found != 0)
    }

    /// Dead letters from before this time are deleted.
    pub fn forget(tx: &mut dyn Tx, before: Timestamp) -> Result<(), DbError> {
        let sql = "DELETE FROM dead_letters WHERE died_at <= ?1";
        execute(tx, sql, &[before.0.into()])
    }
}
