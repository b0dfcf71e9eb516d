//! Debouncing of changes with the default configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide::client::EventSubscription;
use abide::clock::Clock;
use serde_json::json;

use super::{bumps, replace, until_bumped, version};
use crate::events::next;
use crate::harness::peers::announce;
use crate::harness::{Daemon, Link, Place, Script, TEST_TIMEOUT, run};
use crate::skills::put;

/// Quiet period before changes are scanned.
const QUIET: Duration = Duration::from_millis(250);
/// Pause between two writes, shorter than the quiet period.
const PAUSE: Duration = Duration::from_millis(40);
/// Attempts to get a writer and a daemon that the machine does not delay.
const TRIES: usize = 8;
/// Maximum delay of the scan if changes never pause.
const LONGEST: Duration = Duration::from_secs(2);
/// Skills of a burst that ends before that delay.
const BURST: usize = 30;

/// A place whose configuration does not mention watching.
fn place() -> Place {
    let place = Place::new(Script::new());
    put(&place.work(), "skills/one", "Does it.", "Do it.");
    place
}

/// A daemon that has reported a first change as version 2, which proves that it watches; its link
/// and its further events.
async fn ready(place: &Place) -> (Daemon, Link, EventSubscription) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    assert_eq!(version(&client, &place.work()).await, 1);
    let only = json!({ "since": 0, "kinds": ["skills.changed"] });
    let mut events = client.subscribe(only).await;
    replace(&place.work().join("skills/one"), "It is watched.");
    assert_eq!(next(&mut events).await.data["version"], 2);
    (daemon, client, events)
}

/// Calls `write` repeatedly, with pauses below the quiet period, until it returns true or the
/// deadline passes. Returns the longest interval between two calls, and whether `write` returned
/// true.
fn write_on(mut write: impl FnMut(usize) -> bool) -> (Duration, bool) {
    let clock = Clock::system();
    let (mut longest, mut before) = (Duration::ZERO, clock.monotonic());
    for number in 0.. {
        if clock.monotonic() > TEST_TIMEOUT {
            break;
        }
        if write(number) {
            return (longest, true);
        }
        let now = clock.monotonic();
        (longest, before) = (longest.max(now - before), now);
        std::thread::sleep(PAUSE);
    }
    (longest, false)
}

/// The new version comes while the writer still writes, which continues until then.
#[test]
fn g6_13_whoever_never_stops_writing_holds_no_bump_back_without_any_configuration() {
    for _ in 0..TRIES {
        let place = place();
        let (longest, is_told) = run(async {
            let (daemon, _client, mut events) = ready(&place).await;
            let told = Arc::new(AtomicBool::new(false));
            let (skill, stop) = (place.work().join("skills/one"), Arc::clone(&told));
            let writer = std::thread::spawn(move || {
                write_on(|number| {
                    replace(&skill, &format!("Text {number}."));
                    stop.load(Ordering::SeqCst)
                })
            });
            let event = next(&mut events).await;
            told.store(true, Ordering::SeqCst);
            assert_eq!(event.data["version"], 3, "{event:?}");
            assert_eq!(event.data["reason"], "watch", "{event:?}");
            let written = writer.join().unwrap();
            assert_eq!(daemon.stop().await, 0);
            written
        });
        assert!(is_told, "nothing was told while he wrote");
        // A busy machine causes a longer pause, in which the daemon scans.
        if longest < QUIET {
            return;
        }
    }
    announce("skipped: this machine lets nobody write without a pause");
}

/// Skills that are written one after another, each within the quiet period.
#[test]
fn g6_13_a_burst_that_takes_its_time_brings_one_bump_or_two_without_any_configuration() {
    let mut too_many = Vec::new();
    for _ in 0..TRIES {
        let place = place();
        let work = place.work();
        let (is_burst, told) = run(async {
            let (daemon, ..) = ready(&place).await;
            let clock = Clock::system();
            let (longest, _) = write_on(|number| {
                put(&work, &format!("skills/s{number}"), "Burst.", "x");
                number + 1 == BURST
            });
            let is_short = clock.monotonic() < LONGEST;
            // The bundled skills and the first one are counted too.
            until_bumped(&place, &work, 2, 4 + 1 + BURST as u64).await;
            assert_eq!(daemon.stop().await, 0);
            (
                longest < QUIET && is_short,
                bumps(&place, &work).split_off(1),
            )
        });
        match (is_burst, told.len()) {
            (true, 1 | 2) => return,
            (true, _) => too_many.push(told),
            // The machine caused a pause, or the burst lasted too long.
            (false, _) => {}
        }
    }
    assert!(too_many.is_empty(), "{too_many:?}");
    announce("skipped: this machine lets nobody write without a pause");
}
