//! Relays the results of ended runs to the session that requested them: names each run and
//! quotes its result.

use std::fmt::Write as _;
use std::sync::Arc;

use super::DISCLAIMER;
use crate::kernel::announce::parts;
use crate::kernel::message::{Message, MessageKind};
use crate::kernel::text::prefix;

/// The maximum size of all quoted results together, bytes.
const QUOTE_LIMIT: usize = 24 * 1024;

/// The text for the announces without an answer, the last one at `latest`.
pub(super) fn relay(messages: &[Arc<Message>], latest: usize) -> String {
    let mut unanswered: Vec<&Arc<Message>> = messages[..=latest]
        .iter()
        .rev()
        .take_while(|message| message.kind == MessageKind::Announce)
        .collect();
    unanswered.reverse();
    let mut out = match unanswered.len() {
        1 => format!("{DISCLAIMER} A run has ended; this is its result, unchanged.\n"),
        many => {
            format!("{DISCLAIMER} {many} runs have ended; these are their results, unchanged.\n")
        }
    };
    let room = QUOTE_LIMIT / unanswered.len().max(1);
    for message in unanswered {
        let text = message.text();
        let parts = parts(&text);
        let _ = writeln!(out, "\n{}", parts.head);
        if let Some(error) = parts.error {
            let _ = writeln!(out, "error: {error}");
        }
        match parts.result {
            None => out.push_str("It left no text.\n"),
            Some(result) => quote(&mut out, result, room),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn quote(out: &mut String, result: &str, room: usize) {
    let kept = prefix(result, room);
    for line in kept.lines() {
        let _ = writeln!(out, "> {line}");
    }
    if kept.len() < result.len() {
        let _ = writeln!(
            out,
            "> … {} bytes more; the run itself has the whole",
            result.len() - kept.len()
        );
    }
}
