//! Lists of what runs ask people: questions and approvals are looked for in the same way.

use super::filter::Filter;
use super::tx::{DbError, Param, Tx, number};
use crate::kernel::ids::{RunId, SessionId};

/// Which of them a list gives.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The tenant.
    pub org: String,
    /// Of this session only.
    pub session: Option<SessionId>,
    /// Of the tree with this root only.
    pub root: Option<SessionId>,
    /// In this state only.
    pub state: Option<&'static str>,
    /// Places above this one only.
    pub after: Option<i64>,
    /// So many at most.
    pub limit: u32,
}

impl Query {
    /// What stands behind `WHERE`, and the values in it.
    pub fn conditions(&self) -> (String, Vec<Param<'_>>) {
        let mut filter = Filter::default();
        filter.by("org = ?", &self.org);
        filter.maybe("session_id = ?", self.session.as_ref().map(|id| &id.0));
        filter.maybe("root_session = ?", self.root.as_ref().map(|id| &id.0));
        filter.maybe("seq > ?", self.after);
        match self.state {
            // Written out, so that the engine can take the short index of open ones.
            Some("open") => filter.only("state = 'open'"),
            state => filter.maybe("state = ?", state),
        }
        filter.finish()
    }
}

/// What stands behind `WHERE` for the open ones of these runs, and the values in it.
pub fn open_of(runs: &[RunId]) -> (String, Vec<Param<'_>>) {
    let mut filter = Filter::default();
    filter.one_of("run_id", runs.iter().map(|run| &run.0));
    filter.only("state = 'open'");
    filter.finish()
}

/// How many rows of `table`, one of the two, are open.
pub fn count_open(tx: &mut dyn Tx, table: &str) -> Result<u64, DbError> {
    let sql = format!("SELECT count(*) FROM {table} WHERE state = 'open'");
    Ok(u64::try_from(number(tx, &sql, &[])?).unwrap_or(0))
}
