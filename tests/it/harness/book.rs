//! The rows of a store as a test reads them: past the daemon, straight from the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rusqlite::{Connection, Row};
use serde_json::Value;
use uuid::Uuid;

/// All rows at one moment. Ids are the text that clients see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    /// By id.
    pub(crate) sessions: BTreeMap<String, Session>,
    /// By id.
    pub(crate) runs: BTreeMap<String, Run>,
    /// By run and seq.
    pub(crate) steps: BTreeMap<(String, i64), Step>,
    /// By session and seq.
    pub(crate) messages: BTreeMap<(String, i64), Message>,
    /// By cursor.
    pub(crate) events: BTreeMap<i64, Event>,
    /// By the run that ended.
    pub(crate) outbox: BTreeMap<String, Notice>,
    /// Texts said to runs in their turns: by run, how many stand in its transcript.
    pub(crate) steers: BTreeMap<String, usize>,
    /// Deleted sessions of which something is left.
    pub(crate) purges: BTreeSet<String>,
    /// Runs that retention has removed.
    pub(crate) expired: BTreeSet<String>,
    /// Key, run, and the answer that was given.
    pub(crate) keys: Vec<(String, String, Value)>,
    /// The same of what steps of runs have made.
    pub(crate) step_keys: Vec<(String, String, Value)>,
    /// By run.
    pub(crate) sends: BTreeMap<String, SentRow>,
    /// By id.
    pub(crate) questions: BTreeMap<String, QuestionRow>,
    /// What is waited for, and by which step.
    pub(crate) waits: Vec<(String, (String, i64))>,
    /// The last number that was given out.
    pub(crate) counter: i64,
    /// For each life of the daemon, whether it ended cleanly.
    pub(crate) boots: Vec<bool>,
    /// Calls that changed something: method, object, outcome.
    pub(crate) audit: Vec<(String, Option<String>, String)>,
}

/// A row of `sends`.
#[derive(Clone, Debug)]
pub(crate) struct SentRow {
    pub(crate) first: String,
    pub(crate) turn: i64,
    pub(crate) asker: Option<String>,
    pub(crate) state: String,
    pub(crate) windowed: bool,
}

/// A row of `questions`.
#[derive(Clone, Debug)]
pub(crate) struct QuestionRow {
    pub(crate) step: (String, i64),
    pub(crate) state: String,
    pub(crate) answer: Option<String>,
}

/// A row of `sessions`.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) parent: Option<String>,
    pub(crate) root: String,
    pub(crate) depth: i64,
    /// The seq that it goes on from: where it was forked, else 0.
    pub(crate) begins: i64,
    pub(crate) messages: i64,
}

/// A row of `runs`.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) seq: i64,
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) requester: Option<String>,
    pub(crate) root_run: String,
    pub(crate) origin: String,
    pub(crate) state: String,
    pub(crate) announce: String,
    pub(crate) result: Option<String>,
    pub(crate) input: Option<String>,
    pub(crate) steps: i64,
    pub(crate) loops: i64,
    pub(crate) tool_calls: i64,
    pub(crate) started: bool,
    pub(crate) ended: bool,
    pub(crate) cancel_by: Option<String>,
}

/// A row of `steps`.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) id: String,
    pub(crate) run: String,
    pub(crate) seq: i64,
    pub(crate) kind: String,
    pub(crate) tool: Option<String>,
    pub(crate) tool_call: Option<String>,
    pub(crate) asked_by: Option<String>,
    pub(crate) state: String,
    pub(crate) input: Value,
    pub(crate) seen_up_to: Option<i64>,
    pub(crate) message_seq: Option<i64>,
    pub(crate) error: Option<String>,
    pub(crate) attempts: i64,
    pub(crate) waits: Option<String>,
}

/// A row of `messages`.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) session: String,
    pub(crate) seq: i64,
    pub(crate) role: String,
    pub(crate) kind: String,
    pub(crate) origin: String,
    pub(crate) run: Option<String>,
    pub(crate) content: Value,
    pub(crate) tool_call: Option<String>,
    pub(crate) announce: Option<String>,
    pub(crate) silent: bool,
}

/// A row of `outbox`.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) announce: String,
    pub(crate) target: String,
    pub(crate) policy: String,
    pub(crate) state: String,
    pub(crate) message_seq: Option<i64>,
    pub(crate) acked: bool,
    pub(crate) via: Option<String>,
}

/// A row of `events`.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) cursor: i64,
    pub(crate) kind: String,
    pub(crate) session: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) run: Option<String>,
    pub(crate) root: Option<String>,
    pub(crate) data: Value,
}

impl Book {
    /// Reads a copy of the database and of its write-ahead file, as a start would find them.
    pub(crate) fn read(database: &Path) -> Book {
        // A daemon that was killed while it made its store has left none.
        if !database.exists() {
            return Book::default();
        }
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("copy.db");
        fs::copy(database, &path).unwrap();
        let log = database.with_extension("db-wal");
        if log.exists() {
            fs::copy(&log, path.with_extension("db-wal")).unwrap();
        }
        Book::of(&Connection::open(&path).unwrap())
    }

    fn of(db: &Connection) -> Book {
        let keys = "SELECT key, run_id, answer FROM idempotency WHERE scope <> 'step'";
        let step_keys = "SELECT key, run_id, answer FROM idempotency WHERE scope = 'step'";
        let waits = "SELECT awaited, run_id, step FROM waits";
        let counter = "SELECT value FROM counters WHERE name = 'seq'";
        let audit = "SELECT method, object, outcome FROM audit ORDER BY seq";
        let boots = "SELECT ended_at IS NOT NULL FROM boots ORDER BY seq";
        Book {
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
            expired: rows(db, "SELECT run_id FROM expired", |row| id(row, 0))
                .into_iter()
                .collect(),
            keys: rows(db, keys, |row| (text(row, 0), id(row, 1), json(row, 2))),
            step_keys: rows(db, step_keys, |row| {
                (text(row, 0), id(row, 1), json(row, 2))
            }),
            sends: sends(db),
            questions: questions(db),
            waits: rows(db, waits, |row| (id(row, 0), (id(row, 1), number(row, 2)))),
            counter: rows(db, counter, |row| number(row, 0))[0],
            audit: rows(db, audit, |row| {
                (text(row, 0), maybe_text(row, 1), text(row, 2))
            }),
            boots: rows(db, boots, |row| number(row, 0) == 1),
        }
    }

    /// Is the session of this run there? With it go its transcript and its journals.
    pub(crate) fn is_whole(&self, run: &Run) -> bool {
        self.sessions.contains_key(&run.session)
    }

    /// Were events removed by age?
    pub(crate) fn is_trimmed(&self) -> bool {
        let started = self
            .events
            .values()
            .filter(|event| event.kind == "gateway.started");
        started.count() < self.boots.len()
    }

    /// Was anything taken away, by a deletion or by age?
    pub(crate) fn has_gaps(&self) -> bool {
        !self.expired.is_empty() || self.runs.values().any(|run| !self.is_whole(run))
    }

    /// The steps of a run, in their order.
    pub(crate) fn steps_of(&self, run: &str) -> impl Iterator<Item = &Step> {
        let steps = self.steps.range((run.to_owned(), 0)..);
        let run = run.to_owned();
        steps
            .map(|(_, step)| step)
            .take_while(move |step| step.run == run)
    }

    /// The transcript of a session, in its order.
    pub(crate) fn transcript(&self, session: &str) -> impl Iterator<Item = &Message> {
        let from = (session.to_owned(), 0);
        let to = (session.to_owned(), i64::MAX);
        self.messages.range(from..=to).map(|(_, message)| message)
    }

    /// An entry of a transcript.
    pub(crate) fn entry(&self, session: &str, seq: i64) -> &Message {
        &self.messages[&(session.to_owned(), seq)]
    }

    /// The events of each run, in their order. An announce's delivery belongs to the run that
    /// it is of.
    pub(crate) fn events_by_run(&self) -> BTreeMap<&str, Vec<&Event>> {
        let mut by_run: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in self.events.values() {
            if let Some(run) = event.run.as_deref() {
                by_run.entry(run).or_default().push(event);
            }
        }
        by_run
    }
}

impl Run {
    /// Is a requester to be told of its end?
    pub(crate) fn owes_announce(&self) -> bool {
        self.requester.is_some() && self.announce != "none"
    }
}

impl Step {
    /// Has it no outcome yet?
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "intended" | "started")
    }

    /// Did its run end before it had an outcome of its own?
    pub(crate) fn was_cut_off(&self) -> bool {
        self.error.as_deref() == Some("the run ended before it had an outcome")
    }

    /// Has it an outcome of its own?
    pub(crate) fn is_over(&self) -> bool {
        !self.is_open() && !self.was_cut_off()
    }
}

impl Message {
    /// Its text blocks, as a model reads them.
    pub(crate) fn text(&self) -> String {
        let blocks = self.content.as_array().unwrap();
        let texts: Vec<&str> = blocks
            .iter()
            .filter(|block| block["type"] == "text")
            .map(|block| block["text"].as_str().unwrap())
            .collect();
        texts.join("\n\n")
    }

    /// Id, tool and arguments of the calls in it.
    pub(crate) fn tool_calls(&self) -> Vec<(String, String, Value)> {
        let blocks = self.content.as_array().unwrap();
        blocks
            .iter()
            .filter(|block| block["type"] == "tool_call")
            .map(|block| {
                let text = |name: &str| block[name].as_str().unwrap().to_owned();
                (text("id"), text("name"), block["arguments"].clone())
            })
            .collect()
    }

    /// Was it said to the agent?
    pub(crate) fn is_said(&self) -> bool {
        self.role == "user" && self.kind == "text"
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
        begins: number(row, 7),
    });
    rows.into_iter().map(|row| (row.id.clone(), row)).collect()
}

fn runs(db: &Connection) -> BTreeMap<String, Run> {
    let sql = "SELECT seq, id, session_id, requester_id, root_run, origin, state, announce, \
               result, input, steps, loops, tool_calls, started_at IS NOT NULL, \
               ended_at IS NOT NULL, cancel_by FROM runs";
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
               announce_id, silent FROM messages";
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

fn outbox(db: &Connection) -> BTreeMap<String, Notice> {
    let sql = "SELECT run_id, announce_id, target_session, policy, state, message_seq, \
               acked_at IS NOT NULL, via FROM outbox";
    let rows = rows(db, sql, |row| {
        let notice = Notice {
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
            windowed: number(row, 5) == 1,
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
