//! How long changes are waited for, as it is without any configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide::client::Events;
use abide::clock::Clock;
use serde_json::json;

use super::{bumps, replace, until_bumped, version};
use crate::events::next;
use crate::harness::{Daemon, Link, PATIENCE, Place, Script, run};
use crate::providers::outside::announce;
use crate::skills::put;

/// So long it must be quiet before changes are looked at.
const QUIET: Duration = Duration::from_millis(250);
/// The pause of a writer, who is never quiet for so long.
const PAUSE: Duration = Duration::from_millis(40);
/// So many times it is tried to have a writer and a daemon whom the machine does not hold up.
const TRIES: usize = 8;
/// Changes that never pause are looked at after so long.
const LONGEST: Duration = Duration::from_secs(2);
/// Skills of a burst, which is over before that.
const BURST: usize = 30;

/// A place without a word about watching in its configuration.
fn place() -> Place {
    let place = Place::new(Script::new());
    put(&place.work(), "skills/one", "Does it.", "Do it.");
    place
}

/// Its daemon, which watches: it has told of a change, as version 2. And what it tells from now on,
/// for as long as there is the link.
async fn ready(place: &Place) -> (Daemon, Link, Events) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    assert_eq!(version(&client, &place.work()).await, 1);
    let only = json!({ "since": 0, "kinds": ["skills.changed"] });
    let mut events = client.subscribe(only).await;
    replace(&place.work().join("skills/one"), "It is watched.");
    assert_eq!(next(&mut events).await.data["version"], 2);
    (daemon, client, events)
}

/// Does `write` again and again, with no pause that would count, until it says that it is enough
/// or for ever so long; the longest time between two of them, and whether it was enough.
fn write_on(mut write: impl FnMut(usize) -> bool) -> (Duration, bool) {
    let clock = Clock::system();
    let (mut longest, mut before) = (Duration::ZERO, clock.monotonic());
    for number in 0.. {
        if clock.monotonic() > PATIENCE {
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

/// The bump comes while the writer still writes: he goes on until it has come.
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
        // A machine that is busy elsewhere makes a pause of its own, in which the daemon looks.
        if longest < QUIET {
            return;
        }
    }
    announce("skipped: this machine lets nobody write without a pause");
}

/// Skills that come one after another, each before it was quiet.
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
            // Those that came with the program, and the first.
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
            // The machine made a pause of its own, or let the burst last too long.
            (false, _) => {}
        }
    }
    assert!(too_many.is_empty(), "{too_many:?}");
    announce("skipped: this machine lets nobody write without a pause");
}
