//! Reads that join tables, for the registry and for the API's responses.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::columns::{keyed, place, width};
use super::filter::Filter;
use super::pins::PinCache;
use super::table::{read, unreadable};
use super::transcripts::Transcripts;
use super::{
    approvals, bundles, environment, outbox, questions, runs, sends, sessions, steps, stops, waits,
};
use crate::contract::commit::PendingWait;
use crate::contract::journal::RunView;
use crate::contract::linked;
use crate::kernel::delegation::{self, ChildCall};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::policy::approval::Approval;
use crate::kernel::question::Question;
use crate::kernel::run::step::{Step, WaitKind};
use crate::kernel::run::stop::Stop;
use crate::kernel::run::{PauseReason, Run, RunOrigin, RunState};
use crate::kernel::session::Session;
use crate::kernel::session::message::MessageKind;
use crate::kernel::session::stored_content::StoredMessage;
use crate::kernel::time::Timestamp;
use crate::store::repair::{consistency, salvage};
use crate::store::tx::{DbError, Param, Row, Tx, all, first, number, sql};

/// Maximum number of transcript messages in a runner's view: the newest ones.
pub const WINDOW: u32 = 1000;
/// Maximum number of steps read for a run; a run's own limits end it long before.
const MAX_STEPS: u32 = 100_000;

/// A run as its runner needs it, and its input if that is not in the transcript yet.
pub fn view(
    tx: &mut dyn Tx,
    id: RunId,
    pins: &PinCache,
    transcripts: &Transcripts,
) -> Result<Option<(RunView, Option<String>)>, DbError> {
    let mark = transcripts.mark();
    let Some(run) = runs::get(tx, id)? else {
        return Ok(None);
    };
    let input = runs::input(tx, id)?;
    let agent = pins.get(tx, &run.pins.agent)?;
    let tools = pins.get(tx, &run.pins.tools)?;
    let skills = match &run.pins.skills {
        Some(skills) => Some(pins.get(tx, &skills.hash)?),
        None => None,
    };
    let bundle = match run.depth {
        _ if run.is_called() => runs::bundle(tx, id)?,
        0 => None,
        _ => bundles::get(tx, run.session)?,
    };
    let messages = transcripts.window(tx, &run, WINDOW, mark)?;
    let steps = steps::after(tx, id, 0, MAX_STEPS)?;
    let view = RunView {
        agent,
        tools,
        skills,
        bundle: bundle.map(Into::into),
        environment: Arc::default(),
        messages,
        steps: steps.into_iter().map(Arc::new).collect(),
        run,
    };
    Ok(Some((view, input)))
}

/// A run with the rows of other tables that lists show with it.
pub struct ShownRun {
    /// The run's row.
    pub run: Run,
    /// Its list position.
    pub seq: i64,
    /// Its first open step or, if none is open, its last step.
    pub step: Option<steps::ShownStep>,
    /// Its outbox row, if it has ended.
    pub announce: Option<outbox::OutboxEntry>,
    /// Its open questions to users.
    pub questions: Vec<Question>,
    /// Its open approvals.
    pub approvals: Vec<Approval>,
    /// Its steps whose effect is uncertain and that a user must review.
    pub reviews: Vec<Step>,
    /// Names of missing environment values that it is paused for, each with the reason.
    pub missing_values: Vec<(String, String)>,
    /// The model call that waits for its provider.
    pub provider_wait: Option<Step>,
}

/// The columns of a run as lists show it: [`runs::COLUMNS`], its list position, and its last
/// step's tool or kind. That step is found by key, so that a page of long runs scans no journal.
static SHOWN: LazyLock<String> = LazyLock::new(|| {
    format!(
        "{}, seq, (SELECT coalesce(last.tool, last.kind) FROM steps AS last \
         WHERE last.run_id = runs.id AND last.seq = runs.steps)",
        runs::COLUMNS
    )
});

/// Decodes a run from [`SHOWN`].
fn shown(row: &dyn Row) -> Result<ShownRun, DbError> {
    const WIDTH: usize = width(runs::COLUMNS);
    let (run, place_of) = (read::<Run>(row)?, |name| place(runs::COLUMNS, name));
    let what = row.opt_text(WIDTH + 1).map_err(|fault| {
        let key = [("run_id", place_of("id")), ("seq", place_of("steps"))];
        unreadable(row, "steps", key, fault)
    })?;
    Ok(ShownRun {
        seq: row.int(WIDTH)?,
        step: what.map(|what| (run.steps, what.to_owned())),
        announce: None,
        questions: Vec::new(),
        approvals: Vec::new(),
        reviews: Vec::new(),
        missing_values: Vec::new(),
        provider_wait: None,
        run,
    })
}

/// One run with the rows that lists show with it.
pub fn run(tx: &mut dyn Tx, id: RunId) -> Result<Option<ShownRun>, DbError> {
    let sql = sql!("SELECT {} FROM runs WHERE id = ?1", *SHOWN);
    let mut found = first(tx, sql, &[(&id).into()], shown)?;
    add_details(tx, found.as_mut_slice())?;
    Ok(found)
}

/// Adds the rows of other tables to a page of runs, with one query per table, not per run.
fn add_details(tx: &mut dyn Tx, page: &mut [ShownRun]) -> Result<(), DbError> {
    let announcing: Vec<RunId> = page
        .iter()
        .map(|shown| &shown.run)
        .filter(|run| run.state.is_terminal())
        .filter(|run| run.owes_announce() || run.origin == RunOrigin::Send)
        .map(|run| run.id)
        .collect();
    let at_work: Vec<RunId> = page
        .iter()
        .map(|shown| &shown.run)
        .filter(|run| run.steps > 0 && !run.state.is_terminal())
        .map(|run| run.id)
        .collect();
    let mut announces: HashMap<RunId, outbox::OutboxEntry> = outbox::of_runs(tx, &announcing)?
        .into_iter()
        .map(|entry| (entry.run, entry))
        .collect();
    let mut questions: HashMap<RunId, Vec<Question>> = HashMap::new();
    for question in questions::open_of_runs(tx, &at_work)? {
        questions.entry(question.run).or_default().push(question);
    }
    let mut approvals: HashMap<RunId, Vec<Approval>> = HashMap::new();
    for approval in approvals::open_of_runs(tx, &at_work)? {
        approvals.entry(approval.run).or_default().push(approval);
    }
    let mut steps: HashMap<RunId, steps::ShownStep> = HashMap::new();
    for (run, step) in steps::open_of_runs(tx, &at_work)? {
        steps.entry(run).or_insert(step);
    }
    let paused = |reason| {
        let page = page.iter();
        let paused = page.filter(move |shown| shown.run.state.pause() == Some(reason));
        paused.map(|shown| shown.run.id).collect::<Vec<RunId>>()
    };
    let in_review = paused(PauseReason::Review);
    let held = paused(PauseReason::Provider);
    let mut reviews: HashMap<RunId, Vec<Step>> = HashMap::new();
    for step in steps::waiting(tx, &in_review, WaitKind::Review)? {
        reviews.entry(step.run).or_default().push(step);
    }
    let held = steps::waiting(tx, &held, WaitKind::Provider)?.into_iter();
    let mut held: HashMap<RunId, Step> = held.map(|step| (step.run, step)).collect();
    for shown in page {
        shown.provider_wait = held.remove(&shown.run.id);
        let awaits_input = shown.run.state.pause() == Some(PauseReason::Input);
        if awaits_input && !shown.run.env.is_empty() {
            let values = environment::of(tx, shown.run.id)?.into_iter();
            shown.missing_values = values
                .filter_map(|value| Some((value.name, value.missing_reason?)))
                .collect();
        }
        shown.reviews = reviews.remove(&shown.run.id).unwrap_or_default();
        // Of several open steps, the first.
        if let Some(step) = steps.remove(&shown.run.id) {
            shown.step = Some(step);
        }
        shown.announce = announces.remove(&shown.run.id);
        shown.questions = questions.remove(&shown.run.id).unwrap_or_default();
        shown.approvals = approvals.remove(&shown.run.id).unwrap_or_default();
    }
    Ok(())
}

/// The runs that execute tool calls of these messages, with the tool calls of each. Reads nothing
/// if no message calls such a tool.
pub fn delegated(
    tx: &mut dyn Tx,
    messages: &[StoredMessage],
) -> Result<Vec<(Run, Vec<ChildCall>)>, DbError> {
    let asking = messages.iter().filter(|message| {
        message.kind == MessageKind::ToolCall && message.content.calls(linked::is_waited_for)
    });
    let mut above: Vec<RunId> = asking.filter_map(|message| message.run).collect();
    above.dedup();
    if above.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for child in runs::delegated_by(tx, &above)? {
        let calls = delegation::calls(&steps::latest(tx, &child)?);
        found.push((child, calls));
    }
    Ok(found)
}

/// Has the run ended? `None`: there is no such run.
pub fn is_terminal(tx: &mut dyn Tx, org: &str, id: RunId) -> Result<Option<bool>, DbError> {
    first(
        tx,
        "SELECT ended_at IS NOT NULL FROM runs WHERE id = ?1 AND org = ?2",
        &[(&id).into(), org.into()],
        |row| Ok(row.int(0)? != 0),
    )
}

/// Filters for a list of runs, newest first.
#[derive(Clone, Debug, Default)]
pub struct RunQuery {
    /// The tenant.
    pub org: String,
    /// Only runs that work in this session.
    pub session: Option<SessionId>,
    /// Only runs that this session requested.
    pub requester: Option<SessionId>,
    /// Only runs in these states; empty means all.
    pub states: Vec<String>,
    /// Only runs of this agent.
    pub agent: Option<String>,
    /// Only runs with this label.
    pub label: Option<String>,
    /// Only this run and its descendants.
    pub tree: Option<RunId>,
    /// Only runs whose announce is pending, undelivered or unacknowledged.
    pub undelivered: bool,
    /// Only runs paused until a user has reviewed an uncertain effect.
    pub needs_review: bool,
    /// Only runs whose meta has these fields, by name and value as stored in `run_meta`.
    pub meta: Vec<(String, String)>,
    /// Only runs accepted after this time.
    pub created_after: Option<Timestamp>,
    /// Only runs accepted before this time.
    pub created_before: Option<Timestamp>,
    /// Only list positions below this one.
    pub before: Option<i64>,
    /// Maximum number of rows.
    pub limit: u32,
}

/// A page of runs, newest first.
pub fn runs(tx: &mut dyn Tx, query: &RunQuery) -> Result<Vec<ShownRun>, DbError> {
    let branch = branch(tx, query)?;
    let (conditions, params) = conditions(query, branch.as_deref());
    let sql = format!(
        "SELECT {} FROM runs WHERE {conditions} ORDER BY seq DESC LIMIT {}",
        *SHOWN, query.limit
    );
    let mut page = all(tx, &sql, &params, shown)?;
    add_details(tx, &mut page)?;
    Ok(page)
}

/// The number of matching runs on all pages.
pub fn count_runs(tx: &mut dyn Tx, query: &RunQuery) -> Result<u64, DbError> {
    let branch = branch(tx, query)?;
    let (conditions, params) = conditions(query, branch.as_deref());
    let sql = format!("SELECT count(*) FROM runs WHERE {conditions}");
    let count = number(tx, &sql, &params)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

/// The runs of the requested tree, if it is a subtree of a larger one.
fn branch(tx: &mut dyn Tx, query: &RunQuery) -> Result<Option<Vec<RunId>>, DbError> {
    match query.tree {
        Some(tree) => runs::branch(tx, tree),
        None => Ok(None),
    }
}

/// The `WHERE` condition for these runs, and its parameters.
fn conditions<'a>(query: &'a RunQuery, branch: Option<&'a [RunId]>) -> (String, Vec<Param<'a>>) {
    let mut filter = Filter::default();
    filter.by("org = ?", &query.org);
    filter.maybe("session_id = ?", query.session.as_ref());
    filter.maybe("requester_id = ?", query.requester.as_ref());
    filter.maybe("agent = ?", query.agent.as_ref());
    filter.maybe("label = ?", query.label.as_ref());
    // Selected by list position: the tree is sorted by position alone, and only the rows of the
    // page are read.
    filter.maybe(
        "seq IN (SELECT seq FROM runs WHERE id = ? \
         UNION ALL SELECT seq FROM runs WHERE root_run = ? AND root_run <> id)",
        query
            .tree
            .as_ref()
            .filter(|_| branch.is_none())
            .map(|id| &id.0),
    );
    if let Some(branch) = branch {
        filter.one_of("id", branch);
    }
    filter.maybe("created_at > ?", query.created_after.map(|at| at.0));
    filter.maybe("created_at < ?", query.created_before.map(|at| at.0));
    filter.maybe("seq < ?", query.before);
    if !query.states.is_empty() {
        filter.one_of("state", &query.states);
        if query.states.iter().all(|state| is_open_state(state)) {
            // Lets SQLite use the short index of open runs.
            filter.only("ended_at IS NULL");
        }
    }
    if query.needs_review {
        filter.only("ended_at IS NULL AND state = 'paused' AND pause = 'review'");
    }
    for (name, value) in &query.meta {
        filter.by("seq IN (SELECT seq FROM run_meta WHERE org = ?", &query.org);
        filter.by("name = ?", name);
        filter.by("value = ?)", value);
    }
    if query.undelivered {
        // Each part has a partial index on waiting rows only, however long the history.
        filter.only(
            "id IN (SELECT run_id FROM outbox WHERE state = 'pending' \
             UNION ALL SELECT run_id FROM outbox WHERE state = 'undelivered' \
             UNION ALL SELECT run_id FROM outbox WHERE policy = 'inbox' AND acked_at IS NULL \
             AND state = 'delivered' AND via IS NULL)",
        );
    }
    filter.finish()
}

fn is_open_state(state: &str) -> bool {
    matches!(state, "queued" | "running" | "paused" | "settling")
}

/// A session, its activity, and the cancel in force in it.
pub type ShownSession = (Session, Activity, Option<Stop>);

/// What a session is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// No open run works in it or was requested by it.
    Idle,
    /// No turn, but a run that it requested in another session is open.
    Waiting,
    /// A turn is in progress or queued.
    Busy,
}

impl Activity {
    /// The wire word of the activity.
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::Waiting => "waiting",
            Activity::Busy => "busy",
        }
    }
}

/// One session with the data that lists show with it.
pub fn session(
    tx: &mut dyn Tx,
    org: &str,
    key: &SessionKey,
) -> Result<Option<ShownSession>, DbError> {
    match sessions::by_key(tx, org, key)? {
        Some(session) => session_beside(tx, session).map(Some),
        None => Ok(None),
    }
}

/// Adds the data that lists show with a session.
pub fn session_beside(tx: &mut dyn Tx, session: Session) -> Result<ShownSession, DbError> {
    let busy = runs::live_in(tx, session.id)?
        .iter()
        .any(|run| !matches!(run.state, RunState::Ended(_)));
    let activity = match busy {
        true => Activity::Busy,
        false if runs::count_live_children(tx, session.id)? > 0 => Activity::Waiting,
        false => Activity::Idle,
    };
    let stop = stops::of(tx, session.id)?;
    Ok((session, activity, stop))
}

/// The id of the session with that key.
pub fn session_id(
    tx: &mut dyn Tx,
    org: &str,
    key: &SessionKey,
) -> Result<Option<SessionId>, DbError> {
    Ok(sessions::by_key(tx, org, key)?.map(|session| session.id))
}

/// Runs of a salvaged store that need repair.
pub struct Unsettled {
    /// Open runs that lost rows.
    pub broken: Vec<RunId>,
    /// Ended runs that lost their announces.
    pub unannounced: Vec<RunId>,
}

/// In a salvaged store that is not settled yet: open runs that lost rows, and ended runs that
/// lost their announces. `None` in any other store.
pub fn unsettled(tx: &mut dyn Tx) -> Result<Option<Unsettled>, DbError> {
    if !salvage::is_unsettled(tx)? {
        return Ok(None);
    }
    let broken = consistency::broken_runs(tx)?;
    // A missing announce is a loss only if the salvage lost rows of the outbox.
    let announces = salvage::report(tx)?.and_then(|report| {
        let mut tables = report.tables.into_iter();
        tables.find(|saved| saved.table == "outbox")
    });
    let untold = match announces {
        Some(saved) if saved.lost > 0 || saved.more => consistency::unannounced_runs(tx)?,
        _ => Vec::new(),
    };
    Ok(Some(Unsettled {
        broken,
        unannounced: untold,
    }))
}

/// Every wait for an outcome that has a deadline, with the deadline.
pub fn wait_deadlines(tx: &mut dyn Tx) -> Result<Vec<(PendingWait, Timestamp)>, DbError> {
    let of_steps = waits::wait_deadlines(tx)?.into_iter();
    let of_calls = sends::wait_deadlines(tx)?.into_iter();
    Ok(of_steps
        .map(|(run, step, until)| (PendingWait::Step(run, step), until))
        .chain(of_calls.map(|(run, until)| (PendingWait::Call(run), until)))
        .collect())
}

/// The id of the message at this seq of a transcript.
pub fn message_id_at(
    tx: &mut dyn Tx,
    session: SessionId,
    seq: i64,
) -> Result<Option<uuid::Uuid>, DbError> {
    first(
        tx,
        "SELECT id, session_id, seq FROM messages WHERE session_id = ?1 AND seq = ?2",
        &[(&session).into(), seq.into()],
        keyed("messages", &["session_id", "seq"]),
    )
}
