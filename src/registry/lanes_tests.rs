//! Tests of the scheduler: admission for different orders of arrivals and ends.

use uuid::Uuid;

use super::*;

const NOW: Moment = Moment {
    wall: Timestamp(1000),
    steady: Timestamp(70),
};

/// `ms` milliseconds after [`NOW`], with the wall clock set back by an hour.
fn later(ms: u64) -> Moment {
    Moment {
        wall: Timestamp(1000 - 3_600_000),
        steady: NOW.steady.plus_ms(ms),
    }
}

fn ticket(run: u128, session: u128, root: u128) -> Ticket {
    Ticket {
        run: RunId(Uuid::from_u128(run)),
        session: SessionId(Uuid::from_u128(session)),
        depth: 0,
        called_by: None,
        root_session: SessionId(Uuid::from_u128(root)),
        requester: SessionId(Uuid::from_u128(root)),
        lane: Lane::Subagent,
        first: false,
        in_turn: false,
        not_before: None,
    }
}

fn lanes(subagent: usize, global: usize) -> Lanes {
    Lanes::new(LaneCaps {
        main: 8,
        subagent,
        nested: 8,
        global,
    })
}

fn admitted(lanes: &mut Lanes) -> Vec<u128> {
    std::iter::from_fn(|| lanes.admit())
        .map(|ticket| ticket.run.0.as_u128())
        .collect()
}

#[test]
fn a_lane_and_the_global_cap_bound_who_runs() {
    let mut lanes = lanes(2, 3);
    for run in 1..=4 {
        lanes.enqueue(ticket(run, run, run), NOW);
    }
    assert_eq!(admitted(&mut lanes), [1, 2]);
    lanes.release(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [3]);
}

#[test]
fn a_closed_lane_admits_nobody() {
    let mut lanes = lanes(0, 8);
    lanes.enqueue(ticket(1, 1, 1), NOW);
    assert_eq!(admitted(&mut lanes), [] as [u128; 0]);
    assert!(lanes.knows(RunId(Uuid::from_u128(1))));
}

#[test]
fn a_session_has_one_turn_at_a_time_in_order() {
    let mut lanes = lanes(8, 8);
    lanes.enqueue(ticket(1, 7, 7), NOW);
    lanes.enqueue(ticket(2, 7, 7), NOW);
    lanes.enqueue(ticket(3, 7, 7), NOW);
    assert_eq!(admitted(&mut lanes), [1]);
    lanes.release(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn g5_2_one_root_with_much_work_does_not_starve_another() {
    let mut lanes = lanes(2, 2);
    for run in 1..=10 {
        lanes.enqueue(ticket(run, run, 100), NOW);
    }
    lanes.enqueue(ticket(11, 11, 200), NOW);
    assert_eq!(admitted(&mut lanes), [1, 11]);
}

#[test]
fn runs_that_come_back_go_before_new_ones() {
    let mut lanes = lanes(8, 1);
    lanes.enqueue(ticket(1, 1, 9), NOW);
    let mut back = ticket(2, 2, 9);
    back.first = true;
    lanes.enqueue(back, NOW);
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn a_delayed_run_starts_when_its_time_has_come() {
    let mut lanes = lanes(8, 8);
    let mut delayed = ticket(1, 1, 1);
    delayed.not_before = Some(NOW.wall.plus_ms(10));
    lanes.enqueue(delayed, NOW);
    assert!(lanes.admit().is_none());
    lanes.wake_delayed(later(9));
    assert!(lanes.admit().is_none());
    lanes.wake_delayed(later(10));
    assert_eq!(admitted(&mut lanes), [1]);
}

#[test]
fn no_other_turn_begins_while_a_delayed_run_has_its_sessions_turn() {
    let mut lanes = lanes(8, 8);
    let mut delayed = ticket(1, 7, 7);
    delayed.first = true;
    delayed.not_before = Some(NOW.wall.plus_ms(10));
    lanes.enqueue(delayed, NOW);
    lanes.enqueue(ticket(2, 7, 7), NOW);
    lanes.enqueue(ticket(3, 8, 7), NOW);
    assert_eq!(
        admitted(&mut lanes),
        [3],
        "another session of the same root is free"
    );
    lanes.wake_delayed(later(10));
    assert_eq!(admitted(&mut lanes), [1]);
    lanes.release(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn a_forgotten_run_frees_the_place_of_the_next() {
    let mut lanes = lanes(8, 8);
    lanes.enqueue(ticket(1, 7, 7), NOW);
    lanes.enqueue(ticket(2, 7, 7), NOW);
    lanes.forget(RunId(Uuid::from_u128(1)));
    assert!(!lanes.knows(RunId(Uuid::from_u128(1))));
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn enqueueing_twice_runs_once() {
    let mut lanes = lanes(8, 8);
    lanes.enqueue(ticket(1, 1, 1), NOW);
    lanes.enqueue(ticket(1, 1, 1), NOW);
    assert_eq!(admitted(&mut lanes), [1]);
}

#[test]
fn a_run_that_holds_still_keeps_its_sessions_turn_and_no_slot() {
    let mut lanes = lanes(1, 1);
    lanes.enqueue(ticket(1, 7, 7), NOW);
    assert_eq!(admitted(&mut lanes), [1]);
    // It is paused before its task has ended.
    lanes.keep(RunId(Uuid::from_u128(1)), SessionId(Uuid::from_u128(7)), 0);
    lanes.release(RunId(Uuid::from_u128(1)));
    let mut other = ticket(2, 7, 7);
    other.lane = Lane::Nested;
    lanes.enqueue(other, NOW);
    lanes.enqueue(ticket(3, 8, 7), NOW);
    assert_eq!(
        admitted(&mut lanes),
        [3],
        "its slot is free, its session is not"
    );
    lanes.release(RunId(Uuid::from_u128(3)));
    let mut back = ticket(1, 7, 7);
    back.first = true;
    lanes.enqueue(back, NOW);
    assert_eq!(admitted(&mut lanes), [1]);
    lanes.release(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn the_end_of_a_run_that_holds_still_frees_its_session() {
    let mut lanes = lanes(8, 8);
    lanes.keep(RunId(Uuid::from_u128(1)), SessionId(Uuid::from_u128(7)), 0);
    lanes.enqueue(ticket(2, 7, 7), NOW);
    assert_eq!(admitted(&mut lanes), [] as [u128; 0]);
    lanes.forget(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn a_run_that_wants_to_go_on_before_its_task_is_gone_starts_once_it_is() {
    let mut lanes = lanes(8, 8);
    lanes.enqueue(ticket(1, 7, 7), NOW);
    assert_eq!(admitted(&mut lanes), [1]);
    lanes.keep(RunId(Uuid::from_u128(1)), SessionId(Uuid::from_u128(7)), 0);
    lanes.enqueue(ticket(1, 7, 7), NOW);
    assert_eq!(admitted(&mut lanes), [] as [u128; 0]);
    lanes.release(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [1]);
}

#[test]
fn a_session_keeps_its_order_over_lanes() {
    let mut lanes = lanes(8, 8);
    for (run, lane) in [(1, Lane::Nested), (2, Lane::Main), (3, Lane::Nested)] {
        let mut ticket = ticket(run, 7, 7);
        ticket.lane = lane;
        lanes.enqueue(ticket, NOW);
    }
    for run in 1..=3 {
        assert_eq!(admitted(&mut lanes), [run]);
        lanes.release(RunId(Uuid::from_u128(run)));
    }
}

#[test]
fn a_closed_lane_holds_up_no_other_turn_of_its_session() {
    let mut lanes = lanes(0, 8);
    lanes.enqueue(ticket(1, 7, 7), NOW);
    let mut turn = ticket(2, 7, 7);
    turn.lane = Lane::Main;
    lanes.enqueue(turn, NOW);
    assert_eq!(admitted(&mut lanes), [2]);
}

#[test]
fn whoever_asks_has_a_turn_within_a_root() {
    let mut lanes = lanes(3, 3);
    for run in 1..=10 {
        lanes.enqueue(ticket(run, run, 100), NOW);
    }
    let mut other = ticket(11, 11, 100);
    other.requester = SessionId(Uuid::from_u128(50));
    lanes.enqueue(other, NOW);
    assert_eq!(admitted(&mut lanes), [1, 11, 2]);
}

#[test]
fn with_one_slot_no_lane_starves_another() {
    let mut lanes = lanes(8, 1);
    let mut run = 0;
    for lane in [
        Lane::Main,
        Lane::Main,
        Lane::Main,
        Lane::Subagent,
        Lane::Nested,
    ] {
        run += 1;
        let mut ticket = ticket(run, run, run);
        ticket.lane = lane;
        lanes.enqueue(ticket, NOW);
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        let admitted = admitted(&mut lanes);
        lanes.release(RunId(Uuid::from_u128(admitted[0])));
        order.extend(admitted);
    }
    assert_eq!(order, [1, 4, 5, 2, 3]);
}

#[test]
fn a_lane_that_opens_lets_those_in_who_waited_for_it() {
    let mut lanes = lanes(0, 8);
    lanes.enqueue(ticket(1, 1, 1), NOW);
    lanes.enqueue(ticket(2, 1, 1), NOW);
    assert_eq!(admitted(&mut lanes), [0; 0]);
    let open = LaneCaps {
        main: 8,
        subagent: 2,
        nested: 8,
        global: 8,
    };
    lanes.configure(open);
    // One turn at a time, in order of arrival.
    assert_eq!(admitted(&mut lanes), [1]);
    lanes.configure(LaneCaps {
        subagent: 0,
        ..open
    });
    lanes.release(RunId(Uuid::from_u128(1)));
    assert_eq!(admitted(&mut lanes), [0; 0]);
    // A closed lane blocks no run of another lane from the session's turn.
    let mut other = ticket(3, 1, 1);
    other.lane = Lane::Nested;
    lanes.enqueue(other, NOW);
    assert_eq!(admitted(&mut lanes), [3]);
    lanes.release(RunId(Uuid::from_u128(3)));
    lanes.configure(open);
    assert_eq!(admitted(&mut lanes), [2]);
}

/// A run in session 7 that step `step` of `caller` called.
fn called(run: u128, caller: u128, step: u32, depth: u32) -> Ticket {
    Ticket {
        depth,
        called_by: Some((RunId(Uuid::from_u128(caller)), step)),
        first: true,
        ..ticket(run, 7, 7)
    }
}

fn id(run: u128) -> RunId {
    RunId(Uuid::from_u128(run))
}

#[test]
fn b1_a_turn_is_lent_to_those_it_has_called_one_by_one_and_comes_back() {
    // There is one slot in total.
    let mut lanes = lanes(1, 1);
    let session = SessionId(Uuid::from_u128(7));
    lanes.enqueue(ticket(1, 7, 7), NOW);
    assert_eq!(admitted(&mut lanes), [1]);
    // A message for the session, then the calls, the second one first.
    lanes.enqueue(ticket(9, 7, 7), NOW);
    lanes.enqueue(called(3, 1, 5, 1), NOW);
    lanes.enqueue(called(2, 1, 4, 1), NOW);
    assert_eq!(
        admitted(&mut lanes),
        [] as [u128; 0],
        "its caller is at work"
    );
    lanes.keep(id(1), session, 0);
    lanes.release(id(1));
    assert_eq!(admitted(&mut lanes), [2], "in the order of the calls");
    // Run 2 calls run 4, which has the turn until it ends.
    lanes.enqueue(called(4, 2, 1, 2), NOW);
    lanes.keep(id(2), session, 1);
    lanes.release(id(2));
    assert_eq!(admitted(&mut lanes), [4]);
    lanes.forget(id(4));
    lanes.release(id(4));
    assert_eq!(
        admitted(&mut lanes),
        [] as [u128; 0],
        "2 has not said that it goes on"
    );
    let back = Ticket {
        in_turn: true,
        ..called(2, 1, 4, 1)
    };
    lanes.enqueue(back, NOW);
    assert_eq!(admitted(&mut lanes), [2]);
    lanes.forget(id(2));
    lanes.release(id(2));
    assert_eq!(admitted(&mut lanes), [3]);
    lanes.forget(id(3));
    lanes.release(id(3));
    let back = Ticket {
        in_turn: true,
        first: true,
        ..ticket(1, 7, 7)
    };
    lanes.enqueue(back, NOW);
    assert_eq!(admitted(&mut lanes), [1]);
    lanes.forget(id(1));
    lanes.release(id(1));
    assert_eq!(
        admitted(&mut lanes),
        [9],
        "what was said meanwhile comes last"
    );
}

#[test]
fn b1_a_restart_finds_the_turn_where_it_was_lent_to_in_any_order() {
    let session = SessionId(Uuid::from_u128(7));
    for caller_first in [true, false] {
        let mut lanes = lanes(8, 8);
        lanes.enqueue(ticket(9, 7, 7), NOW);
        lanes.enqueue(called(3, 1, 5, 1), NOW);
        let at_work = Ticket {
            in_turn: true,
            ..called(2, 1, 4, 1)
        };
        if caller_first {
            lanes.keep(id(1), session, 0);
            lanes.enqueue(at_work, NOW);
        } else {
            lanes.enqueue(at_work, NOW);
            lanes.keep(id(1), session, 0);
        }
        assert_eq!(admitted(&mut lanes), [2], "{caller_first}");
        // Its caller ends first: no other run gets the turn until run 2 has stopped.
        lanes.forget(id(3));
        lanes.forget(id(1));
        assert_eq!(admitted(&mut lanes), [] as [u128; 0], "{caller_first}");
        lanes.forget(id(2));
        lanes.release(id(2));
        assert_eq!(admitted(&mut lanes), [9], "{caller_first}");
    }
}
