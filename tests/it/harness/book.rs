//! The rows of a store for tests, read directly from the file and not through the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::Value;

use super::rows;

/// All rows at one moment. Ids are in the text form that clients see.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreRows {
    /// Keyed by id.
    pub(crate) sessions: BTreeMap<String, Session>,
    /// Keyed by id.
    pub(crate) runs: BTreeMap<String, Run>,
    /// Keyed by run and seq.
    pub(crate) steps: BTreeMap<(String, i64), Step>,
    /// Keyed by session and seq.
    pub(crate) messages: BTreeMap<(String, i64), Message>,
    /// Keyed by cursor.
    pub(crate) events: BTreeMap<i64, Event>,
    /// Keyed by the id of the run that ended.
    pub(crate) outbox: BTreeMap<String, OutboxRow>,
    /// Steering messages: by run, the number of them in its transcript.
    pub(crate) steers: BTreeMap<String, usize>,
    /// Deleted sessions whose rows are not fully removed yet.
    pub(crate) purges: BTreeSet<String>,
    /// Sessions whose runs were cancelled; true if a user did it.
    pub(crate) stops: BTreeMap<String, bool>,
    /// Runs that retention has removed.
    pub(crate) expired: BTreeSet<String>,
    /// Idempotency keys of clients: key, run and recorded answer.
    pub(crate) keys: Vec<(String, String, Value)>,
    /// The same for keys that steps of runs have created.
    pub(crate) step_keys: Vec<(String, String, Value)>,
    /// Keyed by run.
    pub(crate) sends: BTreeMap<String, SentRow>,
    /// Keyed by id.
    pub(crate) questions: BTreeMap<String, QuestionRow>,
    /// Keyed by id.
    pub(crate) approvals: BTreeMap<String, ApprovalRow>,
    /// The awaited object, and the step that waits for it.
    pub(crate) waits: Vec<(String, (String, i64))>,
    /// Runs with sealed environment values.
    pub(crate) sealed: BTreeSet<String>,
    /// Runs whose environment may be present in running programs.
    pub(crate) applied: BTreeSet<String>,
    /// The last value of the store's sequence counter.
    pub(crate) counter: i64,
    /// For each boot, whether it ended cleanly.
    pub(crate) boots: Vec<bool>,
    /// Audited calls: method, object, outcome.
    pub(crate) audit: Vec<(String, Option<String>, String)>,
}

/// A row of `sends`.
#[derive(Clone, Debug)]
pub(crate) struct SentRow {
    pub(crate) first: String,
    pub(crate) turn: i64,
    pub(crate) asker: Option<String>,
    pub(crate) state: String,
    pub(crate) has_deadline: bool,
}

/// A row of `questions`.
#[derive(Clone, Debug)]
pub(crate) struct QuestionRow {
    pub(crate) step: (String, i64),
    pub(crate) state: String,
    pub(crate) answer: Option<String>,
}

/// A row of `approvals`.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalRow {
    pub(crate) step: (String, i64),
    pub(crate) state: String,
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
    /// The seq of the entry from which it was forked, else 0.
    pub(crate) fork_seq: i64,
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
    pub(crate) parent: Option<String>,
    pub(crate) depth: i64,
    /// Tokens used by its own model calls.
    pub(crate) used_tokens: i64,
    /// Tokens counted against its budget, if it has one.
    pub(crate) spent_tokens: Option<i64>,
    /// The step of the parent run whose call it carries out, and the model's id of that call.
    pub(crate) delegated: Option<((String, i64), String)>,
    /// The delegation mode of that call.
    pub(crate) delegation_mode: Option<String>,
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
    pub(crate) child_run: Option<String>,
    pub(crate) announce: Option<String>,
    pub(crate) silent: bool,
}

/// A row of `outbox`.
#[derive(Clone, Debug)]
pub(crate) struct OutboxRow {
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

impl StoreRows {
    /// Reads a copy of the database and its WAL file, in the state that a start would find.
    pub(crate) fn read(database: &Path) -> StoreRows {
        // A daemon that was killed while creating its store has left none.
        if !database.exists() {
            return StoreRows::default();
        }
        let copy = tempfile::tempdir().unwrap();
        let path = copy.path().join("copy.db");
        fs::copy(database, &path).unwrap();
        let log = database.with_extension("db-wal");
        if log.exists() {
            fs::copy(&log, path.with_extension("db-wal")).unwrap();
        }
        rows::book(&Connection::open(&path).unwrap())
    }

    /// Does the run's session still exist? Its transcript and journals are deleted with it.
    pub(crate) fn has_session(&self, run: &Run) -> bool {
        self.sessions.contains_key(&run.session)
    }

    /// Were events removed by retention?
    pub(crate) fn is_trimmed(&self) -> bool {
        let started = self
            .events
            .values()
            .filter(|event| event.kind == "gateway.started");
        started.count() < self.boots.len()
    }

    /// Was anything removed, by a deletion or by retention?
    pub(crate) fn has_gaps(&self) -> bool {
        !self.expired.is_empty() || self.runs.values().any(|run| !self.has_session(run))
    }

    /// The steps of a run, in order.
    pub(crate) fn steps_of(&self, run: &str) -> impl Iterator<Item = &Step> {
        let steps = self.steps.range((run.to_owned(), 0)..);
        let run = run.to_owned();
        steps
            .map(|(_, step)| step)
            .take_while(move |step| step.run == run)
    }

    /// The transcript of a session, in order.
    pub(crate) fn transcript(&self, session: &str) -> impl Iterator<Item = &Message> {
        let from = (session.to_owned(), 0);
        let to = (session.to_owned(), i64::MAX);
        self.messages.range(from..=to).map(|(_, message)| message)
    }

    /// An entry of a transcript.
    pub(crate) fn entry(&self, session: &str, seq: i64) -> &Message {
        &self.messages[&(session.to_owned(), seq)]
    }

    /// The events of each run, in order. The delivery of an announce belongs to the run that it
    /// announces.
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
    /// Must its end be announced to a requester?
    pub(crate) fn owes_announce(&self) -> bool {
        self.requester.is_some() && self.announce != "none"
    }

    /// Does it run in its caller's session?
    pub(crate) fn is_called(&self) -> bool {
        self.delegation_mode.as_deref() == Some("call")
    }
}

impl Step {
    /// Has it no outcome yet?
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "intended" | "started")
    }

    /// Does it produce text of the agent?
    pub(crate) fn answers(&self) -> bool {
        matches!(self.kind.as_str(), "model" | "command")
    }

    /// Was it requested explicitly?
    pub(crate) fn is_asked_compaction(&self) -> bool {
        self.kind == "compaction" && self.input["why"] == "asked"
    }

    /// Did its run end before the step had an outcome of its own?
    pub(crate) fn was_cut_off(&self) -> bool {
        let error = self.error.as_deref();
        error == Some("the run ended before the step had an outcome")
            || error
                == Some(
                    "the run ended while the step was being carried out; its effect may have happened",
                )
    }

    /// Has it an outcome other than being cut off by the end of its run?
    pub(crate) fn is_over(&self) -> bool {
        !self.is_open() && !self.was_cut_off()
    }
}

impl Message {
    /// Its text blocks, as a model receives them.
    pub(crate) fn text(&self) -> String {
        let blocks = self.content.as_array().unwrap();
        let texts: Vec<&str> = blocks
            .iter()
            .filter(|block| block["type"] == "text")
            .map(|block| block["text"].as_str().unwrap())
            .collect();
        texts.join("\n\n")
    }

    /// Id, tool and arguments of its tool calls.
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

    /// Is it an input to the agent?
    pub(crate) fn is_agent_input(&self) -> bool {
        self.role == "user" && matches!(self.kind.as_str(), "text" | "sub_agent_user")
    }
}
