//! `abide node run`: keeps a link open for each gateway until the process is asked to stop.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::calls::NodeCalls;
use super::error::NodeError;
use super::folder::GatewayFolder;
use super::link::{LinkEnding, serve};
use super::manager::ServiceManager;
use super::question::AskOperator;
use crate::clock::Clock;
use crate::process::{ProcessOptions, Processes};
use crate::wire::node_link::HEARTBEAT;

/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(1000);
/// Maximum number of bytes that a program may write; it is ended above that.
const MAX_OUTPUT: u64 = 64 * 1024 * 1024;
/// First and maximum delay before a lost link is made again.
const FIRST_DELAY: Duration = Duration::from_millis(250);
const LONGEST_DELAY: Duration = Duration::from_secs(15);

/// What `abide node run` needs.
pub struct NodeService {
    /// The gateways to serve.
    pub folders: Vec<GatewayFolder>,
    /// Asks the person at the terminal; `None` without one.
    pub operator: Option<Arc<dyn AskOperator>>,
    /// Cancelled when the node shall stop.
    pub stopping: CancellationToken,
}

/// Delays between attempts to connect: growing, jittered (so at most 30 s), and without an end.
pub(super) fn reconnect_delays() -> impl BackoffBuilder + Clone {
    ExponentialBuilder::default()
        .with_min_delay(FIRST_DELAY)
        .with_max_delay(LONGEST_DELAY)
        .with_jitter()
        .without_max_times()
}

impl NodeService {
    /// Serves the gateways until the node stops. If every gateway has refused it, the first refusal
    /// is returned. Call it within a runtime.
    pub async fn run(self) -> Result<(), NodeError> {
        Processes::adopt_orphans();
        let clock = Clock::system();
        let manager = ServiceManager::from_env();
        let status = Arc::new(Status {
            manager,
            links: Mutex::default(),
        });
        let mut links = JoinSet::new();
        let mut locks = Vec::new();
        for folder in self.folders {
            locks.push(folder.lock().await?);
            let options = process_options(folder.path());
            let processes = Processes::new(options, clock.clone());
            if locks.len() == 1 {
                let reaper = processes.clone();
                tokio::spawn(async move { reaper.reap_orphans().await });
            }
            let operator = self.operator.clone();
            let calls = NodeCalls::open(folder.clone(), processes, operator, clock.clone()).await?;
            let link = GatewayLink {
                folder,
                calls,
                clock: clock.clone(),
                status: Arc::clone(&status),
                stopping: self.stopping.clone(),
            };
            links.spawn(link.keep_open());
        }
        manager.ready();
        let _watchdog = manager.start_watchdog();
        let mut refusal = None;
        while let Some(ended) = links.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(why)) => refusal = refusal.or(Some(why)),
                Err(fault) => {
                    tracing::error!(%fault, "the link of a gateway has panicked");
                    self.stopping.cancel();
                    refusal = refusal.or(Some(NodeError::Local(fault.to_string())));
                }
            }
            if self.stopping.is_cancelled() {
                manager.stopping();
            }
        }
        drop(locks);
        refusal.map_or(Ok(()), Err)
    }
}

fn process_options(folder: &Path) -> ProcessOptions {
    ProcessOptions {
        state: folder.to_owned(),
        socket: None,
        grace: GRACE,
        max_output: MAX_OUTPUT,
        // The limit of this process is not raised.
        descriptors: None,
        // A call ends with this process; its journal says so.
        keepers: None,
    }
}

/// The states of all links, as the service manager shows them.
struct Status {
    manager: ServiceManager,
    links: Mutex<BTreeMap<String, &'static str>>,
}

impl Status {
    fn set(&self, gateway: &str, state: &'static str) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.insert(gateway.to_owned(), state);
        let texts: Vec<String> = links
            .iter()
            .map(|(name, state)| format!("{name}: {state}"))
            .collect();
        self.manager.status(&texts.join(", "));
    }
}

/// The link of one gateway, which is made again and again.
struct GatewayLink {
    folder: GatewayFolder,
    calls: NodeCalls,
    clock: Clock,
    status: Arc<Status>,
    stopping: CancellationToken,
}

impl GatewayLink {
    /// Keeps the link open until the node stops, or the gateway refuses the node for good.
    async fn keep_open(self) -> Result<(), NodeError> {
        let gateway = self.folder.name();
        let mut delays = reconnect_delays().build();
        loop {
            self.status.set(&gateway, "connecting");
            let since = self.clock.monotonic();
            let opened = |name: &str| {
                tracing::info!(gateway, node = name, "connected");
                self.status.set(&gateway, "connected");
            };
            let LinkEnding { why, was_open } =
                serve(&self.folder, &self.calls, &self.stopping, opened).await;
            let Some(why) = why else {
                self.calls.stop().await;
                self.status.set(&gateway, "stopped");
                return Ok(());
            };
            if !why.is_temporary() {
                tracing::error!(gateway, %why, "the link has ended for good");
                self.calls.stop().await;
                self.status.set(&gateway, "refused");
                return Err(why);
            }
            let lasted = self.clock.monotonic().saturating_sub(since);
            if was_open && lasted >= HEARTBEAT {
                delays = reconnect_delays().build();
            }
            let delay = delays.next().unwrap_or(LONGEST_DELAY);
            tracing::warn!(gateway, %why, again_in = ?delay, "not connected");
            self.status.set(&gateway, "not connected");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }
}
