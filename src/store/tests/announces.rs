//! Tests of delivering the ends of runs to their requesters.

use super::{Bench, Recorded, Then, answer, new_run, reply, turn};
use crate::command::{Ack, Conclude, Deliver, RecordOutcome, StartRun};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::Kind;
use crate::kernel::ids::{AnnounceId, RunId, SessionId, SessionKey};
use crate::kernel::run::{RunError, RunState};
use crate::kernel::session::message::MessageKind;
use crate::store::tables::{runs, sessions};

fn session_id(bench: &mut Bench, key: &SessionKey) -> SessionId {
    sessions::by_key(bench.db.as_mut(), "default", key)
        .unwrap()
        .unwrap()
        .id
}

fn deliver(bench: &mut Bench, key: &SessionKey) -> Vec<CommitEffect> {
    let session = session_id(bench, key);
    let wake = Some(Box::new(new_run("build")));
    bench
        .run(Deliver {
            session,
            wake,
            unable: None,
        })
        .unwrap()
        .1
}

fn announces(bench: &mut Bench, key: &SessionKey) -> Vec<RunId> {
    bench
        .transcript(key)
        .iter()
        .filter(|message| message.kind == MessageKind::Announce)
        .filter_map(|message| message.run)
        .collect()
}

pub fn g2_1_a_repeated_delivery_changes_nothing(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let run = bench.spawned(Some(&parent)).run;
    bench.started(run);
    bench.ended(run, "found");
    deliver(&mut bench, &parent);
    let before = bench.rows();
    deliver(&mut bench, &parent);
    assert_eq!(bench.rows(), before);
    assert_eq!(announces(&mut bench, &parent), [run]);
}

pub fn g2_8_what_ends_during_a_turn_is_told_after_it(mut bench: Bench) {
    let root = reply(bench.run(turn("agent:build:a", "go")));
    bench.started(root.run);
    let mut children = Vec::new();
    for _ in 0..3 {
        let child = bench.spawned(Some(&root.session)).run;
        bench.started(child);
        let ended = bench.run(answer(child, 1, "found")).unwrap().1;
        let target = session_id(&mut bench, &root.session);
        assert!(ended.contains(&CommitEffect::Deliverable(target)));
        children.push(child);
        // A turn is in progress: nothing is pushed into it.
        deliver(&mut bench, &root.session);
        assert_eq!(announces(&mut bench, &root.session), []);
    }
    // The end of the turn has an effect that asks for delivery.
    let effects = bench.run(answer(root.run, 1, "asked")).unwrap().1;
    let target = session_id(&mut bench, &root.session);
    assert!(effects.contains(&CommitEffect::Deliverable(target)));
    deliver(&mut bench, &root.session);
    assert_eq!(announces(&mut bench, &root.session), children);
}

pub fn one_wake_run_carries_all(mut bench: Bench) {
    let root = reply(bench.run(turn("agent:build:a", "go")));
    bench.started(root.run);
    let children: Vec<RunId> = (0..3)
        .map(|_| bench.spawned(Some(&root.session)).run)
        .collect();
    bench.ended(root.run, "asked");
    for child in &children {
        bench.started(*child);
        bench.ended(*child, "found");
        deliver(&mut bench, &root.session);
    }
    assert_eq!(announces(&mut bench, &root.session), children);
    let session = session_id(&mut bench, &root.session);
    let waiting = runs::live_in(bench.db.as_mut(), session).unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].root_run, bench.row(children[0]).root_run);
    let woken = bench.started(waiting[0].id);
    // It sees all: the request, the answer, three announces.
    assert_eq!(woken.steps[0].seen_up_to, Some(5));
    let quiet = bench.ended(waiting[0].id, "NO_REPLY");
    assert!(quiet.messages[0].silent);
    // Without an available wake run nothing is delivered, so that no wake-up is lost.
    let child = bench.spawned(Some(&root.session)).run;
    bench.started(child);
    bench.ended(child, "found");
    let before = bench.rows();
    let fault = bench
        .run(Deliver {
            session,
            wake: None,
            unable: None,
        })
        .unwrap_err();
    assert_eq!(fault.kind, Kind::Conflict);
    assert_eq!(bench.rows(), before);
}

pub fn a_settling_run_sees_its_grandchild_before_it_ends(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let child = bench.spawned(Some(&parent));
    bench.started(child.run);
    let grandchild = bench.spawned(Some(&child.session));
    let settling = bench.ended(child.run, "half of it").run;
    assert_eq!(settling.state, RunState::Settling);
    assert_eq!(bench.count("SELECT count(*) FROM outbox"), 0);
    bench.started(grandchild.run);
    bench.ended(grandchild.run, "the rest");
    assert_eq!(bench.row(child.run).state, RunState::Settling);
    let effects = deliver(&mut bench, &child.session);
    assert!(
        matches!(&effects[..], [CommitEffect::Enqueue(ticket)] if ticket.run == child.run && ticket.first)
    );
    let second = bench.started(child.run);
    assert_eq!(second.steps[0].seen_up_to, Some(3));
    let ended = bench.ended(child.run, "all of it").run;
    assert_eq!(ended.state.as_str(), "ok");
    assert_eq!(ended.result.as_deref(), Some("all of it"));
    deliver(&mut bench, &parent);
    assert_eq!(announces(&mut bench, &parent), [child.run]);
    assert_eq!(announces(&mut bench, &child.session), [grandchild.run]);
}

pub fn a_failed_parent_takes_its_children_along(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let child = bench.spawned(Some(&parent));
    bench.started(child.run);
    let queued = bench.spawned(Some(&child.session));
    let running = bench.spawned(Some(&child.session));
    bench.started(running.run);
    let below = bench.spawned(Some(&queued.session));
    let failed = RecordOutcome {
        run: child.run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Failed {
            error: RunError::new("provider", "it is down"),
            used: None,
        },
        then: Then::Fail(RunError::new("provider", "it is down")),
    };
    let (_, effects) = bench.run(failed).unwrap();
    assert_eq!(bench.row(child.run).state.as_str(), "error");
    for cancelled in [queued.run, below.run] {
        let row = bench.row(cancelled);
        assert_eq!(row.state.as_str(), "cancelled");
        assert_eq!(row.cancel.unwrap().by, "parent_ended");
    }
    // The run with an executor is only marked, and ends when the executor has stopped.
    assert!(effects.contains(&CommitEffect::StopExecutor(running.run)));
    assert!(bench.row(running.run).cancel.is_some());
    let why = crate::command::Conclusion::ExecutorGone { left: Vec::new() };
    reply(bench.run(Conclude {
        run: running.run,
        why,
    }));
    assert_eq!(bench.row(running.run).state.as_str(), "cancelled");
    // The end of a cascading cancel wakes no agent in that session.
    deliver(&mut bench, &child.session);
    let session = session_id(&mut bench, &child.session);
    assert_eq!(runs::live_in(bench.db.as_mut(), session).unwrap(), []);
    assert_eq!(announces(&mut bench, &child.session).len(), 2);
}

pub fn acknowledging_is_all_or_nothing(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let run = bench.spawned(Some(&parent)).run;
    bench.started(run);
    bench.ended(run, "found");
    let ack = |ids: Vec<AnnounceId>| Ack {
        org: "default".to_owned(),
        session: SessionKey::parse("client:a").unwrap(),
        ids,
    };
    let known = AnnounceId::of(run);
    // Not delivered yet.
    assert_eq!(
        bench.run(ack(vec![known])).unwrap_err().kind,
        Kind::NotFound
    );
    deliver(&mut bench, &parent);
    let unknown = AnnounceId(super::id());
    let fault = bench.run(ack(vec![known, unknown])).unwrap_err();
    assert_eq!(fault.kind, Kind::NotFound);
    assert_eq!(
        bench.count("SELECT count(*) FROM outbox WHERE acked_at IS NULL"),
        1
    );
    bench.run(ack(vec![known])).unwrap();
    let before = bench.rows();
    bench.run(ack(vec![known])).unwrap();
    assert_eq!(bench.rows(), before);
    assert_eq!(
        bench.count("SELECT count(*) FROM outbox WHERE acked_at IS NULL"),
        0
    );
}

pub fn g2_14_a_gone_target_leaves_the_result_on_the_run(mut bench: Bench) {
    let parent = bench.client_session("client:a");
    let run = bench.spawned(Some(&parent)).run;
    bench.started(run);
    bench.ended(run, "found");
    let session = session_id(&mut bench, &parent);
    bench
        .db
        .execute("DELETE FROM sessions WHERE key = 'client:a'", &[])
        .unwrap();
    bench
        .run(Deliver {
            session,
            wake: None,
            unable: None,
        })
        .unwrap();
    assert_eq!(
        bench.count("SELECT count(*) FROM outbox WHERE state = 'undelivered'"),
        1
    );
    assert_eq!(bench.row(run).result.as_deref(), Some("found"));
}

pub fn what_is_told_before_a_turn_begins_is_seen_by_it(mut bench: Bench) {
    let root = reply(bench.run(turn("agent:build:a", "go")));
    bench.started(root.run);
    let children = [0, 1].map(|_| bench.spawned(Some(&root.session)).run);
    bench.ended(root.run, "asked");
    bench.started(children[0]);
    bench.ended(children[0], "one");
    deliver(&mut bench, &root.session);
    let session = session_id(&mut bench, &root.session);
    let wake = runs::live_in(bench.db.as_mut(), session).unwrap()[0].id;
    // The wake run's executor has read the transcript; then the second child's end is delivered.
    let seen = bench.transcript(&root.session).last().unwrap().seq;
    bench.started(children[1]);
    bench.ended(children[1], "two");
    deliver(&mut bench, &root.session);
    let intents = vec![super::model()];
    let begun = reply(bench.run(StartRun {
        run: wake,
        intents,
        seen,
    }));
    let shown: Vec<Option<RunId>> = begun.messages.iter().map(|message| message.run).collect();
    assert_eq!(shown, [Some(children[1])]);
    assert_eq!(begun.steps[0].seen_up_to, Some(begun.messages[0].seq));
}

pub fn a_settling_run_waits_for_nobodys_inbox(mut bench: Bench) {
    use crate::kernel::run::AnnouncePolicy::{Inbox, None, Wake};
    for (first, second, goes_on) in [
        (Inbox, Inbox, false),
        (Inbox, None, false),
        (Wake, Inbox, true),
    ] {
        let parent = bench.client_session("client:a");
        let child = bench.spawned(Some(&parent));
        bench.started(child.run);
        let below = [first, second].map(|policy| {
            let spawn = super::policy(super::spawn(Some(&child.session)), policy);
            reply(bench.run(spawn)).run
        });
        bench.ended(child.run, "an answer");
        for run in below {
            bench.started(run);
            bench.ended(run, "found");
            deliver(&mut bench, &child.session);
        }
        let row = bench.row(child.run);
        if goes_on {
            // An announce of policy `wake` must be seen by a turn, which then ends the run.
            assert_eq!(row.state, RunState::Queued, "{first} {second}");
            bench.started(child.run);
            bench.ended(child.run, "an answer");
        }
        assert_eq!(
            bench.row(child.run).state.as_str(),
            "ok",
            "{first} {second}"
        );
    }
}

pub fn many_announces_are_told_one_delivery_after_another(mut bench: Bench) {
    bench.settings.limits.max_children = 200;
    bench.settings.limits.max_unacked = 200;
    let parent = bench.client_session("client:a");
    let mut ended = Vec::new();
    for _ in 0..120 {
        let run = bench.spawned(Some(&parent)).run;
        bench.started(run);
        bench.ended(run, "found");
        ended.push(run);
    }
    let target = session_id(&mut bench, &parent);
    let mut deliveries = 1;
    while deliver(&mut bench, &parent).contains(&CommitEffect::Deliverable(target)) {
        deliveries += 1;
    }
    assert_eq!(announces(&mut bench, &parent), ended);
    assert_eq!(deliveries, 3);
}
