//! Restores references between rows that were salvaged from a damaged file. Rows that refer to
//! lost rows are quarantined; rows that can be derived from others are rebuilt.

use super::salvage::Misfit;
use super::tables::{self, Table};
use crate::kernel::ids::RunId;
use crate::kernel::time::Timestamp;
use crate::store::sqlite::Sqlite;
use crate::store::tables::quarantine::Fate;
use crate::store::tables::{bundles, memories, quarantine};
use crate::store::tx::{DbError, Raw, Tx, all, number};

/// Sequence numbers skipped because lost rows may have used them.
const MARGIN: i64 = 1 << 20;

/// Once this returns, every reference finds its row, no sequence number is given out twice, and
/// no run has more permissions than before; `unbound` says that rows of bundles may be lost.
/// Returns the number of rows quarantined, besides the misfits.
pub fn restore(
    db: &mut Sqlite,
    misfits: &[Misfit],
    unbound: bool,
    now: Timestamp,
) -> Result<usize, DbError> {
    db.batch("BEGIN IMMEDIATE")?;
    count_on(db)?;
    for misfit in misfits {
        let seq = next(db)?;
        let key = quarantine::to_text(&misfit.key);
        let why = (misfit.why.as_str(), Fate::Moved);
        quarantine::insert(db, seq, &misfit.table, &key, &misfit.row, why, now)?;
    }
    make_sessions_anew(db)?;
    if unbound {
        bundles::close_unbound(db)?;
    }
    memories::index_anew(db)?;
    let mut removed = 0;
    for (name, clause) in [
        (
            "steps",
            "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id)",
        ),
        (
            "outbox",
            "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id)",
        ),
        (
            "steers",
            "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id)",
        ),
        (
            "messages",
            "NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = session_id) \
             AND NOT EXISTS (SELECT 1 FROM purges WHERE purges.session_id = messages.session_id)",
        ),
    ] {
        let table = tables::find(name).expect("it is listed");
        removed += move_away(db, table, clause, now)?;
    }
    db.batch(
        "UPDATE sessions SET messages = max(messages, \
           (SELECT coalesce(max(seq), 0) FROM messages WHERE session_id = sessions.id)); \
         DELETE FROM waits WHERE length(awaited) <> 16 \
           OR NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = waits.run_id); \
         COMMIT",
    )?;
    Ok(removed)
}

/// What an open run needs to continue, each with a condition that is true if it is lost.
const NEEDED: &[(&str, &str)] = &[
    (
        "its session",
        "NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = runs.session_id)",
    ),
    (
        "some of its steps",
        "steps <> (SELECT count(*) FROM steps WHERE run_id = runs.id)",
    ),
    (
        "a part of its transcript",
        "(SELECT messages - coalesce(fork_seq, 0) FROM sessions WHERE sessions.id = runs.session_id) <> \
         (SELECT count(*) FROM messages WHERE messages.session_id = runs.session_id)",
    ),
    (
        "the definition of its agent",
        "NOT EXISTS (SELECT 1 FROM blobs WHERE hash = runs.pin_agent)",
    ),
    (
        "the list of its tools",
        "NOT EXISTS (SELECT 1 FROM blobs WHERE hash = runs.pin_tools)",
    ),
    (
        "the list of its skills",
        "pin_skills IS NOT NULL AND NOT EXISTS (SELECT 1 FROM blobs WHERE hash = runs.pin_skills)",
    ),
    (
        "its permission bundle",
        "runs.bundle IS NULL AND EXISTS (SELECT 1 FROM bundles WHERE session_id = runs.session_id \
           AND instr(body, '(lost with a part of the damaged store)') > 0)",
    ),
    // A step with a deadline ends by it, even if what it waits for is lost.
    (
        "what one of its steps waits for",
        "EXISTS (SELECT 1 FROM steps WHERE steps.run_id = runs.id AND steps.ended_at IS NULL \
           AND steps.waits IS NOT NULL AND steps.waits NOT IN ('review', 'value') \
           AND (NOT EXISTS (SELECT 1 FROM waits WHERE waits.run_id = steps.run_id AND waits.step = steps.seq) \
             OR (steps.wait_until IS NULL AND steps.waits <> 'provider' \
               AND EXISTS (SELECT 1 FROM waits WHERE waits.run_id = steps.run_id AND waits.step = steps.seq \
                 AND NOT EXISTS (SELECT 1 FROM runs AS other WHERE other.id = waits.awaited) \
                 AND NOT EXISTS (SELECT 1 FROM questions WHERE questions.id = waits.awaited) \
                 AND NOT EXISTS (SELECT 1 FROM approvals WHERE approvals.id = waits.awaited)))))",
    ),
];

/// The open runs that lost rows they need to continue.
pub fn broken_runs(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    let clauses: Vec<String> = NEEDED.iter().map(|(_, lost)| format!("({lost})")).collect();
    let clauses = clauses.join(" OR ");
    runs(
        tx,
        &format!("SELECT id FROM runs WHERE ended_at IS NULL AND ({clauses})"),
    )
}

/// The lost parts of the run that it needs to continue, as text for users; may be empty.
pub fn lost_of(tx: &mut dyn Tx, run: RunId) -> Result<Vec<&'static str>, DbError> {
    let mut lost = Vec::new();
    for (what, clause) in NEEDED {
        let sql = format!("SELECT count(*) FROM runs WHERE id = ?1 AND ({clause})");
        if number(tx, &sql, &[(&run.0).into()])? > 0 {
            lost.push(*what);
        }
    }
    Ok(lost)
}

/// Ended runs that owe an announce to their requester and have no outbox row.
pub fn unannounced_runs(tx: &mut dyn Tx) -> Result<Vec<RunId>, DbError> {
    runs(
        tx,
        "SELECT id FROM runs WHERE ended_at IS NOT NULL AND requester_id IS NOT NULL \
         AND announce <> 'none' \
         AND NOT EXISTS (SELECT 1 FROM outbox WHERE outbox.run_id = runs.id)",
    )
}

fn runs(tx: &mut dyn Tx, sql: &str) -> Result<Vec<RunId>, DbError> {
    let found = all(tx, sql, &[], |row| row.raw(0))?;
    Ok(found
        .into_iter()
        .filter_map(|id| match id {
            Raw::Bytes(bytes) => uuid::Uuid::from_slice(&bytes).ok().map(RunId),
            _ => None,
        })
        .collect())
}

/// The counter is above every number in any row.
fn count_on(db: &mut Sqlite) -> Result<(), DbError> {
    let mut highest = number(db, "SELECT value FROM counters WHERE name = 'seq'", &[])?;
    for (table, column) in [
        ("sessions", "seq"),
        ("runs", "seq"),
        ("outbox", "seq"),
        ("boots", "seq"),
        ("quarantine", "seq"),
        ("questions", "seq"),
        ("approvals", "seq"),
        ("remembered", "seq"),
        ("memories", "seq"),
        ("events", "cursor"),
    ] {
        let sql = format!(
            "SELECT max({column}) FROM {table} WHERE {column} < {}",
            i64::MAX / 2
        );
        highest = highest.max(number_or_zero(db, &sql)?);
    }
    db.execute(
        "INSERT INTO counters (name, value) VALUES ('seq', ?1) \
         ON CONFLICT (name) DO UPDATE SET value = ?1",
        &[(highest + MARGIN).into()],
    )
    .map(drop)
}

fn number_or_zero(db: &mut Sqlite, sql: &str) -> Result<i64, DbError> {
    number(db, &format!("SELECT coalesce(({sql}), 0)"), &[])
}

fn next(db: &mut Sqlite) -> Result<i64, DbError> {
    db.execute(
        "UPDATE counters SET value = value + 1 WHERE name = 'seq'",
        &[],
    )?;
    number(db, "SELECT value FROM counters WHERE name = 'seq'", &[])
}

/// A session whose row is lost but whose transcript is not is rebuilt from its runs.
fn make_sessions_anew(db: &mut Sqlite) -> Result<(), DbError> {
    db.execute(
        "INSERT INTO sessions (seq, id, org, key, generation, owner, agent, parent_id, parent_key, \
           root_id, depth, title, cwd, mode, cleanup, messages, created_at, updated_at, ver) \
         SELECT (SELECT value FROM counters WHERE name = 'seq') + row_number() OVER (), session_id, \
           org, session_key, max(generation), 'agent', agent, \
           CASE WHEN origin = 'spawn' THEN requester_id END, \
           CASE WHEN origin = 'spawn' THEN requester_key END, \
           root_session, depth, title, cwd, \
           CASE WHEN origin = 'spawn' THEN 'run' ELSE 'session' END, 'keep', 0, \
           min(created_at), max(last_activity_at), 1 \
         FROM runs WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = runs.session_id) \
           AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = runs.session_id) \
           AND NOT EXISTS (SELECT 1 FROM purges WHERE purges.session_id = runs.session_id) \
         GROUP BY session_id \
         ON CONFLICT DO NOTHING",
        &[],
    )?;
    // Sessions that only requested runs and received their announces.
    db.execute(
        "INSERT INTO sessions (seq, id, org, key, generation, owner, agent, root_id, depth, mode, \
           cleanup, messages, created_at, updated_at, ver) \
         SELECT (SELECT value FROM counters WHERE name = 'seq') + 500000 + row_number() OVER (), \
           requester_id, org, requester_key, max(requester_generation), \
           CASE WHEN announce = 'inbox' THEN 'client' ELSE 'agent' END, agent, root_session, 0, \
           'session', 'keep', 0, min(created_at), max(last_activity_at), 1 \
         FROM runs WHERE requester_id IS NOT NULL AND requester_key IS NOT NULL \
           AND NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = runs.requester_id) \
           AND EXISTS (SELECT 1 FROM messages WHERE messages.session_id = runs.requester_id) \
           AND NOT EXISTS (SELECT 1 FROM purges WHERE purges.session_id = runs.requester_id) \
         GROUP BY requester_id \
         ON CONFLICT DO NOTHING",
        &[],
    )?;
    count_on(db)
}

/// Rows that refer to lost ones are quarantined; returns their number.
fn move_away(
    db: &mut Sqlite,
    table: &Table,
    clause: &str,
    now: Timestamp,
) -> Result<usize, DbError> {
    let places = table.places(db, clause, &[])?;
    for place in &places {
        let Some(row) = table.whole_row(db, place)? else {
            continue;
        };
        let names = table.primary.iter().map(|name| (*name).to_owned());
        let key: Vec<(String, Raw)> = names.zip(place.iter().cloned()).collect();
        let seq = next(db)?;
        let why = ("the row that it belongs to was lost", Fate::Moved);
        let key = quarantine::to_text(&key);
        quarantine::insert(db, seq, table.name, &key, &row, why, now)?;
        table.remove(db, place)?;
    }
    Ok(places.len())
}
