//! Tests of resets and deletions that wait for open runs to end.

use super::{Bench, id, new_run, policy, reply, spawn, turn};
use crate::command::Clearance;
use crate::command::{
    BeginBoot, Conclude, Conclusion, DeleteSession, Deliver, ResetSession, SendMessage, Sender,
};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{BootId, RunId, SessionKey};
use crate::kernel::run::{AnnouncePolicy, Outcome, RunState};
use crate::kernel::session::Session;
use crate::store::tables::{outbox, sessions};

const ENDED: RunState = RunState::Ended(Outcome::Cancelled);

fn session(bench: &mut Bench, key: &SessionKey) -> Option<Session> {
    sessions::by_key(bench.db.as_mut(), "default", key).unwrap()
}

fn generation(bench: &mut Bench, key: &SessionKey) -> i64 {
    session(bench, key).unwrap().generation
}

fn reset(
    bench: &mut Bench,
    key: &SessionKey,
    if_generation: Option<i64>,
) -> Result<Clearance<Session>, Fault> {
    let command = ResetSession {
        org: "default".to_owned(),
        key: key.clone(),
        force: true,
        if_generation,
        by: "admin".to_owned(),
        by_person: true,
    };
    bench.run(command).map(|(reply, _)| reply)
}

fn delete(bench: &mut Bench, key: &SessionKey) -> Clearance<()> {
    let command = DeleteSession {
        org: "default".to_owned(),
        key: key.clone(),
        force: true,
        by: "admin".to_owned(),
        by_person: true,
    };
    bench.run(command).unwrap().0
}

fn gone(bench: &mut Bench, run: RunId) -> Vec<CommitEffect> {
    let why = Conclusion::ExecutorGone { left: Vec::new() };
    bench.run(Conclude { run, why }).unwrap().1
}

fn waiting(bench: &mut Bench) -> i64 {
    bench.count("SELECT count(*) FROM clearings")
}

pub fn a_reset_comes_with_the_end_of_the_last_run_and_once(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    let queued = reply(bench.run(turn("agent:build:a", "two"))).run;
    let child = reply(bench.run(policy(spawn(Some(&talk.session)), AnnouncePolicy::Wake))).run;
    bench.started(child);
    // Spawned for a client: the end of the turn does not cancel it.
    let Clearance::Stopping(stopping) = reset(&mut bench, &talk.session, None).unwrap() else {
        panic!("something is at work");
    };
    assert!(stopping.contains(&talk.run), "{stopping:?}");
    assert_eq!(bench.row(queued).state, ENDED);
    // A repeat schedules nothing more.
    assert!(matches!(
        reset(&mut bench, &talk.session, Some(1)).unwrap(),
        Clearance::Stopping(_)
    ));
    assert_eq!(
        (generation(&mut bench, &talk.session), waiting(&mut bench)),
        (1, 1)
    );
    for run in stopping {
        gone(&mut bench, run);
    }
    assert_eq!(bench.row(talk.run).state, ENDED);
    assert_eq!(
        (generation(&mut bench, &talk.session), waiting(&mut bench)),
        (2, 0)
    );
    // With `if_generation` a repeat gets the present session; without it, it is a new reset.
    match reset(&mut bench, &talk.session, Some(1)).unwrap() {
        Clearance::Done(session) => assert_eq!(session.generation, 2),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        reset(&mut bench, &talk.session, Some(3)).unwrap_err().kind,
        Kind::Conflict
    );
    reset(&mut bench, &talk.session, None).unwrap();
    assert_eq!(generation(&mut bench, &talk.session), 3);
}

pub fn a_deletion_comes_with_the_end_of_the_last_run_below(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    let child = bench.spawned(Some(&talk.session));
    bench.started(child.run);
    let below = bench.spawned(Some(&child.session));
    bench.started(below.run);
    assert!(matches!(
        delete(&mut bench, &talk.session),
        Clearance::Stopping(_)
    ));
    for run in [talk.run, below.run] {
        gone(&mut bench, run);
        assert!(session(&mut bench, &talk.session).is_some());
    }
    let effects = gone(&mut bench, child.run);
    for key in [&talk.session, &child.session, &below.session] {
        assert!(session(&mut bench, key).is_none(), "{key}");
    }
    assert!(
        effects
            .iter()
            .any(|one| matches!(one, CommitEffect::Purge(_)))
    );
    assert_eq!(waiting(&mut bench), 0);
    let told = outbox::of_run(bench.db.as_mut(), child.run)
        .unwrap()
        .unwrap();
    assert_eq!(told.held.as_deref(), Some("gone"));
}

pub fn nothing_begins_where_a_reset_or_deletion_is_to_come(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    let child = bench.spawned(Some(&talk.session));
    let told = bench.spawned(Some(&talk.session)).run;
    bench.started(told);
    bench.ended(told, "found");
    let own = session(&mut bench, &talk.session).unwrap();
    reset(&mut bench, &talk.session, None).unwrap();
    let send = |target| SendMessage {
        org: "default".to_owned(),
        run: new_run("build"),
        target,
        message: "and you?".to_owned(),
        from: Sender::Client,
        window_ms: 0,
    };
    let before = bench.rows();
    for refused in [
        bench.run(turn("agent:build:a", "two")),
        bench.run(spawn(Some(&talk.session))),
        bench.run(send(own.id)),
    ] {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind, Kind::Busy, "{refused}");
        assert!(refused.message.contains("is being reset"), "{refused}");
        assert_eq!(bench.rows(), before);
    }
    // Announces for the session wait for the reset, and wake no agent then.
    let deliver = |bench: &mut Bench| {
        let command = Deliver {
            session: own.id,
            wake: Some(Box::new(new_run("build"))),
            unable: None,
        };
        bench.run(command).unwrap();
    };
    deliver(&mut bench);
    assert_eq!(bench.rows(), before);
    // Descendant sessions go on, as they do for a reset.
    let other = reply(bench.run(spawn(Some(&child.session)))).run;
    bench.started(other);
    let effects = gone(&mut bench, talk.run);
    assert!(effects.contains(&CommitEffect::Deliverable(own.id)));
    deliver(&mut bench);
    let wakes = "SELECT count(*) FROM runs WHERE origin = 'wake'";
    assert_eq!(bench.count(wakes), 0);
    reply(bench.run(turn("agent:build:a", "two")));

    // A deletion includes the descendants.
    assert!(matches!(
        delete(&mut bench, &talk.session),
        Clearance::Stopping(_)
    ));
    let refused = bench.run(spawn(Some(&child.session))).unwrap_err();
    assert_eq!(refused.kind, Kind::Busy, "{refused}");
    assert!(refused.message.contains("is being deleted"), "{refused}");
}

pub fn a_deletion_goes_before_a_reset(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    reset(&mut bench, &talk.session, None).unwrap();
    delete(&mut bench, &talk.session);
    reset(&mut bench, &talk.session, None).unwrap();
    gone(&mut bench, talk.run);
    assert!(session(&mut bench, &talk.session).is_none());
}

pub fn a_wish_whose_run_was_lost_is_carried_out_at_the_next_start(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "one")));
    bench.started(talk.run);
    reset(&mut bench, &talk.session, None).unwrap();
    // As when a damaged row is removed from its table.
    for sql in [
        "DELETE FROM steps",
        "UPDATE messages SET run_id = NULL",
        "DELETE FROM runs",
    ] {
        bench.db.execute(sql, &[]).unwrap();
    }
    let begin = BeginBoot {
        boot: BootId(id()),
        pid: 1,
    };
    bench.run(begin).unwrap();
    assert_eq!(
        (generation(&mut bench, &talk.session), waiting(&mut bench)),
        (2, 0)
    );
}
