//! The access tokens that are in force, in memory: a call looks its token up here and reads no row.
//! Loaded at the start, and changed with each commit that concerns a token. The gateway asks.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{Registry, RegistryInner};
use crate::clock::Clock;
use crate::command::NoteTokenUses;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::TokenId;
use crate::kernel::time::Timestamp;
use crate::kernel::token::{AccessToken, id_in};
use crate::store::tables::tokens;

/// Length of the window in which calls are counted.
const MINUTE: Duration = Duration::from_secs(60);
/// How long the wait for the end of a token sleeps at most, because the wall clock may be set.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// All access tokens.
pub struct AccessTokens {
    clock: Clock,
    by_id: RwLock<HashMap<TokenId, Arc<LiveToken>>>,
}

/// One access token and its use by this process.
pub struct LiveToken {
    /// The token as it was created; whether it is revoked is known by the handle.
    token: AccessToken,
    hash: blake3::Hash,
    clock: Clock,
    /// Cancelled when the token is revoked.
    revoked: CancellationToken,
    calls: Mutex<CallWindow>,
    connections: AtomicU32,
    /// The last use, and the last one that is stored, in milliseconds; 0 if there is none.
    used_at: AtomicI64,
    noted_at: AtomicI64,
}

#[derive(Default)]
struct CallWindow {
    began: Duration,
    count: u32,
}

/// A connection that counts towards the limit of a token, until it is dropped.
pub struct TokenConnection(Arc<LiveToken>);

impl Drop for TokenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TokenConnection {
    /// The token.
    pub fn token(&self) -> &Arc<LiveToken> {
        &self.0
    }
}

impl AccessTokens {
    /// No tokens.
    pub fn new(clock: Clock) -> Self {
        AccessTokens {
            clock,
            by_id: RwLock::default(),
        }
    }

    /// The token with this text, whether or not it is still valid. Texts are compared by their
    /// hashes, which takes the same time wherever they differ.
    pub fn find(&self, text: &[u8]) -> Option<Arc<LiveToken>> {
        let id = id_in(std::str::from_utf8(text).ok()?)?;
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let found = by_id.get(&id)?;
        (found.hash == blake3::hash(text)).then(|| Arc::clone(found))
    }

    /// Once this returns, calls see the token as it is now. A revocation is final, so the order in
    /// which two changes arrive does not matter.
    pub fn apply(&self, token: &AccessToken) {
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = by_id.get(&token.id) {
            if token.revoked_at.is_some() {
                known.revoked.cancel();
            }
            return;
        }
        let Ok(hash) = blake3::Hash::from_hex(&token.hash) else {
            tracing::error!(token = %token.id, "the hash of an access token is damaged; it is refused");
            return;
        };
        let live = LiveToken {
            hash,
            clock: self.clock.clone(),
            revoked: CancellationToken::new(),
            calls: Mutex::default(),
            connections: AtomicU32::new(0),
            used_at: AtomicI64::new(0),
            noted_at: AtomicI64::new(0),
            token: token.clone(),
        };
        if token.revoked_at.is_some() {
            live.revoked.cancel();
        }
        by_id.insert(token.id, Arc::new(live));
    }

    /// The last uses that are not stored yet; they count as stored from now on.
    fn take_uses(&self) -> Vec<(TokenId, Timestamp)> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let uses = by_id.values().filter_map(|live| {
            let used = live.used_at.load(Ordering::Relaxed);
            let noted = live.noted_at.swap(used, Ordering::Relaxed);
            (used > noted).then_some((live.token.id, Timestamp(used)))
        });
        uses.collect()
    }

    /// The last use of a token by this process.
    pub(crate) fn used_at(&self, id: TokenId) -> Option<Timestamp> {
        let by_id = self.by_id.read().unwrap_or_else(PoisonError::into_inner);
        let used = by_id.get(&id)?.used_at.load(Ordering::Relaxed);
        (used > 0).then_some(Timestamp(used))
    }
}

impl fmt::Debug for LiveToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token {}", self.token.id)
    }
}

impl LiveToken {
    /// The token as it was created.
    pub fn token(&self) -> &AccessToken {
        &self.token
    }

    /// Refuses a token that has ended.
    pub fn check(&self) -> Result<(), Fault> {
        let (id, now) = (self.token.id, self.clock.now());
        if self.revoked.is_cancelled() {
            return Err(ended(format!("token {id} is revoked")));
        }
        if let Some(end) = self.token.expires_at.filter(|end| *end <= now) {
            return Err(ended(format!("token {id} expired {end}")));
        }
        Ok(())
    }

    /// Counts one call, by which the token is used; refuses one of a token that has ended or is over
    /// its limit.
    pub fn count_call(&self) -> Result<(), Fault> {
        self.check()?;
        self.used_at
            .fetch_max(self.clock.now().0, Ordering::Relaxed);
        let Some(most) = self.token.limits.calls_per_minute else {
            return Ok(());
        };
        let now = self.clock.monotonic();
        let mut window = lock(&self.calls);
        if now.saturating_sub(window.began) >= MINUTE || window.count == 0 {
            *window = CallWindow {
                began: now,
                count: 0,
            };
        }
        if window.count >= most {
            let wait = (window.began + MINUTE).saturating_sub(now);
            let message = format!("this token allows {most} calls per minute; nothing was done");
            return Err(Fault::new(Kind::RateLimited, message)
                .with("limit", "token_calls")
                .with("value", most)
                .with(
                    "retryAfterMs",
                    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
                ));
        }
        window.count += 1;
        Ok(())
    }

    /// Counts one connection; refused if the token allows no more.
    pub fn connect(self: &Arc<Self>) -> Result<TokenConnection, Fault> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let connection = TokenConnection(Arc::clone(self));
        match self.token.limits.connections {
            Some(most) if before >= most => Err(Fault::new(
                Kind::Busy,
                format!("{most} connections with this token are open, which is its limit; nothing was done"),
            )
            .hint("close one of them, or use a token with a higher limit")
            .with("limit", "token_connections")
            .with("value", most)
            .with("retryAfterMs", 1000)),
            _ => Ok(connection),
        }
    }

    /// Returns the fault of the token when it is revoked or expires.
    pub async fn ended(&self) -> Fault {
        loop {
            if let Err(fault) = self.check() {
                return fault;
            }
            let Some(end) = self.token.expires_at else {
                self.revoked.cancelled().await;
                continue;
            };
            let left = Duration::from_millis(end.since(self.clock.now()).max(1));
            tokio::select! {
                () = self.revoked.cancelled() => {}
                () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
            }
        }
    }
}

fn ended(what: String) -> Fault {
    Fault::new(Kind::Unauthorized, format!("{what}; nothing was done"))
        .hint("have an administrator create another one (abide tokens create)")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A count is consistent at every moment, also after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// The access tokens in force.
    pub fn access_tokens(&self) -> &Arc<AccessTokens> {
        &self.inner.access
    }

    /// Once this returns, the stored access tokens are in force. Fails if they cannot be read.
    pub fn load_tokens(&self) -> Result<(), Fault> {
        for token in self.inner.store.read_now(tokens::every)? {
            self.inner.access.apply(&token);
        }
        Ok(())
    }
}

impl RegistryInner {
    /// Stores the last uses of access tokens, if there are new ones.
    pub(super) async fn note_token_uses(&self) {
        let uses = self.access.take_uses();
        if uses.is_empty() {
            return;
        }
        let command = NoteTokenUses { uses };
        if let Err(fault) = self.store.submit_waiting(command).await {
            tracing::warn!(%fault, "the last uses of access tokens could not be stored");
        }
    }
}
