//! Access tokens: created, revoked, and used.

use super::context::Context;
use crate::contract::commit::CommitEffect;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::TokenId;
use crate::kernel::time::Timestamp;
use crate::kernel::token::AccessToken;
use crate::store::tables::tokens;

/// Maximum number of tokens per org, those that have ended recently included.
pub const MAX_TOKENS: i64 = 1000;
/// How long a token that has ended stays in lists, in milliseconds.
const KEPT_MS: i64 = 90 * 24 * 3_600_000;

/// Once this returns, the token is valid.
pub fn create(context: &mut Context<'_>, new: AccessToken) -> Result<AccessToken, Fault> {
    if let Some(found) = tokens::get(context.tx, new.id)? {
        return Ok(found);
    }
    let before = Timestamp(context.now.wall.0 - KEPT_MS);
    tokens::remove_ended(context.tx, &new.org, before)?;
    if tokens::count(context.tx, &new.org)? >= MAX_TOKENS {
        return Err(Fault::new(
            Kind::Limit,
            format!(
                "org {} has {MAX_TOKENS} tokens, which is the limit; nothing was created",
                new.org
            ),
        )
        .hint("tokens that were revoked or have expired stop counting after 90 days")
        .with("limit", "tokens")
        .with("value", MAX_TOKENS)
        .with("counts", "tokens of the org"));
    }
    tokens::insert(context.tx, &new)?;
    context.effect(CommitEffect::TokenChanged(Box::new(new.clone())));
    Ok(new)
}

/// Once this returns, the token is refused. `org` limits it to tokens of that org.
pub fn revoke(
    context: &mut Context<'_>,
    org: Option<&str>,
    id: TokenId,
) -> Result<AccessToken, Fault> {
    let found = tokens::get(context.tx, id)?;
    let found = found.filter(|token| org.is_none_or(|org| token.org == org));
    let mut token = found.ok_or_else(|| Fault::not_found("token", id))?;
    if token.revoked_at.is_none() {
        token.revoked_at = Some(context.now.wall);
        tokens::revoke(context.tx, id, context.now.wall)?;
    }
    context.effect(CommitEffect::TokenChanged(Box::new(token.clone())));
    Ok(token)
}

/// Once this returns, the rows say when these tokens were last used.
pub fn note_uses(context: &mut Context<'_>, uses: &[(TokenId, Timestamp)]) -> Result<(), Fault> {
    for (id, at) in uses {
        tokens::note_use(context.tx, *id, *at)?;
    }
    Ok(())
}
