//! The place of webhooks in the event log, their progress, and their dead letters.

use super::context::Context;
use crate::contract::webhooks::{LetterChoice, WebhookRecord, WebhookTable};
use crate::kernel::fault::Fault;
use crate::kernel::time::Timestamp;
use crate::kernel::webhook::{DEAD_LIMIT, OpenEvents, Webhook};
use crate::store::tables::{dead_letters, events, webhooks};
use crate::store::tx::Tx;
use crate::store::write::Reply;

impl Reply for Vec<Webhook> {}

/// Once this returns, exactly these webhooks are configured: a new one begins at the present end of
/// the log, one that is not among them is marked as removed. Returns their rows.
pub fn configure(
    context: &mut Context<'_>,
    tables: Vec<WebhookTable>,
) -> Result<Vec<Webhook>, Fault> {
    let now = context.now.wall;
    let mut configured = Vec::with_capacity(tables.len());
    for table in &tables {
        let webhook = match webhooks::get(context.tx, &table.name)? {
            Some(known) => changed(known, table),
            None => fresh(context.tx, table, now)?,
        };
        webhooks::put(context.tx, &webhook)?;
        configured.push(webhook);
    }
    for mut other in webhooks::every(context.tx)? {
        let is_configured = tables.iter().any(|table| table.name == other.name);
        if !is_configured && other.removed_at.is_none() {
            other.removed_at = Some(now);
            webhooks::put(context.tx, &other)?;
        }
    }
    Ok(configured)
}

/// The webhook with its present table. Another table gives it a new chance.
fn changed(known: Webhook, table: &WebhookTable) -> Webhook {
    let is_same = known.digest == table.digest;
    Webhook {
        selection: table.selection.clone(),
        digest: table.digest.clone(),
        stopped_at: known.stopped_at.filter(|_| is_same),
        removed_at: None,
        ..known
    }
}

fn fresh(tx: &mut dyn Tx, table: &WebhookTable, now: Timestamp) -> Result<Webhook, Fault> {
    Ok(Webhook {
        name: table.name.clone(),
        selection: table.selection.clone(),
        digest: table.digest.clone(),
        created_at: now,
        read_to: events::last(tx)?.max(events::expired(tx)?),
        open: OpenEvents::default(),
        delivered: 0,
        failed: 0,
        given_up: 0,
        missed: 0,
        delivered_at: None,
        failed_at: None,
        failure: None,
        stopped_at: None,
        removed_at: None,
    })
}

/// Once this returns, the webhook's progress is stored. False if it is not known any more.
pub fn record(context: &mut Context<'_>, record: WebhookRecord) -> Result<bool, Fault> {
    let now = context.now.wall;
    let Some(mut webhook) = webhooks::get(context.tx, &record.name)? else {
        return Ok(false);
    };
    // A repeat finds neither open events nor dead letters that it would count again.
    let was_open = |cursor: &i64| webhook.open.0.contains_key(cursor);
    let lost = record.lost.iter().filter(|cursor| was_open(cursor)).count() as u64;
    let mut given_up = 0;
    for letter in &record.dead {
        let known = dead_letters::get(context.tx, &letter.webhook, letter.cursor)?;
        given_up += u64::from(known.is_none());
        dead_letters::put(context.tx, letter)?;
    }
    if !record.dead.is_empty() {
        let dropped = dead_letters::keep(context.tx, &record.name, DEAD_LIMIT)?;
        if dropped > 0 {
            tracing::warn!(
                webhook = record.name,
                dropped,
                "a webhook has more than {DEAD_LIMIT} dead letters; the oldest were dropped"
            );
        }
    }
    for cursor in &record.replayed {
        dead_letters::delete(context.tx, &record.name, *cursor)?;
    }
    for refused in record.refused {
        // It may have been dropped meanwhile.
        let cursor = refused.cursor;
        if let Some(mut letter) = dead_letters::get(context.tx, &record.name, cursor)? {
            (letter.attempts, letter.failure) = (refused.attempts, refused.failure);
            letter.died_at = now;
            // Another request may have come since the attempt began.
            letter.replay = letter.replay.filter(|_| letter.replay != refused.request);
            dead_letters::put(context.tx, &letter)?;
        }
    }
    webhook.read_to = record.read_to;
    webhook.open = record.open;
    (webhook.delivered, webhook.failed) = (record.delivered, record.failed);
    webhook.given_up += given_up;
    webhook.missed += lost;
    webhook.delivered_at = record.delivered_at;
    if let Some((at, why)) = record.failure {
        (webhook.failed_at, webhook.failure) = (Some(at), Some(why));
    }
    if record.stopped && webhook.stopped_at.is_none() {
        webhook.stopped_at = Some(now);
    }
    webhooks::put(context.tx, &webhook)?;
    Ok(true)
}

/// Once this returns, these dead letters are to be delivered again. Returns their cursors.
pub fn replay(
    context: &mut Context<'_>,
    name: &str,
    choice: LetterChoice,
) -> Result<Vec<i64>, Fault> {
    let mut queued = Vec::new();
    let chosen = chosen(context, name, choice)?;
    let request = context.take_seq()?;
    for cursor in chosen {
        if let Some(mut letter) = dead_letters::get(context.tx, name, cursor)? {
            letter.replay = Some(request);
            dead_letters::put(context.tx, &letter)?;
            queued.push(cursor);
        }
    }
    Ok(queued)
}

/// Once this returns, these dead letters are deleted. Returns their cursors.
pub fn discard(
    context: &mut Context<'_>,
    name: &str,
    choice: LetterChoice,
) -> Result<Vec<i64>, Fault> {
    let mut gone = Vec::new();
    for cursor in chosen(context, name, choice)? {
        if dead_letters::delete(context.tx, name, cursor)? {
            gone.push(cursor);
        }
    }
    Ok(gone)
}

/// The cursors that are meant, of a webhook that must exist.
fn chosen(context: &mut Context<'_>, name: &str, choice: LetterChoice) -> Result<Vec<i64>, Fault> {
    if webhooks::get(context.tx, name)?.is_none() {
        return Err(Fault::not_found("webhook", name).hint("list them: abide webhooks"));
    }
    match choice {
        LetterChoice::All => Ok(dead_letters::cursors(context.tx, name)?),
        LetterChoice::These(cursors) => Ok(cursors),
    }
}

/// Counts the events up to `up_to`, which retention is about to remove, for each webhook that selects
/// them and has not read them.
pub(super) fn count_missed(tx: &mut dyn Tx, up_to: i64) -> Result<(), Fault> {
    for mut webhook in webhooks::every(tx)? {
        if webhook.read_to >= up_to {
            continue;
        }
        let mut missed = 0;
        for (org, kind, session) in events::outlines(tx, webhook.read_to, up_to)? {
            let selects = webhook.selection.selects(&org, &kind, session.as_deref());
            missed += u64::from(selects);
        }
        webhook.missed += missed;
        webhook.read_to = up_to;
        webhooks::put(tx, &webhook)?;
    }
    Ok(())
}
