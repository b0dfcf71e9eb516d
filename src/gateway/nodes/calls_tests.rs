//! Tests of the calls to one node: who waits, what is sent again, what is released.

use super::*;
use crate::gateway::nodes::orphans::{ORPHAN_AGE, ORPHANS_LIMIT};
use crate::gateway::nodes::outbox::NextFrame;
use crate::kernel::node::{NodeCommand, RunCall};

struct Silent;

impl NodeOutput for Silent {
    fn piece(&self, _: OutputStream, _: &str) {}
}

fn id(number: u128) -> CallId {
    CallId(uuid::Uuid::from_u128(number))
}

fn run_call() -> NodeCall {
    NodeCall::Run(RunCall {
        argv: vec!["true".to_owned()],
        cwd: None,
        env: BTreeMap::new(),
        timeout_ms: 1000,
        keep: 10,
    })
}

fn callable() -> Offer {
    Offer {
        commands: [NodeCommand::Run].into(),
        ..Offer::default()
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn joined(calls: &mut Calls, number: u128, now: Duration) -> Ticket {
    let joined = calls.join(id(number), run_call(), Arc::new(Silent), now);
    joined.unwrap_or_else(|why| panic!("{why}"))
}

/// The types of the frames that wait, with the number of their call.
fn frames(outbox: &Outbox) -> Vec<(String, u128)> {
    let mut frames = Vec::new();
    while let Some(NextFrame::Text(text)) = outbox.pop() {
        let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
        let id: CallId = frame["id"].as_str().unwrap().parse().unwrap();
        frames.push((frame["type"].as_str().unwrap().to_owned(), id.0.as_u128()));
    }
    frames
}

fn frame(kind: &str, number: u128) -> (String, u128) {
    (kind.to_owned(), number)
}

#[test]
fn a_call_is_sent_once_for_all_its_callers_and_again_on_a_new_link() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let mut first = joined(&mut calls, 1, seconds(0));
    calls.send(id(1), &outbox, seconds(0));
    let mut second = joined(&mut calls, 1, seconds(1));
    calls.send(id(1), &outbox, seconds(1));
    assert_eq!(frames(&outbox), [frame("call", 1)]);
    let other = NodeCall::Describe {};
    let taken = calls.join(id(1), other, Arc::new(Silent), seconds(1));
    assert!(taken.is_err(), "another call has this id");
    let newer = Outbox::default();
    calls.resume(&HashSet::new(), &callable(), &newer, seconds(2));
    assert_eq!(frames(&newer), [frame("call", 1)]);
    let end = CallEnd::Uncertain {
        message: String::new(),
    };
    calls.answered(id(1), end.clone(), &newer, seconds(3));
    for ticket in [&mut first, &mut second] {
        assert_eq!(ticket.end.try_recv(), Ok(NodeEnd::Answered(end.clone())));
    }
    assert_eq!(frames(&newer), [], "released by its callers alone");
}

#[test]
fn what_was_not_sent_may_not_be_sent_without_approval() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let mut ticket = joined(&mut calls, 1, seconds(0));
    calls.resume(&HashSet::new(), &Offer::default(), &outbox, seconds(1));
    assert!(matches!(ticket.end.try_recv(), Ok(NodeEnd::NotSent(_))));
    assert_eq!(frames(&outbox), []);
}

#[test]
fn the_last_caller_that_leaves_cancels_unless_the_daemon_stops() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let (first, second) = (
        joined(&mut calls, 1, seconds(0)),
        joined(&mut calls, 1, seconds(0)),
    );
    calls.send(id(1), &outbox, seconds(0));
    calls.leave(id(1), first.number, Some(&outbox), false);
    assert_eq!(frames(&outbox), [frame("call", 1)]);
    // Its link is lost meanwhile: the cancel comes with the next one.
    calls.leave(id(1), second.number, None, false);
    assert_eq!(calls.count(), 0);
    calls.resume(&[id(1)].into(), &callable(), &outbox, seconds(1));
    assert_eq!(frames(&outbox), [frame("cancel", 1)]);
    let end = CallEnd::Uncertain {
        message: String::new(),
    };
    calls.answered(id(1), end, &outbox, seconds(2));
    assert_eq!(frames(&outbox), [frame("release", 1)]);

    let ticket = joined(&mut calls, 2, seconds(3));
    calls.send(id(2), &outbox, seconds(3));
    calls.leave(id(2), ticket.number, Some(&outbox), true);
    assert_eq!(frames(&outbox), [frame("call", 2)], "the node goes on");
}

#[test]
fn calls_of_a_node_that_is_away_end_by_what_may_have_happened() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let mut sent = joined(&mut calls, 1, seconds(0));
    calls.send(id(1), &outbox, seconds(0));
    let mut unsent = joined(&mut calls, 2, seconds(0));
    for number in [1, 2] {
        calls.overdue(id(number), "mac", false, None, seconds(19));
        assert_eq!(calls.count(), 2);
    }
    for number in [1, 2] {
        calls.overdue(id(number), "mac", true, None, seconds(20));
    }
    assert!(matches!(sent.end.try_recv(), Ok(NodeEnd::Away(_))));
    assert!(matches!(unsent.end.try_recv(), Ok(NodeEnd::NotSent(_))));
}

#[test]
fn a_node_that_never_answers_is_not_waited_for_unless_it_asks() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let mut ticket = joined(&mut calls, 1, seconds(0));
    calls.send(id(1), &outbox, seconds(0));
    let question = RunQuestion {
        program: "/bin/true".to_owned(),
        argv: Vec::new(),
        cwd: "/".to_owned(),
        env: Vec::new(),
        digest: "d".to_owned(),
    };
    assert!(calls.asks(id(1), question.clone()));
    assert!(!calls.asks(id(1), question), "it is known");
    calls.overdue(id(1), "mac", false, Some(&outbox), seconds(100_000));
    assert!(ticket.end.try_recv().is_err(), "a person decides");
    calls.decided(id(1), seconds(100_000));
    calls.overdue(id(1), "mac", false, Some(&outbox), seconds(100_121));
    assert!(matches!(ticket.end.try_recv(), Ok(NodeEnd::Away(_))));
    assert_eq!(frames(&outbox), [frame("call", 1), frame("cancel", 1)]);
}

#[test]
fn what_the_node_keeps_is_released_when_its_callers_are_done_or_never_come() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    calls.release(id(1), None);
    let known: HashSet<CallId> = [id(1), id(2)].into();
    calls.resume(&known, &callable(), &outbox, seconds(0));
    // It may still run; then it is released once it has ended.
    assert_eq!(frames(&outbox), [frame("cancel", 1), frame("release", 1)]);
    let end = CallEnd::Uncertain {
        message: "stopped".to_owned(),
    };
    calls.answered(id(1), end, &outbox, seconds(0));
    assert_eq!(frames(&outbox), [frame("release", 1)]);
    calls.sweep(&outbox, ORPHAN_AGE - seconds(1));
    assert_eq!(frames(&outbox), []);
    calls.sweep(&outbox, ORPHAN_AGE);
    assert_eq!(frames(&outbox), [frame("cancel", 2), frame("release", 2)]);

    for number in 10..10 + KEPT_LIMIT as u128 {
        calls.release_later(id(number), Some(&outbox), seconds(0));
    }
    assert_eq!(frames(&outbox), []);
    calls.release_later(id(99), Some(&outbox), seconds(1));
    assert_eq!(frames(&outbox), [frame("release", 10)], "the oldest");
    calls.sweep(&outbox, KEPT_FOR);
    assert_eq!(frames(&outbox).len(), KEPT_LIMIT - 1);
    calls.sweep(&outbox, KEPT_FOR + seconds(1));
    assert_eq!(frames(&outbox), [frame("release", 99)]);
}

#[test]
fn a_call_that_no_step_asks_for_is_ended_and_those_of_clients_and_open_steps_are_kept() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let known: HashSet<CallId> = [1, 2, 3, 4, 5].map(id).into();
    calls.resume(&known, &callable(), &outbox, seconds(0));
    let end = || CallEnd::Uncertain {
        message: "stopped".to_owned(),
    };
    calls.answered(id(4), end(), &outbox, seconds(0));
    let asked = |calls: &Calls| {
        let mut asked = calls.maybe_of_steps();
        asked.sort_unstable();
        asked
    };
    assert_eq!(asked(&calls), [1, 2, 3, 4, 5].map(id));
    let steps: HashMap<CallId, StepOfCall> = [
        (id(1), StepOfCall::Ended),
        (id(2), StepOfCall::Open),
        (id(4), StepOfCall::InReview),
        (id(5), StepOfCall::InReview),
    ]
    .into();
    calls.end_unwanted(&[1, 2, 3, 4, 5].map(id), &steps, &outbox);
    // The fourth is known to be uncertain; the fifth may still end with a result.
    let ended = [1, 4].map(|number| [frame("cancel", number), frame("release", number)]);
    assert_eq!(frames(&outbox), ended.concat());
    assert_eq!(asked(&calls), [2, 5].map(id), "3 is a client's");
    // A caller may have come while the store was read.
    let _ticket = joined(&mut calls, 2, seconds(1));
    let ended: HashMap<CallId, StepOfCall> = [(id(2), StepOfCall::Ended)].into();
    calls.end_unwanted(&[id(2)], &ended, &outbox);
    assert_eq!(frames(&outbox), []);
    calls.answered(id(1), end(), &outbox, seconds(2));
    assert_eq!(frames(&outbox), [frame("release", 1)]);
}

#[test]
fn a_malicious_node_fills_no_memory() {
    let (mut calls, outbox) = (Calls::default(), Outbox::default());
    let end = CallEnd::Uncertain {
        message: String::new(),
    };
    for number in 0..2 * ORPHANS_LIMIT as u128 {
        calls.answered(id(number), end.clone(), &outbox, seconds(0));
        let question = RunQuestion {
            program: String::new(),
            argv: Vec::new(),
            cwd: String::new(),
            env: Vec::new(),
            digest: number.to_string(),
        };
        calls.asks(id(number), question);
    }
    assert_eq!(calls.orphans.len(), ORPHANS_LIMIT);
    assert_eq!(calls.questions.len(), QUESTIONS_LIMIT);
    let full = (0..=CALLS_LIMIT as u128).map(|number| {
        let call = run_call();
        calls.join(id(1_000_000 + number), call, Arc::new(Silent), seconds(0))
    });
    assert_eq!(full.filter(Result::is_err).count(), 1);
}
