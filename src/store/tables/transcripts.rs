//! A memory cache of the transcript part that models of a session were last shown, so that a turn
//! reads only newer messages. The rows remain authoritative: only data read from them is cached,
//! and the messages of a session do not change while it exists.
//!
//! The only later addition to an entry is the delegation context ([`messages::keep_pack`]), which
//! no model sees.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;

use super::{messages, sessions};
use crate::kernel::ids::SessionId;
use crate::kernel::run::Run;
use crate::kernel::session::message::Message;
use crate::kernel::session::raw_metadata::RawMetadata;
use crate::store::tx::{DbError, Tx};

/// Maximum size of the cache in bytes: about a thousand short entries each for 32 sessions.
const LIMIT: usize = 24 << 20;
/// Minimum number of entries to cache. Shorter transcripts are read as fast, and most belong to
/// subagents with a single task.
const LEAST: usize = 16;
/// Approximate size of an entry without its content: its fields and the allocator's overhead.
const ENTRY: usize = 64 + size_of::<Message>();
/// Maximum number of sessions whose last use is remembered, cached or not.
const REMEMBERED: usize = 4096;

/// The cached ends of the most recently used transcripts.
pub struct Transcripts {
    kept: Mutex<Kept>,
    limit: usize,
    least: usize,
}

struct Kept {
    /// The cached sessions, least recently used first.
    sessions: LruCache<SessionId, Arc<Known>>,
    bytes: usize,
    /// The number of the last use of each session.
    used: LruCache<SessionId, u64>,
    uses: u64,
    /// How often the cache was cleared. Data read before a clear is not cached after it.
    forgotten: u64,
}

/// The start of a read: its data is cached only if the cache was not cleared since then.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// The messages that a model of one session was shown.
struct Known {
    generation: i64,
    messages: Vec<Arc<Message>>,
    bytes: usize,
}

impl Default for Transcripts {
    fn default() -> Self {
        Transcripts::new(LIMIT, LEAST)
    }
}

impl Transcripts {
    /// A cache of at most `limit` bytes, for transcripts with at least `least` entries.
    pub fn new(limit: usize, least: usize) -> Self {
        let kept = Kept {
            sessions: LruCache::new_unbounded(),
            bytes: 0,
            used: LruCache::new(REMEMBERED),
            uses: 0,
            forgotten: 0,
        };
        Transcripts {
            kept: Mutex::new(kept),
            limit,
            least,
        }
    }

    /// Must be called before the first read whose rows are used with [`Transcripts::window`].
    pub fn mark(&self) -> Mark {
        Mark(self.lock().forgotten)
    }

    /// As [`messages::window`].
    pub fn window(
        &self,
        tx: &mut dyn Tx,
        run: &Run,
        limit: u32,
        mark: Mark,
    ) -> Result<Vec<Arc<Message>>, DbError> {
        // A called agent has its own view of the conversation.
        if run.is_called() {
            return Ok(read(tx, run, limit)?.messages);
        }
        let (known, used_before) = self.lock().used(run.session);
        let known = known.filter(|known| known.generation == run.generation);
        let now = match &known {
            Some(known) => known.and_since(tx, run, limit)?,
            None => None,
        };
        let now = match now {
            Some(now) => now,
            // The part before a fork belongs to another session and can be deleted with it.
            None if sessions::fork_of(tx, run.session)?.is_some() => {
                return Ok(read(tx, run, limit)?.messages);
            }
            None => read(tx, run, limit)?,
        };
        let is_more = known.map_or(0, |known| known.last()) < now.last();
        if !is_more || now.messages.len() < self.least {
            return Ok(now.messages);
        }
        let messages = now.messages.clone();
        self.keep(run.session, now, used_before, mark);
        Ok(messages)
    }

    /// The session is deleted: its cached messages are dropped.
    pub fn remove(&self, session: SessionId) {
        let mut kept = self.lock();
        if let Some(gone) = kept.sessions.remove(&session) {
            kept.bytes -= gone.bytes;
        }
    }

    /// The cache is empty, because rows were changed outside the normal control flow.
    pub fn forget(&self) {
        let mut kept = self.lock();
        kept.sessions.clear();
        kept.used.clear();
        kept.bytes = 0;
        kept.forgotten += 1;
    }

    /// Caches `now` if it fits or room can be made. If more sessions take turns than fit, most stay
    /// cached and the others are read each time: the least recently used session is evicted only if
    /// its last use is older than this session's own previous use. Otherwise it would be needed
    /// again first.
    fn keep(&self, session: SessionId, now: Known, used_before: u64, mark: Mark) {
        let mut kept = self.lock();
        if kept.forgotten != mark.0 {
            return;
        }
        let before = kept.sessions.remove(&session);
        kept.bytes -= before.as_ref().map_or(0, |before| before.bytes);
        let is_kept = before.is_some();
        if now.bytes > self.limit {
            return;
        }
        while kept.bytes + now.bytes > self.limit {
            let Some((oldest, _)) = kept.sessions.iter().next() else {
                return;
            };
            let oldest = *oldest;
            let used = kept.used.peek(&oldest).copied().unwrap_or_default();
            if !is_kept && used > used_before {
                return;
            }
            if let Some(gone) = kept.sessions.remove(&oldest) {
                kept.bytes -= gone.bytes;
            }
        }
        kept.bytes += now.bytes;
        kept.sessions.insert(session, Arc::new(now));
    }

    /// The size of the cache in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// True if a part of this session's transcript is cached.
    #[cfg(test)]
    pub fn has(&self, session: SessionId) -> bool {
        self.lock().sessions.peek(&session).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while the lock is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// The cached part of a session that is used now, and the number of its previous use.
    fn used(&mut self, session: SessionId) -> (Option<Arc<Known>>, u64) {
        self.uses += 1;
        let before = self.used.insert(session, self.uses);
        let known = self.sessions.get(&session).cloned();
        (known, before.unwrap_or_default())
    }
}

fn read(tx: &mut dyn Tx, run: &Run, limit: u32) -> Result<Known, DbError> {
    let messages = messages::window(tx, run, limit)?;
    Ok(Known {
        generation: run.generation,
        bytes: messages.iter().map(bytes).sum(),
        messages: messages.into_iter().map(Arc::new).collect(),
    })
}

impl Known {
    /// Seq of its last entry.
    fn last(&self) -> i64 {
        self.messages.last().map_or(0, |message| message.seq)
    }

    /// Extended by newer messages; `None` if those alone fill the window.
    fn and_since(&self, tx: &mut dyn Tx, run: &Run, limit: u32) -> Result<Option<Known>, DbError> {
        let new = messages::window_after(tx, run, self.last(), limit)?;
        if new.len() >= limit as usize {
            return Ok(None);
        }
        let mut bytes_now = self.bytes + new.iter().map(bytes).sum::<usize>();
        let mut messages = self.messages.clone();
        messages.extend(new.into_iter().map(Arc::new));
        let too_many = messages.len().saturating_sub(limit as usize);
        for gone in messages.drain(..too_many) {
            bytes_now -= bytes(&gone);
        }
        Ok(Some(Known {
            generation: run.generation,
            messages,
            bytes: bytes_now,
        }))
    }
}

/// The approximate memory size of an entry.
fn bytes(message: &Message) -> usize {
    let noted = message.metadata.as_ref().map_or(0, RawMetadata::bytes);
    ENTRY + noted + message.content.bytes()
}
