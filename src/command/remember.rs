//! Commands that save and delete long-term memories.

use super::Remembered;
use super::StepRef;
use super::context::Context;
use super::waiting::acting;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::MemoryId;
use crate::kernel::memory::{LONGEST, Memory, MemorySource};
use crate::kernel::run::Run;
use crate::kernel::text::{prefix_chars, storable};
use crate::store::tables::memories;

/// A memory that a model saves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remember {
    /// The step of the tool call; the memory's id has the same UUID.
    pub by: StepRef,
    /// The text to save.
    pub text: String,
}

/// Once this returns, the text is stored once in the namespace of the step's run; an equal text is
/// not stored again.
pub fn remember(context: &mut Context<'_>, remember: &Remember) -> Result<Remembered, Fault> {
    let (run, step) = acting(context, remember.by)?;
    let id = MemoryId(step.id.0);
    if let Some(kept) = memories::get(context.tx, &run.org, id)? {
        return Ok(Remembered {
            memory: kept,
            is_new: true,
        });
    }
    let text = storable(remember.text.trim());
    let (memory, is_new) = keep(context, &run, id, text, MemorySource::Tool)?;
    Ok(Remembered { memory, is_new })
}

/// Saves the facts that a compaction extracted, up to the namespace limit. Returns the number of
/// new memories, and the limit message if not all fit.
pub fn extracted(
    context: &mut Context<'_>,
    run: &Run,
    texts: &[String],
) -> Result<(usize, Option<String>), Fault> {
    let mut kept = 0;
    for text in texts {
        let text = storable(prefix_chars(text.trim(), LONGEST));
        let id = MemoryId(context.clock.new_id());
        match keep(context, run, id, text, MemorySource::Compaction) {
            Ok((_, is_new)) => kept += usize::from(is_new),
            // A full memory must not end the turn.
            Err(fault) if fault.kind == Kind::Limit => return Ok((kept, Some(fault.message))),
            Err(fault) => return Err(fault),
        }
    }
    Ok((kept, None))
}

fn keep(
    context: &mut Context<'_>,
    run: &Run,
    id: MemoryId,
    text: String,
    source: MemorySource,
) -> Result<(Memory, bool), Fault> {
    let space = memories::spaces_of(context.tx, run)?.own;
    let same = memories::same(context.tx, &run.org, &space, &text)?;
    if let Some(same) = same {
        return Ok((same, false));
    }
    let most = i64::from(context.settings.max_memories);
    let count = memories::count(context.tx, &run.org, &space)?;
    if count >= most {
        return Err(full(&space, count, most));
    }
    let memory = Memory {
        id,
        org: run.org.clone(),
        space,
        text,
        source,
        run: run.id,
        at: context.now.wall,
    };
    let seq = context.take_seq()?;
    memories::insert(context.tx, seq, &memory)?;
    Ok((memory, true))
}

fn full(space: &str, count: i64, most: i64) -> Fault {
    Fault::new(
        Kind::Limit,
        format!(
            "memory of {space} is full: {count} entries, at most {most} (memory.max_entries). \
             Nothing more was saved"
        ),
    )
    .hint("an operator can delete some (abide memory delete) or raise memory.max_entries")
    .with("limit", "memory.max_entries")
    .with("value", most)
    .with("counts", format!("memories in namespace {space}"))
    .with("free", "memory.delete")
}

/// Once this returns, these memories of the tenant are deleted; the reply has those that existed.
pub fn forget(
    context: &mut Context<'_>,
    org: &str,
    ids: Vec<MemoryId>,
) -> Result<Vec<MemoryId>, Fault> {
    let mut gone = Vec::new();
    for id in ids {
        if memories::remove(context.tx, org, id)? {
            gone.push(id);
        }
    }
    Ok(gone)
}
