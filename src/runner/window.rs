//! How long the transcript is for a model, and where it may be cut so that what follows makes
//! sense by itself. Pure; used by `prompt` and `compact`.
//!
//! ```text
//! transcript   u a t u a t t a u a        u: input, a: answer, t: result of a call
//! cut             ▲     ▲   ▲ ▲            never between a call and its result
//! shown        [summary] u a t t a u a
//! ```

use std::collections::HashSet;
use std::sync::Arc;

use crate::kernel::blocks::BlockRef;
use crate::kernel::ids::RunId;
use crate::kernel::message::{Compacted, Message, MessageKind, Role};

/// Tokens of an entry beside its text: role, marks, names.
const OVERHEAD: u64 = 8;

/// About how many tokens a text has: four bytes of the Latin alphabet are one, and each
/// character of another script is. Counted low it would be refused, so it is counted high
/// rather.
pub(super) fn tokens(text: &str) -> u64 {
    let ascii = text.bytes().filter(u8::is_ascii).count() as u64;
    let others = text.chars().filter(|one| !one.is_ascii()).count() as u64;
    ascii.div_ceil(4) + others
}

/// About how many tokens an entry has. What its provider said verbatim goes back in place of
/// what was read out of it.
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

/// About how many tokens they have together.
pub(super) fn all_tokens<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> u64 {
    let each = messages.into_iter().map(|message| message_tokens(message));
    each.sum()
}

/// The entry that stands for those before it, if there is one.
pub(super) fn summary(messages: &[Arc<Message>]) -> Option<(&Arc<Message>, Compacted)> {
    let mut latest = messages.iter().rev();
    latest.find_map(|message| Some((message, message.compaction()?)))
}

/// The entries that are shown as they are: those that no summary stands for.
pub(super) fn shown(messages: &[Arc<Message>]) -> Vec<&Arc<Message>> {
    let compacted = summary(messages).map(|(_, compacted)| compacted);
    let compacted = compacted.unwrap_or_default();
    messages
        .iter()
        .filter(|message| message.kind != MessageKind::Compaction)
        .filter(|message| message.seq > compacted.up_to || compacted.keep.contains(&message.seq))
        .collect()
}

/// About how many tokens the next request has. Where the provider has counted those of an
/// answer since the transcript was last shortened, only what came later is estimated; `fixed`
/// is what goes along with every request.
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

/// How much of a transcript is to be left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The run that shortens.
    pub run: RunId,
    /// Tokens of what is kept as it is.
    pub tokens: u64,
    /// Only whole turns are dropped.
    pub turns: bool,
}

/// Which entries to drop so that what is left fits `room`, as far as that can be: the fewest
/// that do, else as many as may be. `None`: none may be dropped.
///
/// What no model call has answered yet stays, and so do the last answer of a turn that goes on
/// with the results of its calls, and what that turn was asked.
pub(super) fn cut(messages: &[Arc<Message>], room: Room) -> Option<Compacted> {
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
        // What the turn was asked stays in the words in which it was asked.
        let asked = shown[begins.min(index)..index].iter();
        let mut keep: Vec<i64> = asked
            .filter(|message| message.is_input())
            .map(|message| message.seq)
            .collect();
        let drops = index - keep.len();
        // Kept ones from an earlier time that are no part of this turn go as well.
        let Some(last) = index.checked_sub(1).filter(|_| drops > 0) else {
            continue;
        };
        let left = shown
            .iter()
            .enumerate()
            .filter(|(at, message)| *at >= index || keep.contains(&message.seq));
        let left: u64 = left.map(|(_, message)| message_tokens(message)).sum();
        // What an earlier summary stands for does not come back, and what was kept beside it
        // stays only by name.
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

/// Where the transcript may be cut in front of: at an input or an answer, while no call is
/// without its result; and at its end.
fn cuts(shown: &[&Arc<Message>]) -> Vec<usize> {
    let mut open: HashSet<String> = HashSet::new();
    let mut cuts = Vec::new();
    for (index, message) in shown.iter().enumerate() {
        match message.role {
            Role::Assistant => {
                // A call without a result when the next answer comes never gets one.
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

/// Does a turn begin here: is something said after an answer?
fn is_turn(shown: &[&Arc<Message>], index: usize) -> bool {
    let said = |message: &Message| !matches!(message.role, Role::Assistant | Role::Tool);
    match (shown.get(index), index.checked_sub(1)) {
        // A called agent's own turn begins with its call, whatever was said before that.
        (Some(message), Some(_)) if message.kind == MessageKind::SubAgentUser => true,
        (Some(message), Some(before)) => said(message) && !said(shown[before]),
        (Some(message), None) => said(message),
        (None, _) => true,
    }
}

/// Where the turn of `run` begins that goes on: after the last answer of another one, or with
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

/// The last place at which nothing is lost that the model has yet to see.
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
