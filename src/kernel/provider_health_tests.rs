//! Tests of the circuit breaker of a provider.

use proptest::prelude::*;

use super::*;

const BASE: u64 = 500;
const MOST: u64 = 3_600_000;

fn go(breaker: &mut Breaker, now: i64) -> BreakerPermit {
    match breaker.enter(Timestamp(now)) {
        BreakerDecision::Go(pass) => pass,
        BreakerDecision::Wait { until, .. } => panic!("nothing is sent at {now} before {until:?}"),
    }
}

fn until(breaker: &mut Breaker, now: i64) -> Option<(i64, bool)> {
    match breaker.enter(Timestamp(now)) {
        BreakerDecision::Go(_) => None,
        BreakerDecision::Wait { until, busy } => Some((until.0, busy)),
    }
}

fn busy(breaker: &mut Breaker, pass: &mut BreakerPermit, now: i64, asked: Option<u64>) {
    breaker.busy(pass, Timestamp(now), "busy", BASE, (asked, MOST));
}

#[test]
fn what_one_run_is_told_holds_for_all_until_its_time_is_over() {
    let mut breaker = Breaker::default();
    let mut first = go(&mut breaker, 0);
    busy(&mut breaker, &mut first, 100, Some(5_000));
    assert_eq!(until(&mut breaker, 101), Some((5_100, true)));
    assert_eq!(until(&mut breaker, 5_099), Some((5_100, true)));
    let seen = breaker.seen(Timestamp(200));
    assert_eq!(seen.condition, Condition::Paused);
    assert_eq!(
        (seen.since, seen.until),
        (Some(Timestamp(100)), Some(Timestamp(5_100)))
    );
    assert_eq!(seen.reason.as_deref(), Some("busy"));
    go(&mut breaker, 5_100);
}

#[test]
fn one_probe_is_sent_and_then_a_few_more_each_time() {
    let mut breaker = Breaker::default();
    let mut pass = go(&mut breaker, 0);
    busy(&mut breaker, &mut pass, 0, Some(1_000));
    let mut probe = go(&mut breaker, 1_000);
    assert_eq!(
        until(&mut breaker, 1_000),
        Some((2_000, true)),
        "one at a time"
    );
    breaker.taken(&mut probe, Timestamp(1_100));
    let mut both = [go(&mut breaker, 1_100), go(&mut breaker, 1_100)];
    assert!(until(&mut breaker, 1_100).is_some(), "two after the probe");
    for pass in &mut both {
        breaker.taken(pass, Timestamp(1_200));
    }
    for _ in 0..8 {
        go(&mut breaker, 1_200);
    }
    assert!(until(&mut breaker, 1_200).is_some());
    // After some time without refusals every request may be sent.
    for _ in 0..100 {
        go(&mut breaker, 1_100 + 30_000);
    }
    assert_eq!(breaker.seen(Timestamp(40_000)).condition, Condition::Ok);
}

#[test]
fn a_probe_that_is_refused_opens_it_for_longer() {
    let mut breaker = Breaker::default();
    let mut now = 0;
    let mut waits = Vec::new();
    for _ in 0..10 {
        let mut pass = go(&mut breaker, now);
        busy(&mut breaker, &mut pass, now, None);
        let (until, _) = until(&mut breaker, now).unwrap();
        waits.push(until - now);
        now = until;
    }
    assert_eq!(
        waits,
        [
            500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000
        ]
    );
    assert_eq!(
        breaker.seen(Timestamp(now)).since,
        Some(Timestamp(0)),
        "since the first"
    );
}

#[test]
fn requests_that_were_on_their_way_when_it_opened_are_counted_once() {
    let mut breaker = Breaker::default();
    let mut passes: Vec<BreakerPermit> = (0..10).map(|_| go(&mut breaker, 0)).collect();
    for pass in &mut passes {
        busy(&mut breaker, pass, 10, None);
    }
    assert_eq!(breaker.failures(), 1);
    assert_eq!(until(&mut breaker, 10), Some((510, true)));
    // A longer wait that one of them receives is kept.
    let mut breaker = Breaker::default();
    let mut passes: Vec<BreakerPermit> = (0..2).map(|_| go(&mut breaker, 0)).collect();
    busy(&mut breaker, &mut passes[0], 10, Some(1_000));
    busy(&mut breaker, &mut passes[1], 20, Some(9_000));
    assert_eq!(until(&mut breaker, 30), Some((9_020, true)));
}

#[test]
fn failures_in_a_row_open_it_for_a_short_while_and_an_answer_forgets_them() {
    let mut breaker = Breaker::default();
    for now in 0..4 {
        let mut pass = go(&mut breaker, now);
        breaker.failed(&mut pass, Timestamp(now), "cut", BASE);
    }
    let mut pass = go(&mut breaker, 4);
    breaker.answered(&mut pass, Timestamp(4));
    for now in 5..10 {
        let mut pass = go(&mut breaker, now);
        breaker.failed(&mut pass, Timestamp(now), "cut", BASE);
    }
    assert_eq!(until(&mut breaker, 9), Some((509, false)));
    assert_eq!(breaker.reason(), "cut");
    let mut probe = go(&mut breaker, 509);
    breaker.answered(&mut probe, Timestamp(600));
    assert_eq!(breaker.failures(), 0);
}

#[test]
fn a_probe_that_is_given_up_leaves_its_place_to_the_next() {
    let mut breaker = Breaker::default();
    let mut pass = go(&mut breaker, 0);
    busy(&mut breaker, &mut pass, 0, Some(1_000));
    let mut probe = go(&mut breaker, 1_000);
    breaker.given_up(&mut probe, Timestamp(1_001));
    go(&mut breaker, 1_001);
}

#[test]
fn a_clock_that_is_put_back_does_not_keep_it_open() {
    let mut breaker = Breaker::default();
    let mut pass = go(&mut breaker, 1_000_000);
    busy(&mut breaker, &mut pass, 1_000_000, Some(1_000));
    go(&mut breaker, 5);
}

proptest! {
    /// For any results of requests in any order: it never stays open for ever, and a recovering
    /// provider never has more requests in flight than allowed.
    #[test]
    fn it_always_lets_somebody_through_in_the_end(
        events in prop::collection::vec((0u8..6, 0u64..20_000, any::<prop::sample::Index>()), 0..80)
    ) {
        let mut breaker = Breaker::default();
        let mut now = 0_i64;
        let mut out: Vec<BreakerPermit> = Vec::new();
        for (event, ms, pick) in events {
            now += i64::try_from(ms).unwrap();
            let at = Timestamp(now);
            if event < 2 || out.is_empty() {
                if let BreakerDecision::Go(pass) = breaker.enter(at) {
                    out.push(pass);
                }
                continue;
            }
            let at_index = pick.index(out.len());
            let mut pass = out.swap_remove(at_index);
            match event {
                2 => { breaker.busy(&mut pass, at, "busy", BASE, (Some(ms), MOST)); }
                3 => { breaker.failed(&mut pass, at, "failed", BASE); }
                4 => { breaker.answered(&mut pass, at); }
                _ => breaker.given_up(&mut pass, at),
            }
        }
        for mut pass in out {
            breaker.given_up(&mut pass, Timestamp(now));
        }
        let late = Timestamp(now).plus_ms(MOST);
        prop_assert!(matches!(breaker.enter(late), BreakerDecision::Go(_)), "{breaker:?}");
    }
}
