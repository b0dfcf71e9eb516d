//! Tests of query plans: the cost of a page depends on its rows, not on the length of the
//! history.

use super::{Bench, id};
use crate::kernel::ids::{RunId, SessionId, StepId};
use crate::store::tables::read::RunQuery;
use crate::store::tables::sessions::ListQuery;
use crate::store::tables::{read, sessions, steps};
use crate::store::tx::{BadRow, DbError, Param, Row, Tx};

/// Records the plan of each query before running it.
struct Plans<'a> {
    tx: &'a mut dyn Tx,
    lines: Vec<String>,
}

impl Tx for Plans<'_> {
    fn execute(&mut self, sql: &str, _: &[Param<'_>]) -> Result<u64, DbError> {
        panic!("a list writes: {sql}")
    }

    fn query(
        &mut self,
        sql: &str,
        params: &[Param<'_>],
        each: &mut dyn FnMut(&dyn Row) -> Result<(), DbError>,
    ) -> Result<(), DbError> {
        let lines = &mut self.lines;
        let explain = format!("EXPLAIN QUERY PLAN {sql}");
        self.tx.query(&explain, params, &mut |row| {
            lines.push(row.text(3)?.to_owned());
            Ok(())
        })?;
        self.tx.query(sql, params, each)
    }

    fn report_undecodable(&mut self, row: BadRow) -> Result<(), DbError> {
        self.tx.report_undecodable(row)
    }
}

pub fn plan_of(bench: &mut Bench, ask: impl FnOnce(&mut dyn Tx) -> Result<(), DbError>) -> String {
    let mut plans = Plans {
        tx: bench.db.as_mut(),
        lines: Vec::new(),
    };
    ask(&mut plans).unwrap();
    plans.lines.join("\n")
}

fn of_sessions(bench: &mut Bench, query: ListQuery) -> String {
    plan_of(bench, |tx| sessions::list(tx, &query).map(|_| ()))
}

fn of_runs(bench: &mut Bench, query: RunQuery) -> String {
    plan_of(bench, |tx| read::runs(tx, &query).map(|_| ()))
}

pub fn no_list_walks_what_it_does_not_show(mut bench: Bench) {
    let some = || ListQuery {
        org: "default".to_owned(),
        before: Some(1000),
        limit: 51,
        ..ListQuery::default()
    };
    let parent = Some(SessionId(id()));
    let label = Some("report".to_owned());
    for (query, index) in [
        (
            ListQuery {
                roots: Some(true),
                ..some()
            },
            "sessions_main",
        ),
        (
            ListQuery {
                roots: Some(false),
                ..some()
            },
            "sessions_children",
        ),
        (some(), "sessions_children"),
        (ListQuery { parent, ..some() }, "sessions_by_parent"),
        (
            ListQuery {
                parent,
                archived: true,
                ..some()
            },
            "sessions_by_parent",
        ),
        (
            ListQuery {
                parent,
                label: label.clone(),
                ..some()
            },
            "sessions_by_",
        ),
        (
            ListQuery {
                label: label.clone(),
                ..some()
            },
            "sessions_by_label",
        ),
        (
            ListQuery {
                archived: true,
                ..some()
            },
            "INTEGER PRIMARY KEY",
        ),
    ] {
        let plan = of_sessions(&mut bench, query.clone());
        assert!(plan.contains(index), "{query:?}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
    }

    let some = || RunQuery {
        org: "default".to_owned(),
        limit: 51,
        ..RunQuery::default()
    };
    let session = Some(SessionId(id()));
    let open = vec!["queued".to_owned(), "running".to_owned()];
    for (query, index) in [
        (RunQuery { session, ..some() }, "runs_by_session"),
        (
            RunQuery {
                requester: session,
                ..some()
            },
            "runs_by_requester",
        ),
        (
            RunQuery {
                label: label.clone(),
                ..some()
            },
            "runs_by_label",
        ),
        (
            RunQuery {
                states: open.clone(),
                ..some()
            },
            "runs_live",
        ),
        (
            RunQuery {
                tree: Some(RunId(id())),
                ..some()
            },
            "runs_by_root",
        ),
        (
            RunQuery {
                tree: Some(RunId(id())),
                states: open,
                ..some()
            },
            "runs_",
        ),
        (
            RunQuery {
                before: Some(1000),
                ..some()
            },
            "INTEGER PRIMARY KEY",
        ),
    ] {
        let plan = of_runs(&mut bench, query.clone());
        assert!(plan.contains(index), "{query:?}: {plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
    }
    // Undelivered announces are few, however many were delivered.
    let undelivered = RunQuery {
        undelivered: true,
        ..some()
    };
    let plan = of_runs(&mut bench, undelivered);
    assert!(!plan.contains("SCAN runs"), "{plan}");
    assert!(!plan.contains("SCAN outbox\n"), "{plan}");
}

pub fn an_ended_run_is_shown_without_reading_its_journal(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    bench.ended(run, "found");
    let plan = plan_of(&mut bench, |tx| read::run(tx, run).map(|_| ()));
    // Only its last step, by its key.
    assert!(
        plan.contains("SEARCH last USING PRIMARY KEY (run_id=? AND seq=?)"),
        "{plan}"
    );
    assert!(!plan.contains("SEARCH steps"), "{plan}");
    assert!(!plan.contains("TEMP B-TREE"), "{plan}");
}

pub fn the_steps_of_a_nodes_calls_are_found_without_reading_others(mut bench: Bench) {
    let ids = [StepId(id()), StepId(id())];
    let plan = plan_of(&mut bench, |tx| steps::kept(tx, "default", &ids).map(drop));
    assert!(plan.contains("steps USING INDEX steps_kept"), "{plan}");
    assert!(!plan.contains("SCAN"), "{plan}");
}
