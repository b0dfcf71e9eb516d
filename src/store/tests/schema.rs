//! Tests of invariants that the schema itself enforces, independent of the code above it.

use super::{Bench, answer};
use crate::store::tables::events;
use crate::store::tables::events::LogPart;
use crate::store::tx::DbErrorKind;

/// The engine refuses `sql`, and nothing has changed.
fn refused(bench: &mut Bench, sql: &str) {
    let before = bench.rows();
    let refused = bench.db.execute(sql, &[]).unwrap_err();
    assert_eq!(refused.kind, DbErrorKind::Constraint, "{sql}: {refused}");
    assert_eq!(bench.rows(), before);
}

pub fn terminal_stays_terminal(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    bench.ended(run, "found");
    for change in [
        "state = 'running', ended_at = NULL",
        "state = 'error'",
        "ended_at = ended_at + 1",
        "result = 'another'",
    ] {
        refused(&mut bench, &format!("UPDATE runs SET {change}"));
    }
    let row = bench.row(run);
    assert_eq!(
        (row.state.as_str(), row.result.as_deref()),
        ("ok", Some("found"))
    );
}

pub fn one_announce_for_each_run(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let run = bench.spawned(Some(&parent)).run;
    bench.started(run);
    bench.ended(run, "found");
    let session = super::runs::get(bench.db.as_mut(), run)
        .unwrap()
        .unwrap()
        .requester
        .unwrap()
        .session;
    bench
        .run(crate::command::Deliver {
            session,
            wake: None,
            unable: None,
        })
        .unwrap();
    refused(
        &mut bench,
        "INSERT INTO outbox SELECT seq + 1000, run_id, x'00', org, target_session, \
         target_generation, policy, 'pending', NULL, NULL, NULL, created_at, NULL, NULL FROM outbox",
    );
    refused(
        &mut bench,
        "INSERT INTO messages SELECT session_id, seq + 1, generation, x'00', at, role, kind, \
         origin, run_id, content, tool_call, child_run, announce_id, silent, metadata FROM messages \
         WHERE kind = 'announce'",
    );
}

pub fn one_turn_for_each_session(mut bench: Bench) {
    let first = super::reply(bench.run(super::turn("agent:build:a", "one"))).run;
    let second = super::reply(bench.run(super::turn("agent:build:a", "two"))).run;
    bench.started(first);
    let before = bench.rows();
    let fault = bench
        .run(crate::command::StartRun {
            run: second,
            intents: Vec::new(),
            seen: 0,
        })
        .unwrap_err();
    assert!(fault.message.contains("failed"), "{fault}");
    assert_eq!(bench.rows(), before);
}

pub fn a_step_has_one_outcome(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    bench.run(answer(run, 1, "found")).unwrap();
    refused(&mut bench, "UPDATE steps SET state = 'failed'");
    refused(&mut bench, "UPDATE steps SET attempts = 2");
}

pub fn the_event_log_is_in_order(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    for _ in 0..3 {
        let run = bench.spawned(Some(&parent)).run;
        bench.started(run);
        bench.ended(run, "found");
    }
    let told = log(&mut bench, 0, 1000);
    assert!(told.windows(2).all(|two| two[0].cursor < two[1].cursor));
    assert_eq!(
        told.last().unwrap().cursor,
        events::last(bench.db.as_mut()).unwrap()
    );
    let kinds: Vec<&str> = told
        .iter()
        .filter(|event| event.run.is_some())
        .map(|event| event.kind.as_str())
        .take(7)
        .collect();
    assert_eq!(
        kinds,
        [
            "run.queued",
            "message.added",
            "run.started",
            "run.step",
            "message.added",
            "run.step",
            "run.ended"
        ],
    );
    // A reader that follows page by page sees each event once.
    let mut cursor = 0;
    let mut paged = Vec::new();
    loop {
        let page = log(&mut bench, cursor, 4);
        let Some(last) = page.last() else { break };
        cursor = last.cursor;
        paged.extend(page);
    }
    assert_eq!(format!("{paged:?}"), format!("{told:?}"));
}

pub fn an_event_says_where_it_belongs(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let child = bench.spawned(Some(&parent));
    bench.started(child.run);
    bench.ended(child.run, "found");
    let row = bench.row(child.run);
    let session = row.requester.clone().unwrap().session;
    bench
        .run(crate::command::Deliver {
            session,
            wake: None,
            unable: None,
        })
        .unwrap();
    for event in log(&mut bench, 0, 1000) {
        let about = &event.circumstances;
        let key = about.session_key.as_deref().unwrap();
        let is_of_announce = event.kind.starts_with("announce.");
        assert!(!is_of_announce || event.run == Some(child.run), "{event:?}");
        let told_in_parent = is_of_announce || event.data.get().contains("\"announce\"");
        if told_in_parent || event.run.is_none() && key == parent.as_str() {
            assert_eq!(key, parent.as_str(), "{event:?}");
        } else {
            assert_eq!(key, child.session.as_str(), "{event:?}");
        }
        if event.run.is_some() {
            assert_eq!(about.root_run, Some(row.root_run), "{event:?}");
            assert_eq!(about.trace_id.as_ref(), Some(&row.trace_id), "{event:?}");
        }
    }
}

pub fn what_was_deleted_of_the_log_is_remembered(mut bench: Bench) {
    bench.spawned(None);
    let told = log(&mut bench, 0, 1000);
    let cut = told[1].cursor;
    bench
        .db
        .execute("DELETE FROM events WHERE cursor <= ?1", &[cut.into()])
        .unwrap();
    assert_eq!(
        log(&mut bench, cut, 1000).first().unwrap().cursor,
        told[2].cursor
    );
    for gone in [0, cut - 1] {
        let part = events::after(bench.db.as_mut(), gone, 1000).unwrap();
        assert!(
            matches!(part, LogPart::Expired(oldest) if oldest == cut),
            "{part:?}"
        );
    }
}

fn log(bench: &mut Bench, cursor: i64, limit: u32) -> Vec<events::Event> {
    match events::after(bench.db.as_mut(), cursor, limit).unwrap() {
        LogPart::Events(events) => events,
        LogPart::Expired(oldest) => panic!("gone up to {oldest}"),
    }
}
