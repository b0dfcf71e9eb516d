//! List queries over requests to users: questions and approvals share their filters.

use super::filter::Filter;
use crate::kernel::ids::{RunId, SessionId};
use crate::store::tx::{DbError, Param, Tx, number};

/// Filters for a list of questions or approvals.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The tenant.
    pub org: String,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those of the session tree with this root.
    pub root: Option<SessionId>,
    /// Only those in this state.
    pub state: Option<&'static str>,
    /// Only list positions above this one.
    pub after: Option<i64>,
    /// Maximum number of rows.
    pub limit: u32,
}

impl Query {
    /// The `WHERE` condition and its parameters.
    pub fn conditions(&self) -> (String, Vec<Param<'_>>) {
        let mut filter = Filter::default();
        filter.by("org = ?", &self.org);
        filter.maybe("session_id = ?", self.session.as_ref().map(|id| &id.0));
        filter.maybe("root_session = ?", self.root.as_ref().map(|id| &id.0));
        filter.maybe("seq > ?", self.after);
        match self.state {
            // As a literal, so that SQLite can use the partial index of open rows.
            Some("open") => filter.only("state = 'open'"),
            state => filter.maybe("state = ?", state),
        }
        filter.finish()
    }
}

/// The `WHERE` condition for the open rows of these runs, and its parameters.
pub fn open_of(runs: &[RunId]) -> (String, Vec<Param<'_>>) {
    let mut filter = Filter::default();
    filter.one_of("run_id", runs.iter().map(|run| &run.0));
    filter.only("state = 'open'");
    filter.finish()
}

/// The number of open rows of `table`, which is `questions` or `approvals`.
pub fn count_open(tx: &mut dyn Tx, table: &str) -> Result<u64, DbError> {
    let sql = format!("SELECT count(*) FROM {table} WHERE state = 'open'");
    Ok(u64::try_from(number(tx, &sql, &[])?).unwrap_or(0))
}
