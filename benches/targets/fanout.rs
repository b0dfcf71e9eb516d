//! Measures event fan-out to many subscribers. Each has its own connection, one thread here reads
//! all of them, and spawns are accepted at a steady rate.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use abide::clock::Clock;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt, StreamExt, TryStreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::Result;
use crate::client::{ServerAddress, Socket, connect_all};
use crate::machine::Watch;
use crate::sample::Sample;

/// Number of events of one spawn while no lane is open.
const EVENTS_EACH: u64 = 3;
/// Number of connections that send spawns. A daemon that stalls for a moment then does not reach
/// the limit of 64 calls in flight on one connection.
const SPAWNERS: usize = 8;
/// Interval between batches of spawns.
const TICK: Duration = Duration::from_millis(10);
/// An event that has not arrived this long after the last spawn counts as lost.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The measured result.
pub struct FanOut {
    /// Latency from the call that caused an event to its arrival, over all subscribers.
    pub arrival: Sample,
    /// Processor time of the daemon as percent of one core, including the spawns.
    pub core: Option<f64>,
}

/// State that spawners and subscribers share.
struct Shared {
    spawns: u64,
    ready: Cell<usize>,
    /// When each run was requested, by run id.
    asked: RefCell<HashMap<String, Instant>>,
}

/// Lets `subscribers` follow the event log while about `rate` events occur per second.
pub fn measure(
    door: ServerAddress<'_>,
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
        let followers = connect_all(door, subscribers).await?;
        let spawners = connect_all(door, SPAWNERS).await?;
        let following: FuturesUnordered<_> = followers
            .into_iter()
            .map(|socket| follow(socket, &shared, lasts + TIMEOUT))
            .collect();
        let spawning = async {
            while shared.ready.get() < subscribers {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (watch, begun) = (Watch::start(pid), Instant::now());
            let asking = (0..).zip(spawners);
            try_join_all(asking.map(|(at, socket)| spawn(socket, &shared, at, lasts))).await?;
            // Events in flight still cost processor time, though less than one tick.
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

/// Reads every event of every spawn and returns the latency of each. A missing event is an error.
async fn follow(mut socket: Socket, shared: &Shared, patience: Duration) -> Result<Vec<Duration>> {
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

/// One spawner: sends spawns at a steady rate and waits for every answer.
async fn spawn(socket: Socket, shared: &Shared, at: u64, lasts: Duration) -> Result<()> {
    let (mut send, mut receive) = socket.split();
    let clock = Clock::system();
    let spawns = (shared.spawns + at) / SPAWNERS as u64;
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
