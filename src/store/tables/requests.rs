//! Requests of runs to users: questions, and approvals of tool calls. Both are opened by a step that
//! waits, shown to the users of the session tree, and ended once.

use super::columns::{Columns, Field};
use super::filter::Filter;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::policy::approval::Consent;
use crate::store::tx::{DbError, Param};

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
        filter.maybe("session_id = ?", self.session.as_ref());
        filter.maybe("root_session = ?", self.root.as_ref());
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
fn open_of(runs: &[RunId]) -> (String, Vec<Param<'_>>) {
    let mut filter = Filter::default();
    filter.one_of("run_id", runs);
    filter.only("state = 'open'");
    filter.finish()
}

/// The queries over one of the tables, from its name, its row type and the type of its ids.
macro_rules! queries {
    ($table:literal, $row:ident, $id:ident) => {
        /// The request is in the table, open or ended, with `seq` as its list position.
        pub fn insert(tx: &mut dyn Tx, seq: i64, one: &$row) -> Result<(), DbError> {
            table::insert(tx, one, [seq.into()])
        }

        /// The open request has the final state of `one`.
        pub fn end(tx: &mut dyn Tx, one: &$row) -> Result<(), DbError> {
            table::update(tx, one)
        }

        /// The request with that id.
        pub fn get(tx: &mut dyn Tx, id: $id) -> Result<Option<$row>, DbError> {
            let sql = sql!("SELECT {COLUMNS} FROM {} WHERE id = ?1", $table);
            first(tx, sql, &[(&id).into()], read)
        }

        /// The open requests of these runs, in the order of their steps within each run.
        pub fn open_of_runs(tx: &mut dyn Tx, runs: &[RunId]) -> Result<Vec<$row>, DbError> {
            if runs.is_empty() {
                return Ok(Vec::new());
            }
            let (conditions, params) = open_of(runs);
            let sql = format!(
                "SELECT {COLUMNS} FROM {} WHERE {conditions} ORDER BY step",
                $table
            );
            all(tx, &sql, &params, read)
        }

        /// A page of requests with their list positions, oldest first.
        pub fn list(tx: &mut dyn Tx, query: &Query) -> Result<Vec<(i64, $row)>, DbError> {
            let (conditions, params) = query.conditions();
            let sql = format!(
                "SELECT {COLUMNS}, seq FROM {} WHERE {conditions} ORDER BY seq LIMIT {}",
                $table, query.limit
            );
            all(tx, &sql, &params, read_with_seq)
        }

        /// The number of open requests, of one org or of all.
        pub fn count_open(tx: &mut dyn Tx, org: Option<&str>) -> Result<u64, DbError> {
            let open = sql!(
                "SELECT count(*) FROM {} WHERE state = 'open' AND (?1 IS NULL OR org = ?1)",
                $table
            );
            Ok(u64::try_from(number(tx, open, &[org.into()])?).unwrap_or(0))
        }

        /// The requests of an ended run are deleted.
        pub fn remove(tx: &mut dyn Tx, run: RunId) -> Result<(), DbError> {
            let sql = concat!("DELETE FROM ", $table, " WHERE run_id = ?1");
            execute(tx, sql, &[(&run).into()])
        }
    };
}

/// The arguments are a column of their own.
impl Field for Consent {
    fn take(columns: &mut Columns<'_>) -> Result<Self, DbError> {
        let (why, covers) = columns.take()?;
        Ok(Consent {
            why,
            covers,
            arguments: None,
        })
    }

    fn bind<'a>(&'a self, params: &mut Vec<Param<'a>>) {
        params.extend([(&self.why).into(), (&self.covers).into()]);
    }
}

/// The table of questions that runs ask users.
pub mod questions {
    use super::{Query, open_of};
    use crate::kernel::ids::{QuestionId, RunId};
    use crate::kernel::question::Question;
    use crate::store::tables::table::{self, read, read_with_seq, table};
    use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

    table! {
        questions: Question;
        key { id }
        insert {
            org,
            run(run_id),
            step,
            session(session_id),
            root_session,
            text,
            choices,
            asked_at,
            expires_at,
        }
        update { state, answer, answered_by, ended_at }
        beside { seq: i64 }
        // The asking step gets the outcome "no answer" at its deadline.
        undecodable Moved {}
    }

    queries!("questions", Question, QuestionId);
}

/// The table of approvals: requests to run a tool call, open or decided.
pub mod approvals {
    use super::{Query, open_of};
    use crate::kernel::ids::{ApprovalId, RunId};
    use crate::kernel::policy::approval::Approval;
    use crate::store::tables::table::{self, read, read_with_seq, table};
    use crate::store::tx::{DbError, Tx, all, execute, first, number, sql};

    table! {
        approvals: Approval;
        key { id }
        insert {
            org,
            run(run_id),
            step,
            session(session_id),
            root_session,
            agent,
            tool,
            arguments,
            consent(why, covers),
            asked_at,
            expires_at,
        }
        update { state, resolved_by, remember, ended_at }
        beside { seq: i64 }
        // The requesting step gets the outcome "not allowed" at its deadline.
        undecodable Moved {}
    }

    queries!("approvals", Approval, ApprovalId);
}

/// The table of remembered decisions: decided approvals that also apply to later, similar calls.
pub mod remembered {
    use crate::kernel::ids::{ApprovalId, SessionId};
    use crate::kernel::policy::approval::{Approval, Remembered};
    use crate::store::tables::table::{self, read, read_with_seq, table};
    use crate::store::tx::{DbError, Tx, all, execute, first, sql};

    table! {
        remembered: Remembered;
        key { id }
        insert {
            org,
            scope,
            session(session_id),
            agent,
            tool,
            covers,
            choice,
            by(decided_by),
            at(decided_at),
        }
        beside { seq: i64 }
        // The user is asked again.
        undecodable Moved {}
    }

    /// The decision is remembered, with `seq` as its list position.
    pub fn insert(tx: &mut dyn Tx, seq: i64, one: &Remembered) -> Result<(), DbError> {
        table::insert(tx, one, [seq.into()])
    }

    /// The remembered decision for the call of `asked`; a denial takes precedence over an approval.
    pub fn of(tx: &mut dyn Tx, asked: &Approval) -> Result<Option<Remembered>, DbError> {
        first(
            tx,
            sql!(
                "SELECT {COLUMNS} FROM remembered WHERE org = ?1 AND tool = ?2 AND covers = ?3 \
             AND ((scope = 'session' AND session_id = ?4) OR (scope = 'agent' AND agent = ?5)) \
             ORDER BY CASE choice WHEN 'deny' THEN 0 ELSE 1 END, seq LIMIT 1"
            ),
            &[
                (&asked.org).into(),
                (&asked.tool).into(),
                (&asked.consent.covers).into(),
                (&asked.session).into(),
                asked.agent.as_str().into(),
            ],
            read,
        )
    }

    /// A page of a tenant's remembered decisions with their list positions, oldest first.
    pub fn list(
        tx: &mut dyn Tx,
        org: &str,
        after: i64,
        limit: u32,
    ) -> Result<Vec<(i64, Remembered)>, DbError> {
        all(
            tx,
            &format!(
                "SELECT {COLUMNS}, seq FROM remembered WHERE seq > ?1 AND org = ?2 ORDER BY seq \
             LIMIT {limit}"
            ),
            &[after.into(), org.into()],
            read_with_seq,
        )
    }

    /// The decision no longer applies; returns whether it existed.
    pub fn forget(tx: &mut dyn Tx, org: &str, id: ApprovalId) -> Result<bool, DbError> {
        tx.execute(
            "DELETE FROM remembered WHERE id = ?1 AND org = ?2",
            &[(&id).into(), org.into()],
        )
        .map(|gone| gone > 0)
    }

    /// The decisions remembered for a deleted session are deleted.
    pub fn remove(tx: &mut dyn Tx, session: SessionId) -> Result<(), DbError> {
        execute(
            tx,
            "DELETE FROM remembered WHERE scope = 'session' AND session_id = ?1",
            &[(&session).into()],
        )
    }
}
