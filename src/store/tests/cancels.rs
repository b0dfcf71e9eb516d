//! Tests of cancels over all kinds of descendants, and of texts that steer a turn.

use super::{
    Bench, Recorded, Then, TurnEnd, answer, id, model, new_run, policy, reply, spawn, text, tool,
    turn,
};
use crate::command::{
    Ask, BeginEffect, Cancel, CancelTarget, Cancelled, Conclude, Conclusion, RecordOutcome,
    SendMessage, Sender, SpawnedBy, Steer, StepRef, WaitFor,
};
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{AgentId, MessageId, RunId, SessionKey};
use crate::kernel::run::step::EffectClass as Class;
use crate::kernel::run::{AnnouncePolicy, Outcome, RunState};
use crate::kernel::session::message::MessageKind;
use crate::store::tables::{outbox, sessions};

const ENDED: RunState = RunState::Ended(Outcome::Cancelled);

fn cancel(bench: &mut Bench, target: CancelTarget) -> (Cancelled, Vec<CommitEffect>) {
    let command = Cancel {
        org: "default".to_owned(),
        target,
        by: "admin".to_owned(),
        by_person: true,
        reason: Some("not needed".to_owned()),
    };
    bench.run(command).unwrap()
}

fn cancel_run(bench: &mut Bench, run: RunId) -> Cancelled {
    cancel(bench, CancelTarget::Run(run)).0
}

fn gone(bench: &mut Bench, run: RunId) {
    let why = Conclusion::ExecutorGone { left: Vec::new() };
    bench.run(Conclude { run, why }).unwrap();
}

fn steer(bench: &mut Bench, run: RunId, message: MessageId, said: &str) -> Result<(), Fault> {
    let command = Steer {
        org: "default".to_owned(),
        run,
        message,
        text: said.to_owned(),
    };
    bench.run(command).map(|_| ())
}

pub fn g4_12_a_cancel_reaches_everything_below(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let child = bench.spawned(Some(&top));
    let grandchild = bench.spawned(Some(&child.session));
    let queued = bench.spawned(Some(&grandchild.session));
    let other = bench.spawned(Some(&top)).run;
    for run in [child.run, grandchild.run] {
        bench.started(run);
    }
    // The child settles: it has no executor any more.
    bench.ended(child.run, "waits");
    assert_eq!(bench.row(child.run).state, RunState::Settling);
    let (done, effects) = cancel(&mut bench, CancelTarget::Run(child.run));
    assert_eq!(done.cancelled, [child.run, queued.run]);
    assert_eq!(done.stopping, [grandchild.run]);
    assert!(effects.contains(&CommitEffect::StopExecutor(grandchild.run)));
    let marked = bench.row(grandchild.run).cancel.unwrap();
    assert_eq!((marked.by.as_str(), marked.inherited), ("admin", true));
    assert_eq!(marked.reason.as_deref(), Some("not needed"));
    assert_eq!(bench.row(other).cancel, None);
    gone(&mut bench, grandchild.run);
    for run in [child.run, grandchild.run, queued.run] {
        assert_eq!(bench.row(run).state, ENDED);
    }
    // The requester of the child is notified by its policy; cascading ends wake no agent.
    let db = bench.db.as_mut();
    let told = outbox::of_run(db, grandchild.run).unwrap().unwrap();
    assert_eq!(told.policy, AnnouncePolicy::Inbox);
    // A repeat finds nothing left to do.
    let again = cancel_run(&mut bench, child.run);
    assert_eq!(again.already_ended, [child.run]);
    assert!(again.cancelled.is_empty() && again.stopping.is_empty());
}

/// A model's answer may still request work between the mark and the stop of the executor.
pub fn g4_12_a_marked_run_begins_nothing_more(mut bench: Bench) {
    let talk = reply(bench.run(turn("agent:build:a", "go")));
    let other = reply(bench.run(turn("agent:build:b", "go")));
    let child = bench.spawned(Some(&talk.session)).run;
    bench.started(talk.run);
    bench.started(child);
    let asks = RecordOutcome {
        run: talk.run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks: text("calls"),
            used: super::used(),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::Steps(vec![tool("x", Class::Idempotent)]),
    };
    bench.run(asks).unwrap();
    let by = StepRef {
        run: talk.run,
        step: 2,
        attempt: 1,
    };
    let mut spawned = spawn(Some(&talk.session));
    spawned.by = Some(SpawnedBy {
        step: by,
        allowed: vec![AgentId::parse("explore").unwrap()],
        awaits: None,
        max_depth: None,
    });
    let target = sessions::by_key(bench.db.as_mut(), "default", &other.session)
        .unwrap()
        .unwrap()
        .id;
    let (until, window_ms) = (bench.clock.now().plus_ms(60_000), 60_000);
    let send = SendMessage {
        org: "default".to_owned(),
        run: new_run("build"),
        target,
        message: "and you?".to_owned(),
        from: Sender::Step(by),
        window_ms: 0,
    };
    let wait = WaitFor {
        by,
        runs: vec![child],
        any: false,
        until,
    };
    let ask = Ask {
        by,
        text: "may I?".to_owned(),
        choices: Vec::new(),
        window_ms,
    };
    let begin = BeginEffect {
        run: talk.run,
        step: 2,
        attempt: 1,
    };
    let outcome = RecordOutcome {
        run: talk.run,
        step: 2,
        attempt: 1,
        outcome: Recorded::ToolResult {
            text: "found".to_owned(),
            is_error: false,
        },
        then: Then::Steps(vec![model()]),
    };
    let everything = |bench: &mut Bench| {
        let mut rows = bench.rows();
        for table in ["questions", "sends", "waits", "steers"] {
            rows.push(bench.count(&format!("SELECT count(*) FROM {table}")));
        }
        rows
    };
    assert_eq!(cancel_run(&mut bench, talk.run).stopping, [talk.run]);
    let before = everything(&mut bench);
    for refused in [
        bench.run(spawned).err(),
        bench.run(send).err(),
        bench.run(wait).err(),
        bench.run(ask).err(),
        bench.run(begin).err(),
    ] {
        assert_eq!(refused.unwrap().kind, Kind::Conflict);
        assert_eq!(everything(&mut bench), before);
    }
    // An outcome is kept, and no step follows.
    let after = reply(bench.run(outcome));
    assert!(after.steps.iter().all(|step| step.seq == 2), "{after:?}");
    assert_eq!(after.run.steps, 2);
    let said = steer(&mut bench, talk.run, MessageId(id()), "left").unwrap_err();
    assert_eq!(said.kind, Kind::Conflict);
    gone(&mut bench, talk.run);
    assert_eq!(bench.row(talk.run).state, ENDED);
}

pub fn a_cancel_goes_on_below_runs_that_have_ended(mut bench: Bench) {
    let top = bench.client_session("client:a");
    let child = bench.spawned(Some(&top));
    bench.started(child.run);
    // Its announce policy is `none`, so the child ends before it.
    let left = reply(bench.run(policy(spawn(Some(&child.session)), AnnouncePolicy::None)));
    let below = bench.spawned(Some(&left.session)).run;
    bench.started(left.run);
    bench.started(below);
    let step = bench.row(left.run).steps;
    bench.run(answer(left.run, step, "left")).unwrap();
    assert_eq!(bench.row(left.run).state, RunState::Ended(Outcome::Ok));
    let (done, _) = cancel(&mut bench, CancelTarget::Session(top));
    assert!(done.stopping.contains(&below), "{done:?}");
    let again = cancel_run(&mut bench, left.run);
    assert_eq!(again.stopping, [below]);
    assert_eq!(again.already_ended, [left.run]);
}

pub fn a_cancelled_turn_leaves_other_turns_of_its_session_alone(mut bench: Bench) {
    let first = reply(bench.run(turn("agent:build:a", "one")));
    let second = reply(bench.run(turn("agent:build:a", "two")));
    let child = bench.spawned(Some(&first.session)).run;
    assert_eq!(cancel_run(&mut bench, first.run).cancelled, [first.run]);
    assert_eq!(bench.row(second.run).state, RunState::Queued);
    assert_eq!(bench.row(child).state, RunState::Queued);
    let (done, _) = cancel(&mut bench, CancelTarget::Session(first.session));
    assert_eq!(done.cancelled, [second.run, child]);
}

pub fn a_session_that_is_not_there_cannot_be_cancelled(mut bench: Bench) {
    let command = Cancel {
        org: "default".to_owned(),
        target: CancelTarget::Session(SessionKey::parse("nobody").unwrap()),
        by: "admin".to_owned(),
        by_person: true,
        reason: None,
    };
    assert_eq!(bench.run(command).unwrap_err().kind, Kind::NotFound);
}

pub fn a_steer_enters_with_the_next_model_call_only(mut bench: Bench) {
    let run = bench.spawned(None);
    let early = steer(&mut bench, run.run, MessageId(id()), "too early").unwrap_err();
    assert_eq!(early.kind, Kind::Conflict);
    bench.started(run.run);
    let asks = RecordOutcome {
        run: run.run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks: text("calls"),
            used: super::used(),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::Steps(vec![tool("x", Class::Read)]),
    };
    let message = MessageId(id());
    steer(&mut bench, run.run, message, "look in src").unwrap();
    // A repeat with the same message id changes nothing.
    steer(&mut bench, run.run, message, "look in src").unwrap();
    let after_call = reply(bench.run(asks));
    assert_eq!(after_call.messages.len(), 1, "not before the tool's result");
    let result = RecordOutcome {
        run: run.run,
        step: 2,
        attempt: 1,
        outcome: Recorded::ToolResult {
            text: "found".to_owned(),
            is_error: false,
        },
        then: Then::Steps(vec![model()]),
    };
    let next = reply(bench.run(result));
    let said: Vec<_> = next.messages.iter().map(|one| one.text()).collect();
    assert_eq!(said.last().map(String::as_str), Some("look in src"));
    assert_eq!(next.messages.last().unwrap().id, message);
    assert_eq!(
        next.steps.last().unwrap().seen_up_to,
        next.messages.last().map(|one| one.seq)
    );
    assert_eq!(bench.count("SELECT count(*) FROM steers"), 1);
    bench.ended(run.run, "done");
    let late = steer(&mut bench, run.run, MessageId(id()), "too late").unwrap_err();
    assert_eq!(late.kind, Kind::Conflict);
    // A repeat of a delivered text succeeds even after the end.
    steer(&mut bench, run.run, message, "look in src").unwrap();
}

pub fn a_turn_does_not_end_before_a_steer_was_seen(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    steer(&mut bench, run, MessageId(id()), "and this?").unwrap();
    let goes_on = bench.ended(run, "half");
    assert_eq!(goes_on.run.state, RunState::Running);
    assert_eq!(goes_on.messages.last().unwrap().text(), "and this?");
    let ended = bench.ended(run, "whole");
    assert_eq!(ended.run.result.as_deref(), Some("whole"));
}

pub fn a_steer_that_no_model_call_can_see_is_dropped_and_said(mut bench: Bench) {
    let run = bench.spawned(None).run;
    bench.started(run);
    steer(&mut bench, run, MessageId(id()), "and this?").unwrap();
    let last = RecordOutcome {
        run,
        step: 1,
        attempt: 1,
        outcome: Recorded::Answer {
            blocks: text("whole"),
            used: super::used(),
            warnings: Vec::new(),
            sealed: None,
        },
        then: Then::EndTurn(TurnEnd {
            text: Some("whole".to_owned()),
            more: Vec::new(),
        }),
    };
    assert_eq!(
        reply(bench.run(last)).run.state,
        RunState::Ended(Outcome::Ok)
    );
    assert_eq!(bench.count("SELECT count(*) FROM steers"), 0);
    let said = "SELECT count(*) FROM events WHERE kind = 'run.ended' \
                AND data LIKE '%\"steersDropped\":1%'";
    assert_eq!(bench.count(said), 1);
}

pub fn an_announce_that_steers_enters_a_turn_that_goes_on(mut bench: Bench) {
    let root = reply(bench.run(turn("agent:build:a", "go")));
    bench.started(root.run);
    let steers = policy(spawn(Some(&root.session)), AnnouncePolicy::Steer);
    let child = reply(bench.run(steers)).run;
    bench.started(child);
    bench.ended(child, "found");
    let goes_on = bench.ended(root.run, "half");
    assert_eq!(goes_on.run.state, RunState::Running);
    let told = goes_on.messages.last().unwrap();
    assert_eq!((told.kind, told.run), (MessageKind::Announce, Some(child)));
    let entry = outbox::of_run(bench.db.as_mut(), child).unwrap().unwrap();
    assert_eq!(entry.message_seq, Some(told.seq));
    assert_eq!(
        bench.ended(root.run, "whole").run.state,
        RunState::Ended(Outcome::Ok)
    );
}
