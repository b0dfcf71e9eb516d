//! Tests of cancels in force: ends that wake no agent, and work that no agent may begin.

use super::wakes::{deliver, ended_child};
use super::{Bench, Recorded, Then, model, new_run, policy, reply, spawn, text, tool, turn};
use crate::command::{
    Accepted, Cancel, CancelTarget, Cancelled, Conclude, Conclusion, Exchange, RecordOutcome,
    ResetSession, SendMessage, Sender, SpawnedBy, StepRef,
};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AgentId, RunId, SessionId, SessionKey};
use crate::kernel::run::step::EffectClass as Class;
use crate::kernel::run::stop::{CANCELLED_BY_PERSON, REASON};
use crate::kernel::run::{AnnouncePolicy, Outcome, RunError, RunState};
use crate::store::tables::{outbox, runs, sessions};

const CANCELLED: RunState = RunState::Ended(Outcome::Cancelled);

fn cancel(bench: &mut Bench, target: CancelTarget, by_person: bool) -> Cancelled {
    let command = Cancel {
        org: "default".to_owned(),
        target,
        by: "admin".to_owned(),
        by_person,
        reason: None,
    };
    reply(bench.run(command))
}

fn gone(bench: &mut Bench, run: RunId) {
    let why = Conclusion::ExecutorGone { left: Vec::new() };
    bench.run(Conclude { run, why }).unwrap();
}

fn how(bench: &mut Bench, run: RunId) -> (AnnouncePolicy, String) {
    let entry = outbox::of_run(bench.db.as_mut(), run).unwrap().unwrap();
    (entry.policy, entry.state)
}

fn live(bench: &mut Bench, session: SessionId) -> Vec<RunId> {
    let live = runs::live_in(bench.db.as_mut(), session).unwrap();
    live.into_iter().map(|run| run.id).collect()
}

/// A turn in the middle of a tool call, and the step of that call.
fn at_work(bench: &mut Bench, session: &str) -> (Accepted, StepRef) {
    let run = reply(bench.run(turn(session, "go")));
    bench.started(run.run);
    let asks = RecordOutcome {
        run: run.run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks: text("calls"),
            sealed: None,
            used: super::used(),
            warnings: Vec::new(),
        },
        then: Then::Steps(vec![tool("x", Class::Idempotent)]),
    };
    bench.run(asks).unwrap();
    let by = StepRef {
        run: run.run,
        step: 2,
        attempt: 1,
    };
    (run, by)
}

fn spawned_by(bench: &mut Bench, by: StepRef) -> Accepted {
    let mut child = spawn(None);
    child.by = Some(SpawnedBy {
        step: by,
        allowed: vec![AgentId::parse("explore").unwrap()],
        awaits: None,
        max_depth: None,
    });
    reply(bench.run(child))
}

fn send(bench: &mut Bench, target: SessionId, from: Sender) -> Result<RunId, Fault> {
    let command = SendMessage {
        org: "default".to_owned(),
        run: new_run("explore"),
        target,
        message: "and now?".to_owned(),
        from,
        window_ms: 0,
    };
    Ok(bench.run(command)?.0.run)
}

pub fn what_ended_before_a_cancel_waits_in_the_inbox(mut bench: Bench) {
    for whole in [false, true] {
        let key = SessionKey::parse(if whole {
            "agent:build:b"
        } else {
            "agent:build:a"
        })
        .unwrap();
        let talk = reply(bench.run(turn(key.as_str(), "go")));
        bench.started(talk.run);
        let session = bench.row(talk.run).session;
        let early = ended_child(&mut bench, &talk.session);
        let late = bench.spawned(Some(&talk.session)).run;
        bench.started(late);
        let target = match whole {
            true => CancelTarget::Session(key),
            false => CancelTarget::Run(talk.run),
        };
        let done = cancel(&mut bench, target, true);
        assert!(done.stopping.contains(&talk.run), "{done:?}");
        gone(&mut bench, talk.run);
        deliver(&mut bench, session);
        assert_eq!(
            how(&mut bench, early),
            (AnnouncePolicy::Inbox, "delivered".to_owned())
        );
        // A run that ends later, by the cancel or by itself, does not wake the session.
        match whole {
            true => gone(&mut bench, late),
            false => drop(bench.ended(late, "found")),
        }
        deliver(&mut bench, session);
        assert_eq!(how(&mut bench, late).0, AnnouncePolicy::Inbox);
        assert_eq!(live(&mut bench, session), []);
        let unread = outbox::inbox(bench.db.as_mut(), session, false, 0, 10).unwrap();
        assert_eq!(unread.len(), 2);
        // A user's new work: the ends of its children wake the session again.
        let next = reply(bench.run(turn(talk.session.as_str(), "again")));
        bench.started(next.run);
        let child = ended_child(&mut bench, &talk.session);
        assert_eq!(how(&mut bench, child).0, AnnouncePolicy::Wake);
        bench.ended(next.run, "done");
    }
}

pub fn a_cancelled_turn_takes_the_wake_run_of_its_children_along(mut bench: Bench) {
    let (talk, by) = at_work(&mut bench, "agent:build:a");
    let session = bench.row(talk.run).session;
    let child = spawned_by(&mut bench, by).run;
    let result = RecordOutcome {
        run: talk.run,
        step: 2,
        attempt: 1,
        outcome: Recorded::ToolResult {
            text: "spawned".to_owned(),
            is_error: false,
        },
        then: Then::Steps(vec![model()]),
    };
    bench.run(result).unwrap();
    bench.ended(talk.run, "spawned it");
    bench.started(child);
    bench.ended(child, "found");
    deliver(&mut bench, session);
    let [wake] = live(&mut bench, session)[..] else {
        panic!("one wake run");
    };
    // The turn itself has ended, so its remaining work ends.
    let done = cancel(&mut bench, CancelTarget::Run(talk.run), true);
    assert_eq!(
        (done.cancelled, done.already_ended),
        (vec![wake], vec![talk.run])
    );
    assert_eq!(bench.row(wake).state, CANCELLED);
    // The announce that no turn has seen is in the inbox.
    assert_eq!(
        how(&mut bench, child),
        (AnnouncePolicy::Inbox, "delivered".to_owned())
    );
}

pub fn other_turns_of_a_session_go_on_and_see_what_was_cancelled(mut bench: Bench) {
    let (talk, by) = at_work(&mut bench, "agent:build:a");
    let session = bench.row(talk.run).session;
    let child = spawned_by(&mut bench, by).run;
    bench.started(child);
    bench.ended(child, "found");
    let other = ended_child(&mut bench, &talk.session);
    let queued = reply(bench.run(turn("agent:build:a", "two"))).run;
    cancel(&mut bench, CancelTarget::Run(talk.run), true);
    gone(&mut bench, talk.run);
    assert_eq!(how(&mut bench, child).0, AnnouncePolicy::Inbox);
    // It was not work of the cancelled turn, and the session has another turn.
    assert_eq!(how(&mut bench, other).0, AnnouncePolicy::Wake);
    deliver(&mut bench, session);
    let seen = bench.started(queued).steps[0].seen_up_to.unwrap();
    for told in [child, other] {
        let entry = outbox::of_run(bench.db.as_mut(), told).unwrap().unwrap();
        assert!(entry.message_seq.unwrap() <= seen);
    }
}

pub fn a_failed_run_is_not_woken_by_what_its_children_brought(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let child = bench.spawned(Some(&top));
    bench.started(child.run);
    let below = ended_child(&mut bench, &child.session);
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
    reply(bench.run(failed));
    let session = bench.row(child.run).session;
    deliver(&mut bench, session);
    assert_eq!(live(&mut bench, session), []);
    assert_eq!(how(&mut bench, below).0, AnnouncePolicy::Inbox);
}

pub fn a_persons_cancel_binds_agents_until_a_person_begins_again(mut bench: Bench) {
    let (talk, by) = at_work(&mut bench, "agent:build:a");
    let child = reply(bench.run(policy(spawn(Some(&talk.session)), AnnouncePolicy::None)));
    let target = bench.row(child.run).session;
    // An agent's own cancel blocks no later work.
    cancel(&mut bench, CancelTarget::Run(child.run), false);
    assert_eq!(bench.row(child.run).state, CANCELLED);
    let sent = send(&mut bench, target, Sender::Step(by)).unwrap();
    cancel(&mut bench, CancelTarget::Run(sent), true);
    let refused = |bench: &mut Bench| {
        let before = bench.rows();
        let refused = send(bench, target, Sender::Step(by)).unwrap_err();
        assert_eq!(refused.data[REASON], CANCELLED_BY_PERSON, "{refused}");
        assert_eq!(bench.rows(), before);
    };
    refused(&mut bench);
    // Neither another cancel nor a reset lifts it.
    cancel(
        &mut bench,
        CancelTarget::Session(child.session.clone()),
        false,
    );
    refused(&mut bench);
    let reset = ResetSession {
        org: "default".to_owned(),
        key: child.session.clone(),
        force: true,
        if_generation: None,
        by: "admin".to_owned(),
        by_person: true,
    };
    bench.run(reset).unwrap();
    refused(&mut bench);
    // A spawn begins in another session.
    spawned_by(&mut bench, by);
    send(&mut bench, target, Sender::Client).unwrap();
    send(&mut bench, target, Sender::Step(by)).unwrap();
}

pub fn a_whole_conversation_ends_with_what_it_asked_others(mut bench: Bench) {
    let root = bench.client_session("client:a");
    let idle = ended_child(&mut bench, &root);
    let idle = bench.row(idle);
    let other = reply(bench.run(turn("agent:build:b", "go")));
    bench.started(other.run);
    let target = bench.row(other.run).session;
    let asked = send(&mut bench, target, Sender::Session(root.clone())).unwrap();
    let session = CancelTarget::Session(root.clone());
    assert_eq!(cancel(&mut bench, session, true).cancelled, []);
    let all = CancelTarget::Conversation(root);
    assert_eq!(cancel(&mut bench, all, true).cancelled, [asked]);
    // Work in other conversations continues.
    assert_eq!(bench.row(other.run).state, RunState::Running);
    let stops = bench.count("SELECT count(*) FROM stops");
    assert_eq!(
        stops, 1,
        "the one session of the tree in which an agent answers"
    );
    let (_, by) = at_work(&mut bench, "agent:build:c");
    bench.settings.policy.reach = [crate::kernel::policy::Visibility::All; 3];
    bench.settings.policy.agent_to_agent = vec!["*".to_owned()];
    let refused = send(&mut bench, idle.session, Sender::Step(by)).unwrap_err();
    assert_eq!(refused.data[REASON], CANCELLED_BY_PERSON);
    send(&mut bench, target, Sender::Step(by)).unwrap();
}

pub fn an_answer_to_what_was_cancelled_begins_nothing(mut bench: Bench) {
    bench.settings.policy.reach = [crate::kernel::policy::Visibility::All; 3];
    bench.settings.policy.agent_to_agent = vec!["*".to_owned()];
    let (asker, by) = at_work(&mut bench, "agent:build:a");
    let answering = reply(bench.run(turn("agent:build:b", "go")));
    let target = bench.row(answering.run).session;
    let asked = send(&mut bench, target, Sender::Step(by)).unwrap();
    let key = SessionKey::parse("agent:build:a").unwrap();
    let own = sessions::by_key(bench.db.as_mut(), "default", &key)
        .unwrap()
        .unwrap();
    // The asking turn ends well; its question is still open.
    let result = RecordOutcome {
        run: asker.run,
        step: 2,
        attempt: 1,
        outcome: Recorded::ToolResult {
            text: "sent".to_owned(),
            is_error: false,
        },
        then: Then::Steps(vec![model()]),
    };
    bench.run(result).unwrap();
    bench.ended(asker.run, "asked");
    bench.started(asked);
    bench.ended(asked, "the answer");
    // The exchange would continue in the asker's session, which was cancelled meanwhile.
    cancel(&mut bench, CancelTarget::Session(key), true);
    let next = Some(Box::new(new_run("build")));
    bench.run(Exchange { run: asked, next }).unwrap();
    deliver(&mut bench, own.id);
    assert_eq!(live(&mut bench, own.id), []);
    assert_eq!(
        how(&mut bench, asked),
        (AnnouncePolicy::Inbox, "delivered".to_owned())
    );
}
