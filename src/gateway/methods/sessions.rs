//! Handlers of `sessions.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page::SerializedPage;
use super::{convert, entries, page};
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::registry::{Page, SessionView, TranscriptPage};
use crate::wire::input::PageSize;
use crate::wire::sessions as wire;
use crate::wire::shapes::Session;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(spawn);
    table.method(send);
    table.method(create);
    table.method(get);
    table.method(list);
    table.method(history);
    table.method(inbox);
    table.method(ack);
}

async fn spawn(context: Arc<CallContext>, params: wire::Spawn) -> Result<wire::Spawned, Fault> {
    let accepted = context.registry.spawn(&context.principal, params).await?;
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

async fn send(context: Arc<CallContext>, params: wire::Send) -> Result<wire::Sent, Fault> {
    context.registry.send(&context.principal, params).await
}

async fn create(context: Arc<CallContext>, params: wire::Create) -> Result<wire::Created, Fault> {
    let registry = &context.registry;
    let (session, created) = registry.create_session(&context.principal, params).await?;
    Ok(wire::Created {
        session: convert::session(session),
        created,
    })
}

async fn get(context: Arc<CallContext>, params: wire::GetSession) -> Result<Session, Fault> {
    let registry = &context.registry;
    let session = registry
        .session(&context.principal, &params.session_key)
        .await?;
    Ok(convert::session(session))
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListSessions,
) -> Result<SerializedPage<wire::Sessions>, Fault> {
    let fetch = async |limit| {
        let filter = wire::ListSessions {
            limit: PageSize(limit),
            ..params.clone()
        };
        let show = |page: Page<SessionView>| {
            page::write::<wire::Sessions>(&wire::Sessions {
                sessions: page.items.into_iter().map(convert::session).collect(),
                next_cursor: page.next,
            })
        };
        let registry = &context.registry;
        registry.sessions(&context.principal, filter, show).await
    };
    page::fit(params.limit.0, fetch).await
}

async fn history(
    context: Arc<CallContext>,
    params: wire::GetHistory,
) -> Result<SerializedPage<wire::History>, Fault> {
    if params.before.is_some() && params.after.is_some() {
        return Err(Fault::params(
            "before",
            "give either before or after, not both",
        ));
    }
    let fetch = async |limit| {
        let part = wire::GetHistory {
            limit: PageSize(limit),
            ..params.clone()
        };
        let show = |history: TranscriptPage| {
            let messages = history.messages.into_iter();
            let shown = messages.map(|one| entries::message(one, &history.delegated));
            page::write::<wire::History>(&wire::History {
                messages: shown.collect(),
                truncated: history.truncated,
            })
        };
        let registry = &context.registry;
        registry.history(&context.principal, part, show).await
    };
    page::fit(params.limit.0, fetch).await
}

async fn inbox(
    context: Arc<CallContext>,
    params: wire::GetInbox,
) -> Result<SerializedPage<wire::Inbox>, Fault> {
    let fetch = async |limit| {
        let request = wire::GetInbox {
            limit: PageSize(limit),
            ..params.clone()
        };
        let page = context.registry.inbox(&context.principal, request).await?;
        Ok(wire::Inbox {
            announces: page.items,
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn ack(context: Arc<CallContext>, params: wire::Ack) -> Result<wire::Acked, Fault> {
    let (key, ids) = (&params.session_key, params.announce_ids);
    let announce_ids = context.registry.ack(&context.principal, key, ids).await?;
    Ok(wire::Acked { announce_ids })
}
