//! Webhooks: events of the log are sent to receivers over HTTP, at least once and in order per run.
//! The daemon starts [`keep`]; each webhook of the settings is one task.
//!
//! ```text
//! event log ─▶ read: pages of selected events ─▶ lanes: one a run ─▶ send: an attempt
//!                                                  ▲   │ outcome
//!                                       retries ───┘   └─▶ deliver: stores the progress
//! ```

mod deliver;
mod lanes;
mod read;
mod send;

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::deliver::Delivery;
use crate::clock::Clock;
use crate::config::WebhookTable;
use crate::contract::webhooks::{self as contract, WebhookBoard};
use crate::kernel::event::KindPattern;
use crate::kernel::fault::Fault;
use crate::kernel::secret::{GivenValue, ReceiverUrl};
use crate::kernel::webhook::{Selection, SessionPattern};
use crate::registry::Registry;

/// The webhooks of the settings, by name.
pub type WebhookTables = BTreeMap<String, WebhookTable>;

/// Retry interval after the store could not be used.
const AGAIN: Duration = Duration::from_secs(1);

/// What webhooks need of the daemon.
#[derive(Clone)]
pub struct WebhookParts {
    /// The event log, and where progress is stored.
    pub registry: Registry,
    /// Source of time.
    pub clock: Clock,
    /// Where the state of each webhook is shown.
    pub board: WebhookBoard,
}

/// A webhook at work.
struct Running {
    /// Tells it from an earlier one of that name.
    id: Uuid,
    table: WebhookTable,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    /// Once this returns, its progress is stored and nothing more is sent.
    async fn end(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!("a webhook ended in a fault; it continues from its stored progress");
        }
    }
}

/// Delivers to all webhooks of the settings until `stop` is cancelled. Once this returns, their
/// progress is stored.
pub async fn keep(
    parts: WebhookParts,
    mut settings: watch::Receiver<WebhookTables>,
    stop: CancellationToken,
) {
    let mut running = BTreeMap::new();
    let (ended, mut ends) = mpsc::unbounded_channel();
    while !stop.is_cancelled() {
        let tables = settings.borrow_and_update().clone();
        let applied = apply(&parts, &mut running, tables, &ended).await;
        let retry = async {
            match &applied {
                Ok(()) => std::future::pending().await,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        };
        if let Err(fault) = &applied {
            tracing::warn!(%fault, "webhooks pause: their place in the log could not be read");
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = retry => {}
            // The settings channel closes when the daemon ends.
            changed = settings.changed() => if changed.is_err() {
                break;
            },
            // Its row is gone, or it panicked: it is configured again.
            Some((name, id)) = ends.recv() => {
                // A reload may have started it again already.
                if running.get(&name).is_some_and(|one: &Running| one.id == id) {
                    running.remove(&name);
                }
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
    let ending = running.into_values().map(Running::end);
    futures_util::future::join_all(ending).await;
}

/// Once this returns, exactly these webhooks are at work.
async fn apply(
    parts: &WebhookParts,
    running: &mut BTreeMap<String, Running>,
    tables: WebhookTables,
    ended: &mpsc::UnboundedSender<(String, Uuid)>,
) -> Result<(), Fault> {
    let is_same = |name: &String, one: &Running| tables.get(name) == Some(&one.table);
    let (same, other) = std::mem::take(running)
        .into_iter()
        .partition(|(name, one)| is_same(name, one));
    *running = same;
    let other: BTreeMap<String, Running> = other;
    let names: Vec<String> = other.keys().cloned().collect();
    futures_util::future::join_all(other.into_values().map(Running::end)).await;
    for name in names {
        parts.board.remove(&name);
    }
    let stored = tables.iter().map(|(name, table)| contract::WebhookTable {
        name: name.clone(),
        selection: selection(table),
        digest: parts.registry.digest_of(&written(table)),
    });
    let rows = parts.registry.configure_webhooks(stored.collect()).await?;
    for row in rows {
        let Some(table) = tables.get(&row.name).cloned() else {
            continue;
        };
        if running.contains_key(&row.name) {
            continue;
        }
        let (name, stop) = (row.name.clone(), CancellationToken::new());
        let delivery = Delivery::new(parts.clone(), table.clone(), row).await?;
        let (ended, stopping) = (ended.clone(), stop.clone());
        let (own_name, id) = (name.clone(), parts.clock.new_id());
        let task = tokio::spawn(async move {
            let working = tokio::spawn(delivery.run(stopping.clone()));
            let worked = working.await;
            if let Err(fault) = worked {
                tracing::error!(webhook = own_name, %fault, "a webhook ended in a fault");
            }
            if !stopping.is_cancelled() {
                // The receiver lives as long as its daemon.
                let _ = ended.send((own_name, id));
            }
        });
        let one = Running {
            id,
            table,
            stop,
            task,
        };
        running.insert(name, one);
    }
    Ok(())
}

/// Which events the table selects. The settings have checked the patterns.
fn selection(table: &WebhookTable) -> Selection {
    let kinds = table.kinds.iter();
    let sessions = table.sessions.iter();
    Selection {
        kinds: kinds.filter_map(|text| KindPattern::parse(text)).collect(),
        sessions: sessions
            .filter_map(|text| SessionPattern::parse(text))
            .collect(),
    }
}

/// Everything that the table says, for its digest.
fn written(table: &WebhookTable) -> String {
    let url = table.url.as_ref().map(ReceiverUrl::expose);
    let given = |value: &Option<GivenValue>| match value {
        None => String::new(),
        Some(GivenValue::Text(text)) => format!("text {}", text.expose()),
        Some(GivenValue::From(place)) => format!("from {place}"),
    };
    let secrets = (given(&table.secret), given(&table.previous_secret));
    let plain = WebhookTable {
        secret: None,
        previous_secret: None,
        ..table.clone()
    };
    format!("{url:?} {plain:?} {secrets:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_table_is_in_its_digest() {
        let table = WebhookTable::default();
        let with = |change: fn(&mut WebhookTable)| {
            let mut other = table.clone();
            change(&mut other);
            written(&other)
        };
        let others = [
            with(|table| table.url = Some(ReceiverUrl::new("http://a.example"))),
            with(|table| table.url = Some(ReceiverUrl::new("http://a.example?sig=1"))),
            with(|table| table.url = Some(ReceiverUrl::new("http://a.example?sig=2"))),
            with(|table| table.kinds = vec!["run.*".to_owned()]),
            with(|table| table.sessions = vec!["a".to_owned()]),
            with(|table| table.secret = Some(GivenValue::text("one"))),
            with(|table| table.secret = Some(GivenValue::text("two"))),
            with(|table| table.previous_secret = Some(GivenValue::text("one"))),
            with(|table| table.allow_private = true),
            with(|table| table.attempts = 1),
        ];
        let all: std::collections::BTreeSet<&String> = others.iter().collect();
        assert_eq!(all.len(), others.len());
        assert!(!all.contains(&written(&table)));
    }
}
