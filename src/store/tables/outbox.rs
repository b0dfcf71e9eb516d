//! The table of announces: the end of each run, pending or delivered to its requester.

use super::columns::{keyed, values};
use super::filter::Filter;
use super::table::{self, read, table};
use crate::kernel::ids::{AnnounceId, RunId, SessionId};
use crate::kernel::run::{AnnouncePolicy, Run};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Tx, all, execute, first, number, sql};

/// One announce.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboxEntry {
    /// Its position in the order of delivery.
    pub seq: i64,
    /// The run that ended.
    pub run: RunId,
    /// The id of the announce in the target's transcript.
    pub announce: AnnounceId,
    /// The session that receives it.
    pub target: SessionId,
    /// The target's generation when the run was spawned.
    pub target_generation: i64,
    /// How it is delivered.
    pub policy: AnnouncePolicy,
    /// `pending`, `delivered`, `undelivered` or `dismissed`.
    pub state: String,
    /// `tool` if it was delivered as the outcome of a tool call.
    pub via: Option<String>,
    /// Why it is undelivered.
    pub held: Option<String>,
    /// Its seq in the transcript, once delivered.
    pub message_seq: Option<i64>,
    /// When it was delivered.
    pub delivered_at: Option<Timestamp>,
    /// When the client acknowledged it.
    pub acked_at: Option<Timestamp>,
    /// When the run ended.
    pub created_at: Timestamp,
}

impl OutboxEntry {
    /// True if it belongs to an inbox, where it waits to be acknowledged.
    pub fn is_inbox(&self) -> bool {
        self.policy == AnnouncePolicy::Inbox && self.via.is_none()
    }
}

/// Maximum number of announces that enter a transcript in one transaction.
pub const AT_ONCE: u32 = 50;

table! {
    outbox: OutboxEntry;
    key { seq }
    insert {
        run(run_id),
        announce(announce_id),
        target(target_session),
        target_generation,
        policy,
        state,
        via,
        held,
        message_seq,
        delivered_at,
        acked_at,
        created_at,
    }
    beside { org: String }
    // Rebuilt from its run.
    undecodable Moved {}
}

/// The end of `run` is pending for its requester, under `policy`. Does nothing for a run without
/// a requester.
pub fn insert(
    tx: &mut dyn Tx,
    seq: i64,
    run: &Run,
    policy: AnnouncePolicy,
    now: Timestamp,
) -> Result<(), DbError> {
    let Some(requester) = &run.requester else {
        return Ok(());
    };
    let target = (requester.session, requester.generation);
    insert_for(tx, seq, run, target, policy, now)
}

/// The end of `run` is pending for this session, in this generation.
pub fn insert_for(
    tx: &mut dyn Tx,
    seq: i64,
    run: &Run,
    (target, generation): (SessionId, i64),
    policy: AnnouncePolicy,
    now: Timestamp,
) -> Result<(), DbError> {
    let entry = OutboxEntry {
        seq,
        run: run.id,
        announce: AnnounceId::of(run.id),
        target,
        target_generation: generation,
        policy,
        state: "pending".to_owned(),
        via: None,
        held: None,
        message_seq: None,
        delivered_at: None,
        acked_at: None,
        created_at: now,
    };
    table::insert(tx, &entry, [(&run.org).into()])
}

/// At most `limit` pending announces for this session, in order.
pub fn pending_for(
    tx: &mut dyn Tx,
    target: SessionId,
    limit: u32,
) -> Result<Vec<OutboxEntry>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM outbox WHERE target_session = ?1 AND state = 'pending' \
             ORDER BY seq LIMIT {limit}"
        ),
        &[(&target).into()],
        read,
    )
}

/// True if an announce is pending for this session.
pub fn has_pending(tx: &mut dyn Tx, target: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM outbox WHERE target_session = ?1 \
               AND state = 'pending')";
    Ok(number(tx, sql, &[(&target).into()])? != 0)
}

/// True if an announce is pending for this session that a turn must see.
pub fn has_waking(tx: &mut dyn Tx, target: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM outbox WHERE target_session = ?1 \
               AND state = 'pending' AND policy <> 'inbox')";
    Ok(number(tx, sql, &[(&target).into()])? != 0)
}

/// Pending announces that are to enter the current turn of this session, in order.
pub fn steering(tx: &mut dyn Tx, target: SessionId) -> Result<Vec<OutboxEntry>, DbError> {
    all(
        tx,
        sql!(
            "SELECT {COLUMNS} FROM outbox WHERE target_session = ?1 AND state = 'pending' \
             AND policy = 'steer' ORDER BY seq LIMIT {AT_ONCE}"
        ),
        &[(&target).into()],
        read,
    )
}

/// Sessions that have pending announces.
pub fn pending_targets(tx: &mut dyn Tx) -> Result<Vec<SessionId>, DbError> {
    all(
        tx,
        "SELECT DISTINCT target_session FROM outbox WHERE state = 'pending'",
        &[],
        keyed("outbox", &["target_session"]),
    )
}

/// The number of pending announces, over all sessions.
pub fn count_pending(tx: &mut dyn Tx, org: Option<&str>) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM outbox WHERE state = 'pending' AND (?1 IS NULL OR org = ?1)",
        &[org.into()],
    )
}

/// When the oldest pending announce was created; `None` if none is pending.
pub fn oldest_pending(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    let sql = "SELECT min(created_at) FROM outbox WHERE state = 'pending'";
    let oldest = first(tx, sql, &[], |row| row.opt_int(0))?;
    Ok(oldest.flatten().map(Timestamp))
}

/// The number of announces that could not be delivered, over all sessions.
pub fn count_undelivered(tx: &mut dyn Tx) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM outbox WHERE state = 'undelivered'";
    number(tx, sql, &[])
}

/// The number of pending announces for this session.
pub fn count_pending_for(tx: &mut dyn Tx, target: SessionId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM outbox WHERE target_session = ?1 AND state = 'pending'",
        &[(&target).into()],
    )
}

/// The number of inbox announces that this session has not acknowledged.
pub fn count_unacked(tx: &mut dyn Tx, target: SessionId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM outbox WHERE target_session = ?1 AND policy = 'inbox' \
         AND acked_at IS NULL",
        &[(&target).into()],
    )
}

/// The announce is delivered, in its target's transcript at `message_seq`. `quietly`: no turn
/// needs to see it, so it moves to the inbox.
pub fn mark_delivered(
    tx: &mut dyn Tx,
    seq: i64,
    message_seq: i64,
    quietly: bool,
    now: Timestamp,
) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE outbox SET state = 'delivered', message_seq = ?2, delivered_at = ?3, \
         policy = CASE WHEN ?4 = 1 THEN 'inbox' ELSE policy END \
         WHERE seq = ?1 AND state = 'pending'",
        &[seq.into(), message_seq.into(), now.0.into(), quietly.into()],
    )
}

/// The announce of `run` is delivered as the outcome of a tool call, at `message_seq` of the
/// transcript, and not announced otherwise. Call it in the transaction of that outcome. Returns
/// `false` if there is no announce, or it was already delivered.
pub fn mark_delivered_by_tool(
    tx: &mut dyn Tx,
    run: RunId,
    message_seq: i64,
    now: Timestamp,
) -> Result<bool, DbError> {
    let changed = tx.execute(
        "UPDATE outbox SET state = 'delivered', via = 'tool', message_seq = ?2, \
         delivered_at = ?3, held = NULL WHERE run_id = ?1 AND state = 'pending'",
        &[(&run).into(), message_seq.into(), now.0.into()],
    )?;
    Ok(changed == 1)
}

/// The undelivered announce is pending again.
pub fn make_pending(tx: &mut dyn Tx, seq: i64) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE outbox SET state = 'pending', held = NULL \
         WHERE seq = ?1 AND state = 'undelivered'",
        &[seq.into()],
    )
}

/// All undelivered announces of this session are pending again; returns whether there were any.
pub fn make_all_pending(tx: &mut dyn Tx, target: SessionId) -> Result<bool, DbError> {
    let changed = tx.execute(
        "UPDATE outbox SET state = 'pending', held = NULL \
         WHERE target_session = ?1 AND state = 'undelivered'",
        &[(&target).into()],
    )?;
    Ok(changed > 0)
}

/// Condition for announces that are to wake the agent of session `?1` and that no turn has seen:
/// not delivered yet, or after seq `?2` of the transcript.
const UNSEEN: &str = "target_session = ?1 AND policy <> 'inbox' \
     AND (state = 'pending' OR state = 'undelivered' \
          OR (state = 'delivered' AND via IS NULL AND message_seq > ?2))";

/// Announces that are to wake the session's agent and that no turn has seen, each with the run
/// that ended. `seen`: the last seq of the transcript that a turn has seen.
pub fn unseen(tx: &mut dyn Tx, target: SessionId, seen: i64) -> Result<Vec<(i64, RunId)>, DbError> {
    all(
        tx,
        sql!("SELECT seq, run_id, seq FROM outbox WHERE {UNSEEN} ORDER BY seq"),
        &[(&target).into(), seen.into()],
        keyed("outbox", KEY),
    )
}

/// The announces that [`unseen`] returns are in the session's inbox and wake no agent.
pub fn set_unseen_inbox(tx: &mut dyn Tx, target: SessionId, seen: i64) -> Result<(), DbError> {
    execute(
        tx,
        sql!("UPDATE outbox SET policy = 'inbox' WHERE {UNSEEN}"),
        &[(&target).into(), seen.into()],
    )
}

/// The announce is in its session's inbox and wakes no agent.
pub fn set_inbox(tx: &mut dyn Tx, seq: i64) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE outbox SET policy = 'inbox' WHERE seq = ?1",
        &[seq.into()],
    )
}

/// The pending or undelivered announce is dismissed and will not be delivered.
pub fn dismiss(tx: &mut dyn Tx, seq: i64) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE outbox SET state = 'dismissed' \
         WHERE seq = ?1 AND (state = 'pending' OR state = 'undelivered')",
        &[seq.into()],
    )
}

/// At most `limit` delivered announces in this session's inbox that are not acknowledged.
pub fn unacked(
    tx: &mut dyn Tx,
    target: SessionId,
    limit: u32,
) -> Result<Vec<OutboxEntry>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM outbox WHERE target_session = ?1 AND policy = 'inbox' \
             AND acked_at IS NULL AND state = 'delivered' AND via IS NULL LIMIT {limit}"
        ),
        &[(&target).into()],
        read,
    )
}

/// Announces of this session's runs that are still pending, undelivered or unacknowledged,
/// according to their rows.
pub fn outstanding_of(tx: &mut dyn Tx, session: SessionId) -> Result<Vec<OutboxEntry>, DbError> {
    all(
        tx,
        sql!(
            "SELECT {} FROM runs JOIN outbox ON outbox.run_id = runs.id \
             WHERE runs.session_id = ?1 AND (outbox.state = 'pending' \
             OR outbox.state = 'undelivered' OR (outbox.state = 'delivered' \
             AND outbox.policy = 'inbox' AND outbox.acked_at IS NULL AND outbox.via IS NULL))",
            TABLE.qualified()
        ),
        &[(&session).into()],
        read,
    )
}

/// The outbox row of the run is deleted.
pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
    execute(tx, "DELETE FROM outbox WHERE run_id = ?1", &[(&run).into()])
}

/// The announce is undelivered, for this reason; the result stays on the run. A previous delivery
/// no longer counts.
pub fn mark_undelivered(tx: &mut dyn Tx, seq: i64, why: &str) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE outbox SET state = 'undelivered', held = ?2, message_seq = NULL, \
         delivered_at = NULL WHERE seq = ?1",
        &[seq.into(), why.into()],
    )
}

/// The delivered announce is acknowledged, if it was addressed to this session. Returns the entry
/// after the call and whether this call changed it; `None` if there is no such announce, or it
/// is not delivered yet.
pub fn ack(
    tx: &mut dyn Tx,
    target: SessionId,
    announce: AnnounceId,
    now: Timestamp,
) -> Result<Option<(OutboxEntry, bool)>, DbError> {
    let changed = tx.execute(
        "UPDATE outbox SET acked_at = ?3 WHERE announce_id = ?1 AND target_session = ?2 \
         AND state = 'delivered' AND acked_at IS NULL",
        &[(&announce).into(), (&target).into(), now.0.into()],
    )?;
    let entry = first(
        tx,
        sql!(
            "SELECT {COLUMNS} FROM outbox WHERE announce_id = ?1 AND target_session = ?2 \
             AND state = 'delivered'"
        ),
        &[(&announce).into(), (&target).into()],
        read,
    )?;
    Ok(entry.map(|entry| (entry, changed == 1)))
}

/// The announce of a run.
pub fn of_run(tx: &mut dyn Tx, run: RunId) -> Result<Option<OutboxEntry>, DbError> {
    first(
        tx,
        sql!("SELECT {COLUMNS} FROM outbox WHERE run_id = ?1"),
        &[(&run).into()],
        read,
    )
}

/// The announces of these runs, for those that have one.
pub fn of_runs(tx: &mut dyn Tx, runs: &[RunId]) -> Result<Vec<OutboxEntry>, DbError> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let mut filter = Filter::default();
    filter.one_of("run_id", runs);
    let (conditions, params) = filter.finish();
    let sql = format!("SELECT {COLUMNS} FROM outbox WHERE {conditions}");
    all(tx, &sql, &params, read)
}

/// Seq of the run's announce in its requester's transcript, if it is there.
pub fn place_in_transcript(tx: &mut dyn Tx, run: &Run) -> Result<Option<i64>, DbError> {
    let Some(requester) = &run.requester else {
        return Ok(None);
    };
    first(
        tx,
        "SELECT seq FROM messages WHERE announce_id = ?1 AND session_id = ?2",
        &[
            (&AnnounceId::of(run.id).0).into(),
            (&requester.session).into(),
        ],
        values,
    )
}

/// Delivered announces of a session's inbox after position `after`, in order; `acked` includes
/// acknowledged ones.
pub fn inbox(
    tx: &mut dyn Tx,
    target: SessionId,
    acked: bool,
    after: i64,
    limit: u32,
) -> Result<Vec<OutboxEntry>, DbError> {
    let acked = if acked { "" } else { "AND acked_at IS NULL" };
    let params: [Param<'_>; 2] = [(&target).into(), after.into()];
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM outbox WHERE target_session = ?1 AND seq > ?2 \
             AND state = 'delivered' AND policy = 'inbox' {acked} ORDER BY seq LIMIT {limit}"
        ),
        &params,
        read,
    )
}
