//! The kill matrix: scenarios are killed at the points that they pass, and must come out as if
//! nothing had been killed.
//!
//! A first run of each scenario notes which points it passes and how often. The names come from
//! the command enum; one that no scenario passes fails the test. Then there are kills:
//!
//! - `cargo test` plays a covering part: each point once, in the scenario that is shortest by a
//!   fixed rule ([`covering`]).
//! - `ABIDE_KILLS=all` plays the whole matrix: each point of each life of each scenario, at the
//!   first, the last and a middle pass; `ABIDE_KILLS=3` plays every third of these kills.
//!   `ABIDE_KILL_SCENARIOS=spawn,steps` plays all of these scenarios.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

use abide::clock::Clock;
use abide::command::{EDGES, NAMES};

use crate::harness::{ArmedFailpoints, Caller, Place, run};
use crate::scenarios::{self, Scenario};
use crate::surface::EventPaths;

/// Commands that no scenario can reach yet, each with the reason. The list must be exact.
const OUT_OF_REACH: &[(&str, &str)] = &[];

/// Points of a kill besides the edges of commands.
const BETWEEN: &[&str] = &[
    "migrate.step",
    "drive.started",
    "drive.asking",
    "drive.pausing",
    "drive.prepared",
    "drive.performing",
    "acp.prompting",
    "acp.prompted",
    "acp.terminal",
    "keeper.ready",
    "keeper.handed",
    "drive.recording",
    "drive.recorded",
    "node.admitted",
    "node.token_issued",
    "node.call_sent",
    "node.call_ended",
    "webhook.answered",
    "store.salvaged",
    "store.switch.ordered",
    "store.switch.moved",
    "store.switch.placed",
];

/// How often a scenario is run at most until its kill comes.
const COURSES: usize = 20;

/// The number of scenarios that run at once.
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

impl Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            scenario,
            life,
            point,
            pass,
            ..
        } = self;
        write!(f, "{scenario}, life {life}, {point}@{pass}")
    }
}

/// How often each life of a scenario passes each point.
type Passes = Vec<BTreeMap<String, usize>>;

/// Takes about a minute on two cores: it starts and kills more than three hundred daemons.
#[test]
fn every_commit_edge_survives_a_kill() {
    let clock = Clock::system();
    let began = clock.monotonic();
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
    let mut passes: Vec<Passes> = Vec::new();
    let mut events = EventPaths::default();
    for (passed, seen) in at_once(&names, |name| play_traced(named(name))) {
        passes.push(passed);
        events.merge(seen);
    }
    if chosen.is_none() {
        assert_covered(&passes);
        events.check();
    }
    let share = match chosen {
        Some(_) => Share::WHOLE,
        None => share(),
    };
    let (killed, cases) = if let Share::OneOf(step) = share {
        let cases = cases(&names, &passes).into_iter().step_by(step.get());
        let cases: Vec<Case> = cases.collect();
        let killed = at_once(&cases, play_killed);
        let killed = killed.into_iter().filter(|killed| *killed).count();
        // Courses differ a little: a late pass may never come.
        assert!(
            killed * 100 >= cases.len() * 95,
            "{killed} of {} were killed",
            cases.len()
        );
        (killed, cases.len())
    } else {
        let points = covering(cases(&names, &passes), &names, &passes);
        let killed = at_once(&points, Point::play).len();
        (killed, points.len())
    };
    println!(
        "kill matrix, {share}: {killed} kills in {cases} courses of {} scenarios in {} s",
        names.len(),
        (clock.monotonic() - began).as_secs()
    );
}

/// A point with the cases that kill there, the shortest first.
struct Point {
    name: String,
    cases: Vec<Case>,
}

impl Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.cases[0])
    }
}

impl Point {
    /// Plays case after case until the kill comes: what only happens behind the answers may be
    /// late for it once.
    fn play(&self) {
        assert!(self.cases.iter().any(play_killed), "the kill never came");
    }
}

/// Each point once. The order of its cases does not depend on a measured time: certain ones
/// first, early lives first, then the scenario with the fewest lives, then the one that passes the fewest
/// different points, then the one that is listed first; of that the first pass.
fn covering(cases: Vec<Case>, names: &[&str], passes: &[Passes]) -> Vec<Point> {
    let length: BTreeMap<&str, (usize, usize)> = names
        .iter()
        .zip(passes)
        .map(|(name, lives)| (*name, (lives.len(), lives.iter().map(BTreeMap::len).sum())))
        .collect();
    let mut points: BTreeMap<String, Vec<Case>> = BTreeMap::new();
    for case in cases {
        points.entry(case.point.clone()).or_default().push(case);
    }
    let points = points.into_iter().map(|(name, mut cases)| {
        // The sort is stable: the order of the list decides at last.
        cases.sort_by_key(|case| (!case.certain, case.life, length[case.scenario], case.pass));
        Point { name, cases }
    });
    points.collect()
}

/// How much of the matrix is played.
#[derive(Clone, Copy)]
enum Share {
    /// Each point once.
    Covering,
    /// Every kill of the matrix whose position is a multiple of this.
    OneOf(NonZeroUsize),
}

impl Share {
    const WHOLE: Share = Share::OneOf(NonZeroUsize::MIN);
}

impl Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Covering => f.write_str("each point once"),
            Share::OneOf(NonZeroUsize::MIN) => f.write_str("the whole matrix"),
            Share::OneOf(step) => write!(f, "one kill of {step}"),
        }
    }
}

fn share() -> Share {
    match std::env::var("ABIDE_KILLS").as_deref() {
        Ok("all") => Share::WHOLE,
        Err(_) | Ok("") => Share::Covering,
        Ok(text) => match text.parse() {
            Ok(step) => Share::OneOf(step),
            Err(_) => panic!("ABIDE_KILLS={text}: neither \"all\" nor a number"),
        },
    }
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

/// A fresh folder for this scenario. Heartbeats come by the clock, so that a slow machine would pass
/// their points in scenarios that otherwise end before: only those that hasten them have any.
fn place(scenario: &Scenario) -> Place {
    (scenario.place)().with_default("recovery.touch_each", "\"1h\"")
}

/// Plays a scenario without a kill; how often each of its lives passed each point, and what its
/// events carried.
fn play_traced(scenario: &Scenario) -> (Passes, EventPaths) {
    run(async {
        let mut caller = Caller::begin(place(scenario), None, true).await;
        (scenario.play)(&mut caller).await;
        let events = EventPaths::of(&caller.finish().await);
        let passes = caller.passes();
        caller.finish().await;
        (passes, events)
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
    let arm = ArmedFailpoints::new(case.life, &format!("{}=kill@{}", case.point, case.pass));
    run(async {
        let mut caller = Caller::begin(place(scenario), Some(arm), false).await;
        (scenario.play)(&mut caller).await;
        caller.finish().await;
        caller.was_killed_as_ordered()
    })
}

/// Every edge of every command is passed by some scenario, but for those that none can reach.
fn assert_covered(passes: &[Passes]) {
    let passed: BTreeSet<&str> = passes
        .iter()
        .flatten()
        .flat_map(BTreeMap::keys)
        .map(String::as_str)
        .collect();
    for command in NAMES {
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
        assert!(NAMES.contains(command), "{command} is no command");
    }
    for point in BETWEEN {
        assert!(passed.contains(point), "no scenario passes {point}");
    }
}

/// First, last and a middle pass of every point of every life.
fn cases(names: &[&'static str], passes: &[Passes]) -> Vec<Case> {
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

/// Does `work` for each item on a few threads. Every item is tried; the failed ones end the test,
/// each with the first thing that went wrong in it.
fn at_once<I: Sync + Display, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    note_panics();
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, T)>> = Mutex::default();
    let failed: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    FIRST_PANIC.set(Some(String::new()));
                    match catch_unwind(AssertUnwindSafe(|| work(item))) {
                        Ok(out) => done.lock().unwrap().push((index, out)),
                        Err(panic) => {
                            let why = why(panic.as_ref());
                            failed.lock().unwrap().push(format!("{item}: {why}"));
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(
        failed.is_empty(),
        "{} of {} failed:\n{}",
        failed.len(),
        items.len(),
        failed.join("\n")
    );
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, out)| out).collect()
}

thread_local! {
    /// The first panic of the item that this thread works on; `None` on other threads.
    static FIRST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// So much of a panic's message is in the summary, characters.
const SHOWN: usize = 1000;

/// From now on the first panic of an item is kept, with its place, and shown as before.
fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            FIRST_PANIC.with_borrow_mut(|first| {
                if let Some(first) = first.as_mut().filter(|first| first.is_empty()) {
                    let place = panic.location().map(ToString::to_string);
                    let place = place.unwrap_or_default();
                    *first = format!("{place}: {}", text_of(panic.payload()));
                }
            });
            shown(panic);
        }));
    });
}

/// The first panic of the item, else the one that ended it.
fn why(last: &(dyn Any + Send)) -> String {
    let first = FIRST_PANIC.take().unwrap_or_default();
    let whole = if first.is_empty() {
        text_of(last)
    } else {
        first
    };
    match whole.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{} …", &whole[..cut]),
        None => whole,
    }
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

#[test]
fn a_failed_case_says_what_went_wrong_first() {
    let failed = catch_unwind(|| {
        at_once(&["fine", "bad"], |item| {
            if *item == "bad" {
                let _ = catch_unwind(|| panic!("the cause, {}", 7));
                panic!("what came of it");
            }
        });
    });
    let said = text_of(failed.unwrap_err().as_ref());
    assert!(
        said.starts_with("1 of 2 failed:\nbad: tests/it/kills.rs:"),
        "{said}"
    );
    assert!(said.ends_with(": the cause, 7"), "{said}");
}
