//! Counts of live runs and announces for the daemon's metrics, read on demand by the registry.

use super::dead_letters;
use super::events;
use super::outbox;
use super::runs;
use super::webhooks;
use crate::kernel::run::{Lane, PauseReason};
use crate::kernel::time::Timestamp;
use crate::store::tx::{DbError, Tx};

/// Counts of live rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauges {
    /// Open runs by state: queued, running, paused, settling.
    pub states: [u64; 4],
    /// Paused runs by what they wait for, in the order of [`PauseReason::ALL`].
    pub paused: Vec<(PauseReason, u64)>,
    /// Running and queued runs by lane, in the order of [`Lane::ALL`].
    pub lanes: Vec<(Lane, u64, u64)>,
    /// Announces that are pending delivery.
    pub pending_announces: u64,
    /// When the oldest of them was created.
    pub oldest_announce: Option<Timestamp>,
    /// Announces that could not be delivered.
    pub undelivered_announces: u64,
    /// When the oldest event happened that a webhook has not delivered.
    pub oldest_webhook_event: Option<Timestamp>,
    /// Dead letters of webhooks.
    pub dead_letters: u64,
}

/// Running and queued runs by lane, in the order of [`Lane::ALL`].
pub fn lanes(tx: &mut dyn Tx) -> Result<Vec<(Lane, u64, u64)>, DbError> {
    let mut lanes: Vec<(Lane, u64, u64)> = Lane::ALL.iter().map(|lane| (*lane, 0, 0)).collect();
    tx.query(
        "SELECT lane, state, count(*) FROM runs \
         WHERE ended_at IS NULL AND state IN ('running', 'queued') GROUP BY lane, state",
        &[],
        &mut |row| {
            let lane = row.text(0)?;
            let count = u64::try_from(row.int(2)?).unwrap_or(0);
            let is_running = row.text(1)? == "running";
            if let Some(found) = lanes.iter_mut().find(|(of, ..)| of.as_str() == lane) {
                match is_running {
                    true => found.1 = count,
                    false => found.2 = count,
                }
            }
            Ok(())
        },
    )?;
    Ok(lanes)
}

/// When the oldest event happened that a webhook has read and not finished.
fn oldest_webhook_event(tx: &mut dyn Tx) -> Result<Option<Timestamp>, DbError> {
    let mut oldest = None;
    for webhook in webhooks::every(tx)? {
        if webhook.removed_at.is_some() || webhook.open.0.is_empty() {
            continue;
        }
        let (_, since) = events::count_after(tx, webhook.cursor(), 1)?;
        oldest = oldest.into_iter().chain(since).min();
    }
    Ok(oldest)
}

/// Reads all counts.
pub fn read(tx: &mut dyn Tx) -> Result<Gauges, DbError> {
    let count = |count: i64| u64::try_from(count).unwrap_or(0);
    Ok(Gauges {
        states: runs::count_live(tx, None)?,
        paused: runs::count_paused(tx)?,
        lanes: lanes(tx)?,
        pending_announces: count(outbox::count_pending(tx, None)?),
        oldest_announce: outbox::oldest_pending(tx)?,
        undelivered_announces: count(outbox::count_undelivered(tx)?),
        oldest_webhook_event: oldest_webhook_event(tx)?,
        dead_letters: count(dead_letters::count_all(tx)?),
    })
}
