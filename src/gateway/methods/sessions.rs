//! Handlers of `sessions.*`.

use std::sync::Arc;

use super::method::{Table, idempotency};
use super::page::SerializedPage;
use super::{convert, entries, page};
use crate::gateway::Context;
use crate::kernel::delegation::announce::RESULT_LIMIT;
use crate::kernel::fault::Fault;
use crate::kernel::run::AnnouncePolicy;
use crate::kernel::session::{Cleanup, Owner, SessionMode};
use crate::kernel::text::prefix;
use crate::registry::{
    CreateRequest, History, HistoryPart, Idempotency, IfExists, Page, SendRequest, SessionFilter,
    SessionKind, SessionView, SpawnRequest,
};
use crate::wire::input::WaitTimeout;
use crate::wire::sessions as wire;
use crate::wire::shapes::Session;

pub(crate) fn register(table: &mut Table) {
    table.method(spawn);
    table.method(send);
    table.method(create);
    table.method(get);
    table.method(list);
    table.method(history);
    table.method(inbox);
    table.method(ack);
}

async fn spawn(context: Arc<Context>, params: wire::Spawn) -> Result<wire::Spawned, Fault> {
    let request = SpawnRequest {
        idempotency: idempotency(params.idempotency_key.as_deref(), &params)?,
        task: params.task,
        run_id: params.run_id,
        parent: params.parent,
        agent: params.agent,
        label: params.label,
        model: params.model,
        thinking: params.thinking.map(convert::thinking),
        cwd: params.cwd,
        run_timeout_ms: params.run_timeout.map(|limit| limit.0),
        budget: params.budget.map(convert::budget),
        env: params.env.map(|env| env.0).unwrap_or_default(),
        announce: params.announce.map(|policy| match policy {
            wire::AnnouncePolicy::Wake => AnnouncePolicy::Wake,
            wire::AnnouncePolicy::Inbox => AnnouncePolicy::Inbox,
            wire::AnnouncePolicy::Steer => AnnouncePolicy::Steer,
            wire::AnnouncePolicy::None => AnnouncePolicy::None,
        }),
        mode: match params.mode {
            None | Some(wire::Mode::Run) => SessionMode::Run,
            Some(wire::Mode::Session) => SessionMode::Session,
        },
        cleanup: match params.cleanup {
            None | Some(wire::Cleanup::Keep) => Cleanup::Keep,
            Some(wire::Cleanup::Delete) => Cleanup::Delete,
        },
        fork: params.context == Some(wire::Context::Fork),
        meta: params.meta,
    };
    let accepted = context.registry.spawn(&context.principal, request).await?;
    Ok(wire::Spawned {
        status: "accepted".into(),
        run_id: accepted.run,
        child_session_key: accepted.session,
        agent: accepted.agent.into(),
        model: accepted.model,
        depth: accepted.depth,
        warnings: accepted.warnings,
    })
}

async fn send(context: Arc<Context>, params: wire::Send) -> Result<wire::Sent, Fault> {
    let request = SendRequest {
        idempotency: send_idempotency(&params)?,
        key: params.session_key,
        label: params.label,
        message: params.message,
        from: params.from,
        window: params.wait_timeout.0,
        run_timeout_ms: params.run_timeout.map(|limit| limit.0),
        meta: params.meta,
    };
    let sent = context.registry.send(&context.principal, request).await?;
    let mut reply = sent.reply;
    if let Some(text) = &mut reply {
        text.truncate(prefix(text, RESULT_LIMIT).len());
    }
    Ok(wire::Sent {
        run_id: sent.run,
        session_key: sent.session,
        delivered: sent.delivered,
        replied: reply.is_some(),
        reply,
        status: sent.status.to_owned(),
        error: sent.error,
    })
}

/// The wait timeout is not part of the request's identity: a repeat may wait longer.
fn send_idempotency(params: &wire::Send) -> Result<Option<Idempotency>, Fault> {
    let asked = wire::Send {
        wait_timeout: WaitTimeout::default(),
        ..params.clone()
    };
    idempotency(params.idempotency_key.as_deref(), &asked)
}

async fn create(context: Arc<Context>, params: wire::Create) -> Result<wire::Created, Fault> {
    let request = CreateRequest {
        agent: params.agent,
        key: params.key,
        label: params.label,
        title: params.title,
        thinking: params.thinking.map(convert::thinking),
        cwd: params.cwd,
        owner: match params.owner {
            None | Some(wire::Owner::Agent) => Owner::Agent,
            Some(wire::Owner::Client) => Owner::Client,
        },
        if_exists: match params.if_exists {
            None | Some(wire::IfExists::Get) => IfExists::Get,
            Some(wire::IfExists::Conflict) => IfExists::Conflict,
        },
    };
    let registry = &context.registry;
    let (session, created) = registry.create_session(&context.principal, request).await?;
    Ok(wire::Created {
        session: convert::session(session),
        created,
    })
}

async fn get(context: Arc<Context>, params: wire::GetSession) -> Result<Session, Fault> {
    let registry = &context.registry;
    let session = registry
        .session(&context.principal, &params.session_key)
        .await?;
    Ok(convert::session(session))
}

async fn list(
    context: Arc<Context>,
    params: wire::ListSessions,
) -> Result<SerializedPage<wire::Sessions>, Fault> {
    let filter = SessionFilter {
        kind: match params.kind {
            None | Some(wire::SessionKind::Main) => SessionKind::Main,
            Some(wire::SessionKind::Child) => SessionKind::Child,
            Some(wire::SessionKind::All) => SessionKind::All,
        },
        parent: params.parent,
        agent: params.agent,
        label: params.label,
        search: params.search,
        archived: params.archived,
    };
    let fetch = async |limit| {
        let registry = &context.registry;
        let (filter, cursor) = (filter.clone(), params.cursor.clone());
        let show = |page: Page<SessionView>| {
            page::write::<wire::Sessions>(&wire::Sessions {
                sessions: page.items.into_iter().map(convert::session).collect(),
                next_cursor: page.next,
            })
        };
        registry
            .sessions(&context.principal, filter, limit, cursor, show)
            .await
    };
    page::fit(params.limit.0, fetch).await
}

async fn history(
    context: Arc<Context>,
    params: wire::GetHistory,
) -> Result<SerializedPage<wire::History>, Fault> {
    if params.before.is_some() && params.after.is_some() {
        return Err(Fault::params(
            "before",
            "give either before or after, not both",
        ));
    }
    let fetch = async |limit| {
        let part = HistoryPart {
            before: params.before,
            after: params.after,
            limit,
            tools: params.tools.unwrap_or(true),
        };
        let show = |history: History| {
            let messages = history.messages.into_iter();
            let shown = messages.map(|one| entries::message(one, &history.delegated));
            page::write::<wire::History>(&wire::History {
                messages: shown.collect(),
                truncated: history.truncated,
            })
        };
        let registry = &context.registry;
        registry
            .history(&context.principal, &params.session_key, part, show)
            .await
    };
    page::fit(params.limit.0, fetch).await
}

async fn inbox(
    context: Arc<Context>,
    params: wire::GetInbox,
) -> Result<SerializedPage<wire::Inbox>, Fault> {
    let fetch = async |limit| {
        let (key, cursor) = (&params.session_key, params.cursor.clone());
        let page = context
            .registry
            .inbox(&context.principal, key, params.acked, limit, cursor)
            .await?;
        Ok(wire::Inbox {
            announces: page.items.into_iter().map(convert::announce).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn ack(context: Arc<Context>, params: wire::Ack) -> Result<wire::Acked, Fault> {
    let (key, ids) = (&params.session_key, params.announce_ids);
    let announce_ids = context.registry.ack(&context.principal, key, ids).await?;
    Ok(wire::Acked { announce_ids })
}
