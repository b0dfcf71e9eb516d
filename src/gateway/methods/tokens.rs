//! Handlers of `tokens.*`.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page;
use super::page::SerializedPage;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::kernel::time::Timestamp;
use crate::kernel::token::AccessToken;
use crate::wire::tokens as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(create);
    table.method(list);
    table.method(revoke);
}

async fn create(
    context: Arc<CallContext>,
    params: wire::CreateToken,
) -> Result<wire::CreatedToken, Fault> {
    let created = context.registry.create_token(&context.principal, params);
    let (created, text) = created.await?;
    Ok(wire::CreatedToken {
        token: token(created, context.clock.now()),
        secret: text.expose().to_owned(),
    })
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListTokens,
) -> Result<SerializedPage<wire::Tokens>, Fault> {
    let fetch = async |limit| {
        let (org, cursor) = (params.org.clone(), params.cursor.clone());
        let listed = context
            .registry
            .tokens(&context.principal, org, limit, cursor);
        let page = listed.await?;
        let now = context.clock.now();
        Ok(wire::Tokens {
            tokens: page.items.into_iter().map(|one| token(one, now)).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn revoke(
    context: Arc<CallContext>,
    params: wire::RevokeToken,
) -> Result<wire::Token, Fault> {
    let revoked = context.registry.revoke_token(&context.principal, params.id);
    Ok(token(revoked.await?, context.clock.now()))
}

fn token(token: AccessToken, now: Timestamp) -> wire::Token {
    wire::Token {
        state: token.state(now).into(),
        id: token.id,
        org: token.org,
        user: token.user,
        label: token.label,
        scopes: token.scopes.iter().collect(),
        limits: wire::TokenLimits {
            calls_per_minute: token.limits.calls_per_minute.and_then(NonZeroU32::new),
            connections: token.limits.connections.and_then(NonZeroU32::new),
            open_runs: token.limits.open_runs.and_then(NonZeroU32::new),
        },
        created_by: token.created_by,
        created_at: token.created_at,
        expires_at: token.expires_at,
        revoked_at: token.revoked_at,
        used_at: token.used_at,
    }
}
