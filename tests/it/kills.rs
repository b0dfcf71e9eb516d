//! The kill matrix: every scenario is killed at every point that it passes, and must come out
//! as if nobody had died.
//!
//! A first run of each scenario notes which points it passes and how often. Then it is played
//! once for each of them with a kill there: at the first, the last and a middle pass. The names
//! come from the command enum; one that no scenario passes fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide::store::Command;
use abide::store::command::EDGES;

use crate::harness::{Arm, Caller, run};
use crate::scenarios::{self, Scenario};

/// Commands that no scenario can reach yet, each with the reason. The list must be exact.
const OUT_OF_REACH: &[(&str, &str)] = &[];

/// Points of a kill besides the edges of commands.
const BETWEEN: &[&str] = &[
    "migrate.step",
    "drive.started",
    "drive.asking",
    "drive.pausing",
    "drive.performing",
    "drive.recording",
    "store.salvaged",
    "store.switch.ordered",
    "store.switch.moved",
    "store.switch.placed",
];

/// So many times at most a course is played until its kill comes.
const COURSES: usize = 20;

/// So many scenarios are played at once.
const AT_ONCE: usize = 6;

/// One kill.
#[derive(Clone, Debug)]
struct Case {
    scenario: &'static str,
    life: usize,
    point: String,
    pass: usize,
    /// The first pass comes in every course of events; later ones may be fewer.
    certain: bool,
}

#[test]
fn every_scenario_survives_a_kill_at_every_commit_edge() {
    let chosen = chosen();
    let names: Vec<&str> = scenarios::all()
        .iter()
        .map(|scenario| scenario.name)
        .filter(|name| {
            chosen
                .as_ref()
                .is_none_or(|chosen| chosen.iter().any(|one| one == name))
        })
        .collect();
    assert!(!names.is_empty(), "no scenario is called {chosen:?}");
    let passes = at_once(&names, |name| play_traced(named(name)));
    if chosen.is_none() {
        assert_covered(&passes);
    }
    let cases = cases(&names, &passes);
    let killed = at_once(&cases, play_killed);
    let killed = killed.into_iter().filter(|killed| *killed).count();
    println!(
        "{killed} kills in {} courses of {} scenarios",
        cases.len(),
        names.len()
    );
    // Courses differ a little: a late pass may never come.
    assert!(
        killed * 100 >= cases.len() * 95,
        "{killed} of {} were killed",
        cases.len()
    );
}

/// The scenarios named in `ABIDE_KILL_SCENARIOS` (`spawn,steps`), for a first look while one
/// works on them; all if it is not set.
fn chosen() -> Option<Vec<String>> {
    let names = std::env::var("ABIDE_KILL_SCENARIOS").ok()?;
    Some(
        names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect(),
    )
}

fn named(name: &str) -> &'static Scenario {
    scenarios::all()
        .into_iter()
        .find(|scenario| scenario.name == name)
        .unwrap()
}

/// Plays a scenario without a kill; how often each of its lives passed each point.
fn play_traced(scenario: &Scenario) -> Vec<BTreeMap<String, usize>> {
    run(async {
        let mut caller = Caller::begin((scenario.place)(), None, true).await;
        (scenario.play)(&mut caller).await;
        caller.finish().await;
        let passes = caller.passes();
        caller.finish().await;
        passes
    })
}

/// Plays a scenario with a kill; whether it came.
fn play_killed(case: &Case) -> bool {
    // The daemon does some things behind its answers, and a course may be over before them:
    // such a course shows nothing, and is played again.
    let courses = if case.certain { COURSES } else { 1 };
    let came = (0..courses).any(|_| play_course(case));
    assert!(came || !case.certain, "the kill never came");
    came
}

fn play_course(case: &Case) -> bool {
    let scenario = named(case.scenario);
    let arm = Arm::new(case.life, &format!("{}=kill@{}", case.point, case.pass));
    run(async {
        let mut caller = Caller::begin((scenario.place)(), Some(arm), false).await;
        (scenario.play)(&mut caller).await;
        caller.finish().await;
        caller.was_killed_as_ordered()
    })
}

/// Every edge of every command is passed by some scenario, but for those that none can reach.
fn assert_covered(passes: &[Vec<BTreeMap<String, usize>>]) {
    let passed: BTreeSet<&str> = passes
        .iter()
        .flatten()
        .flat_map(BTreeMap::keys)
        .map(String::as_str)
        .collect();
    for command in Command::NAMES {
        let excused = OUT_OF_REACH.iter().find(|(name, _)| name == command);
        for edge in EDGES {
            let name = format!("store.{command}.{edge}");
            match (passed.contains(name.as_str()), excused) {
                (true, None) | (false, Some(_)) => {}
                (false, None) => panic!("no scenario passes {name}: write one"),
                (true, Some((_, why))) => {
                    panic!("{name} is passed, so it is no exception any more ({why})")
                }
            }
        }
    }
    for (command, _) in OUT_OF_REACH {
        assert!(Command::NAMES.contains(command), "{command} is no command");
    }
    for point in BETWEEN {
        assert!(passed.contains(point), "no scenario passes {point}");
    }
}

/// First, last and a middle pass of every point of every life.
fn cases(names: &[&'static str], passes: &[Vec<BTreeMap<String, usize>>]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (scenario, lives) in names.iter().copied().zip(passes) {
        for (life, points) in lives.iter().enumerate() {
            for (point, times) in points.iter().filter(|(point, _)| is_kill_point(point)) {
                let mut at = vec![1, *times];
                if *times > 3 {
                    at.push(times.div_ceil(2));
                }
                at.sort_unstable();
                at.dedup();
                cases.extend(at.into_iter().map(|pass| Case {
                    scenario,
                    life,
                    point: point.clone(),
                    pass,
                    certain: pass == 1 && life == 0,
                }));
            }
        }
    }
    cases
}

fn is_kill_point(point: &str) -> bool {
    BETWEEN.contains(&point)
        || EDGES
            .iter()
            .any(|edge| point.ends_with(&format!(".{edge}")))
}

/// Does `work` for each item on a few threads; every failure is told before the test fails.
fn at_once<I: Sync + Debug, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::default();
    let failed: Mutex<Vec<&I>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    match catch_unwind(AssertUnwindSafe(|| work(item))) {
                        Ok(out) => done.lock().unwrap().push((index, out)),
                        // What went wrong was said where it did.
                        Err(_) => failed.lock().unwrap().push(item),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} of {} failed: {failed:#?}",
        failed.len(),
        items.len()
    );
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, out)| out).collect()
}
