//! The toolkit for tests of a whole daemon: a separate folder, a script for its model, the real
//! binary in a process that can be killed, and a client over a real socket.
//!
//! ```ignore
//! let place = Place::new(Script::new().on("[a]", [says("done")]));
//! let daemon = place.start().await;
//! let client = daemon.client().await;
//! let run = client.spawn(json!({"task": "[a] do it", "agent": "explore"})).await;
//! assert_eq!(client.ended(&run.id).await["result"], "done");
//! assert_eq!(daemon.stop().await, 0);
//! ```

mod book;
mod by_hook;
mod by_mcp;
mod by_openai;
mod caller;
mod client;
mod daemon;
mod daemon_restarts;
mod damage;
mod fake_node;
mod model_server;
pub(crate) mod peers;
mod place;
mod rows;
mod script;
mod terminal;

pub(crate) use book::{Event, Message, OutboxRow, Run, Step, StoreRows};
pub(crate) use caller::{ArmedFailpoints, Caller, History, RandomKills};
pub(crate) use client::{Link, Spawned, kind_of};
pub(crate) use daemon::Daemon;
pub(crate) use damage::damaged;
pub(crate) use fake_node::{Cut, FakeLink, HonestNode, NodeKey, offer, result};
pub(crate) use model_server::{ModelServer, Reply, Request, chat, messages};
pub(crate) use place::{Faults, Place};
pub(crate) use script::{Answer, Script, calls, fails, panics, says};
pub(crate) use terminal::{CTRL_D, Terminal};

use std::future::Future;
use std::time::Duration;

use abide::clock::Clock;

/// Deadline of every wait. A test reaches it only if something hangs.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(240);

/// Polls `look` until it returns a value.
pub(crate) async fn eventually<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let clock = Clock::system();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(
            clock.monotonic() < TEST_TIMEOUT,
            "{what}: not within {TEST_TIMEOUT:?}"
        );
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Runs an asynchronous test on this thread; a test that hangs eventually fails.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async { tokio::time::timeout(5 * TEST_TIMEOUT, test).await })
        .expect("the test hangs")
}
