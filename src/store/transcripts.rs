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
use crate::kernel::message::{Block, Message};
use crate::kernel::noted::Noted;
use crate::kernel::run::Run;

/// So much is kept at most, bytes of what was said and of what stands beside it.
const LIMIT: usize = 4 << 20;
/// Shorter conversations are read as fast, and most are over by then: a subagent has one task.
const LEAST: usize = 8;
/// About so much is an entry without what it says.
const ENTRY: usize = 512;

/// The ends of transcripts, those that were used last.
pub struct Transcripts {
    kept: Mutex<Kept>,
    limit: usize,
    least: usize,
}

struct Kept {
    sessions: LruCache<SessionId, Arc<Known>>,
    bytes: usize,
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
        let known = self.lock().sessions.get(&run.session).cloned();
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
        let messages = now.messages.clone();
        let is_more = known.map_or(0, |known| known.last()) < now.last();
        if is_more && messages.len() >= self.least {
            self.keep(run.session, now, mark);
        }
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
        kept.bytes = 0;
        kept.forgotten += 1;
    }

    fn keep(&self, session: SessionId, now: Known, mark: Mark) {
        let mut kept = self.lock();
        if kept.forgotten != mark.0 {
            return;
        }
        kept.bytes += now.bytes;
        if let Some(before) = kept.sessions.insert(session, Arc::new(now)) {
            kept.bytes -= before.bytes;
        }
        while kept.bytes > self.limit
            && let Some((_, oldest)) = kept.sessions.remove_lru()
        {
            kept.bytes -= oldest.bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
    let said = message.content.iter().map(|block| match block {
        Block::Text { text } | Block::ToolResult { text, .. } => text.len(),
        Block::Native { json, .. } => json.len(),
        Block::Note { .. } => 0,
        // A tree of values takes several times its text.
        Block::ToolCall { arguments, .. } => 8 * arguments.to_string().len(),
    });
    let noted = message.metadata.as_ref().map_or(0, Noted::bytes);
    ENTRY + noted + said.sum::<usize>()
}
