//! The tables of usage: hourly sums of ended runs and of model answers, and the thresholds that
//! an alert was already emitted for.

use std::collections::BTreeMap;

use super::columns::{columns_of, keyed, to_int};
use super::filter::Filter;
use super::table::{Decoded, read};
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::usage::{HOUR, Tally, UsageBy, Verdict, bucket};
use crate::kernel::run::{Outcome, Run, RunState, Usage};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx, all, execute, number, sql};

/// A row of hourly sums, of runs or of model answers.
pub struct Counted<T> {
    org: String,
    /// Counted since 1970.
    hour: i64,
    user: String,
    agent: String,
    model: String,
    what: T,
}

/// The number of runs with the same outcome and duration bucket.
pub struct Ends {
    verdict: Verdict,
    bucket: u32,
    runs: u64,
}

/// The table of ended runs.
pub(crate) mod runs {
    use super::{Counted, Ends};
    use crate::store::tables::table::{self, table};

    table! {
        usage_runs: Counted<Ends>;
        key { org, hour, user, agent, model }
        insert { what(outcome, bucket, runs) }
        primary { org, hour, user, agent, model, outcome, bucket }
        // An unknown count adds nothing.
        undecodable Moved { "runs" => "runs = 0" }
    }
}

/// The table of model answers.
pub(crate) mod models {
    use super::{Counted, Usage};
    use crate::store::tables::table::{self, table};

    table! {
        usage_models: Counted<Usage>;
        key { org, hour, user, agent, model }
        insert { what(calls, input_tokens, output_tokens, cost_micros) }
        undecodable Moved {
            "calls" => "calls = 0",
            "input_tokens" => "input_tokens = 0",
            "output_tokens" => "output_tokens = 0",
            "cost_micros" => "cost_micros = 0",
        }
    }
}

columns_of!(Ends {
    verdict,
    bucket,
    runs
});

impl<T> Counted<T> {
    /// The group name under which the row is summed.
    fn name(&self, by: UsageBy) -> &str {
        match by {
            UsageBy::User => &self.user,
            UsageBy::Agent => &self.agent,
            UsageBy::Model => &self.model,
            UsageBy::Org | UsageBy::Session | UsageBy::Tree => &self.org,
        }
    }
}

/// The hour of a time, counted since 1970.
pub fn hour(at: Timestamp) -> i64 {
    at.0.div_euclid(HOUR)
}

/// The ended run is counted under its outcome.
pub fn add_run(tx: &mut dyn Tx, run: &Run, outcome: Outcome) -> Result<(), DbError> {
    let ended = run.ended_at.unwrap_or(run.last_activity_at);
    execute(
        tx,
        sql!(
            "INSERT INTO usage_runs ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 1) \
             ON CONFLICT (org, hour, user, agent, model, outcome, bucket) \
             DO UPDATE SET runs = usage_runs.runs + 1",
            runs::COLUMNS
        ),
        &[
            (&run.org).into(),
            hour(ended).into(),
            (&run.user).into(),
            run.agent.as_str().into(),
            (&run.model).into(),
            Verdict::of(outcome).as_str().into(),
            bucket(ended.since(run.created_at)).into(),
        ],
    )
}

/// The usage of a model answer for the run is counted.
pub fn add_use(
    tx: &mut dyn Tx,
    run: &Run,
    model: &str,
    used: Usage,
    now: Timestamp,
) -> Result<(), DbError> {
    execute(
        tx,
        sql!(
            "INSERT INTO usage_models ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
             ON CONFLICT (org, hour, user, agent, model) DO UPDATE SET \
             calls = usage_models.calls + ?6, \
             input_tokens = usage_models.input_tokens + ?7, \
             output_tokens = usage_models.output_tokens + ?8, \
             cost_micros = usage_models.cost_micros + ?9",
            models::COLUMNS
        ),
        &[
            (&run.org).into(),
            hour(now).into(),
            (&run.user).into(),
            run.agent.as_str().into(),
            model.into(),
            to_int(used.model_calls).into(),
            to_int(used.input_tokens).into(),
            to_int(used.output_tokens).into(),
            to_int(used.cost_micros).into(),
        ],
    )
}

/// A tenant's cost in an hour, in millionths.
pub fn spent(tx: &mut dyn Tx, org: &str, hour: i64) -> Result<u64, DbError> {
    let found = of_hours::<Usage>(tx, org, (hour, hour + 1), &Only::default())?;
    Ok(found.iter().map(|one| one.what.cost_micros).sum())
}

/// The number of a tenant's runs that ended in an hour, and how many of them failed.
pub fn failed(tx: &mut dyn Tx, org: &str, hour: i64) -> Result<(u64, u64), DbError> {
    let found = of_hours::<Ends>(tx, org, (hour, hour + 1), &Only::default())?;
    let (mut all, mut failed) = (0, 0);
    for Counted { what, .. } in found {
        all += what.runs;
        if what.verdict == Verdict::Failed {
            failed += what.runs;
        }
    }
    Ok((all, failed))
}

/// The threshold is recorded as alerted for this hour; returns whether that is new.
pub fn record_alert(tx: &mut dyn Tx, org: &str, what: &str, hour: i64) -> Result<bool, DbError> {
    let params = [org.into(), what.into(), hour.into()];
    let known = "SELECT 1 FROM usage_alerts WHERE org = ?1 AND what = ?2 AND hour = ?3";
    if number(tx, known, &params)? > 0 {
        return Ok(false);
    }
    // Older hours can never be alerted again.
    tx.execute(
        "DELETE FROM usage_alerts WHERE org = ?1 AND what = ?2 AND hour < ?3",
        &params,
    )?;
    let new = "INSERT INTO usage_alerts (org, what, hour) VALUES (?1, ?2, ?3)";
    tx.execute(new, &params).map(|_| true)
}

/// Filters for usage sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Only runs of this user.
    pub user: Option<String>,
    /// Only this agent.
    pub agent: Option<String>,
    /// Only this model.
    pub model: Option<String>,
    /// Only this session.
    pub session: Option<SessionId>,
    /// Only this root run and its descendants.
    pub tree: Option<RunId>,
}

impl Only {
    fn narrow<'a>(&'a self, filter: &mut Filter<'a>) {
        filter.maybe("user = ?", self.user.as_ref());
        filter.maybe("agent = ?", self.agent.as_ref());
        filter.maybe("model = ?", self.model.as_ref());
    }
}

/// Sums of a tenant's usage between two times, by group name. Sums from the hourly tables cover
/// whole hours.
pub fn summary(
    tx: &mut dyn Tx,
    org: &str,
    by: UsageBy,
    (since, until): (Timestamp, Timestamp),
    only: &Only,
) -> Result<BTreeMap<String, Tally>, DbError> {
    let is_below = only.session.is_some() || only.tree.is_some();
    if is_below || matches!(by, UsageBy::Session | UsageBy::Tree) {
        return of_runs(tx, org, by, (since, until), only);
    }
    let hours = (hour(since), hour(Timestamp(until.0 + HOUR - 1)));
    let mut sums: BTreeMap<String, Tally> = BTreeMap::new();
    for counted in of_hours::<Ends>(tx, org, hours, only)? {
        let tally = sums.entry(counted.name(by).to_owned()).or_default();
        let Ends {
            verdict,
            bucket,
            runs,
        } = counted.what;
        tally.add_runs(verdict, bucket, runs);
    }
    for counted in of_hours::<Usage>(tx, org, hours, only)? {
        let tally = sums.entry(counted.name(by).to_owned()).or_default();
        tally.used.add(counted.what);
    }
    Ok(sums)
}

type Hours = (i64, i64);

/// The rows of an hourly table.
fn of_hours<T>(
    tx: &mut dyn Tx,
    org: &str,
    hours: Hours,
    only: &Only,
) -> Result<Vec<Counted<T>>, DbError>
where
    Counted<T>: Decoded,
{
    let mut filter = Filter::default();
    within(&mut filter, org, hours, only);
    let (conditions, params) = filter.finish();
    let table = Counted::<T>::table();
    let sql = format!(
        "SELECT {} FROM {} WHERE {conditions}",
        table.columns, table.name
    );
    all(tx, &sql, &params, read)
}

fn within<'a>(filter: &mut Filter<'a>, org: &'a str, (from, to): Hours, only: &'a Only) {
    filter.by("org = ?", org);
    filter.by("hour >= ?", from);
    filter.by("hour < ?", to);
    only.narrow(filter);
}

/// As [`summary`], computed from the rows of runs that ended in that time.
fn of_runs(
    tx: &mut dyn Tx,
    org: &str,
    by: UsageBy,
    (since, until): (Timestamp, Timestamp),
    only: &Only,
) -> Result<BTreeMap<String, Tally>, DbError> {
    let mut filter = Filter::default();
    // For one session or tree, use its own index instead of that of all ended runs.
    let (of_org, ended) = match only.session.is_some() || only.tree.is_some() {
        true => ("org || ''", "ended_at + 0"),
        false => ("org", "ended_at"),
    };
    filter.by(&format!("{of_org} = ?"), org);
    filter.by(&format!("{ended} >= ?"), since.0);
    filter.by(&format!("{ended} < ?"), until.0);
    only.narrow(&mut filter);
    filter.maybe("session_id = ?", only.session.as_ref());
    filter.maybe(
        "seq IN (SELECT seq FROM runs WHERE id = ? \
         UNION ALL SELECT seq FROM runs WHERE root_run = ? AND root_run <> id)",
        only.tree.as_ref(),
    );
    let (conditions, params) = filter.finish();
    let sql = format!(
        "SELECT root_run, session_key, user, agent, model, state, pause, created_at, ended_at, \
         model_calls, input_tokens, output_tokens, cost_micros, id FROM runs WHERE {conditions}"
    );
    let mut sums: BTreeMap<String, Tally> = BTreeMap::new();
    for run in all(tx, &sql, &params, keyed::<EndedRun>("runs", &["id"]))? {
        let mut tally = Tally::of(run.used);
        if let RunState::Ended(outcome) = run.state {
            let took = run.ended_at.since(run.created_at);
            tally.add_runs(Verdict::of(outcome), bucket(took), 1);
        }
        let name = match by {
            UsageBy::Org => org.to_owned(),
            UsageBy::Tree => run.root.to_string(),
            UsageBy::Session => run.session,
            UsageBy::User => run.user,
            UsageBy::Agent => run.agent,
            UsageBy::Model => run.model,
        };
        sums.entry(name).or_default().add(&tally);
    }
    Ok(sums)
}

/// The columns of an ended run that are summed, and those that name its groups.
struct EndedRun {
    root: RunId,
    session: String,
    user: String,
    agent: String,
    model: String,
    state: RunState,
    created_at: Timestamp,
    ended_at: Timestamp,
    used: Usage,
}

columns_of!(EndedRun {
    root,
    session,
    user,
    agent,
    model,
    state,
    created_at,
    ended_at,
    used
});
