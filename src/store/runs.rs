//! The table of runs. Rows change only through [`update`], with the version that was read.

use std::sync::LazyLock;

use super::columns::{
    agent, amount, count, json, key, named, opt_json, opt_named, opt_string, opt_time, opt_uuid,
    time, to_int, to_json, uuid, whole,
};
use super::tx::{DbError, Row, Tx, all, first, number};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::{
    AnnouncePolicy, CancelRequest, Lane, Pins, Requester, Run, RunError, RunOrigin, RunState, Usage,
};
use crate::kernel::thinking::Thinking;
use crate::kernel::time::Timestamp;

/// The columns that [`read`] reads, in its order.
pub const COLUMNS: &str = "id, org, user, session_id, session_key, generation, requester_id, \
     requester_key, requester_generation, parent_run, root_run, root_session, origin, agent, label, \
     model, lane, depth, cwd, state, pause, cancel_by, cancel_at, error_kind, error_message, \
     result, limit_ms, used_ms, counting_since, recoveries, not_before, announce, loops, \
     tool_calls, steps, model_calls, input_tokens, output_tokens, meta, pin_agent, pin_tools, \
     warnings, trace_id, created_at, started_at, ended_at, last_activity_at, ver, title, retry_of, \
     thinking, cancel_reason, cancel_inherited";

/// The number of [`COLUMNS`]: where a query's further columns begin.
pub const WIDTH: usize = 53;

/// Reads one run out of [`COLUMNS`].
pub fn read(row: &dyn Row) -> Result<Run, DbError> {
    whole(row, "runs", &[("id", 0)], decode)
}

/// A run out of [`COLUMNS`].
pub fn decode(row: &dyn Row) -> Result<Run, DbError> {
    let requester = match opt_uuid(row, 6)? {
        Some(id) => Some(Requester {
            session: SessionId(id),
            key: key(row, 7)?,
            generation: row.int(8)?,
        }),
        None => None,
    };
    let pause = row.opt_text(20)?;
    Ok(Run {
        id: RunId(uuid(row, 0)?),
        org: row.text(1)?.to_owned(),
        user: row.text(2)?.to_owned(),
        session: SessionId(uuid(row, 3)?),
        session_key: key(row, 4)?,
        generation: row.int(5)?,
        requester,
        parent_run: opt_uuid(row, 9)?.map(RunId),
        root_run: RunId(uuid(row, 10)?),
        root_session: SessionId(uuid(row, 11)?),
        origin: named(row, 12, RunOrigin::parse)?,
        agent: agent(row, 13)?,
        label: opt_string(row, 14)?,
        model: row.text(15)?.to_owned(),
        lane: named(row, 16, Lane::parse)?,
        depth: count(row, 17)?,
        cwd: opt_string(row, 18)?,
        state: named(row, 19, |state| RunState::parse(state, pause))?,
        cancel: match row.opt_text(21)? {
            Some(by) => Some(CancelRequest {
                by: by.to_owned(),
                at: time(row, 22)?,
                reason: opt_string(row, 51)?,
                inherited: row.int(52)? != 0,
            }),
            None => None,
        },
        error: match row.opt_text(23)? {
            Some(kind) => Some(RunError::new(kind, row.opt_text(24)?.unwrap_or_default())),
            None => None,
        },
        result: opt_string(row, 25)?,
        limit_ms: row.opt_int(26)?.map(|_| amount(row, 26)).transpose()?,
        used_ms: amount(row, 27)?,
        counting_since: opt_time(row, 28)?,
        recoveries: count(row, 29)?,
        not_before: opt_time(row, 30)?,
        announce: named(row, 31, AnnouncePolicy::parse)?,
        loops: count(row, 32)?,
        tool_calls: count(row, 33)?,
        steps: count(row, 34)?,
        usage: Usage {
            model_calls: amount(row, 35)?,
            input_tokens: amount(row, 36)?,
            output_tokens: amount(row, 37)?,
        },
        meta: opt_json(row, 38)?,
        pins: Pins {
            agent: row.text(39)?.to_owned(),
            tools: row.text(40)?.to_owned(),
        },
        warnings: json(row, 41)?,
        trace_id: row.text(42)?.to_owned(),
        created_at: time(row, 43)?,
        started_at: opt_time(row, 44)?,
        ended_at: opt_time(row, 45)?,
        last_activity_at: time(row, 46)?,
        ver: row.int(47)?,
        title: row.text(48)?.to_owned(),
        retry_of: opt_uuid(row, 49)?.map(RunId),
        thinking: opt_named(row, 50, Thinking::parse)?,
    })
}

/// The run is in the table, at place `seq` of every list. `input` is what its turn says once
/// it begins; a spawned run's task stands in its transcript already.
pub fn insert(tx: &mut dyn Tx, seq: i64, run: &Run, input: Option<&str>) -> Result<(), DbError> {
    let requester = run.requester.as_ref();
    tx.execute(
        "INSERT INTO runs (seq, id, org, user, session_id, session_key, generation, requester_id, \
         requester_key, requester_generation, parent_run, root_run, root_session, origin, agent, \
         label, model, lane, depth, cwd, state, limit_ms, used_ms, recoveries, announce, loops, \
         tool_calls, steps, model_calls, input_tokens, output_tokens, meta, pin_agent, pin_tools, \
         warnings, trace_id, input, created_at, last_activity_at, ver, title, \
         retry_of, thinking) VALUES \
         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, \
         ?20, ?21, ?22, 0, 0, ?23, 0, 0, 0, 0, 0, 0, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35)",
        &[
            seq.into(),
            (&run.id.0).into(),
            (&run.org).into(),
            (&run.user).into(),
            (&run.session.0).into(),
            run.session_key.as_str().into(),
            run.generation.into(),
            requester.map(|by| &by.session.0).into(),
            requester.map(|by| by.key.as_str()).into(),
            requester.map(|by| by.generation).into(),
            run.parent_run.as_ref().map(|id| &id.0).into(),
            (&run.root_run.0).into(),
            (&run.root_session.0).into(),
            run.origin.as_str().into(),
            run.agent.as_str().into(),
            run.label.as_deref().into(),
            (&run.model).into(),
            run.lane.as_str().into(),
            run.depth.into(),
            run.cwd.as_deref().into(),
            run.state.as_str().into(),
            run.limit_ms.map(to_int).into(),
            run.announce.as_str().into(),
            run.meta.as_ref().map(to_json).as_deref().into(),
            (&run.pins.agent).into(),
            (&run.pins.tools).into(),
            (&to_json(&run.warnings)).into(),
            (&run.trace_id).into(),
            input.into(),
            run.created_at.0.into(),
            run.last_activity_at.0.into(),
            run.ver.into(),
            (&run.title).into(),
            run.retry_of.as_ref().map(|id| &id.0).into(),
            run.thinking.map(Thinking::as_str).into(),
        ],
    )
    .map(|_| ())
}

/// The row holds what `run` says, if nobody changed it since `run.ver` was read; the run's
/// new version, or `None` when somebody did.
pub fn update(tx: &mut dyn Tx, run: &Run) -> Result<Option<i64>, DbError> {
    let cancel = run.cancel.as_ref();
    let error = run.error.as_ref();
    let changed = tx.execute(
        "UPDATE runs SET state = ?3, pause = ?4, cancel_by = ?5, cancel_at = ?6, error_kind = ?7, \
         error_message = ?8, result = ?9, used_ms = ?10, counting_since = ?11, recoveries = ?12, \
         not_before = ?13, loops = ?14, tool_calls = ?15, steps = ?16, model_calls = ?17, \
         input_tokens = ?18, output_tokens = ?19, started_at = ?20, ended_at = ?21, \
         last_activity_at = ?22, cancel_reason = ?23, cancel_inherited = ?24, ver = ver + 1 WHERE id = ?1 AND ver = ?2",
        &[
            (&run.id.0).into(),
            run.ver.into(),
            run.state.as_str().into(),
            run.state.pause().map(|reason| reason.as_str()).into(),
            cancel.map(|cancel| cancel.by.as_str()).into(),
            cancel.map(|cancel| cancel.at.0).into(),
            error.map(|error| error.kind.as_str()).into(),
            error.map(|error| error.message.as_str()).into(),
            run.result.as_deref().into(),
            to_int(run.used_ms).into(),
            run.counting_since.map(|at| at.0).into(),
            run.recoveries.into(),
            run.not_before.map(|at| at.0).into(),
            run.loops.into(),
            run.tool_calls.into(),
            run.steps.into(),
            to_int(run.usage.model_calls).into(),
            to_int(run.usage.input_tokens).into(),
            to_int(run.usage.output_tokens).into(),
            run.started_at.map(|at| at.0).into(),
            run.ended_at.map(|at| at.0).into(),
            run.last_activity_at.0.into(),
            cancel.and_then(|cancel| cancel.reason.as_deref()).into(),
            cancel.is_some_and(|cancel| cancel.inherited).into(),
        ],
    )?;
    Ok((changed == 1).then_some(run.ver + 1))
}

/// The run's used time is written, if it is open. Nothing else changes.
pub fn touch(tx: &mut dyn Tx, id: RunId, used_ms: u64, steady: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET used_ms = ?2, counting_since = ?3, ver = ver + 1 \
         WHERE id = ?1 AND ended_at IS NULL",
        &[(&id.0).into(), to_int(used_ms).into(), steady.0.into()],
    )
    .map(|_| ())
}

/// The run with that id.
pub fn get(tx: &mut dyn Tx, id: RunId) -> Result<Option<Run>, DbError> {
    // Nothing is read as often, so the text is put together once.
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("SELECT {COLUMNS} FROM runs WHERE id = ?1"));
    first(tx, &SQL, &[(&id.0).into()], read)
}

/// The runs at and below this one, oldest first, if it is no root: those of a root have it as
/// theirs. As many are looked at as its whole tree may have.
pub fn branch(tx: &mut dyn Tx, top: RunId) -> Result<Option<Vec<RunId>>, DbError> {
    let root = first(
        tx,
        "SELECT root_run FROM runs WHERE id = ?1",
        &[(&top.0).into()],
        |row| Ok(RunId(uuid(row, 0)?)),
    )?;
    let Some(root) = root.filter(|root| *root != top) else {
        return Ok(None);
    };
    let tree = all(
        tx,
        "SELECT id, parent_run FROM runs WHERE root_run = ?1 AND root_run <> id ORDER BY seq",
        &[(&root.0).into()],
        |row| Ok((RunId(uuid(row, 0)?), opt_uuid(row, 1)?.map(RunId))),
    )?;
    let mut branch = vec![top];
    for (run, parent) in tree {
        // A parent is older than what it has asked for.
        if parent.is_some_and(|parent| branch.contains(&parent)) {
            branch.push(run);
        }
    }
    Ok(Some(branch))
}

/// What the run's turn says once it begins, if its transcript does not hold it yet.
pub fn input(tx: &mut dyn Tx, id: RunId) -> Result<Option<String>, DbError> {
    let found = first(
        tx,
        "SELECT input, id FROM runs WHERE id = ?1",
        &[(&id.0).into()],
        |row| whole(row, "runs", &[("id", 1)], |row| opt_string(row, 0)),
    )?;
    Ok(found.flatten())
}

/// The run's input stands in its transcript now.
pub fn clear_input(tx: &mut dyn Tx, id: RunId) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET input = NULL WHERE id = ?1",
        &[(&id.0).into()],
    )
    .map(|_| ())
}

/// Every open run, oldest first.
pub fn live(tx: &mut dyn Tx) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        &format!("SELECT {COLUMNS} FROM runs WHERE ended_at IS NULL ORDER BY seq"),
        &[],
        read,
    )
}

/// The open runs of one tree of sessions, and all open sends, which may lead from one tree to
/// another; oldest first.
pub fn live_under(tx: &mut dyn Tx, root: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM runs WHERE ended_at IS NULL \
             AND (root_session = ?1 OR origin = 'send') ORDER BY seq"
        ),
        &[(&root.0).into()],
        read,
    )
}

/// What a run hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The session it works in.
    pub session: SessionId,
    /// The session that asked for it.
    pub requester: Option<SessionId>,
    /// The run that asked for it.
    pub parent_run: Option<RunId>,
}

/// What the run with that id hangs on.
pub fn line(tx: &mut dyn Tx, id: RunId) -> Result<Option<Line>, DbError> {
    first(
        tx,
        "SELECT session_id, requester_id, parent_run FROM runs WHERE id = ?1",
        &[(&id.0).into()],
        |row| {
            Ok(Line {
                session: SessionId(uuid(row, 0)?),
                requester: opt_uuid(row, 1)?.map(SessionId),
                parent_run: opt_uuid(row, 2)?.map(RunId),
            })
        },
    )
}

/// The run that asked for the first run of this session, if one did.
pub fn maker_of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<RunId>, DbError> {
    let found = first(
        tx,
        "SELECT parent_run FROM runs WHERE session_id = ?1 ORDER BY seq LIMIT 1",
        &[(&session.0).into()],
        |row| Ok(opt_uuid(row, 0)?.map(RunId)),
    )?;
    Ok(found.flatten())
}

/// The open runs that this session asked for.
pub fn live_children(tx: &mut dyn Tx, requester: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM runs WHERE requester_id = ?1 AND ended_at IS NULL ORDER BY seq"
        ),
        &[(&requester.0).into()],
        read,
    )
}

/// How many open runs this session asked for.
pub fn count_live_children(tx: &mut dyn Tx, requester: SessionId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM runs WHERE requester_id = ?1 AND ended_at IS NULL",
        &[(&requester.0).into()],
    )
}

/// How many runs were spawned, and messages sent, below this root run, ended ones included.
pub fn count_below(tx: &mut dyn Tx, root: RunId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM runs WHERE root_run = ?1 AND root_run <> id \
         AND (origin = 'spawn' OR origin = 'send')",
        &[(&root.0).into()],
    )
}

/// Does any open run work in this session?
pub fn has_live_in(tx: &mut dyn Tx, session: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE session_id = ?1 AND ended_at IS NULL)";
    Ok(number(tx, sql, &[(&session.0).into()])? != 0)
}

/// When the latest run of this session ended; `None` if it has none, or that one is open.
pub fn last_end_in(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Timestamp>, DbError> {
    let found = first(
        tx,
        "SELECT ended_at FROM runs WHERE session_id = ?1 ORDER BY seq DESC LIMIT 1",
        &[(&session.0).into()],
        |row| opt_time(row, 0),
    )?;
    Ok(found.flatten())
}

/// The runs of this session after place `after`, oldest first, each with its place.
pub fn ids_in(
    tx: &mut dyn Tx,
    session: SessionId,
    after: i64,
    limit: u32,
) -> Result<Vec<(i64, RunId)>, DbError> {
    all(
        tx,
        &format!(
            "SELECT seq, id FROM runs WHERE session_id = ?1 AND seq > ?2 \
             ORDER BY seq LIMIT {limit}"
        ),
        &[(&session.0).into(), after.into()],
        |row| Ok((row.int(0)?, RunId(uuid(row, 1)?))),
    )
}

/// What retention looks at in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Age {
    /// Its place.
    pub seq: i64,
    /// The run.
    pub id: RunId,
    /// The tenant.
    pub org: String,
    /// The session it worked in.
    pub session: SessionId,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What it pins.
    pub pins: Pins,
}

/// Runs after place `after`, oldest first.
pub fn ages(tx: &mut dyn Tx, after: i64, limit: u32) -> Result<Vec<Age>, DbError> {
    all(
        tx,
        &format!(
            "SELECT seq, id, org, session_id, created_at, ended_at, pin_agent, pin_tools \
             FROM runs WHERE seq > ?1 ORDER BY seq LIMIT {limit}"
        ),
        &[after.into()],
        |row| {
            Ok(Age {
                seq: row.int(0)?,
                id: RunId(uuid(row, 1)?),
                org: row.text(2)?.to_owned(),
                session: SessionId(uuid(row, 3)?),
                created_at: time(row, 4)?,
                ended_at: opt_time(row, 5)?,
                pins: Pins {
                    agent: row.text(6)?.to_owned(),
                    tools: row.text(7)?.to_owned(),
                },
            })
        },
    )
}

/// The row of an ended run is gone; whatever refers to it must be gone before.
pub fn remove(tx: &mut dyn Tx, id: RunId) -> Result<(), DbError> {
    tx.execute("DELETE FROM runs WHERE id = ?1", &[(&id.0).into()])
        .map(|_| ())
}

/// The open runs that work in this session, oldest first.
pub fn live_in(tx: &mut dyn Tx, session: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM runs WHERE session_id = ?1 AND ended_at IS NULL ORDER BY seq"
        ),
        &[(&session.0).into()],
        read,
    )
}

/// The run that was made last in this session.
pub fn last_in(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Run>, DbError> {
    let sql = format!("SELECT {COLUMNS} FROM runs WHERE session_id = ?1 ORDER BY seq DESC LIMIT 1");
    first(tx, &sql, &[(&session.0).into()], read)
}

/// How many open runs are in each state: queued, running, paused, settling.
pub fn count_live(tx: &mut dyn Tx) -> Result<[u64; 4], DbError> {
    let mut counts = [0; 4];
    tx.query(
        "SELECT state, count(*) FROM runs WHERE ended_at IS NULL GROUP BY state",
        &[],
        &mut |row| {
            let at = match row.text(0)? {
                "queued" => 0,
                "running" => 1,
                "paused" => 2,
                _ => 3,
            };
            counts[at] = amount(row, 1)?;
            Ok(())
        },
    )?;
    Ok(counts)
}
