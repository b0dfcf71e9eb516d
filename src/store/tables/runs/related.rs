//! Queries over related runs: those of a tree, of a session or of a requester, and counts of
//! open runs.

use super::COLUMNS;
use crate::kernel::delegation::breaker::{CallEnd, MOST_ENDS};
use crate::kernel::ids::{AgentId, RunId, SessionId};
use crate::kernel::run::{PauseReason, Run, RunOrigin, RunState};
use crate::kernel::time::Timestamp;
use crate::store::tables::columns::{columns_of, values};
use crate::store::tables::filter::Filter;
use crate::store::tables::table::read;
use crate::store::tx::{DbError, Tx, all, first, number, sql};

/// This run and its descendants, oldest first; `None` if it is a root, because then `root_run`
/// selects them. Reads at most the whole tree.
pub fn branch(tx: &mut dyn Tx, top: RunId) -> Result<Option<Vec<RunId>>, DbError> {
    let root: Option<RunId> = first(
        tx,
        "SELECT root_run FROM runs WHERE id = ?1",
        &[(&top).into()],
        values,
    )?;
    let Some(root) = root.filter(|root| *root != top) else {
        return Ok(None);
    };
    let tree: Vec<(RunId, Option<RunId>)> = all(
        tx,
        "SELECT id, parent_run FROM runs WHERE root_run = ?1 AND root_run <> id ORDER BY seq",
        &[(&root).into()],
        values,
    )?;
    let mut branch = vec![top];
    for (run, parent) in tree {
        // A parent is older than its children.
        if parent.is_some_and(|parent| branch.contains(&parent)) {
            branch.push(run);
        }
    }
    Ok(Some(branch))
}

/// The runs that execute tool calls of these runs, in call order.
pub fn delegated_by(tx: &mut dyn Tx, above: &[RunId]) -> Result<Vec<Run>, DbError> {
    let mut filter = Filter::default();
    filter.one_of("parent_run", above);
    filter.only("delegation IS NOT NULL");
    let (conditions, params) = filter.finish();
    all(
        tx,
        &format!(
            "SELECT {COLUMNS} FROM runs WHERE {conditions} ORDER BY parent_run, for_step, seq"
        ),
        &params,
        read,
    )
}

/// Every open run, oldest first.
pub fn live(tx: &mut dyn Tx) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        sql!("SELECT {COLUMNS} FROM runs WHERE ended_at IS NULL ORDER BY seq"),
        &[],
        read,
    )
}

/// True if a run of this session, or an open descendant of one, waits for a user. Queued runs of
/// the session are then blocked behind it.
pub fn waits_for_person(tx: &mut dyn Tx, session: SessionId) -> Result<bool, DbError> {
    let found = number(
        tx,
        "WITH RECURSIVE open (id) AS (\
         SELECT id FROM runs WHERE session_id = ?1 AND ended_at IS NULL \
         UNION SELECT runs.id FROM runs, open \
         WHERE runs.parent_run = open.id AND runs.ended_at IS NULL) \
         SELECT EXISTS (SELECT 1 FROM runs WHERE id IN (SELECT id FROM open) \
         AND (pause IN ('approval', 'review', 'input') OR EXISTS (SELECT 1 FROM steps \
         WHERE steps.run_id = runs.id AND steps.ended_at IS NULL \
         AND steps.waits IN ('answer', 'value', 'approval', 'review'))))",
        &[(&session).into()],
    )?;
    Ok(found != 0)
}

/// The open runs of one session tree, and all open sends, which may cross trees; oldest first.
pub fn live_in_tree(tx: &mut dyn Tx, root: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        sql!(
            "SELECT {COLUMNS} FROM runs WHERE ended_at IS NULL \
             AND (root_session = ?1 OR origin = 'send') ORDER BY seq"
        ),
        &[(&root).into()],
        read,
    )
}

/// The links of a run to its session, requester and parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// The session it works in.
    pub session: SessionId,
    /// The session that requested it.
    pub requester: Option<SessionId>,
    /// The run that requested it.
    pub parent_run: Option<RunId>,
    /// For a wake run: the root run of the subtree whose end it reports.
    pub woken_for: Option<RunId>,
}

impl Links {
    /// The links of `run`.
    pub fn of(run: &Run) -> Self {
        Links {
            session: run.session,
            requester: run.requester.as_ref().map(|by| by.session),
            parent_run: run.parent_run,
            woken_for: (run.origin == RunOrigin::Wake).then_some(run.root_run),
        }
    }
}

columns_of!(Links {
    session,
    requester,
    parent_run,
    woken_for
});

/// The links of the run with that id.
pub fn line(tx: &mut dyn Tx, id: RunId) -> Result<Option<Links>, DbError> {
    first(
        tx,
        "SELECT session_id, requester_id, parent_run, \
         CASE WHEN origin = 'wake' THEN root_run END FROM runs WHERE id = ?1",
        &[(&id).into()],
        values,
    )
}

/// The run that requested the first run of this session; `None` if a client did.
pub fn requesting_run_of(tx: &mut dyn Tx, session: SessionId) -> Result<Option<RunId>, DbError> {
    let found = first(
        tx,
        "SELECT parent_run FROM runs WHERE session_id = ?1 ORDER BY seq LIMIT 1",
        &[(&session).into()],
        values,
    )?;
    Ok(found.flatten())
}

/// Condition for runs in sessions of their own. A called run works in its caller's session, as
/// part of the caller's turn.
const IN_OWN_SESSION: &str = "(delegation IS NULL OR delegation <> 'call')";

/// The open runs that this session requested in sessions of their own, oldest first.
pub fn live_children(tx: &mut dyn Tx, requester: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        sql!(
            "SELECT {COLUMNS} FROM runs WHERE requester_id = ?1 AND ended_at IS NULL \
             AND {IN_OWN_SESSION} ORDER BY seq"
        ),
        &[(&requester).into()],
        read,
    )
}

/// The number of open runs that this session requested in sessions of their own.
pub fn count_live_children(tx: &mut dyn Tx, requester: SessionId) -> Result<i64, DbError> {
    let sql = sql!(
        "SELECT count(*) FROM runs WHERE requester_id = ?1 AND ended_at IS NULL AND {IN_OWN_SESSION}"
    );
    number(tx, sql, &[(&requester).into()])
}

/// The last ends of delegated runs of this agent, for all tools, latest first; for the breaker.
pub fn ends_of_calls(tx: &mut dyn Tx, org: &str, agent: &AgentId) -> Result<Vec<CallEnd>, DbError> {
    all(
        tx,
        sql!(
            "SELECT ended_at, state FROM runs WHERE org = ?1 AND agent = ?2 \
             AND delegation IS NOT NULL AND ended_at IS NOT NULL AND state <> 'cancelled' \
             ORDER BY ended_at DESC, seq DESC LIMIT {MOST_ENDS}"
        ),
        &[org.into(), agent.as_str().into()],
        |row| {
            let (at, state): (_, String) = values(row)?;
            let failed = state != "ok";
            Ok(CallEnd { at, failed })
        },
    )
}

/// True if a user cancelled a call of this agent that `caller` made by a tool that names no
/// session. Cascading cancels do not count.
pub fn was_call_cancelled(
    tx: &mut dyn Tx,
    caller: RunId,
    agent: &AgentId,
) -> Result<bool, DbError> {
    let found = number(
        tx,
        "SELECT EXISTS (SELECT 1 FROM runs WHERE parent_run = ?1 AND delegation IS NOT NULL \
         AND delegation <> 'task' AND agent = ?2 AND cancel_person = 1 AND cancel_inherited = 0 AND ended_at IS NOT NULL)",
        &[(&caller).into(), agent.as_str().into()],
    )?;
    Ok(found != 0)
}

/// The wake run of this session that has not started yet.
pub fn waiting_wake(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Run>, DbError> {
    let sql = sql!(
        "SELECT {COLUMNS} FROM runs WHERE session_id = ?1 AND state = 'queued' \
             AND origin = 'wake' AND started_at IS NULL"
    );
    first(tx, sql, &[(&session).into()], read)
}

/// The number of queued turns of this session; called runs are part of a turn in progress.
pub fn count_waiting_turns(tx: &mut dyn Tx, session: SessionId) -> Result<u32, DbError> {
    let waiting = live_in(tx, session)?;
    let waiting = waiting
        .iter()
        .filter(|run| run.state == RunState::Queued && !run.is_called());
    Ok(u32::try_from(waiting.count()).unwrap_or(u32::MAX))
}

/// The number of runs spawned and messages sent below this root run, including ended ones.
pub fn count_descendants(tx: &mut dyn Tx, root: RunId) -> Result<i64, DbError> {
    number(
        tx,
        "SELECT count(*) FROM runs WHERE root_run = ?1 AND root_run <> id \
         AND (origin = 'spawn' OR origin = 'send')",
        &[(&root).into()],
    )
}

/// The open runs that answer messages from this session, oldest first.
pub fn live_answers_to(tx: &mut dyn Tx, asker: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        sql!(
            "SELECT {COLUMNS} FROM runs WHERE ended_at IS NULL AND id IN \
             (SELECT run_id FROM sends WHERE asker_id = ?1 AND state <> 'done') ORDER BY seq"
        ),
        &[(&asker).into()],
        read,
    )
}

/// True if a run is open in this session.
pub fn has_live_in(tx: &mut dyn Tx, session: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE session_id = ?1 AND ended_at IS NULL)";
    Ok(number(tx, sql, &[(&session).into()])? != 0)
}

/// True if a run is open in this session that is not marked as cancelled.
pub fn has_uncancelled_in(tx: &mut dyn Tx, session: SessionId) -> Result<bool, DbError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE session_id = ?1 AND ended_at IS NULL \
               AND cancel_by IS NULL)";
    Ok(number(tx, sql, &[(&session).into()])? != 0)
}

/// When the latest run of this session ended; `None` if there is none, or it is open.
pub fn last_end_in(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Timestamp>, DbError> {
    let found = first(
        tx,
        "SELECT ended_at FROM runs WHERE session_id = ?1 ORDER BY seq DESC LIMIT 1",
        &[(&session).into()],
        values,
    )?;
    Ok(found.flatten())
}

/// The runs of this session after list position `after`, oldest first, with their positions.
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
        &[(&session).into(), after.into()],
        values,
    )
}

/// The open runs that work in this session, oldest first.
pub fn live_in(tx: &mut dyn Tx, session: SessionId) -> Result<Vec<Run>, DbError> {
    all(
        tx,
        sql!("SELECT {COLUMNS} FROM runs WHERE session_id = ?1 AND ended_at IS NULL ORDER BY seq"),
        &[(&session).into()],
        read,
    )
}

/// The latest run of this session's own agent.
pub fn last_in(tx: &mut dyn Tx, session: SessionId) -> Result<Option<Run>, DbError> {
    let sql = sql!(
        "SELECT {COLUMNS} FROM runs WHERE session_id = ?1 AND {IN_OWN_SESSION} ORDER BY seq DESC LIMIT 1"
    );
    first(tx, sql, &[(&session).into()], read)
}

/// The number of paused runs by what they wait for, in the order of [`PauseReason::ALL`].
pub fn count_paused(tx: &mut dyn Tx) -> Result<Vec<(PauseReason, u64)>, DbError> {
    let mut counts: Vec<(PauseReason, u64)> =
        PauseReason::ALL.iter().map(|reason| (*reason, 0)).collect();
    tx.query(
        "SELECT pause, count(*) FROM runs WHERE ended_at IS NULL AND state = 'paused' GROUP BY pause",
        &[],
        &mut |row| {
            let reason = row.text(0)?;
            if let Some(found) = counts.iter_mut().find(|(of, _)| of.as_str() == reason) {
                found.1 = u64::try_from(row.int(1)?).unwrap_or(0);
            }
            Ok(())
        },
    )?;
    Ok(counts)
}

/// The oldest `limit` running runs without activity since `before`.
pub fn idle_since(tx: &mut dyn Tx, before: Timestamp, limit: u32) -> Result<Vec<RunId>, DbError> {
    all(
        tx,
        "SELECT id FROM runs WHERE ended_at IS NULL AND state = 'running' \
         AND last_activity_at < ?1 ORDER BY last_activity_at LIMIT ?2",
        &[before.0.into(), limit.into()],
        values,
    )
}

/// The oldest `limit` open runs of all orgs, each with its org.
pub fn live_ids(tx: &mut dyn Tx, limit: u32) -> Result<Vec<(RunId, String)>, DbError> {
    all(
        tx,
        "SELECT id, org FROM runs WHERE ended_at IS NULL ORDER BY seq LIMIT ?1",
        &[limit.into()],
        values,
    )
}

/// The number of open runs by state: queued, running, paused, settling; of one org or of all.
pub fn count_live(tx: &mut dyn Tx, org: Option<&str>) -> Result<[u64; 4], DbError> {
    let mut counts = [0; 4];
    tx.query(
        "SELECT state, count(*) FROM runs \
         WHERE ended_at IS NULL AND (?1 IS NULL OR org = ?1) GROUP BY state",
        &[org.into()],
        &mut |row| {
            let at = match row.text(0)? {
                "queued" => 0,
                "running" => 1,
                "paused" => 2,
                _ => 3,
            };
            counts[at] = u64::try_from(row.int(1)?).unwrap_or(0);
            Ok(())
        },
    )?;
    Ok(counts)
}
