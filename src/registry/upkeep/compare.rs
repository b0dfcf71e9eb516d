//! Compares open rows with live tasks. They differ only through a bug in the registry; the service
//! loop then repairs them, so that no client waits forever.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use crate::contract::commit::{PendingWait, Ticket};
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionId};
use crate::kernel::run::{Run, RunState};
use crate::kernel::time::Timestamp;
use crate::registry::RegistryInner;
use crate::registry::service::Signal;
use crate::store::tables::{outbox, read, runs, sends, steps};

/// Delay between two looks. A run between two states differs for a moment; only a difference in
/// both looks counts.
const SECOND_LOOK_AFTER: Duration = Duration::from_secs(1);

/// Open rows that did not change between two looks; the loop knows which of them have a task.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Queued runs with their tickets.
    pub queued: Vec<(RunId, Ticket)>,
    /// Running runs.
    pub running: Vec<RunId>,
    /// Settling runs with the milliseconds left of their limits.
    pub settling: Vec<(RunId, Option<u64>)>,
    /// Paused runs with their sessions and depths.
    pub paused: Vec<(RunId, SessionId, u32)>,
    /// Pending waits with a deadline.
    pub windows: Vec<(PendingWait, Timestamp)>,
    /// Ended turns that answered another session and whose follow-up is still pending.
    pub due: Vec<RunId>,
    /// Sessions with undelivered announces.
    pub undelivered: Vec<SessionId>,
}

/// Reads the open rows twice and reports the unchanged ones to the service loop.
pub(crate) fn look(inner: Arc<RegistryInner>, tasks: &TaskTracker) {
    tasks.spawn(async move {
        let looks = async {
            let first = rows(&inner).await?;
            tokio::time::sleep(SECOND_LOOK_AFTER).await;
            let second = rows(&inner).await?;
            Ok::<_, Fault>(still(&inner, &first, second))
        };
        let suspects = tokio::select! {
            looks = looks => looks,
            () = inner.drained() => return,
        };
        match suspects {
            Ok(suspects) => {
                let _ = inner.signals.send(Signal::Suspected(suspects));
            }
            Err(fault) => tracing::warn!(%fault, "could not compare open rows with live tasks"),
        }
    });
}

/// Open rows at one point in time.
struct OpenRows {
    live: Vec<Run>,
    in_turn: HashSet<RunId>,
    windows: Vec<(PendingWait, Timestamp)>,
    due: Vec<RunId>,
    undelivered: Vec<SessionId>,
}

async fn rows(inner: &Arc<RegistryInner>) -> Result<OpenRows, Fault> {
    inner
        .store
        .read(|tx| {
            Ok(OpenRows {
                live: runs::live(tx)?,
                in_turn: steps::in_turn(tx)?.into_iter().collect(),
                windows: read::wait_deadlines(tx)?,
                due: sends::due(tx)?,
                undelivered: outbox::pending_targets(tx)?,
            })
        })
        .await
}

fn still(inner: &RegistryInner, first: &OpenRows, second: OpenRows) -> Suspects {
    let mut suspects = Suspects::default();
    let steady = inner.clock.moment().steady;
    let before: HashMap<RunId, i64> = first.live.iter().map(|run| (run.id, run.ver)).collect();
    for run in &second.live {
        if before.get(&run.id) != Some(&run.ver) {
            continue;
        }
        match run.state {
            RunState::Queued => {
                let in_turn = second.in_turn.contains(&run.id);
                suspects.queued.push((run.id, Ticket::of(run, in_turn)));
            }
            RunState::Running => suspects.running.push(run.id),
            RunState::Settling => suspects.settling.push((run.id, run.remaining_at(steady))),
            RunState::Paused(_) => {
                suspects.paused.push((run.id, run.session, run.depth));
                if run.counting_since.is_some() {
                    suspects.settling.push((run.id, run.remaining_at(steady)));
                }
            }
            RunState::Ended(_) => {}
        }
    }
    let stood = |window: &(PendingWait, Timestamp)| first.windows.contains(window);
    suspects.windows = second.windows.into_iter().filter(stood).collect();
    let stood = |run: &RunId| first.due.contains(run);
    suspects.due = second.due.into_iter().filter(stood).collect();
    let stood = |session: &SessionId| first.undelivered.contains(session);
    suspects.undelivered = second.undelivered.into_iter().filter(stood).collect();
    suspects
}
