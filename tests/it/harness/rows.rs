//! Reads each table of a store into a [`Book`].

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};
use serde_json::Value;
use uuid::Uuid;

use super::book::{
    ApprovalRow, Event, Message, OutboxRow, QuestionRow, Run, SentRow, Session, Step, StoreRows,
};

/// Reads all rows.
pub(super) fn book(db: &Connection) -> StoreRows {
    let keys = "SELECT key, run_id, answer FROM idempotency WHERE scope <> 'step'";
    let step_keys = "SELECT key, run_id, answer FROM idempotency WHERE scope = 'step'";
    let waits = "SELECT awaited, run_id, step FROM waits";
    let sealed = "SELECT run_id FROM run_values WHERE sealed IS NOT NULL";
    let applied = "SELECT run_id FROM applied_environments";
    let counter = "SELECT value FROM counters WHERE name = 'seq'";
    let audit = "SELECT method, object, outcome FROM audit ORDER BY seq";
    let boots = "SELECT ended_at IS NOT NULL FROM boots ORDER BY seq";
    StoreRows {
        sessions: sessions(db),
        runs: runs(db),
        steps: steps(db),
        messages: messages(db),
        events: events(db),
        outbox: outbox(db),
        steers: steers(db),
        purges: rows(db, "SELECT session_id FROM purges", |row| id(row, 0))
            .into_iter()
            .collect(),
        stops: rows(db, "SELECT session_id, by_person FROM stops", |row| {
            (id(row, 0), number(row, 1) == 1)
        })
        .into_iter()
        .collect(),
        expired: rows(db, "SELECT run_id FROM expired", |row| id(row, 0))
            .into_iter()
            .collect(),
        keys: rows(db, keys, |row| (text(row, 0), id(row, 1), json(row, 2))),
        step_keys: rows(db, step_keys, |row| {
            (text(row, 0), id(row, 1), json(row, 2))
        }),
        sends: sends(db),
        questions: questions(db),
        approvals: approvals(db),
        waits: rows(db, waits, |row| (id(row, 0), (id(row, 1), number(row, 2)))),
        sealed: rows(db, sealed, |row| id(row, 0)).into_iter().collect(),
        applied: rows(db, applied, |row| id(row, 0)).into_iter().collect(),
        counter: rows(db, counter, |row| number(row, 0))[0],
        audit: rows(db, audit, |row| {
            (text(row, 0), maybe_text(row, 1), text(row, 2))
        }),
        boots: rows(db, boots, |row| number(row, 0) == 1),
    }
}

fn rows<T>(db: &Connection, sql: &str, mut read: impl FnMut(&Row<'_>) -> T) -> Vec<T> {
    let mut statement = db.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok(read(row))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn number(row: &Row<'_>, at: usize) -> i64 {
    row.get(at).unwrap()
}

fn maybe_number(row: &Row<'_>, at: usize) -> Option<i64> {
    row.get(at).unwrap()
}

fn text(row: &Row<'_>, at: usize) -> String {
    row.get(at).unwrap()
}

fn maybe_text(row: &Row<'_>, at: usize) -> Option<String> {
    row.get(at).unwrap()
}

fn id(row: &Row<'_>, at: usize) -> String {
    maybe_id(row, at).unwrap()
}

fn maybe_id(row: &Row<'_>, at: usize) -> Option<String> {
    let bytes: Option<Vec<u8>> = row.get(at).unwrap();
    bytes.map(|bytes| Uuid::from_slice(&bytes).unwrap().to_string())
}

fn json(row: &Row<'_>, at: usize) -> Value {
    serde_json::from_str(&text(row, at)).unwrap()
}

fn sessions(db: &Connection) -> BTreeMap<String, Session> {
    let sql = "SELECT id, key, owner, parent_id, root_id, depth, messages, \
               coalesce(fork_seq, 0) FROM sessions";
    let rows = rows(db, sql, |row| Session {
        id: id(row, 0),
        key: text(row, 1),
        owner: text(row, 2),
        parent: maybe_id(row, 3),
        root: id(row, 4),
        depth: number(row, 5),
        messages: number(row, 6),
        fork_seq: number(row, 7),
    });
    rows.into_iter().map(|row| (row.id.clone(), row)).collect()
}

fn runs(db: &Connection) -> BTreeMap<String, Run> {
    let sql = "SELECT seq, id, session_id, requester_id, root_run, origin, state, announce, \
               result, input, steps, loops, tool_calls, started_at IS NOT NULL, \
               ended_at IS NOT NULL, cancel_by, delegation, parent_run, for_step, for_call, \
               input_tokens + output_tokens, spent_tokens, budget IS NOT NULL, depth FROM runs";
    let rows = rows(db, sql, |row| Run {
        seq: number(row, 0),
        id: id(row, 1),
        session: id(row, 2),
        requester: maybe_id(row, 3),
        root_run: id(row, 4),
        origin: text(row, 5),
        state: text(row, 6),
        announce: text(row, 7),
        result: maybe_text(row, 8),
        input: maybe_text(row, 9),
        steps: number(row, 10),
        loops: number(row, 11),
        tool_calls: number(row, 12),
        started: number(row, 13) == 1,
        ended: number(row, 14) == 1,
        cancel_by: maybe_text(row, 15),
        parent: maybe_id(row, 17),
        depth: number(row, 23),
        used_tokens: number(row, 20),
        spent_tokens: (number(row, 22) == 1).then(|| number(row, 21)),
        delegated: maybe_text(row, 16).map(|_| ((id(row, 17), number(row, 18)), text(row, 19))),
        delegation_mode: maybe_text(row, 16),
    });
    rows.into_iter().map(|row| (row.id.clone(), row)).collect()
}

fn steps(db: &Connection) -> BTreeMap<(String, i64), Step> {
    let sql = "SELECT id, run_id, seq, kind, tool, tool_call, asked_by, state, input, \
               seen_up_to, message_seq, error, attempts, waits FROM steps";
    let rows = rows(db, sql, |row| Step {
        id: id(row, 0),
        run: id(row, 1),
        seq: number(row, 2),
        kind: text(row, 3),
        tool: maybe_text(row, 4),
        tool_call: maybe_text(row, 5),
        asked_by: maybe_id(row, 6),
        state: text(row, 7),
        input: json(row, 8),
        seen_up_to: maybe_number(row, 9),
        message_seq: maybe_number(row, 10),
        error: maybe_text(row, 11),
        attempts: number(row, 12),
        waits: maybe_text(row, 13),
    });
    rows.into_iter()
        .map(|row| ((row.run.clone(), row.seq), row))
        .collect()
}

fn messages(db: &Connection) -> BTreeMap<(String, i64), Message> {
    let sql = "SELECT session_id, seq, role, kind, origin, run_id, content, tool_call, \
               announce_id, silent, child_run FROM messages";
    let rows = rows(db, sql, |row| Message {
        session: id(row, 0),
        seq: number(row, 1),
        role: text(row, 2),
        kind: text(row, 3),
        origin: text(row, 4),
        run: maybe_id(row, 5),
        content: json(row, 6),
        tool_call: maybe_text(row, 7),
        announce: maybe_id(row, 8),
        silent: number(row, 9) == 1,
        child_run: maybe_id(row, 10),
    });
    rows.into_iter()
        .map(|row| ((row.session.clone(), row.seq), row))
        .collect()
}

fn steers(db: &Connection) -> BTreeMap<String, usize> {
    let sql = "SELECT run_id, count(*) FROM steers WHERE message_seq IS NOT NULL GROUP BY run_id";
    let count = |row: &Row<'_>| usize::try_from(number(row, 1)).unwrap();
    rows(db, sql, |row| (id(row, 0), count(row)))
        .into_iter()
        .collect()
}

fn outbox(db: &Connection) -> BTreeMap<String, OutboxRow> {
    let sql = "SELECT run_id, announce_id, target_session, policy, state, message_seq, \
               acked_at IS NOT NULL, via FROM outbox";
    let rows = rows(db, sql, |row| {
        let notice = OutboxRow {
            announce: id(row, 1),
            target: id(row, 2),
            policy: text(row, 3),
            state: text(row, 4),
            message_seq: maybe_number(row, 5),
            acked: number(row, 6) == 1,
            via: maybe_text(row, 7),
        };
        (id(row, 0), notice)
    });
    rows.into_iter().collect()
}

fn sends(db: &Connection) -> BTreeMap<String, SentRow> {
    let sql =
        "SELECT run_id, first_run, turn, asker_id, state, window_until IS NOT NULL FROM sends";
    let rows = rows(db, sql, |row| {
        let sent = SentRow {
            first: id(row, 1),
            turn: number(row, 2),
            asker: maybe_id(row, 3),
            state: text(row, 4),
            has_deadline: number(row, 5) == 1,
        };
        (id(row, 0), sent)
    });
    rows.into_iter().collect()
}

fn questions(db: &Connection) -> BTreeMap<String, QuestionRow> {
    let sql = "SELECT id, run_id, step, state, answer FROM questions";
    let rows = rows(db, sql, |row| {
        let question = QuestionRow {
            step: (id(row, 1), number(row, 2)),
            state: text(row, 3),
            answer: maybe_text(row, 4),
        };
        (id(row, 0), question)
    });
    rows.into_iter().collect()
}

fn approvals(db: &Connection) -> BTreeMap<String, ApprovalRow> {
    let sql = "SELECT id, run_id, step, state FROM approvals";
    let rows = rows(db, sql, |row| {
        let approval = ApprovalRow {
            step: (id(row, 1), number(row, 2)),
            state: text(row, 3),
        };
        (id(row, 0), approval)
    });
    rows.into_iter().collect()
}

fn events(db: &Connection) -> BTreeMap<i64, Event> {
    let sql = "SELECT cursor, kind, session_id, session_key, run_id, root_run, data FROM events";
    let rows = rows(db, sql, |row| Event {
        cursor: number(row, 0),
        kind: text(row, 1),
        session: maybe_id(row, 2),
        key: maybe_text(row, 3),
        run: maybe_id(row, 4),
        root: maybe_id(row, 5),
        data: json(row, 6),
    });
    rows.into_iter().map(|row| (row.cursor, row)).collect()
}
