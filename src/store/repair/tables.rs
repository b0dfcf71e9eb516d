//! How each table of decoded rows is searched, checked and repaired: key columns, decoder, and
//! replacements for undecodable columns. The quarantine works from this list; a new table of
//! decoded rows needs an entry.

use crate::store::tables::{
    agents, approvals, audit, blobs, bundles, environment, events, idempotency, memories, messages,
    outbox, outputs, questions, remembered, runs, sends, servers, sessions, skills, steers, steps,
    trust, usage,
};
use crate::store::tx::{DbError, DbErrorKind, Param, Raw, Row, Tx};

/// A table of decoded rows.
pub struct Table {
    /// Name of the table.
    pub name: &'static str,
    /// The columns of its primary key.
    pub primary: &'static [&'static str],
    /// The columns that [`Table::check`] reads, in its order.
    columns: &'static [&'static str],
    /// Decodes a row of these columns.
    decode: fn(&dyn Row) -> Result<(), DbError>,
    /// For an undecodable column, the assignments that repair it. `$fresh` stands for the literal
    /// of a new id. A row with an undecodable column without an entry cannot be repaired.
    repairs: &'static [(&'static str, &'static str)],
    /// What happens to a row that cannot be repaired.
    pub on_undecodable: OnUndecodable,
}

/// What happens to a row that cannot be repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUndecodable {
    /// It is removed from its table.
    Moved,
    /// It stays, undecodable, because its absence would be misleading.
    Kept,
}

/// The assignment that replaces an undecodable transcript entry.
const GAP: &str = "content = '[{\"type\":\"text\",\"text\":\"[This entry was damaged and cannot be read. \
     The stored row is in quarantine; see abide doctor.]\"}]'";

/// Every table of decoded rows.
pub const TABLES: &[Table] = &[
    Table {
        name: "sessions",
        primary: &["seq"],
        columns: &[sessions::COLUMNS],
        decode: |row| sessions::decode(row).map(drop),
        repairs: &[
            ("generation", "generation = 0"),
            ("owner", "owner = 'agent'"),
            ("agent", "agent = 'unknown'"),
            ("parent_id", "parent_id = NULL, parent_key = NULL"),
            ("parent_key", "parent_id = NULL, parent_key = NULL"),
            ("root_id", "root_id = id"),
            ("depth", "depth = 0"),
            ("label", "label = NULL"),
            ("title", "title = NULL"),
            ("model", "model = NULL"),
            ("cwd", "cwd = NULL"),
            (
                "messages",
                "messages = (SELECT coalesce(max(seq), 0) FROM messages WHERE session_id = sessions.id)",
            ),
            ("created_at", "created_at = 0"),
            ("updated_at", "updated_at = 0"),
            ("ver", "ver = 1"),
            ("model_calls", "model_calls = 0"),
            ("input_tokens", "input_tokens = 0"),
            ("output_tokens", "output_tokens = 0"),
            ("cost_micros", "cost_micros = 0"),
            ("mode", "mode = 'session'"),
            ("cleanup", "cleanup = 'keep'"),
            ("archived_at", "archived_at = NULL"),
            ("thinking", "thinking = NULL"),
            // Without the fork point, the transcript has no forked part.
            ("fork_of", "fork_of = NULL"),
            ("fork_generation", "fork_of = NULL"),
            ("fork_seq", "fork_of = NULL"),
        ],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "runs",
        primary: &["seq"],
        columns: &[runs::COLUMNS, "input", "bundle"],
        decode: |row| {
            runs::decode(row)?;
            row.opt_text(runs::WIDTH)?;
            // Without it the run would have no restriction.
            row.opt_text(runs::WIDTH + 1).map(drop)
        },
        repairs: &[
            ("user", "user = ''"),
            ("generation", "generation = 0"),
            ("requester_id", "requester_id = NULL"),
            ("requester_key", "requester_id = NULL"),
            ("requester_generation", "requester_id = NULL"),
            ("parent_run", "parent_run = NULL"),
            ("root_run", "root_run = id"),
            ("root_session", "root_session = session_id"),
            ("origin", "origin = 'turn'"),
            ("agent", "agent = 'unknown'"),
            ("label", "label = NULL"),
            ("model", "model = ''"),
            ("lane", "lane = 'main'"),
            ("depth", "depth = 0"),
            ("cwd", "cwd = NULL"),
            // State and pause are decoded together.
            (
                "state",
                "state = CASE WHEN ended_at IS NULL THEN 'paused' ELSE 'interrupted' END, \
                 pause = CASE WHEN ended_at IS NULL THEN 'input' END",
            ),
            ("cancel_by", "cancel_by = NULL"),
            ("cancel_at", "cancel_by = NULL"),
            ("error_kind", "error_kind = 'damaged'"),
            ("error_message", "error_message = NULL"),
            ("result", "result = NULL"),
            ("limit_ms", "limit_ms = NULL"),
            ("used_ms", "used_ms = 0"),
            ("counting_since", "counting_since = NULL"),
            ("recoveries", "recoveries = 0"),
            ("not_before", "not_before = NULL"),
            ("announce", "announce = 'inbox'"),
            ("loops", "loops = 0"),
            ("tool_calls", "tool_calls = 0"),
            (
                "steps",
                "steps = (SELECT coalesce(max(seq), 0) FROM steps WHERE run_id = runs.id)",
            ),
            ("model_calls", "model_calls = 0"),
            ("input_tokens", "input_tokens = 0"),
            ("output_tokens", "output_tokens = 0"),
            ("cost_micros", "cost_micros = 0"),
            ("meta", "meta = NULL"),
            ("pin_agent", "pin_agent = ''"),
            ("pin_tools", "pin_tools = ''"),
            ("pin_skills", "pin_skills = NULL"),
            ("skills_version", "skills_version = NULL"),
            // Without the names, its processes would be started without their values.
            (
                "env",
                "env = (SELECT json_group_array(json_object('name', name, 'from', 'unknown')) \
                 FROM run_values WHERE run_id = runs.id AND name NOT LIKE 'arguments %')",
            ),
            (
                "warnings",
                "warnings = '[\"parts of this run''s row were damaged and are not shown\"]'",
            ),
            ("trace_id", "trace_id = ''"),
            ("created_at", "created_at = 0"),
            ("started_at", "started_at = NULL"),
            ("last_activity_at", "last_activity_at = 0"),
            ("ver", "ver = 1"),
            ("title", "title = ''"),
            ("input", "input = NULL"),
            ("retry_of", "retry_of = NULL"),
            ("on_uncertain", "on_uncertain = 'report'"),
            ("budget", "budget = NULL"),
            ("spent_tokens", "spent_tokens = 0"),
            ("spent_micros", "spent_micros = 0"),
            ("agent_name", "agent_name = NULL"),
            ("cancel_reason", "cancel_reason = NULL"),
            ("cancel_inherited", "cancel_inherited = 0"),
            // Without it an agent could restart work that a user has cancelled.
            ("cancel_person", "cancel_person = 1"),
            ("stream", "stream = NULL"),
            ("thinking", "thinking = NULL"),
        ],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "messages",
        primary: &["session_id", "seq"],
        columns: &[messages::COLUMNS],
        decode: |row| messages::decode(row).map(drop),
        repairs: &[
            ("id", "id = $fresh"),
            ("at", "at = 0"),
            ("role", "role = 'system'"),
            ("kind", "kind = 'text'"),
            ("origin", "origin = 'internal'"),
            ("run_id", "run_id = NULL"),
            ("content", GAP),
            ("tool_call", "tool_call = NULL"),
            // Whichever run it belonged to, it stays out of the session's own conversation.
            ("child_run", "child_run = run_id"),
            ("announce_id", "announce_id = NULL"),
            ("silent", "silent = 0"),
            ("metadata", "metadata = NULL"),
        ],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "steps",
        primary: &["run_id", "seq"],
        columns: &[steps::COLUMNS],
        decode: |row| steps::decode(row).map(drop),
        // A step with invented parts is no evidence.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "outbox",
        primary: &["seq"],
        columns: &[outbox::COLUMNS],
        decode: |row| outbox::decode(row).map(drop),
        // Rebuilt from its run.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "events",
        primary: &["cursor"],
        columns: &[events::COLUMNS],
        decode: |row| events::decode(row).map(drop),
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "idempotency",
        primary: &["scope", "key"],
        columns: &[idempotency::COLUMNS],
        decode: |row| idempotency::decode(row).map(drop),
        repairs: &[],
        // Without it a repeat would do the work a second time.
        on_undecodable: OnUndecodable::Kept,
    },
    Table {
        name: "blobs",
        primary: &["hash"],
        columns: &[blobs::COLUMNS],
        decode: |row| blobs::decode(row).map(drop),
        // The next run with the same body stores it again.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "steers",
        primary: &["run_id", "seq"],
        columns: &[steers::COLUMNS],
        decode: |row| steers::decode(row).map(drop),
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "questions",
        primary: &["id"],
        columns: &[questions::COLUMNS],
        decode: |row| questions::decode(row).map(drop),
        // The asking step gets the outcome "no answer" at its deadline.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "approvals",
        primary: &["id"],
        columns: &[approvals::COLUMNS],
        decode: |row| approvals::decode(row).map(drop),
        // The requesting step gets the outcome "not allowed" at its deadline.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "remembered",
        primary: &["id"],
        columns: &[remembered::COLUMNS],
        decode: |row| remembered::decode(row).map(drop),
        // The user is asked again.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "bundles",
        primary: &["session_id"],
        columns: &[bundles::COLUMNS],
        decode: |row| bundles::decode(row).map(drop),
        repairs: &[],
        // Without it the session's runs would have no restriction.
        on_undecodable: OnUndecodable::Kept,
    },
    Table {
        name: "outputs",
        primary: &["run_id", "step"],
        columns: &[outputs::COLUMNS],
        decode: |row| outputs::decode(row).map(drop),
        // The excerpt in the transcript remains.
        repairs: &[("kept_at", "kept_at = 0")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "output_parts",
        primary: &["run_id", "step", "place"],
        columns: &[outputs::PART_COLUMNS],
        decode: |row| outputs::decode_part(row).map(drop),
        repairs: &[("body", "body = '[damaged]'")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "sends",
        primary: &["run_id"],
        columns: &[sends::COLUMNS],
        decode: |row| sends::decode(row).map(drop),
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "agents",
        primary: &["org", "name"],
        columns: &[agents::COLUMNS],
        decode: |row| agents::decode(row).map(drop),
        repairs: &[
            ("revision", "revision = 1"),
            ("created_at", "created_at = 0"),
        ],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "agent_sets",
        primary: &["org"],
        columns: &[agents::SET_COLUMNS],
        decode: |row| agents::decode_set(row).map(drop),
        // The current set is announced again.
        repairs: &[("agents", "agents = '{}'")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "trusted_projects",
        primary: &["org", "folder"],
        columns: &[trust::COLUMNS],
        decode: |row| trust::decode(row).map(drop),
        // A trust with an invented folder or hash is none.
        repairs: &[("user", "user = ''"), ("trusted_at", "trusted_at = 0")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "tool_servers",
        primary: &["name"],
        columns: &[servers::COLUMNS],
        decode: |row| servers::decode(row).map(drop),
        // The server's next start stores it again.
        repairs: &[("digest", "digest = ''"), ("tools", "tools = '[]'")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "run_values",
        primary: &["run_id", "name"],
        columns: &[environment::COLUMNS],
        decode: |row| environment::decode(row).map(drop),
        // A run without the value is paused until it is provided.
        repairs: &[("secret", "secret = 1"), ("lacking", "lacking = NULL")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "skill_sets",
        primary: &["org", "workspace"],
        columns: &[skills::COLUMNS],
        decode: |row| skills::decode(row).map(drop),
        // An empty hash matches nothing: the next scan finds a change.
        repairs: &[("hash", "hash = ''")],
        // If the version were lost, it would go back.
        on_undecodable: OnUndecodable::Kept,
    },
    Table {
        name: "memories",
        primary: &["seq"],
        columns: &[memories::COLUMNS],
        decode: |row| memories::decode(row).map(drop),
        // A memory with an invented text is none.
        repairs: &[("source", "source = 'tool'"), ("kept_at", "kept_at = 0")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "usage_runs",
        primary: &["org", "hour", "user", "agent", "model", "outcome", "bucket"],
        columns: &[usage::RUN_COLUMNS],
        decode: |row| usage::decode_runs(row).map(drop),
        // An unknown count adds nothing.
        repairs: &[("runs", "runs = 0")],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "usage_models",
        primary: &["org", "hour", "user", "agent", "model"],
        columns: &[usage::USE_COLUMNS],
        decode: |row| usage::decode_use(row).map(drop),
        repairs: &[
            ("calls", "calls = 0"),
            ("input_tokens", "input_tokens = 0"),
            ("output_tokens", "output_tokens = 0"),
            ("cost_micros", "cost_micros = 0"),
        ],
        on_undecodable: OnUndecodable::Moved,
    },
    Table {
        name: "audit",
        primary: &["seq"],
        columns: &[audit::COLUMNS],
        decode: |row| audit::decode(row).map(drop),
        // Audit data is never invented.
        repairs: &[],
        on_undecodable: OnUndecodable::Moved,
    },
];

/// The table with that name.
pub fn find(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|table| table.name == name)
}

/// The primary key values of a row.
pub type Place = Vec<Raw>;

impl Table {
    /// The primary keys of the rows that match `clause`.
    pub fn places(
        &self,
        tx: &mut dyn Tx,
        clause: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Place>, DbError> {
        let sql = format!(
            "SELECT {} FROM {} WHERE {clause}",
            self.primary.join(", "),
            self.name
        );
        let mut places = Vec::new();
        tx.query(&sql, params, &mut |row| {
            let place = (0..self.primary.len()).map(|at| row.raw(at));
            places.push(place.collect::<Result<_, _>>()?);
            Ok(())
        })?;
        Ok(places)
    }

    /// Every column of the row at `place`, not decoded; `None` if there is no such row.
    pub fn whole_row(
        &self,
        tx: &mut dyn Tx,
        place: &Place,
    ) -> Result<Option<Vec<(String, Raw)>>, DbError> {
        let sql = format!("SELECT * FROM {} WHERE {}", self.name, self.at());
        let mut found = None;
        tx.query(&sql, &params(place), &mut |row| {
            let mut columns = Vec::new();
            for (at, name) in row.names().into_iter().enumerate() {
                columns.push((name, row.raw(at)?));
            }
            found = Some(columns);
            Ok(())
        })?;
        Ok(found)
    }

    /// `Ok` if the row at `place` decodes, else the first column that does not, and why.
    pub fn check(
        &self,
        tx: &mut dyn Tx,
        place: &Place,
    ) -> Result<Result<(), (String, String)>, DbError> {
        let columns = self.columns.join(", ");
        let sql = format!("SELECT {columns} FROM {} WHERE {}", self.name, self.at());
        let mut verdict = Ok(());
        tx.query(&sql, &params(place), &mut |row| {
            if let Err(fault) = (self.decode)(row) {
                let column = match fault.kind {
                    DbErrorKind::Column(at) => columns.split(',').nth(at),
                    _ => None,
                };
                let column = column.map_or("", str::trim).to_owned();
                verdict = Err((column, fault.message));
            }
            Ok(())
        })?;
        Ok(verdict)
    }

    /// The assignments that repair `column`; `None` if it cannot be repaired.
    pub fn repair(&self, column: &str) -> Option<&'static str> {
        let mend = self.repairs.iter().find(|(name, _)| *name == column);
        mend.map(|(_, assignments)| *assignments)
    }

    /// The row at `place` has these assignments.
    pub fn assign(&self, tx: &mut dyn Tx, place: &Place, assignments: &str) -> Result<(), DbError> {
        let sql = format!("UPDATE {} SET {assignments} WHERE {}", self.name, self.at());
        tx.execute(&sql, &params(place)).map(drop)
    }

    /// The row at `place` is deleted.
    pub fn remove(&self, tx: &mut dyn Tx, place: &Place) -> Result<(), DbError> {
        let sql = format!("DELETE FROM {} WHERE {}", self.name, self.at());
        tx.execute(&sql, &params(place)).map(drop)
    }

    /// The condition that selects the row at a place.
    fn at(&self) -> String {
        let parts = self.primary.iter().enumerate();
        let parts: Vec<String> = parts
            .map(|(at, name)| format!("{name} = ?{}", at + 1))
            .collect();
        parts.join(" AND ")
    }
}

fn params(place: &Place) -> Vec<Param<'_>> {
    place.iter().map(Param::Raw).collect()
}
