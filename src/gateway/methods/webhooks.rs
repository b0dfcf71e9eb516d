//! Handlers of `webhooks.*`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::method::MethodsBuilder;
use super::page;
use super::page::SerializedPage;
use crate::contract::webhooks::{LetterChoice, LiveWebhook, StoredWebhook, WebhookState};
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::kernel::webhook::DeadLetter;
use crate::wire::webhooks as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(dead);
    table.method(replay);
    table.method(discard);
}

async fn list(context: Arc<CallContext>, _: wire::ListWebhooks) -> Result<wire::Webhooks, Fault> {
    let stored = context.registry.webhooks().await?.into_iter();
    Ok(wire::Webhooks {
        webhooks: stored
            .map(|stored| {
                let live = context.webhooks.get(&stored.webhook.name);
                webhook(stored, live)
            })
            .collect(),
    })
}

async fn dead(
    context: Arc<CallContext>,
    params: wire::ListDeadLetters,
) -> Result<SerializedPage<wire::DeadLetters>, Fault> {
    let fetch = async |limit| {
        let (webhook, cursor) = (params.webhook.clone(), params.cursor.clone());
        let listed = context.registry.dead_letters(webhook, limit, cursor);
        let page = listed.await?;
        Ok(wire::DeadLetters {
            letters: page.items.into_iter().map(letter).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn replay(
    context: Arc<CallContext>,
    params: wire::ReplayDeadLetters,
) -> Result<wire::ReplayedDeadLetters, Fault> {
    let (webhook, letters) = (params.webhook, choice(params.ids));
    let replaying = context.registry.replay_letters(webhook, letters).await?;
    Ok(wire::ReplayedDeadLetters { replaying })
}

async fn discard(
    context: Arc<CallContext>,
    params: wire::DropDeadLetters,
) -> Result<wire::DroppedDeadLetters, Fault> {
    let (webhook, letters) = (params.webhook, choice(params.ids));
    let dropped = context.registry.drop_letters(webhook, letters).await?;
    Ok(wire::DroppedDeadLetters { dropped })
}

fn choice(ids: Option<Vec<i64>>) -> LetterChoice {
    ids.map_or(LetterChoice::All, LetterChoice::These)
}

fn webhook(stored: StoredWebhook, live: Option<LiveWebhook>) -> wire::Webhook {
    let row = stored.webhook;
    let state = match (&live, row.stopped_at, row.removed_at) {
        (_, _, Some(_)) => WebhookState::Removed,
        (_, Some(_), _) => WebhookState::Stopped,
        (Some(live), ..) => live.state,
        (None, ..) => WebhookState::Active,
    };
    let waiting = live
        .as_ref()
        .map_or(row.open.0.len() as u64, |live| live.waiting);
    let (url, blocked) = live.map_or((None, None), |live| (Some(live.url), live.blocked));
    wire::Webhook {
        cursor: row.cursor(),
        name: row.name,
        url,
        kinds: row.selection.kinds.iter().map(text).collect(),
        sessions: row.selection.sessions.iter().map(text).collect(),
        state: state.as_str().into(),
        behind: stored.behind,
        behind_since: stored.behind_since,
        waiting,
        delivered: row.delivered,
        failed: row.failed,
        given_up: row.given_up,
        missed: row.missed,
        dead_letters: stored.dead_letters,
        delivered_at: row.delivered_at,
        failed_at: row.failed_at,
        failure: blocked.or(row.failure),
        created_at: row.created_at,
    }
}

/// A pattern as it is written in the settings.
fn text(pattern: &impl Serialize) -> String {
    match serde_json::to_value(pattern) {
        Ok(Value::String(text)) => text,
        // A pattern has no other form.
        _ => String::new(),
    }
}

fn letter(letter: DeadLetter) -> wire::DeadLetter {
    wire::DeadLetter {
        id: letter.cursor,
        kind: letter.kind,
        at: letter.at,
        session_key: letter.session_key,
        run_id: letter.run,
        attempts: letter.attempts,
        failure: letter.failure,
        died_at: letter.died_at,
        replaying: letter.replay.is_some(),
    }
}
