//! What the models of sessions were shown last, kept in memory, so that a turn reads what was said
//! since then and not all of its conversation again. The rows stay the truth: kept is only what
//! was read out of them, and what a session has been told does not change while it lives.
//!
//! A note for later readers ([`messages::keep_pack`]) is the one thing that is added to an entry;
//! no model sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashlink::LruCache;

use super::tx::{DbError, Tx};
use super::{messages, sessions};
use crate::kernel::ids::SessionId;
use crate::kernel::message::Message;
use crate::kernel::noted::Noted;
use crate::kernel::run::Run;

/// So much is kept at most, bytes in memory: of 32 sessions about a thousand short entries each.
const LIMIT: usize = 24 << 20;
/// Shorter conversations are read as fast, and most are over by then: a subagent has one task.
const LEAST: usize = 16;
/// About so much is an entry without what it says: its fields and what the allocator adds.
const ENTRY: usize = 64 + size_of::<Message>();
/// Of so many sessions it is known when they were used last, also where nothing is kept of them.
const REMEMBERED: usize = 4096;

/// The ends of transcripts, those that were used last.
pub struct Transcripts {
    kept: Mutex<Kept>,
    limit: usize,
    least: usize,
}

struct Kept {
    /// Those that are kept, the one that was used longest ago first.
    sessions: LruCache<SessionId, Arc<Known>>,
    bytes: usize,
    /// When each session was used last, by the number of that use.
    used: LruCache<SessionId, u64>,
    uses: u64,
    /// How often all of it was forgotten. What was read before that is not kept after it.
    forgotten: u64,
}

/// When something began to be read: it is kept only if nothing was forgotten since then.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// What a model of one session was shown.
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
    /// Keeps so many bytes at most, of transcripts with so many entries at least.
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

    /// To be taken before anything is read that [`Transcripts::window`] is asked beside.
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
        // A called agent sees the conversation in its own way.
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
            // What stands before a fork goes with another session.
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

    /// The session is gone, and what was said in it.
    pub fn remove(&self, session: SessionId) {
        let mut kept = self.lock();
        if let Some(gone) = kept.sessions.remove(&session) {
            kept.bytes -= gone.bytes;
        }
    }

    /// Nothing of it counts any more: rows were changed from outside the course of things.
    pub fn forget(&self) {
        let mut kept = self.lock();
        kept.sessions.clear();
        kept.used.clear();
        kept.bytes = 0;
        kept.forgotten += 1;
    }

    /// Keeps `now`, if there is room or room can be made for it. Where more sessions take turns
    /// than fit, most are kept and the others read each time: the one that was used longest ago
    /// makes room only if that was before this one's own last use, or it would be read again
    /// before the other is.
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

    /// How much is kept.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Is anything kept of this session?
    #[cfg(test)]
    pub fn has(&self, session: SessionId) -> bool {
        self.lock().sessions.peek(&session).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// What is kept of a session that is used now, and the number of its use before.
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
    /// The place of its last entry.
    fn last(&self) -> i64 {
        self.messages.last().map_or(0, |message| message.seq)
    }

    /// The same with what came after it; `None` where that alone fills the window.
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

/// About the memory that an entry takes.
fn bytes(message: &Message) -> usize {
    let noted = message.metadata.as_ref().map_or(0, Noted::bytes);
    ENTRY + noted + message.content.bytes()
}
