//! How events reach many subscribers: each on a connection of its own, all of them read by
//! one thread here, while work is accepted at a steady pace.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use abide::clock::Clock;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::Result;
use crate::client::{Door, connect};
use crate::machine::Watch;
use crate::sample::Sample;

/// So many events has each spawn while no lane is open.
const EVENTS_EACH: u64 = 3;
/// Spawns go over so many connections: a daemon that is held up for a moment then has not the
/// 64 calls of one of them in flight.
const SPAWNERS: u64 = 8;
/// How often spawns are sent.
const TICK: Duration = Duration::from_millis(10);
/// What has not come so long after the last spawn was lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// What was seen.
pub struct FanOut {
    /// From the call that made an event to its arrival, over all subscribers.
    pub arrival: Sample,
    /// Processor time of the daemon, percent of one core, spawns included.
    pub core: Option<f64>,
}

/// What spawner and subscribers share.
struct Shared {
    spawns: u64,
    ready: Cell<usize>,
    /// When each run was asked for.
    asked: RefCell<HashMap<String, Instant>>,
}

/// Lets `subscribers` follow the log while about `rate` events come each second.
pub fn measure(
    door: Door<'_>,
    pid: u32,
    subscribers: usize,
    rate: u64,
    lasts: Duration,
) -> Result<FanOut> {
    let spawns = rate * u64::try_from(lasts.as_millis())? / 1000 / EVENTS_EACH;
    let shared = Shared {
        spawns: spawns.max(1),
        ready: Cell::new(0),
        asked: RefCell::default(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let following: FuturesUnordered<_> = (0..subscribers)
            .map(|_| follow(door, &shared, lasts + PATIENCE))
            .collect();
        let spawning = async {
            while shared.ready.get() < subscribers {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (watch, begun) = (Watch::start(pid), Instant::now());
            try_join_all((0..SPAWNERS).map(|at| spawn(door, &shared, at, lasts))).await?;
            // What is on its way still costs something, though less than a tick shows.
            let (seen, took) = (watch.stop(), begun.elapsed());
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((seen, took))
        };
        let (parts, (seen, took)) =
            futures_util::try_join!(following.try_collect::<Vec<_>>(), spawning)?;
        let arrival = Sample::of(parts.concat(), took);
        let core = seen.map(|seen| seen.server.as_secs_f64() / took.as_secs_f64() * 100.0);
        Ok(FanOut { arrival, core })
    })
}

/// Reads every event of every spawn; how long each took. One that is missing is an error.
async fn follow(door: Door<'_>, shared: &Shared, patience: Duration) -> Result<Vec<Duration>> {
    let mut socket = connect(door).await?;
    let subscribe = r#"{"jsonrpc":"2.0","id":1,"method":"events.subscribe"}"#;
    socket.send(Message::text(subscribe)).await?;
    let mut times = Vec::new();
    let mut left = shared.spawns * EVENTS_EACH;
    while left > 0 {
        let next = tokio::time::timeout(patience, socket.next());
        let message = next.await.map_err(|_| format!("{left} events were lost"))?;
        let Message::Text(text) = message.ok_or("the server closed a subscription")?? else {
            continue;
        };
        if text.contains(r#""kind":"snapshot""#) {
            shared.ready.set(shared.ready.get() + 1);
        } else if text.contains(r#""kind":"lagged""#) {
            return Err(format!("a subscriber was too slow, {left} events before the end").into());
        } else if text.contains(r#""method":"events.event""#) {
            left -= 1;
            let run = text
                .split_once(r#""runId":""#)
                .and_then(|(_, rest)| rest.get(..36));
            let asked = shared.asked.borrow();
            if let Some(asked) = run.and_then(|run| asked.get(run)) {
                times.push(asked.elapsed());
            }
        }
    }
    Ok(times)
}

/// One spawner's part: spawns at a steady pace, and waits for every answer.
async fn spawn(door: Door<'_>, shared: &Shared, at: u64, lasts: Duration) -> Result<()> {
    let (mut send, mut receive) = connect(door).await?.split();
    let clock = Clock::system();
    let spawns = (shared.spawns + at) / SPAWNERS;
    let asking = async {
        let begun = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        let mut sent = 0;
        while sent < spawns {
            ticks.tick().await;
            let share = (begun.elapsed().as_secs_f64() / lasts.as_secs_f64()).min(1.0);
            let due = (spawns as f64 * share).ceil() as u64;
            while sent < due {
                let run = clock.new_id().to_string();
                let ask = format!(
                    r#"{{"jsonrpc":"2.0","id":{sent},"method":"sessions.spawn","params":{{"task":"look","runId":"{run}"}}}}"#
                );
                shared.asked.borrow_mut().insert(run, Instant::now());
                send.feed(Message::text(ask)).await?;
                sent += 1;
            }
            send.flush().await?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    };
    let answered = async {
        let mut left = spawns;
        while left > 0 {
            let message = receive
                .next()
                .await
                .ok_or("the server closed a connection")??;
            if let Message::Text(text) = message {
                if text.contains(r#""error""#) {
                    return Err(text.to_string().into());
                }
                left -= 1;
            }
        }
        Ok(())
    };
    futures_util::try_join!(asking, answered).map(|_| ())
}
