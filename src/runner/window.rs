//! Size of the transcript for a model, and the positions where it may be cut. Pure; used by
//! `prompt` and `compact`.
//!
//! ```text
//! transcript   u a t u a t t a u a        u: input, a: answer, t: result of a call
//! cut             ▲     ▲   ▲ ▲            never between a call and its result
//! shown        [summary] u a t t a u a
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use crate::kernel::ids::RunId;
use crate::kernel::session::blocks::BlockRef;
use crate::kernel::session::message::{Compacted, Message, MessageKind, Role};

/// Estimated tokens of an entry besides its text: role, markers, names.
const OVERHEAD: u64 = 8;

/// Estimated tokens of a text: four ASCII characters are one, and each other character is one.
/// Estimates are rather too high, since a low one leads to a refusal.
pub(super) fn tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let others = text.chars().filter(|one| !one.is_ascii()).count() as u64;
    ascii.div_ceil(4) + others
}

/// Estimated tokens of an entry. A provider's raw content is sent back instead of the parsed
/// blocks, so the larger counts.
pub(super) fn message_tokens(message: &Message) -> u64 {
    message.content.size(|content| {
        let (mut native, mut read) = (0, 0);
        for piece in content.pieces() {
            match piece {
                BlockRef::Text(text) | BlockRef::ToolResult { text, .. } => {
                    read += tokens(&text.text())
                }
                BlockRef::ToolCall {
                    name, arguments, ..
                } => {
                    let arguments = arguments.value().to_string();
                    read += OVERHEAD + tokens(&name.text()) + tokens(&arguments);
                }
                BlockRef::Native { json, .. } => native = tokens(&json.text()),
                BlockRef::Note(_) => {}
            }
        }
        OVERHEAD + native.max(read)
    })
}

/// Estimated tokens of these entries together.
pub(super) fn all_tokens<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> u64 {
    let each = messages.into_iter().map(|message| message_tokens(message));
    each.sum()
}

/// The latest summary entry, if there is one.
pub(super) fn summary(messages: &[Arc<Message>]) -> Option<(&Arc<Message>, Compacted)> {
    let mut latest = messages.iter().rev();
    latest.find_map(|message| Some((message, message.compaction()?)))
}

/// The entries that are shown as they are, because no summary replaces them.
pub(super) fn shown(messages: &[Arc<Message>]) -> Vec<&Arc<Message>> {
    let compacted = summary(messages).map(|(_, compacted)| compacted);
    let compacted = compacted.unwrap_or_default();
    messages
        .iter()
        .filter(|message| message.kind != MessageKind::Compaction)
        .filter(|message| message.seq > compacted.up_to || compacted.keep.contains(&message.seq))
        .collect()
}

/// Estimated tokens of the next request. If the provider has counted an answer since the last
/// compaction, only later entries are estimated. `fixed` is what every request contains.
pub(super) fn request_tokens(messages: &[Arc<Message>], fixed: u64) -> u64 {
    let since = summary(messages).map_or(0, |(summary, _)| summary.seq);
    let later = messages.iter().filter(|message| message.seq > since);
    let counted = later
        .rev()
        .find_map(|message| Some((message.seq, message.counted_tokens()?)));
    let shown = shown(messages);
    match counted {
        Some((seq, counted)) => {
            let after = shown.into_iter().filter(|message| message.seq > seq);
            counted + all_tokens(after)
        }
        None => {
            let summary = summary(messages).map_or(0, |(summary, _)| message_tokens(summary));
            fixed + summary + all_tokens(shown)
        }
    }
}

/// The limits for what a compaction keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactionLimits {
    /// The run that compacts.
    pub run: RunId,
    /// Maximum tokens of the entries that are kept.
    pub tokens: u64,
    /// Drop only whole turns.
    pub turns: bool,
}

/// The entries to drop so that the rest fits `room`: the fewest that suffice, else as many as
/// possible. `None` if none may be dropped.
///
/// Input that no model call has seen is kept. So are the last answer of a turn in progress with the
/// results of its calls, and that turn's input.
pub(super) fn cut(messages: &[Arc<Message>], room: CompactionLimits) -> Option<Compacted> {
    let shown = shown(messages);
    let begins = turn_begins(&shown, room.run);
    let last_cut = last_cut(&shown, room.run);
    let latest = if room.turns {
        begins.min(last_cut)
    } else {
        last_cut
    };
    let stood_for = summary(messages).map_or(0, |(_, compacted)| compacted.up_to);
    let mut best = None;
    for index in cuts(&shown) {
        if index > latest || (room.turns && !is_turn(&shown, index)) {
            continue;
        }
        // The input of the turn is kept verbatim.
        let asked = shown[begins.min(index)..index].iter();
        let mut keep: Vec<i64> = asked
            .filter(|message| message.is_input())
            .map(|message| message.seq)
            .collect();
        let drops = index - keep.len();
        // Kept entries of earlier turns are dropped, too.
        let Some(last) = index.checked_sub(1).filter(|_| drops > 0) else {
            continue;
        };
        let left = shown
            .iter()
            .enumerate()
            .filter(|(at, message)| *at >= index || keep.contains(&message.seq));
        let left: u64 = left.map(|(_, message)| message_tokens(message)).sum();
        // Entries behind an earlier summary stay dropped; those that it kept are only kept if
        // listed.
        let up_to = shown[last].seq.max(stood_for);
        let later = shown[index..].iter().map(|message| message.seq);
        keep.extend(later.filter(|seq| *seq <= up_to));
        best = Some(Compacted {
            up_to,
            keep,
            open: Vec::new(),
        });
        if left <= room.tokens {
            break;
        }
    }
    best
}

/// The indexes before which the transcript may be cut: at an input or answer with no call open, and
/// at the end.
fn cuts(shown: &[&Arc<Message>]) -> Vec<usize> {
    let mut open: HashSet<String> = HashSet::new();
    let mut cuts = Vec::new();
    for (index, message) in shown.iter().enumerate() {
        match message.role {
            Role::Assistant => {
                // A call without a result before the next answer never gets one.
                open = calls(message).into_iter().collect();
                cuts.push(index);
            }
            Role::Tool => {
                if let Some(call) = message.tool_call.as_deref() {
                    open.remove(call);
                }
            }
            Role::User | Role::System if open.is_empty() => cuts.push(index),
            Role::User | Role::System => {}
        }
    }
    cuts.push(shown.len());
    cuts
}

fn calls(message: &Message) -> Vec<String> {
    let pieces = message.content.pieces().into_iter();
    let calls = pieces.filter_map(|piece| match piece {
        BlockRef::ToolCall { id, .. } => Some(id.text().into_owned()),
        _ => None,
    });
    calls.collect()
}

/// True if a turn begins here: an input that follows an answer.
fn is_turn(shown: &[&Arc<Message>], index: usize) -> bool {
    let said = |message: &Message| !matches!(message.role, Role::Assistant | Role::Tool);
    match (shown.get(index), index.checked_sub(1)) {
        // A called agent's turn begins with its call, whatever precedes it.
        (Some(message), Some(_)) if message.kind == MessageKind::SubAgentUser => true,
        (Some(message), Some(before)) => said(message) && !said(shown[before]),
        (Some(message), None) => said(message),
        (None, _) => true,
    }
}

/// The index where the current turn of `run` begins: after the last answer of another run, or at
/// the call of a called run.
fn turn_begins(shown: &[&Arc<Message>], run: RunId) -> usize {
    let is_call = |message: &&Arc<Message>| {
        message.kind == MessageKind::SubAgentUser && message.run == Some(run)
    };
    if let Some(call) = shown.iter().position(is_call) {
        return call;
    }
    let of_other = |message: &&Arc<Message>| {
        matches!(message.role, Role::Assistant | Role::Tool) && message.run != Some(run)
    };
    shown.iter().rposition(of_other).map_or(0, |last| last + 1)
}

/// The last index before which the model has seen everything.
fn last_cut(shown: &[&Arc<Message>], run: RunId) -> usize {
    let answer = shown.iter().rposition(|one| one.role == Role::Assistant);
    let Some(answer) = answer else {
        return 0;
    };
    let goes_on = shown[answer].run == Some(run) && !calls(shown[answer]).is_empty();
    if goes_on {
        return answer;
    }
    let results = shown[answer + 1..].iter();
    answer + 1 + results.take_while(|one| one.role == Role::Tool).count()
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
