//! The state machine under arbitrary sequences of events: a model of what the store does around it,
//! and the invariants that must always hold.

use proptest::prelude::*;

use super::*;
use crate::kernel::run::event::Pending;
use crate::kernel::run::{AnnouncePolicy, CancelRequest, RunOrigin, Usage};
use crate::kernel::sample::queued;
use crate::kernel::time::Timestamp;

fn at(ms: i64) -> Moment {
    Moment {
        wall: Timestamp(ms),
        steady: Timestamp(ms),
    }
}

fn owed() -> impl Strategy<Value = Pending> {
    (any::<bool>(), any::<bool>()).prop_map(|(open_children, unseen_announces)| Pending {
        open_children,
        unseen_announces,
    })
}

fn event() -> impl Strategy<Value = RunEvent> {
    let error = || RunError::new("provider", "it failed");
    prop_oneof![
        4 => Just(RunEvent::Started),
        3 => (1u32..4).prop_map(|count| RunEvent::StepsIntended { count }),
        3 => prop::sample::select(StepKind::ALL.to_vec()).prop_map(|kind| RunEvent::StepEnded { kind, usage: Usage::default(), warnings: vec!["careful".to_owned()] }),
        3 => (proptest::option::of("[a ]{0,3}"), owed())
            .prop_map(|(text, owed)| RunEvent::TurnEnded { text, owed }),
        2 => owed().prop_map(|owed| RunEvent::OwedChanged { owed }),
        2 => Just(RunEvent::AnnouncesDelivered),
        1 => Just(RunEvent::Parked),
        1 => prop::sample::select(crate::kernel::run::PauseReason::ALL).prop_map(RunEvent::Paused),
        1 => Just(RunEvent::Resumed),
        1 => Just(RunEvent::Failed(error())),
        1 => Just(RunEvent::FailedWithPartial { error: error(), found: "half of it".to_owned() }),
        1 => Just(RunEvent::TimedOut),
        1 => Just(RunEvent::CancelRequested(CancelRequest {
            by: "admin".to_owned(),
            at: Timestamp(0),
            reason: None,
            inherited: false,
            by_person: false,
        })),
        1 => Just(RunEvent::ProgramCancelRequested(CancelRequest {
            by: "admin".to_owned(),
            at: Timestamp(0),
            reason: None,
            inherited: false,
            by_person: false,
        })),
        1 => prop::collection::vec(1u32..9, 0..2).prop_map(|surviving_processes| RunEvent::ExecutorGone { surviving_processes }),
        2 => (any::<bool>(), prop::sample::select(vec![0u64, 1000]))
            .prop_map(|(counts, delay_ms)| RunEvent::Recovered { counts, delay_ms }),
        1 => Just(RunEvent::Interrupted(error())),
    ]
}

fn policy() -> impl Strategy<Value = AnnouncePolicy> {
    prop::sample::select(AnnouncePolicy::ALL)
}

/// The edges of the state diagram, written down a second time.
fn is_edge(from: RunState, to: RunState) -> bool {
    use RunState::{Ended, Paused, Queued, Running, Settling};
    match (from, to) {
        (Ended(_), _) => false,
        (Queued, Queued | Running | Ended(_)) => true,
        (Running, Running | Queued | Paused(_) | Settling | Ended(_)) => true,
        // What it waits for may arrive in parts.
        (Paused(_), Paused(_)) => true,
        (Paused(_), Queued | Ended(_)) => true,
        (Settling, Settling | Queued | Ended(_)) => true,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_sequence_breaks_a_promise(
        announce in policy(),
        events in prop::collection::vec((event(), 0i64..3000), 1..40),
    ) {
        let mut run = queued(announce);
        let mut now = 0;
        let (mut announced, mut ended, mut slots) = (0, 0, 0i32);
        for (event, passed) in events {
            now += passed;
            let is_cancel = matches!(
                event,
                RunEvent::CancelRequested(_) | RunEvent::ProgramCancelRequested(_)
            );
            let applied = match apply(&run, event.clone(), at(now)) {
                Ok(applied) => applied,
                Err(refused) => {
                    prop_assert_eq!(refused.state, run.state.as_str());
                    continue;
                }
            };
            // Only edges of the diagram; terminal stays terminal.
            prop_assert!(is_edge(run.state, applied.run.state),
                "{:?} by {:?} to {:?}", run.state, event, applied.run.state);
            let next = applied.run;
            // A run with a requested cancel starts nothing new.
            if run.cancel.is_some() {
                prop_assert!(next.steps == run.steps, "a new step by {event:?}");
                prop_assert!(
                    next.state == run.state || next.state.is_terminal(),
                    "{event:?} moved a cancelled run to {:?}", next.state
                );
            }
            prop_assert_eq!(next.cancel.is_some(), run.cancel.is_some() || is_cancel);
            announced += applied.actions.iter().filter(|a| **a == Action::Announce).count();
            let wakes = applied.actions.iter().filter(|a| **a == Action::WakeWaiters).count();
            // Exactly the transition into a terminal state ends the run, once.
            prop_assert_eq!(wakes == 1, next.state.is_terminal());
            ended += wakes;
            // A slot is taken by a start and released by every transition out of `running`.
            let release = applied.actions.contains(&Action::Release);
            prop_assert_eq!(release, run.state == RunState::Running && next.state != RunState::Running);
            slots += i32::from(next.state == RunState::Running && run.state != RunState::Running);
            slots -= i32::from(release);
            prop_assert!((0..=1).contains(&slots));
            // Every run that is queued again asks for a slot.
            if next.state == RunState::Queued && run.state != RunState::Queued {
                prop_assert!(applied.actions.contains(&Action::Enqueue));
            }
            // An end has a reason, and `ok` has a text.
            match next.state {
                RunState::Ended(Outcome::Ok) => {
                    prop_assert!(next.result.as_deref().is_some_and(|text| !text.trim().is_empty()));
                    prop_assert!(next.error.is_none());
                }
                RunState::Ended(Outcome::Cancelled) => prop_assert!(next.cancel.is_some()),
                RunState::Ended(_) => prop_assert!(next.error.is_some()),
                _ => prop_assert!(next.ended_at.is_none() && next.error.is_none()),
            }
            prop_assert!(next.used_ms >= run.used_ms);
            run = next;
        }
        prop_assert!(ended <= 1);
        // Announced exactly once if it ended and an announce is due, otherwise never.
        let owes = announce != AnnouncePolicy::None;
        prop_assert_eq!(announced, usize::from(owes) * ended);
    }

    #[test]
    fn settling_loses_no_announce(
        unseen in 1u32..5,
        order in prop::collection::vec(0u8..3, 1..20),
    ) {
        // A parent whose turn ended with `unseen` children open. Children end and are delivered in
        // any order; the parent may not end before a turn has seen all of them.
        let mut run = queued(AnnouncePolicy::Wake);
        let (mut open, mut pending) = (unseen, 0u32);
        let start = |run: &Run| apply(run, RunEvent::Started, at(0)).unwrap().run;
        let end_turn = |run: &Run, open: u32, pending: u32| {
            let owed = Pending { open_children: open > 0, unseen_announces: pending > 0 };
            let text = Some("part".to_owned());
            apply(run, RunEvent::TurnEnded { text, owed }, at(0)).unwrap().run
        };
        run = end_turn(&start(&run), open, pending);
        for what in order.into_iter().chain([0; 8]).chain([1, 2, 1, 2]) {
            match what {
                0 if open > 0 => {
                    open -= 1;
                    pending += 1;
                    if run.state == RunState::Settling {
                        let owed = Pending { open_children: open > 0, unseen_announces: true };
                        run = apply(&run, RunEvent::OwedChanged { owed }, at(0)).unwrap().run;
                    }
                }
                1 if pending > 0 && run.state == RunState::Settling => {
                    run = apply(&run, RunEvent::AnnouncesDelivered, at(0)).unwrap().run;
                    prop_assert_eq!(run.state, RunState::Queued);
                    run = start(&run);
                    pending = 0;
                }
                2 if run.state == RunState::Running => run = end_turn(&run, open, pending),
                _ => {}
            }
            if run.state.is_terminal() {
                prop_assert_eq!((open, pending), (0, 0));
            }
        }
        prop_assert_eq!(run.state, RunState::Ended(Outcome::Ok));
    }
}

#[test]
fn g3_2_a_timeout_is_never_a_success() {
    let run = apply(&queued(AnnouncePolicy::Inbox), RunEvent::Started, at(0))
        .unwrap()
        .run;
    let text = Some("half".to_owned());
    let owed = Pending {
        open_children: true,
        unseen_announces: false,
    };
    let run = apply(&run, RunEvent::TurnEnded { text, owed }, at(1))
        .unwrap()
        .run;
    assert_eq!(run.state, RunState::Settling);
    let applied = apply(&run, RunEvent::TimedOut, at(2)).unwrap();
    assert_eq!(applied.run.state, RunState::Ended(Outcome::Timeout));
    assert!(applied.actions.contains(&Action::CancelDescendants));
    assert!(applied.actions.contains(&Action::Announce));
}

#[test]
fn a_spawned_run_that_fails_takes_its_children_along_whoever_is_told() {
    for policy in [AnnouncePolicy::Wake, AnnouncePolicy::None] {
        let mut run = queued(policy);
        if policy == AnnouncePolicy::None {
            run.requester = None;
        }
        let run = apply(&run, RunEvent::Started, at(0)).unwrap().run;
        let failed = apply(&run, RunEvent::Failed(RunError::new("x", "y")), at(1)).unwrap();
        assert!(
            failed.actions.contains(&Action::CancelDescendants),
            "{policy}"
        );
    }
}

#[test]
fn g2_12_a_turn_without_text_is_no_answer() {
    let run = apply(&queued(AnnouncePolicy::Inbox), RunEvent::Started, at(0))
        .unwrap()
        .run;
    for text in [None, Some(String::new()), Some(" \n".to_owned())] {
        let event = RunEvent::TurnEnded {
            text,
            owed: Pending::default(),
        };
        let ended = apply(&run, event, at(1)).unwrap().run;
        assert_eq!(ended.state, RunState::Ended(Outcome::Error));
        assert_eq!(ended.error.unwrap().kind, "no_answer");
    }
}

#[test]
fn g1_13_a_cancelled_run_is_not_carried_on_by_a_restart() {
    let request = CancelRequest {
        by: "admin".to_owned(),
        at: Timestamp(1),
        reason: None,
        inherited: false,
        by_person: false,
    };
    let run = apply(&queued(AnnouncePolicy::Inbox), RunEvent::Started, at(0))
        .unwrap()
        .run;
    let marked = apply(&run, RunEvent::CancelRequested(request.clone()), at(1)).unwrap();
    assert_eq!(marked.run.state, RunState::Running);
    assert!(marked.actions.contains(&Action::StopExecutor));
    let recovered = || RunEvent::Recovered {
        counts: true,
        delay_ms: 0,
    };
    let applied = apply(&marked.run, recovered(), at(2)).unwrap();
    assert_eq!(applied.run.state, RunState::Ended(Outcome::Cancelled));
    assert!(!applied.actions.contains(&Action::Enqueue));

    // Queued after a restart, with a program that goes on: it ends once the program has.
    let parked = apply(&run, RunEvent::Parked, at(1)).unwrap().run;
    let event = RunEvent::ProgramCancelRequested(request);
    let marked = apply(&parked, event, at(2)).unwrap();
    assert_eq!(marked.run.state, RunState::Queued);
    assert!(marked.actions.contains(&Action::StopExecutor));
    assert!(apply(&marked.run, RunEvent::Started, at(3)).is_err());
    let applied = apply(&marked.run, recovered(), at(3)).unwrap();
    assert_eq!(applied.run.state, RunState::Ended(Outcome::Cancelled));
}

#[test]
fn g13_4_a_cancelled_run_says_which_processes_could_not_be_ended() {
    let request = CancelRequest {
        by: "admin".to_owned(),
        at: Timestamp(1),
        reason: None,
        inherited: false,
        by_person: false,
    };
    let run = apply(&queued(AnnouncePolicy::Inbox), RunEvent::Started, at(0))
        .unwrap()
        .run;
    let marked = apply(&run, RunEvent::CancelRequested(request), at(1)).unwrap();
    let end = |left| {
        apply(
            &marked.run,
            RunEvent::ExecutorGone {
                surviving_processes: left,
            },
            at(2),
        )
        .unwrap()
    };
    let ended = end(vec![12, 13]).run;
    assert_eq!(ended.state, RunState::Ended(Outcome::Cancelled));
    let error = ended.error.unwrap();
    assert_eq!(error.kind, "processes_left");
    assert!(error.message.ends_with("12, 13"), "{}", error.message);
    assert_eq!(end(Vec::new()).run.error, None);
}

#[test]
fn g3_4_only_time_at_work_counts_against_the_limit() {
    let run = queued(AnnouncePolicy::Inbox);
    assert_eq!(run.remaining_at(Timestamp(5000)), Some(10_000));
    let run = apply(&run, RunEvent::Started, at(5000)).unwrap().run;
    assert_eq!(run.remaining_at(Timestamp(6000)), Some(9000));
    let run = apply(&run, RunEvent::Parked, at(7000)).unwrap().run;
    // Parked while the daemon is down for an hour: no running time is used.
    assert_eq!(run.remaining_at(Timestamp(3_600_000)), Some(8000));
    // A wall clock that jumps a day changes nothing.
    let jumped = Moment {
        wall: Timestamp(86_400_000),
        steady: Timestamp(8000),
    };
    let run = apply(&run, RunEvent::Started, jumped).unwrap().run;
    assert_eq!(run.remaining_at(Timestamp(9000)), Some(7000));
}

#[test]
fn a_root_turn_leaves_its_background_children_alone() {
    let mut run = queued(AnnouncePolicy::None);
    run.requester = None;
    run.origin = RunOrigin::Turn;
    let run = apply(&run, RunEvent::Started, at(0)).unwrap().run;
    let owed = Pending {
        open_children: true,
        unseen_announces: false,
    };
    let text = Some("started it".to_owned());
    let applied = apply(&run, RunEvent::TurnEnded { text, owed }, at(1)).unwrap();
    assert_eq!(applied.run.state, RunState::Ended(Outcome::Ok));
    let failed = apply(&run, RunEvent::Failed(RunError::new("x", "y")), at(1)).unwrap();
    for actions in [applied.actions, failed.actions] {
        assert!(!actions.contains(&Action::CancelDescendants));
        assert!(!actions.contains(&Action::Announce));
    }
}
