//! The rows of webhooks: their configuration, progress and dead letters, and the pages of the event
//! log that they deliver. Called by the part that delivers and by the RPC layer.

use tokio::sync::watch;

use super::answer::Page;
use super::view::place;
use crate::command::{ConfigureWebhooks, DropLetters, RecordWebhook, ReplayLetters};
use crate::contract::finding::{Finding, Health};
use crate::contract::webhooks::{
    BEHIND_LIMIT, LetterChoice, StoredWebhook, WebhookRecord, WebhookTable,
};
use crate::kernel::fault::Fault;
use crate::kernel::webhook::{DeadLetter, Webhook};
use crate::registry::Registry;
use crate::store::tables::events::{Event, LogPart};
use crate::store::tables::{dead_letters, events, webhooks};
use crate::store::tx::{DbError, Tx};

impl Registry {
    /// Once this returns, exactly these webhooks are configured. Returns their rows. Without any,
    /// and if there never was one, nothing is written.
    pub async fn configure_webhooks(
        &self,
        tables: Vec<WebhookTable>,
    ) -> Result<Vec<Webhook>, Fault> {
        let store = &self.inner.store;
        if tables.is_empty() && !store.read_now(webhooks::exist)? {
            return Ok(Vec::new());
        }
        store.submit_waiting(ConfigureWebhooks { tables }).await
    }

    /// Once this returns, the webhook's progress is stored. False if it is not known any more.
    pub async fn record_webhook(&self, record: WebhookRecord) -> Result<bool, Fault> {
        self.inner
            .store
            .submit_waiting(RecordWebhook { record })
            .await
    }

    /// A digest of `text` that only this store can compute.
    pub fn digest_of(&self, text: &str) -> String {
        let bytes = self.inner.store.digest(text);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The end of the event log, as it grows.
    pub fn log_head(&self) -> watch::Receiver<i64> {
        self.inner.store.head()
    }

    /// The events after `cursor`, in order, at most `limit`.
    pub async fn log_after(&self, cursor: i64, limit: u32) -> Result<LogPart, Fault> {
        let store = &self.inner.store;
        store.read(move |tx| events::after(tx, cursor, limit)).await
    }

    /// The events at these cursors that are still in the log.
    pub async fn log_at(&self, cursors: Vec<i64>) -> Result<Vec<Event>, Fault> {
        let read = move |tx: &mut dyn Tx| {
            let mut found = Vec::with_capacity(cursors.len());
            for cursor in cursors {
                found.extend(events::get(tx, cursor)?);
            }
            Ok(found)
        };
        self.inner.store.read(read).await
    }

    /// Counts requests to deliver dead letters again.
    pub fn replays(&self) -> watch::Receiver<u64> {
        self.inner.replays.subscribe()
    }

    /// Dead letters of a webhook that wait to be delivered again after this cursor, oldest first.
    pub async fn queued_letters(
        &self,
        webhook: &str,
        after: i64,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, Fault> {
        let webhook = webhook.to_owned();
        let read = move |tx: &mut dyn Tx| dead_letters::queued(tx, &webhook, after, limit);
        self.inner.store.read(read).await
    }

    /// All webhooks that are configured, or were within the last week.
    pub async fn webhooks(&self) -> Result<Vec<StoredWebhook>, Fault> {
        self.inner.store.read(stored).await
    }

    /// A page of a webhook's dead letters, newest event first.
    pub async fn dead_letters(
        &self,
        webhook: String,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<DeadLetter>, Fault> {
        let before = place(cursor)?.unwrap_or(i64::MAX);
        let name = webhook.clone();
        let read = move |tx: &mut dyn Tx| {
            let known = webhooks::get(tx, &name)?.is_some();
            Ok((known, dead_letters::list(tx, &name, before, limit + 1)?))
        };
        let (known, mut found) = self.inner.store.read(read).await?;
        if !known {
            return Err(Fault::not_found("webhook", webhook).hint("list them with webhooks.list"));
        }
        let next = super::view::cut(&mut found, limit, |letter| letter.cursor);
        Ok(Page { items: found, next })
    }

    /// Once this returns, these dead letters are to be delivered again, also after a restart.
    pub async fn replay_letters(
        &self,
        webhook: String,
        letters: LetterChoice,
    ) -> Result<Vec<i64>, Fault> {
        let command = ReplayLetters { webhook, letters };
        let queued = self.inner.store.submit(command).await?;
        self.inner.replays.send_modify(|count| *count += 1);
        Ok(queued)
    }

    /// Once this returns, these dead letters are deleted.
    pub async fn drop_letters(
        &self,
        webhook: String,
        letters: LetterChoice,
    ) -> Result<Vec<i64>, Fault> {
        let command = DropLetters { webhook, letters };
        let dropped = self.inner.store.submit(command).await?;
        self.inner.replays.send_modify(|count| *count += 1);
        Ok(dropped)
    }

    /// What `doctor` says about webhooks.
    pub(super) async fn examine_webhooks(&self) -> Result<Vec<Finding>, Fault> {
        let now = self.inner.clock.now();
        let found = self.webhooks().await?.into_iter();
        Ok(found
            .filter(|stored| stored.webhook.removed_at.is_none())
            .map(|stored| finding(&stored, now))
            .collect())
    }
}

fn stored(tx: &mut dyn Tx) -> Result<Vec<StoredWebhook>, DbError> {
    let mut all = Vec::new();
    for webhook in webhooks::every(tx)? {
        let (behind, behind_since) = events::count_after(tx, webhook.cursor(), BEHIND_LIMIT)?;
        let letters = dead_letters::count(tx, &webhook.name)?;
        all.push(StoredWebhook {
            dead_letters: u64::try_from(letters).unwrap_or(0),
            behind: u64::try_from(behind).unwrap_or(0),
            behind_since,
            webhook,
        });
    }
    Ok(all)
}

fn finding(stored: &StoredWebhook, now: crate::kernel::time::Timestamp) -> Finding {
    let webhook = &stored.webhook;
    let name = &webhook.name;
    let id = format!("webhook.{name}");
    let failed_last = webhook.failed_at > webhook.delivered_at;
    let why = webhook.failure.as_deref().unwrap_or("unknown");
    if webhook.stopped_at.is_some() {
        let message = format!("webhook {name} is stopped: its receiver answered 410 Gone");
        return Finding::new(&id, Health::Warn, message).fix(format!(
            "change [webhooks.{name}] and run abide config reload, or remove it"
        ));
    }
    if failed_last && !webhook.open.0.is_empty() {
        let waits = webhook.open.0.len();
        let message = format!("webhook {name} does not deliver, {waits} events wait: {why}");
        return Finding::new(&id, Health::Warn, message)
            .fix("see that its receiver answers 2xx; attempts are repeated by themselves");
    }
    let (dead, missed) = (stored.dead_letters, webhook.missed);
    if dead > 0 {
        let message = format!("webhook {name} has {dead} dead letters, the last: {why}");
        return Finding::new(&id, Health::Warn, message).fix(format!(
            "abide webhooks dead {name}; then abide webhooks replay {name} --all, or drop"
        ));
    }
    if missed > 0 {
        let message =
            format!("webhook {name}: retention removed {missed} events before they were delivered");
        return Finding::new(&id, Health::Warn, message)
            .fix("keep events for longer (retention.events), or have the receiver answer faster");
    }
    let last = webhook.delivered_at.map_or("nothing yet".to_owned(), |at| {
        format!("last {} s ago", now.since(at) / 1000)
    });
    Finding::new(&id, Health::Ok, format!("webhook {name} delivers: {last}"))
}
