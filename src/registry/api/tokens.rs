//! Access tokens: created, listed and revoked. Called by the RPC layer.

use std::num::NonZeroU32;

use super::answer::Page;
use crate::command::{CreateToken, RevokeToken};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::TokenId;
use crate::kernel::scope::ScopeSet;
use crate::kernel::secret::Secret;
use crate::kernel::token::{AccessToken, TokenLimits, token_text};
use crate::registry::{Principal, Registry};
use crate::store::tables::tokens;
use crate::wire::tokens as wire;

impl Registry {
    /// Creates an access token and returns it with its text, which is not stored. Once this returns,
    /// calls with it are accepted, also after a restart.
    pub async fn create_token(
        &self,
        who: &Principal,
        request: wire::CreateToken,
    ) -> Result<(AccessToken, Secret), Fault> {
        let org = self
            .org_of(who, request.org)?
            .unwrap_or_else(|| who.org.clone());
        let scopes: ScopeSet = request.scopes.into_iter().collect();
        let missing = scopes.without(who.scopes);
        if !missing.is_empty() {
            let message = format!(
                "the caller does not have the scopes {missing} itself; nothing was created"
            );
            return Err(Fault::new(Kind::Forbidden, message)
                .hint("grant fewer scopes, or have the owner of the daemon create the token")
                .with("scopes", who.scopes.to_string()));
        }
        let now = self.inner.clock.now();
        let id = TokenId(self.inner.clock.new_id());
        let text = token_text(id, &random()?);
        let limits = request.limits.unwrap_or_default();
        let lifetime = request.expires.map(|span| span.0.as_millis());
        let token = AccessToken {
            id,
            org,
            user: request.user,
            label: request.label,
            hash: blake3::hash(text.expose().as_bytes()).to_hex().to_string(),
            scopes,
            limits: TokenLimits {
                calls_per_minute: limits.calls_per_minute.map(NonZeroU32::get),
                connections: limits.connections.map(NonZeroU32::get),
                open_runs: limits.open_runs.map(NonZeroU32::get),
            },
            created_by: who.recorded(),
            created_at: now,
            expires_at: lifetime.map(|ms| now.plus_ms(u64::try_from(ms).unwrap_or(u64::MAX))),
            revoked_at: None,
            used_at: None,
        };
        let token = self.inner.store.submit(CreateToken { token }).await?;
        self.inner.access.apply(&token);
        Ok((token, text))
    }

    /// A page of access tokens, newest first: of one org, or of all orgs for the owner of the
    /// daemon.
    pub async fn tokens(
        &self,
        who: &Principal,
        org: Option<String>,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<AccessToken>, Fault> {
        let org = self.org_of(who, org)?;
        let before = cursor.map(|text| {
            let id = text.parse::<TokenId>();
            id.map_err(|_| Fault::params("cursor", "not a cursor of this list"))
        });
        let before = before.transpose()?;
        let listed = self
            .inner
            .store
            .read(move |tx| tokens::page(tx, org.as_deref(), before, limit + 1));
        let mut items = listed.await?;
        let mut next = None;
        if items.len() > limit as usize {
            items.truncate(limit as usize);
            next = items.last().map(|token| token.id.to_string());
        }
        for token in &mut items {
            token.used_at = token.used_at.max(self.inner.access.used_at(token.id));
        }
        Ok(Page { items, next })
    }

    /// Once this returns, calls with this token are refused, and its connections are being closed.
    pub async fn revoke_token(&self, who: &Principal, id: TokenId) -> Result<AccessToken, Fault> {
        let org = self.org_of(who, None)?;
        let mut token = self.inner.store.submit(RevokeToken { org, id }).await?;
        self.inner.access.apply(&token);
        token.used_at = token.used_at.max(self.inner.access.used_at(id));
        Ok(token)
    }

    /// The org that a call about tokens concerns; `None`: all orgs, for the owner of the daemon. Only
    /// the owner may name another org than its own, whether or not that exists.
    fn org_of(&self, who: &Principal, named: Option<String>) -> Result<Option<String>, Fault> {
        match named {
            _ if who.is_owner() => Ok(named),
            Some(org) if org != who.org => Err(Fault::new(
                Kind::Forbidden,
                "only the owner of the daemon may name another org; nothing was done",
            )
            .hint("omit the org, or have the operator of the daemon do it")),
            _ => Ok(Some(who.org.clone())),
        }
    }
}

/// 256 random bits, hexadecimal.
fn random() -> Result<String, Fault> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|fault| Fault::internal(format!("the system gave no random bytes: {fault}")))?;
    Ok(blake3::Hash::from(bytes).to_hex().to_string())
}
