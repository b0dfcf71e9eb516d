//! The table of runs. Rows change only through [`update`], with the version that was read, except
//! for a few columns with setters of their own.

mod related;
mod spent;

use super::columns::{Columns, Field, columns_of, keyed, to_json, values};
use super::table::{self, read, table};
use crate::kernel::delegation::Delegated;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::budget::Spent;
use crate::kernel::run::{
    CancelRequest, PauseReason, PinnedSkills, Pins, Requester, Run, RunError, RunState,
};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Tx, all, execute, first, number, sql};

pub use related::*;
pub use spent::*;

table! {
    runs: Run;
    key { id }
    insert {
        org,
        user,
        session(session_id),
        session_key,
        generation,
        requester(requester_id, requester_key, requester_generation),
        parent_run,
        root_run,
        root_session,
        origin,
        delegated(delegation, for_step, for_call, stream, agent_name),
        retry_of,
        trace_id,
        label,
        title,
        meta,
        agent,
        model,
        thinking,
        cwd,
        env,
        pins(pin_agent, pin_tools, pin_skills, skills_version),
        lane,
        depth,
        limit_ms,
        budget,
        spent(spent_tokens, spent_micros),
        announce,
        on_uncertain,
        created_at,
    }
    update {
        used_ms,
        counting_since,
        loops,
        tool_calls,
        steps,
        usage(model_calls, input_tokens, output_tokens, cost_micros),
        last_activity_at,
    }
    changed { state(state, pause), started_at, not_before, recoveries, warnings }
    changed {
        ended_at,
        result,
        error(error_kind, error_message),
        cancel(cancel_by, cancel_at, cancel_reason, cancel_inherited, cancel_person),
    }
    version { ver }
    // `input` is the message of its turn until that is in the transcript, `bundle` its own
    // permission bundle: without it the run would have no restriction.
    beside { seq: i64, input: Option<String>, bundle: Option<String> }
    primary { seq }
    undecodable Moved {
        "user" => "user = ''",
        "generation" => "generation = 0",
        "requester_id" => "requester_id = NULL",
        "requester_key" => "requester_id = NULL",
        "requester_generation" => "requester_id = NULL",
        "parent_run" => "parent_run = NULL",
        "root_run" => "root_run = id",
        "root_session" => "root_session = session_id",
        "origin" => "origin = 'turn'",
        "agent" => "agent = 'unknown'",
        "label" => "label = NULL",
        "model" => "model = ''",
        "lane" => "lane = 'main'",
        "depth" => "depth = 0",
        "cwd" => "cwd = NULL",
        // State and pause are decoded together.
        "state" => "state = CASE WHEN ended_at IS NULL THEN 'paused' ELSE 'interrupted' END, \
                    pause = CASE WHEN ended_at IS NULL THEN 'input' END",
        "cancel_by" => "cancel_by = NULL",
        "cancel_at" => "cancel_by = NULL",
        "error_kind" => "error_kind = 'damaged'",
        "error_message" => "error_message = ''",
        "result" => "result = NULL",
        "limit_ms" => "limit_ms = NULL",
        "used_ms" => "used_ms = 0",
        "counting_since" => "counting_since = NULL",
        "recoveries" => "recoveries = 0",
        "not_before" => "not_before = NULL",
        "announce" => "announce = 'inbox'",
        "loops" => "loops = 0",
        "tool_calls" => "tool_calls = 0",
        "steps" => "steps = (SELECT coalesce(max(seq), 0) FROM steps WHERE run_id = runs.id)",
        "model_calls" => "model_calls = 0",
        "input_tokens" => "input_tokens = 0",
        "output_tokens" => "output_tokens = 0",
        "cost_micros" => "cost_micros = 0",
        "meta" => "meta = NULL",
        "pin_agent" => "pin_agent = ''",
        "pin_tools" => "pin_tools = ''",
        "pin_skills" => "pin_skills = NULL",
        "skills_version" => "pin_skills = NULL",
        // Without the names, its processes would be started without their values.
        "env" => "env = (SELECT json_group_array(json_object('name', name, 'from', 'unknown')) \
                  FROM run_values WHERE run_id = runs.id AND name NOT LIKE 'arguments %')",
        "warnings" => "warnings = '[\"parts of this run''s row were damaged and are not shown\"]'",
        "trace_id" => "trace_id = ''",
        "created_at" => "created_at = 0",
        "started_at" => "started_at = NULL",
        "last_activity_at" => "last_activity_at = 0",
        "ver" => "ver = 1",
        "title" => "title = ''",
        "input" => "input = NULL",
        "retry_of" => "retry_of = NULL",
        "on_uncertain" => "on_uncertain = 'report'",
        "budget" => "budget = NULL",
        "spent_tokens" => "spent_tokens = 0",
        "spent_micros" => "spent_micros = 0",
        "agent_name" => "agent_name = agent",
        "cancel_reason" => "cancel_reason = NULL",
        "cancel_inherited" => "cancel_inherited = 0",
        // Without it an agent could restart work that a user has cancelled.
        "cancel_person" => "cancel_person = 1",
        "stream" => "stream = NULL",
        "thinking" => "thinking = NULL",
    }
}

columns_of!(optional Requester { session, key, generation });
columns_of!(optional Delegated { mode, step, call, stream, agent_name });
columns_of!(optional CancelRequest { by, at, reason, inherited or false, by_person or false });
columns_of!(optional RunError { kind, message });
columns_of!(optional PinnedSkills { hash, version });
columns_of!(Pins {
    agent,
    tools,
    skills
});
columns_of!(Spent {
    tokens,
    cost_micros
});

impl Field for RunState {
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
        columns.take_two(RunState::parse)
    }

    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
        let pause = self.pause().map(PauseReason::as_str);
        params.extend([self.as_str().into(), pause.into()]);
    }
}

/// The run is in the table, with `seq` as its list position. `input` is the message of its turn,
/// appended when the turn starts; a spawned run's task is already in its transcript.
pub fn insert(tx: &mut dyn Tx, seq: i64, run: &Run, input: Option<&str>) -> Result<(), DbError> {
    table::insert(tx, run, [seq.into(), input.into(), Param::Null])
}

/// The row has the values of `run`, if its version is still that of `before`. Returns the new
/// version, or `None` if the row was changed since it was read.
///
/// Columns that rarely change are written only if they differ from `before`, so `before` must
/// match the row: SQLite checks every index that contains a written column, and half of them
/// are about a run's state and its end.
pub fn update(tx: &mut dyn Tx, before: &Run, run: &Run) -> Result<Option<i64>, DbError> {
    let is_current = table::update_from(tx, before, run)?;
    Ok(is_current.then_some(before.ver + 1))
}

/// The running time of open runs is written up to `alive`, the last reading of the clock by which
/// they were counting. From `now` on they count by the clock of the current process.
pub fn count_up_to(tx: &mut dyn Tx, alive: Timestamp, now: Timestamp) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE runs SET used_ms = used_ms \
         + CASE WHEN counting_since < ?1 THEN ?1 - counting_since ELSE 0 END, \
         counting_since = ?2, ver = ver + 1 \
         WHERE ended_at IS NULL AND counting_since IS NOT NULL",
        &[alive.0.into(), now.0.into()],
    )
}

/// The number of open runs of a user.
pub fn count_open_of_user(tx: &mut dyn Tx, org: &str, user: &str) -> Result<i64, DbError> {
    let sql = "SELECT count(*) FROM runs WHERE ended_at IS NULL AND org = ?1 AND user = ?2";
    number(tx, sql, &[org.into(), user.into()])
}

/// The run has these warnings. Nothing else changes, so this also applies to ended runs.
pub fn set_warnings(tx: &mut dyn Tx, id: RunId, warnings: &[String]) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE runs SET warnings = ?2, ver = ver + 1 WHERE id = ?1",
        &[(&id).into(), to_json(warnings).into()],
    )
}

/// The run with that id.
pub fn get(tx: &mut dyn Tx, id: RunId) -> Result<Option<Run>, DbError> {
    let sql = sql!("SELECT {COLUMNS} FROM runs WHERE id = ?1");
    first(tx, sql, &[(&id).into()], read)
}

/// The message of the run's turn, while it is not yet in the transcript.
pub fn input(tx: &mut dyn Tx, id: RunId) -> Result<Option<String>, DbError> {
    let sql = "SELECT input, id FROM runs WHERE id = ?1";
    let found = first(tx, sql, &[(&id).into()], keyed("runs", KEY))?;
    Ok(found.flatten())
}

/// The permission bundle of this run alone, as JSON; `None`: that of its session applies.
pub fn bundle(tx: &mut dyn Tx, id: RunId) -> Result<Option<String>, DbError> {
    let sql = "SELECT bundle, id FROM runs WHERE id = ?1";
    let found = first(tx, sql, &[(&id).into()], keyed("runs", KEY))?;
    Ok(found.flatten())
}

/// The run has its own permission bundle, independent of other runs in its session.
pub fn set_bundle(tx: &mut dyn Tx, id: RunId, bundle: &str) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE runs SET bundle = ?2 WHERE id = ?1",
        &[(&id).into(), bundle.into()],
    )
}

/// The run's pending input is cleared, because it is in the transcript.
pub fn clear_input(tx: &mut dyn Tx, id: RunId) -> Result<(), DbError> {
    execute(
        tx,
        "UPDATE runs SET input = NULL WHERE id = ?1",
        &[(&id).into()],
    )
}

/// The fields of a run that retention reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// Its list position.
    pub seq: i64,
    /// Id of the run.
    pub id: RunId,
    /// The tenant.
    pub org: String,
    /// The session it worked in.
    pub session: SessionId,
    /// When the run was accepted.
    pub created_at: Timestamp,
    /// When the run ended; `None` while it is open.
    pub ended_at: Option<Timestamp>,
    /// The agent, tools and skills that it pins.
    pub pins: Pins,
}

columns_of!(Age {
    seq,
    id,
    org,
    session,
    created_at,
    ended_at,
    pins
});

/// Runs after list position `after`, oldest first.
pub fn ages(tx: &mut dyn Tx, after: i64, limit: u32) -> Result<Vec<Age>, DbError> {
    let sql = format!(
        "SELECT seq, id, org, session_id, created_at, ended_at, pin_agent, pin_tools, \
         pin_skills, skills_version FROM runs WHERE seq > ?1 ORDER BY seq LIMIT {limit}"
    );
    all(tx, &sql, &[after.into()], values)
}

/// The row of an ended run is deleted; rows that refer to it must be deleted before.
pub fn remove(tx: &mut dyn Tx, id: RunId) -> Result<(), DbError> {
    execute(tx, "DELETE FROM runs WHERE id = ?1", &[(&id).into()])
}
