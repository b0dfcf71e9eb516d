//! The table of runs. Rows change only through [`update`], with the version that was read, except
//! for a few columns with setters of their own.

mod related;
mod spent;

use std::sync::LazyLock;

use super::columns::{
    agent, amount, at, count, json, key, named, opt_json, opt_named, opt_string, opt_time,
    opt_uuid, time, to_int, to_json, uuid, whole, width,
};
use crate::kernel::delegation::{Delegated, DelegationMode, Stream};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::budget::Spent;
use crate::kernel::run::thinking::Thinking;
use crate::kernel::run::{
    AnnouncePolicy, CancelRequest, Lane, OnUncertain, PinnedSkills, Pins, Requester, Run, RunError,
    RunOrigin, RunState, Usage,
};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Param, Row, Tx, all, first, insert_row, update_rows};

pub use related::*;
pub use spent::*;

/// The columns that [`read`] decodes.
pub const COLUMNS: &str = "id, org, user, session_id, session_key, generation, requester_id, \
     requester_key, requester_generation, parent_run, root_run, root_session, origin, agent, label, \
     model, lane, depth, cwd, state, pause, cancel_by, cancel_at, error_kind, error_message, \
     result, limit_ms, used_ms, counting_since, recoveries, not_before, announce, loops, \
     tool_calls, steps, model_calls, input_tokens, output_tokens, meta, pin_agent, pin_tools, \
     warnings, trace_id, created_at, started_at, ended_at, last_activity_at, ver, title, retry_of, \
     thinking, cancel_reason, cancel_inherited, cancel_person, on_uncertain, budget, cost_micros, face, for_step, \
     for_call, pin_skills, skills_version, env, stream, spent_tokens, spent_micros, agent_name";

/// The number of [`COLUMNS`]: the index of a query's first further column.
pub const WIDTH: usize = width(COLUMNS);
/// The index of the id in [`COLUMNS`].
pub const ID: usize = at!(id);
/// The index of the number of steps in [`COLUMNS`].
pub const STEPS: usize = at!(steps);

/// Decodes a run from [`COLUMNS`]; a failure names the row, so that it can be quarantined.
pub fn read(row: &dyn Row) -> Result<Run, DbError> {
    whole(row, "runs", &[("id", at!(id))], decode)
}

/// Decodes a run from [`COLUMNS`]; a failure names the column only.
pub fn decode(row: &dyn Row) -> Result<Run, DbError> {
    let requester = match opt_uuid(row, at!(requester_id))? {
        Some(id) => Some(Requester {
            session: SessionId(id),
            key: key(row, at!(requester_key))?,
            generation: row.int(at!(requester_generation))?,
        }),
        None => None,
    };
    let pause = row.opt_text(at!(pause))?;
    Ok(Run {
        id: RunId(uuid(row, at!(id))?),
        org: row.text(at!(org))?.to_owned(),
        user: row.text(at!(user))?.to_owned(),
        session: SessionId(uuid(row, at!(session_id))?),
        session_key: key(row, at!(session_key))?,
        generation: row.int(at!(generation))?,
        requester,
        parent_run: opt_uuid(row, at!(parent_run))?.map(RunId),
        root_run: RunId(uuid(row, at!(root_run))?),
        root_session: SessionId(uuid(row, at!(root_session))?),
        origin: named(row, at!(origin), RunOrigin::parse)?,
        agent: agent(row, at!(agent))?,
        label: opt_string(row, at!(label))?,
        model: row.text(at!(model))?.to_owned(),
        lane: named(row, at!(lane), Lane::parse)?,
        depth: count(row, at!(depth))?,
        cwd: opt_string(row, at!(cwd))?,
        state: named(row, at!(state), |state| RunState::parse(state, pause))?,
        cancel: match row.opt_text(at!(cancel_by))? {
            Some(by) => Some(CancelRequest {
                by: by.to_owned(),
                at: time(row, at!(cancel_at))?,
                reason: opt_string(row, at!(cancel_reason))?,
                inherited: row.int(at!(cancel_inherited))? != 0,
                by_person: row.int(at!(cancel_person))? != 0,
            }),
            None => None,
        },
        error: match row.opt_text(at!(error_kind))? {
            Some(kind) => Some(RunError::new(
                kind,
                row.opt_text(at!(error_message))?.unwrap_or_default(),
            )),
            None => None,
        },
        result: opt_string(row, at!(result))?,
        limit_ms: row
            .opt_int(at!(limit_ms))?
            .map(|_| amount(row, at!(limit_ms)))
            .transpose()?,
        used_ms: amount(row, at!(used_ms))?,
        counting_since: opt_time(row, at!(counting_since))?,
        recoveries: count(row, at!(recoveries))?,
        not_before: opt_time(row, at!(not_before))?,
        announce: named(row, at!(announce), AnnouncePolicy::parse)?,
        loops: count(row, at!(loops))?,
        tool_calls: count(row, at!(tool_calls))?,
        steps: count(row, at!(steps))?,
        usage: Usage {
            model_calls: amount(row, at!(model_calls))?,
            input_tokens: amount(row, at!(input_tokens))?,
            output_tokens: amount(row, at!(output_tokens))?,
            cost_micros: amount(row, at!(cost_micros))?,
        },
        budget: match row.opt_text(at!(budget))? {
            Some(_) => Some(json(row, at!(budget))?),
            None => None,
        },
        spent: Spent {
            tokens: amount(row, at!(spent_tokens))?,
            cost_micros: amount(row, at!(spent_micros))?,
        },
        meta: opt_json(row, at!(meta))?,
        pins: Pins {
            agent: row.text(at!(pin_agent))?.to_owned(),
            tools: row.text(at!(pin_tools))?.to_owned(),
            skills: skills(row, at!(pin_skills), at!(skills_version))?,
        },
        env: match row.opt_text(at!(env))? {
            Some(_) => json(row, at!(env))?,
            None => Vec::new(),
        },
        warnings: json(row, at!(warnings))?,
        trace_id: row.text(at!(trace_id))?.to_owned(),
        created_at: time(row, at!(created_at))?,
        started_at: opt_time(row, at!(started_at))?,
        ended_at: opt_time(row, at!(ended_at))?,
        last_activity_at: time(row, at!(last_activity_at))?,
        ver: row.int(at!(ver))?,
        title: row.text(at!(title))?.to_owned(),
        retry_of: opt_uuid(row, at!(retry_of))?.map(RunId),
        delegated: match opt_named(row, at!(face), DelegationMode::parse)? {
            Some(face) => Some(Delegated {
                mode: face,
                step: count(row, at!(for_step))?,
                call: row.text(at!(for_call))?.to_owned(),
                stream: opt_named(row, at!(stream), Stream::parse)?,
                // Rows written before this column existed have only the agent's id.
                agent_name: opt_string(row, at!(agent_name))?
                    .map_or_else(|| row.text(at!(agent)).map(str::to_owned), Ok)?,
            }),
            None => None,
        },
        thinking: opt_named(row, at!(thinking), Thinking::parse)?,
        on_uncertain: named(row, at!(on_uncertain), OnUncertain::parse)?,
    })
}

fn skills(row: &dyn Row, hash: usize, version: usize) -> Result<Option<PinnedSkills>, DbError> {
    let hash = opt_string(row, hash)?;
    let version = row.opt_int(version)?;
    Ok(hash
        .zip(version)
        .map(|(hash, version)| PinnedSkills { version, hash }))
}

/// The run is in the table, with `seq` as its list position. `input` is the message of its turn,
/// appended when the turn starts; a spawned run's task is already in its transcript.
pub fn insert(tx: &mut dyn Tx, seq: i64, run: &Run, input: Option<&str>) -> Result<(), DbError> {
    let requester = run.requester.as_ref();
    let skills = run.pins.skills.as_ref();
    let delegated = run.delegated.as_ref();
    let env = (!run.env.is_empty()).then(|| to_json(&run.env));
    insert_row(
        tx,
        "runs",
        &[
            ("seq", seq.into()),
            ("id", (&run.id.0).into()),
            ("org", (&run.org).into()),
            ("user", (&run.user).into()),
            ("session_id", (&run.session.0).into()),
            ("session_key", run.session_key.as_str().into()),
            ("generation", run.generation.into()),
            ("requester_id", requester.map(|by| &by.session.0).into()),
            ("requester_key", requester.map(|by| by.key.as_str()).into()),
            (
                "requester_generation",
                requester.map(|by| by.generation).into(),
            ),
            ("parent_run", run.parent_run.as_ref().map(|id| &id.0).into()),
            ("root_run", (&run.root_run.0).into()),
            ("root_session", (&run.root_session.0).into()),
            ("origin", run.origin.as_str().into()),
            ("agent", run.agent.as_str().into()),
            ("label", run.label.as_deref().into()),
            ("model", (&run.model).into()),
            ("lane", run.lane.as_str().into()),
            ("depth", run.depth.into()),
            ("cwd", run.cwd.as_deref().into()),
            ("state", run.state.as_str().into()),
            ("limit_ms", run.limit_ms.map(to_int).into()),
            ("budget", run.budget.as_ref().map(to_json).as_deref().into()),
            ("used_ms", 0i64.into()),
            ("recoveries", 0i64.into()),
            ("announce", run.announce.as_str().into()),
            ("loops", 0i64.into()),
            ("tool_calls", 0i64.into()),
            ("steps", run.steps.into()),
            ("model_calls", 0i64.into()),
            ("input_tokens", 0i64.into()),
            ("output_tokens", 0i64.into()),
            ("meta", run.meta.as_ref().map(to_json).as_deref().into()),
            ("pin_agent", (&run.pins.agent).into()),
            ("pin_tools", (&run.pins.tools).into()),
            (
                "pin_skills",
                skills.map(|skills| skills.hash.as_str()).into(),
            ),
            ("skills_version", skills.map(|skills| skills.version).into()),
            ("env", env.as_deref().into()),
            ("warnings", (&to_json(&run.warnings)).into()),
            ("trace_id", (&run.trace_id).into()),
            ("input", input.into()),
            ("created_at", run.created_at.0.into()),
            ("last_activity_at", run.last_activity_at.0.into()),
            ("ver", run.ver.into()),
            ("title", (&run.title).into()),
            ("retry_of", run.retry_of.as_ref().map(|id| &id.0).into()),
            ("face", delegated.map(|of| of.mode.as_str()).into()),
            ("for_step", delegated.map(|of| of.step).into()),
            ("for_call", delegated.map(|of| of.call.as_str()).into()),
            (
                "stream",
                delegated
                    .and_then(|of| of.stream)
                    .map(Stream::as_str)
                    .into(),
            ),
            (
                "agent_name",
                delegated.map(|of| of.agent_name.as_str()).into(),
            ),
            ("thinking", run.thinking.map(Thinking::as_str).into()),
            ("on_uncertain", run.on_uncertain.as_str().into()),
        ],
    )
}

/// The row has the values of `run`, if its version is still that of `before`. Returns the new
/// version, or `None` if the row was changed since it was read.
///
/// Columns that rarely change are written only if they differ from `before`, so `before` must
/// match the row: SQLite checks every index that contains a written column, and half of them
/// are about a run's state and its end.
pub fn update(tx: &mut dyn Tx, before: &Run, run: &Run) -> Result<Option<i64>, DbError> {
    let warnings = to_json(&run.warnings);
    let mut values: Vec<(&str, Param<'_>)> = vec![
        ("used_ms", to_int(run.used_ms).into()),
        ("counting_since", run.counting_since.map(|at| at.0).into()),
        ("loops", run.loops.into()),
        ("tool_calls", run.tool_calls.into()),
        ("steps", run.steps.into()),
        ("model_calls", to_int(run.usage.model_calls).into()),
        ("input_tokens", to_int(run.usage.input_tokens).into()),
        ("output_tokens", to_int(run.usage.output_tokens).into()),
        ("cost_micros", to_int(run.usage.cost_micros).into()),
        ("last_activity_at", run.last_activity_at.0.into()),
        ("ver", (before.ver + 1).into()),
    ];
    if course(before) != course(run) {
        let pause = run.state.pause().map(|reason| reason.as_str());
        values.extend([
            ("state", run.state.as_str().into()),
            ("pause", pause.into()),
            ("started_at", run.started_at.map(|at| at.0).into()),
            ("not_before", run.not_before.map(|at| at.0).into()),
            ("recoveries", run.recoveries.into()),
            ("warnings", (&warnings).into()),
        ]);
    }
    if end(before) != end(run) {
        let cancel = run.cancel.as_ref();
        let error = run.error.as_ref();
        let reason = cancel.and_then(|cancel| cancel.reason.as_deref());
        let inherited = cancel.is_some_and(|cancel| cancel.inherited);
        let by_person = cancel.is_some_and(|cancel| cancel.by_person);
        values.extend([
            ("ended_at", run.ended_at.map(|at| at.0).into()),
            ("result", run.result.as_deref().into()),
            ("error_kind", error.map(|error| error.kind.as_str()).into()),
            ("error_message", error.map(|error| &*error.message).into()),
            ("cancel_by", cancel.map(|cancel| cancel.by.as_str()).into()),
            ("cancel_at", cancel.map(|cancel| cancel.at.0).into()),
            ("cancel_reason", reason.into()),
            ("cancel_inherited", inherited.into()),
            ("cancel_person", by_person.into()),
        ]);
    }
    let key = [("id", (&run.id.0).into()), ("ver", before.ver.into())];
    let changed = update_rows(tx, "runs", &key, &values)?;
    Ok((changed == 1).then_some(before.ver + 1))
}

/// The fields of a run that change with its state.
fn course(run: &Run) -> impl PartialEq + '_ {
    let times = (run.started_at, run.not_before);
    (run.state, times, run.recoveries, &run.warnings)
}

/// The fields of a run that change when it ends or is cancelled.
fn end(run: &Run) -> impl PartialEq + '_ {
    (run.ended_at, &run.result, &run.error, &run.cancel)
}

/// The running time of open runs is written up to `alive`, the last reading of the clock by which
/// they were counting. From `now` on they count by the clock of the current process.
pub fn count_up_to(tx: &mut dyn Tx, alive: Timestamp, now: Timestamp) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET used_ms = used_ms \
         + CASE WHEN counting_since < ?1 THEN ?1 - counting_since ELSE 0 END, \
         counting_since = ?2, ver = ver + 1 \
         WHERE ended_at IS NULL AND counting_since IS NOT NULL",
        &[alive.0.into(), now.0.into()],
    )
    .map(|_| ())
}

/// The run has these warnings. Nothing else changes, so this also applies to ended runs.
pub fn set_warnings(tx: &mut dyn Tx, id: RunId, warnings: &[String]) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET warnings = ?2, ver = ver + 1 WHERE id = ?1",
        &[(&id.0).into(), (&to_json(&warnings)).into()],
    )
    .map(|_| ())
}

/// The run with that id.
pub fn get(tx: &mut dyn Tx, id: RunId) -> Result<Option<Run>, DbError> {
    // The most frequent read, so the SQL text is built once.
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("SELECT {COLUMNS} FROM runs WHERE id = ?1"));
    first(tx, &SQL, &[(&id.0).into()], read)
}

/// The message of the run's turn, while it is not yet in the transcript.
pub fn input(tx: &mut dyn Tx, id: RunId) -> Result<Option<String>, DbError> {
    let found = first(
        tx,
        "SELECT input, id FROM runs WHERE id = ?1",
        &[(&id.0).into()],
        |row| whole(row, "runs", &[("id", 1)], |row| opt_string(row, 0)),
    )?;
    Ok(found.flatten())
}

/// The permission bundle of this run alone, as JSON; `None`: that of its session applies.
pub fn bundle(tx: &mut dyn Tx, id: RunId) -> Result<Option<String>, DbError> {
    let found = first(
        tx,
        "SELECT bundle, id FROM runs WHERE id = ?1",
        &[(&id.0).into()],
        |row| whole(row, "runs", &[("id", 1)], |row| opt_string(row, 0)),
    )?;
    Ok(found.flatten())
}

/// The run has its own permission bundle, independent of other runs in its session.
pub fn set_bundle(tx: &mut dyn Tx, id: RunId, bundle: &str) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET bundle = ?2 WHERE id = ?1",
        &[(&id.0).into(), bundle.into()],
    )
    .map(|_| ())
}

/// The run's pending input is cleared, because it is in the transcript.
pub fn clear_input(tx: &mut dyn Tx, id: RunId) -> Result<(), DbError> {
    tx.execute(
        "UPDATE runs SET input = NULL WHERE id = ?1",
        &[(&id.0).into()],
    )
    .map(|_| ())
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

/// Runs after list position `after`, oldest first.
pub fn ages(tx: &mut dyn Tx, after: i64, limit: u32) -> Result<Vec<Age>, DbError> {
    all(
        tx,
        &format!(
            "SELECT seq, id, org, session_id, created_at, ended_at, pin_agent, pin_tools, \
             pin_skills, skills_version FROM runs WHERE seq > ?1 ORDER BY seq LIMIT {limit}"
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
                    skills: skills(row, 8, 9)?,
                },
            })
        },
    )
}

/// The row of an ended run is deleted; rows that refer to it must be deleted before.
pub fn remove(tx: &mut dyn Tx, id: RunId) -> Result<(), DbError> {
    tx.execute("DELETE FROM runs WHERE id = ?1", &[(&id.0).into()])
        .map(|_| ())
}
