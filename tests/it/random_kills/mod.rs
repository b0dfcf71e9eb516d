//! Kills at random instants under a busy, mixed workload. The test does not control where the kills
//! happen; the checker must pass after each of them and at the end.

mod soak;
mod workload;

use std::time::Duration;

use self::workload::{RandomGenerator, Workload, place};
use crate::harness::{Caller, RandomKills, run};

/// Number of daemons that are killed repeatedly in parallel, each in its own folder.
const PACKS: u64 = 4;
/// Number of kills of each daemon.
const KILLS: usize = 27;
/// The shortest life of a daemon, and so much more at most.
const LIFE_MS: (u64, u64) = (60, 450);
/// Number of tasks in the script. A client that needs more indicates a defect.
const TASKS: usize = 1000;

/// `ABIDE_TEST_SEED`, or a different seed each time.
fn seed() -> u64 {
    if let Ok(seed) = std::env::var("ABIDE_TEST_SEED") {
        return seed.parse().unwrap();
    }
    getrandom::u64().unwrap() % 1_000_000
}

/// Takes some 15 s: four daemons in parallel, 27 kills each, every one during work.
#[test]
fn more_than_a_hundred_kills_at_random_instants_lose_and_double_nothing() {
    let seed = seed();
    println!("ABIDE_TEST_SEED={seed}");
    let hits: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let packs: Vec<_> = (0..PACKS)
            .map(|pack| scope.spawn(move || run(hunt(seed + pack, KILLS, LIFE_MS))))
            .collect();
        packs.into_iter().map(|pack| pack.join().unwrap()).collect()
    });
    let kills: usize = hits.iter().map(|(kills, _)| kills).sum();
    let middle: usize = hits.iter().map(|(_, middle)| middle).sum();
    println!("{kills} kills, {middle} of them in the middle of a step");
    assert!(kills >= 100, "{kills}");
    assert!(
        middle * 2 > kills,
        "only {middle} of {kills} hit a run in the middle of a step"
    );
}

/// One client and its daemon, which is killed `left` times; returns the number of kills, and of those that found a run in the
/// middle of a step.
async fn hunt(seed: u64, left: usize, life_ms: (u64, u64)) -> (usize, usize) {
    let mut dice = RandomGenerator(seed);
    let place = place(&mut dice, TASKS);
    let mut caller = Caller::begin(place, None, false).await;
    let mut client = Workload::prepare(&mut caller, TASKS).await;
    let mut lives = RandomGenerator(seed ^ 0xabcd);
    caller.kill_randomly(RandomKills {
        left,
        next: Box::new(move || Duration::from_millis(life_ms.0 + lives.roll(life_ms.1))),
    });
    caller.kill_once().await;
    while caller.has_kills_left() {
        client.go_on(&mut caller, &mut dice).await;
    }
    client.end(&mut caller).await;
    caller.finish().await;
    let kills = &caller.history.kills;
    let middle = kills.iter().filter(|kill| !kill.held.is_empty()).count();
    (kills.len(), middle)
}
