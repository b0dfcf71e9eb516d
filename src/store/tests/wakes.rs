//! Tests of wake runs whose announces another turn has answered.

use super::{Bench, Recorded, Then, answer, model, new_run, reply, turn};
use crate::command::{Deliver, RecordOutcome, StartRun};
use crate::kernel::ids::{RunId, SessionId, SessionKey};
use crate::kernel::run::{Outcome, RunError, RunState};
use crate::store::tables::runs;

/// Delivers the session's pending announces, with an available wake run.
pub fn deliver(bench: &mut Bench, session: SessionId) {
    let wake = Some(Box::new(new_run("build")));
    let command = Deliver {
        session,
        wake,
        unable: None,
    };
    bench.run(command).unwrap();
}

/// An ended child of the session.
pub fn ended_child(bench: &mut Bench, session: &SessionKey) -> RunId {
    let child = bench.spawned(Some(session)).run;
    bench.started(child);
    bench.ended(child, "found");
    child
}

fn waiting(bench: &mut Bench, session: SessionId) -> Option<RunId> {
    let wake = runs::waiting_wake(bench.db.as_mut(), session).unwrap();
    wake.map(|run| run.id)
}

/// An idle session with a queued turn, an ended child, and the wake run for the child.
fn overtaken(bench: &mut Bench) -> (SessionId, SessionKey, RunId, RunId) {
    let first = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(first.run);
    let queued = reply(bench.run(turn("agent:build:a", "two"))).run;
    ended_child(bench, &first.session);
    bench.ended(first.run, "done");
    let session = bench.row(first.run).session;
    deliver(bench, session);
    let wake = waiting(bench, session).unwrap();
    (session, first.session, queued, wake)
}

pub fn a_wake_run_ends_when_another_turn_has_seen_its_announces(mut bench: Bench) {
    let (session, key, queued, wake) = overtaken(&mut bench);
    // The other turn starts first.
    bench.started(queued);
    assert_eq!(bench.row(wake).state, RunState::Queued);
    // Ends that arrive meanwhile have a wake run of their own.
    ended_child(&mut bench, &key);
    deliver(&mut bench, session);
    bench.ended(queued, "both");
    let row = bench.row(wake);
    assert_eq!(row.state, RunState::Ended(Outcome::Cancelled));
    let cancel = row.cancel.unwrap();
    assert_eq!(cancel.by, "superseded");
    assert!(cancel.reason.unwrap().contains(&queued.to_string()));
    assert_eq!((row.steps, row.usage.model_calls), (0, 0));
    deliver(&mut bench, session);
    let next = waiting(&mut bench, session).unwrap();
    assert_ne!(next, wake);
    bench.started(next);
    bench.ended(next, "the other one");
    assert_eq!(bench.row(next).state, RunState::Ended(Outcome::Ok));
    // If no announce is left to be seen, no wake run is created.
    deliver(&mut bench, session);
    assert_eq!(waiting(&mut bench, session), None);
}

pub fn a_wake_run_stays_for_what_no_model_call_has_seen(mut bench: Bench) {
    let (session, _, queued, wake) = overtaken(&mut bench);
    bench.started(queued);
    let failed = RecordOutcome {
        run: queued,
        step: 1,
        attempt: 1,
        outcome: Recorded::Failed {
            error: RunError::new("provider", "it is down"),
            used: None,
        },
        then: Then::Fail(RunError::new("provider", "it is down")),
    };
    reply(bench.run(failed));
    assert_eq!(waiting(&mut bench, session), Some(wake));
    let woken = reply(bench.run(StartRun {
        run: wake,
        intents: vec![model()],
        seen: 0,
    }));
    assert_eq!(woken.run.state, RunState::Running);
    reply(bench.run(answer(wake, 1, "heard")));
    assert_eq!(bench.row(wake).state, RunState::Ended(Outcome::Ok));
}
