//! A soak: one store for as long as `ABIDE_SOAK` says, with kills, orderly restarts, edits of skills
//! and clients that come and go. Then the invariant checker, and a daemon whose memory and open
//! files have not grown. `packaging/soak 30m` runs it.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use abide::clock::Clock;

use super::workload::{RandomGenerator, Workload, place};
use super::{hunt, seed};
use crate::harness::{Caller, Place, RandomKills, run};
use crate::skills::put;

/// Without `ABIDE_SOAK`.
const USUAL: Duration = Duration::from_mins(10);
/// The daemon is killed after 2 to 12 s of life.
const LIFE_MS: (u64, u64) = (2_000, 10_000);
/// The lives in a loop of restarts; some daemons are killed before they are ready.
const RESTART_MS: (u64, u64) = (40, 160);
/// Kills after which the daemon is also stopped and started in order.
const KILLS_PER_RESTART: usize = 3;
/// Tasks that the script has for each second: more than two processors execute.
const TASKS_PER_SECOND: u64 = 40;
/// Growth that is no leak: transcripts are cached up to 24 MiB, the store's pages beside them.
const GROWTH_BYTES: f64 = 48e6;
/// As many connections may be open at one sample and not at another.
const GROWTH_FILES: f64 = 12.0;

/// Skipped unless asked for, because it takes as long as it is told to.
#[test]
#[ignore = "takes minutes: packaging/soak runs it"]
fn a_store_lives_through_kills_restarts_edits_and_clients() {
    let length = match std::env::var("ABIDE_SOAK") {
        Ok(text) => humantime::parse_duration(&text).unwrap(),
        Err(_) => USUAL,
    };
    let seed = seed();
    println!(
        "ABIDE_TEST_SEED={seed}, for {}",
        humantime::format_duration(length)
    );
    let mut dice = RandomGenerator(seed);
    let tasks = usize::try_from(length.as_secs() * TASKS_PER_SECOND)
        .unwrap()
        .max(200);
    let place = place(&mut dice, tasks);
    let around = Around::of(&place);
    let report = std::thread::scope(|scope| {
        scope.spawn(|| around.edit_skills());
        scope.spawn(|| around.come_and_go());
        let soaked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(soak(place, &mut dice, tasks, length))
        }));
        around.over.store(true, Ordering::Release);
        soaked.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let edits = around.edits.load(Ordering::Relaxed);
    let visits = around.visits.load(Ordering::Relaxed);
    println!(
        "soak: {} runs, {} kills, {} orderly restarts, {edits} edits of skills, {visits} visits of clients",
        report.runs, report.kills, report.restarts
    );
    let [first, .., last] = &report.samples[..] else {
        panic!("too few samples: {:?}", report.samples);
    };
    println!("soak: memory and files of one daemon: {:?}", report.samples);
    assert!(
        last.memory < first.memory + GROWTH_BYTES,
        "memory grows: {:?}",
        report.samples
    );
    assert!(
        last.files < first.files + GROWTH_FILES,
        "open files grow: {:?}",
        report.samples
    );
    assert!(report.kills > 0 && edits > 0 && visits > 0);
}

/// Skipped unless asked for: takes a minute or two.
#[test]
#[ignore = "takes minutes: packaging/soak runs it"]
fn two_hundred_restarts_in_a_loop_lose_and_double_nothing() {
    let seed = seed();
    println!("ABIDE_TEST_SEED={seed}");
    let (kills, middle) = run(hunt(seed, 200, RESTART_MS));
    println!("soak: {kills} restarts in a loop, {middle} of them in the middle of a step");
    assert_eq!(kills, 201);
}

/// What a soak did.
struct SoakReport {
    runs: usize,
    kills: usize,
    restarts: usize,
    samples: Vec<UsageSample>,
}

/// Memory in bytes and open files of the daemon.
#[derive(Debug)]
struct UsageSample {
    memory: f64,
    files: f64,
}

/// Three quarters of the time with kills, then one daemon that is looked at.
async fn soak(
    place: Place,
    dice: &mut RandomGenerator,
    tasks: usize,
    length: Duration,
) -> SoakReport {
    let clock = Clock::system();
    let began = clock.monotonic();
    let mut caller = Caller::begin(place, None, false).await;
    let mut client = Workload::prepare(&mut caller, tasks).await;
    let mut lives = RandomGenerator(dice.roll(u64::MAX));
    caller.kill_randomly(RandomKills {
        left: usize::MAX,
        next: Box::new(move || Duration::from_millis(LIFE_MS.0 + lives.roll(LIFE_MS.1))),
    });
    caller.kill_once().await;
    let mut restarts = 0;
    while clock.monotonic() - began < length * 3 / 4 && client.given() < tasks * 3 / 4 {
        client.go_on(&mut caller, dice).await;
        if caller.history.kills.len() / KILLS_PER_RESTART > restarts {
            restarts += 1;
            caller.restart_after(|_| ()).await;
        }
    }
    caller.stop_killing();
    caller.restart_after(|_| ()).await;
    let mut samples = Vec::new();
    let quarter = clock.monotonic();
    while clock.monotonic() - began < length && client.given() < tasks {
        client.go_on(&mut caller, dice).await;
        // The first tenth fills the caches.
        let due = (length / 4).mul_f64(0.1 + 0.2 * samples.len() as f64);
        if clock.monotonic() - quarter > due {
            samples.push(sample(&caller));
        }
    }
    client.end(&mut caller).await;
    samples.push(sample(&caller));
    caller.finish().await;
    SoakReport {
        runs: client.given(),
        kills: caller.history.kills.len(),
        restarts,
        samples,
    }
}

fn sample(caller: &Caller) -> UsageSample {
    let series = caller.metrics();
    let number = |name: &str| crate::metrics::number(&series, name);
    UsageSample {
        memory: number("process_resident_memory_bytes"),
        files: number("process_open_fds"),
    }
}

/// What happens around the daemon, from other threads.
struct Around {
    skills: PathBuf,
    state: PathBuf,
    home: PathBuf,
    over: AtomicBool,
    edits: AtomicUsize,
    visits: AtomicUsize,
}

impl Around {
    fn of(place: &Place) -> Around {
        Around {
            skills: place.work(),
            state: place.state(),
            home: place.path().to_owned(),
            over: AtomicBool::new(false),
            edits: AtomicUsize::new(0),
            visits: AtomicUsize::new(0),
        }
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Acquire)
    }

    /// Writes, changes and removes skills of the workspace.
    fn edit_skills(&self) {
        while self.goes_on() {
            let edit = self.edits.fetch_add(1, Ordering::Relaxed);
            let name = format!("skills/soak-{}", edit % 5);
            if edit % 7 == 6 {
                // It may have been removed already.
                let _ = fs::remove_dir_all(self.skills.join(&name));
            } else {
                put(
                    &self.skills,
                    &name,
                    "Soaked.",
                    &format!("text number {edit}"),
                );
            }
            std::thread::sleep(Duration::from_millis(400));
        }
    }

    /// Clients that follow events and vanish without a word, and others that ask once.
    fn come_and_go(&self) {
        while self.goes_on() {
            let visit = self.visits.fetch_add(1, Ordering::Relaxed);
            let arguments = match visit % 3 {
                0 => &["events", "--json"][..],
                1 => &["ps", "--json"],
                _ => &["skills", "--json"],
            };
            let client = std::process::Command::new(env!("CARGO_BIN_EXE_abide"))
                .args(arguments)
                .env_clear()
                .env("HOME", &self.home)
                .env("ABIDE_STATE_DIR", &self.state)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut client = client.unwrap();
            std::thread::sleep(Duration::from_millis(500));
            // It may have ended by itself.
            let _ = client.kill();
            client.wait().unwrap();
        }
    }
}
