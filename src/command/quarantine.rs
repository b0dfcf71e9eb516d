//! Quarantines rows that cannot be decoded, so that the damage stays limited to them.

use std::collections::BTreeSet;

use super::context::Context;
use super::moves::{move_run, owed};
use crate::contract::commit::CommitEffect;
use crate::kernel::event::AlertRaised;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::event::RunEvent;
use crate::kernel::run::{AnnouncePolicy, Run, RunError, RunState};
use crate::store::repair::tables::{OnUndecodable, RowKey, Table};
use crate::store::repair::{consistency, salvage, tables};
use crate::store::tables::quarantine::Fate;
use crate::store::tables::{boots, outbox, quarantine, runs};
use crate::store::tx::{BadRow, Param, Raw};

/// SQL condition for runs that pinned the body `?1`.
const PINS: &str = "(pin_agent IS ?1 OR pin_tools IS ?1 OR pin_skills IS ?1)";

/// Once this returns, the row is in quarantine with all its bytes, unless it can be decoded. Its
/// readable part stays in its table where that is still valid. Open runs that cannot continue
/// without the rest have ended `interrupted`, also if the row is a lost body.
pub fn quarantine(context: &mut Context<'_>, bad: &BadRow) -> Result<(), Fault> {
    let Some(table) = tables::find(bad.table) else {
        return Err(Fault::internal(format!("no table {}", bad.table)));
    };
    let mut broken = Broken::default();
    let names = bad.key.iter().enumerate();
    let clause: Vec<String> = names
        .map(|(at, (name, _))| format!("{name} IS ?{}", at + 1))
        .collect();
    let values: Vec<Param<'_>> = bad.key.iter().map(|(_, value)| value.into()).collect();
    let places = table.places(context.tx, &clause.join(" AND "), &values)?;
    // The body is searched by hash, so that a missing row is handled as well.
    if let ("blobs", true, [(_, hash)]) = (table.name, places.is_empty(), bad.key.as_slice()) {
        broken
            .runs
            .extend(open_runs(context, PINS, &[hash.into()])?);
    }
    for place in places {
        set_aside(context, table, &place, &mut broken)?;
    }
    if !broken.is_empty() {
        end_what_is_broken(context, broken)?;
    }
    Ok(())
}

/// Once this returns, open runs of a salvaged store that lost rows have ended `interrupted`, and
/// lost announces of ended runs are queued again. An alert has the salvage report. A repeat changes
/// nothing.
pub fn settle_salvaged(
    context: &mut Context<'_>,
    runs: &[RunId],
    untold: &[RunId],
) -> Result<(), Fault> {
    if !salvage::is_unsettled(context.tx)? {
        return Ok(());
    }
    let broken = Broken {
        runs: runs.iter().copied().collect(),
        children: true,
    };
    end_what_is_broken(context, broken)?;
    for id in untold {
        if outbox::of_run(context.tx, *id)?.is_none() {
            requeue_announce(context, *id)?;
        }
    }
    if let Some(report) = salvage::report(context.tx)? {
        context.alert((None, None), AlertRaised::StoreSalvaged { report });
    }
    boots::clear_meta(context.tx, salvage::UNSETTLED)?;
    Ok(())
}

/// The consequences of lost rows.
#[derive(Default)]
struct Broken {
    /// Open runs that cannot continue.
    runs: BTreeSet<RunId>,
    /// Runs or sessions were removed, which other runs may wait for.
    children: bool,
}

impl Broken {
    fn is_empty(&self) -> bool {
        self.runs.is_empty() && !self.children
    }
}

/// Quarantines the row at `place`, unless it can be decoded.
fn set_aside(
    context: &mut Context<'_>,
    table: &'static Table,
    place: &RowKey,
    broken: &mut Broken,
) -> Result<(), Fault> {
    let Err((column, why)) = table.check(context.tx, place)? else {
        return Ok(());
    };
    let Some(row) = table.whole_row(context.tx, place)? else {
        return Ok(());
    };
    let names = table.primary.iter().map(|name| (*name).to_owned());
    let key: Vec<(String, Raw)> = names.zip(place.iter().cloned()).collect();
    let key = quarantine::to_text(&key);
    if table.on_undecodable == OnUndecodable::Kept
        && quarantine::holds(context.tx, table.name, &key, &row)?
    {
        return Ok(());
    }
    let reason = format!("{column}: {why}");
    let seq = keep(context, table, &key, &row, &reason)?;
    let fate = if repair(context, table, place, seq)? {
        Fate::Repaired
    } else if table.on_undecodable == OnUndecodable::Kept {
        Fate::Kept
    } else {
        remove(context, table, place, &row)?;
        Fate::Moved
    };
    quarantine::settle(context.tx, seq, fate)?;
    let (session, run) = owner(table, &row);
    let alert = AlertRaised::RowQuarantined {
        table: table.name.into(),
        reason: reason.clone(),
        fate: fate.as_str().into(),
        session_id: session,
        run_id: run,
    };
    context.alert((session, run), alert);
    tracing::error!(
        table = table.name,
        key,
        reason,
        fate = fate.as_str(),
        "a row could not be read and was quarantined"
    );
    note_what_broke(context, table, &row, fate, broken)
}

/// Copies a row into quarantine; returns the sequence number of the entry.
fn keep(
    context: &mut Context<'_>,
    table: &Table,
    key: &str,
    row: &[(String, Raw)],
    reason: &str,
) -> Result<i64, Fault> {
    let seq = context.take_seq()?;
    let now = context.now.wall;
    let as_it_is = (reason, Fate::Kept);
    quarantine::insert(context.tx, seq, table.name, key, row, as_it_is, now)?;
    Ok(seq)
}

/// Repairs undecodable columns one by one until the row can be decoded; returns whether it can.
fn repair(
    context: &mut Context<'_>,
    table: &Table,
    place: &RowKey,
    entry: i64,
) -> Result<bool, Fault> {
    if let ("runs", Some(Raw::Int(run))) = (table.name, place.first()) {
        quarantine::begin_repair(context.tx, entry, *run)?;
    }
    let mut mended: Vec<String> = Vec::new();
    loop {
        let Err((column, _)) = table.check(context.tx, place)? else {
            return Ok(true);
        };
        // A repair that did not help is not tried again.
        let (Some(mend), false) = (table.repair(&column), mended.contains(&column)) else {
            return Ok(false);
        };
        let fresh = format!("x'{}'", context.message_id().0.simple());
        table.assign(context.tx, place, &mend.replace("$fresh", &fresh))?;
        mended.push(column);
    }
}

/// Removes the row from its table; for a run, also the rows that refer to it.
fn remove(
    context: &mut Context<'_>,
    table: &Table,
    place: &RowKey,
    row: &[(String, Raw)],
) -> Result<(), Fault> {
    let id = value(row, "id").filter(|_| table.name == "runs");
    if let Some(id) = id {
        follow_all(context, "run_id IS ?1", &[id.into()])?;
    }
    table.remove(context.tx, place)?;
    if id.is_some() {
        // The waits of its steps are removed.
        let nobody = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = waits.run_id)";
        let sql = format!("DELETE FROM waits WHERE {nobody}");
        context.tx.execute(&sql, &[])?;
    }
    if id.is_some_and(|id| run_id(id).is_none()) {
        // Its id is unreadable, so every row that refers to a missing run is moved.
        let orphans = "NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = run_id)";
        follow_all(context, orphans, &[])?;
    }
    Ok(())
}

/// Moves the steps, announces and steer messages that match `clause` to quarantine, because their
/// run is removed.
fn follow_all(context: &mut Context<'_>, clause: &str, params: &[Param<'_>]) -> Result<(), Fault> {
    for name in ["steps", "outbox", "steers"] {
        let table = tables::find(name).expect("it is listed");
        let places = table.places(context.tx, clause, params);
        for place in places? {
            follow(context, table, &place)?;
        }
    }
    Ok(())
}

/// Moves a row of a removed run to quarantine.
fn follow(context: &mut Context<'_>, table: &Table, place: &RowKey) -> Result<(), Fault> {
    if let Some(row) = table.whole_row(context.tx, place)? {
        let names = table.primary.iter().map(|name| (*name).to_owned());
        let key: Vec<(String, Raw)> = names.zip(place.iter().cloned()).collect();
        let key = quarantine::to_text(&key);
        let seq = keep(context, table, &key, &row, "its run's row was damaged")?;
        quarantine::settle(context.tx, seq, Fate::Moved)?;
    }
    table.remove(context.tx, place).map_err(Fault::from)
}

/// Collects the other rows that the loss of this row affects.
fn note_what_broke(
    context: &mut Context<'_>,
    table: &Table,
    row: &[(String, Raw)],
    fate: Fate,
    broken: &mut Broken,
) -> Result<(), Fault> {
    let (_, run) = owner(table, row);
    match (table.name, fate) {
        ("runs" | "steps" | "messages" | "steers" | "sends" | "questions" | "approvals", _) => {
            broken.runs.extend(run);
            if table.name == "runs" && fate == Fate::Moved {
                broken.children = true;
                // Waiters on the run learn that it is gone.
                if let Some(id) = run {
                    context.effect(CommitEffect::Ended(id));
                }
            }
        }
        ("sessions", Fate::Moved) => {
            broken.children = true;
            broken.runs.extend(open_runs(
                context,
                "NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.id = runs.session_id)",
                &[],
            )?);
        }
        ("blobs", _) => {
            if let Some(hash) = value(row, "hash") {
                broken
                    .runs
                    .extend(open_runs(context, PINS, &[hash.into()])?);
            }
        }
        ("outbox", Fate::Moved) => {
            if let Some(id) = run {
                requeue_announce(context, id)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Restores the announce of a run whose outbox row was lost. It wakes no agent, because it is
/// unknown whether it already did; one that is in its target's transcript is not delivered again.
fn requeue_announce(context: &mut Context<'_>, id: RunId) -> Result<(), Fault> {
    let Some(run) = readable(context, id)? else {
        return Ok(());
    };
    if !run.state.is_terminal() || !run.owes_announce() {
        return Ok(());
    }
    let seq = context.take_seq()?;
    let now = context.now.wall;
    outbox::insert(context.tx, seq, &run, AnnouncePolicy::Inbox, now)?;
    match outbox::place_in_transcript(context.tx, &run)? {
        Some(at) => outbox::mark_delivered(context.tx, seq, at, true, now)?,
        None => {
            if let Some(requester) = &run.requester {
                context.effect(CommitEffect::Deliverable(requester.session));
            }
        }
    }
    Ok(())
}

/// Ends the open runs that cannot continue, and releases runs that wait for removed ones. Every row
/// that this touches is checked first, so that a second damaged one cannot block it.
fn end_what_is_broken(context: &mut Context<'_>, mut broken: Broken) -> Result<(), Fault> {
    for (name, clause) in [
        ("runs", "ended_at IS NULL"),
        (
            "steps",
            "run_id IN (SELECT id FROM runs WHERE ended_at IS NULL)",
        ),
    ] {
        let table = tables::find(name).expect("it is listed");
        for place in table.places(context.tx, clause, &[])? {
            set_aside(context, table, &place, &mut broken)?;
        }
    }
    for id in broken.runs {
        if let Some(run) = readable(context, id)?
            && !run.state.is_terminal()
        {
            interrupt(context, &run)?;
        }
    }
    if broken.children {
        for run in runs::live(context.tx)? {
            if run.state == RunState::Settling {
                let owed = owed(context, &run)?;
                move_run(context, &run, RunEvent::OwedChanged { owed })?;
            }
        }
    }
    Ok(())
}

fn interrupt(context: &mut Context<'_>, run: &Run) -> Result<(), Fault> {
    let lost = consistency::lost_of(context.tx, run.id)?;
    let id = run.id;
    let message = match lost.is_empty() {
        true => format!(
            "rows of this run in the store were damaged; what could be read is kept, the rest is \
             in quarantine (abide doctor). To retry: abide retry {id}"
        ),
        false => format!(
            "the store was damaged and has lost {} of this run, which cannot continue \
             without it; what could be read is kept. To retry: abide retry {id}",
            lost.join(", ")
        ),
    };
    let error = RunError::new("damaged", message);
    if run.state == RunState::Running {
        context.effect(CommitEffect::StopExecutor(run.id));
    }
    move_run(context, run, RunEvent::Interrupted(error)).map(drop)
}

/// The run, if it exists and can be decoded.
fn readable(context: &mut Context<'_>, id: RunId) -> Result<Option<Run>, Fault> {
    let table = tables::find("runs").expect("it is listed");
    let places = table.places(context.tx, "id = ?1", &[(&id.0).into()]);
    for place in places? {
        if table.check(context.tx, &place)?.is_err() {
            return Ok(None);
        }
    }
    runs::get(context.tx, id).map_err(Fault::from)
}

/// Ids of the open runs that match `clause`.
fn open_runs(
    context: &mut Context<'_>,
    clause: &str,
    params: &[Param<'_>],
) -> Result<Vec<RunId>, Fault> {
    let mut found = Vec::new();
    let sql = format!("SELECT id FROM runs WHERE ended_at IS NULL AND {clause}");
    context.tx.query(&sql, params, &mut |row| {
        found.extend(run_id(&row.raw(0)?));
        Ok(())
    })?;
    Ok(found)
}

/// The session and run that a row belongs to, as far as its columns say.
fn owner(table: &Table, row: &[(String, Raw)]) -> (Option<SessionId>, Option<RunId>) {
    let (session, run) = match table.name {
        "sessions" => ("id", ""),
        "runs" => ("session_id", "id"),
        _ => ("session_id", "run_id"),
    };
    let id = |name: &str| value(row, name).and_then(run_id);
    (id(session).map(|id| SessionId(id.0)), id(run))
}

fn value<'a>(row: &'a [(String, Raw)], name: &str) -> Option<&'a Raw> {
    let column = row.iter().find(|(column, _)| column == name);
    column.map(|(_, value)| value)
}

fn run_id(value: &Raw) -> Option<RunId> {
    match value {
        Raw::Bytes(bytes) => uuid::Uuid::from_slice(bytes).ok().map(RunId),
        _ => None,
    }
}
