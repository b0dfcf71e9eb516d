//! Relays the results of ended runs to the session that requested them: names each run and
//! quotes its result.

use std::fmt::Write as _;
use std::sync::Arc;

use super::DISCLAIMER;
use crate::kernel::delegation::announce::parts;
use crate::kernel::session::message::{Message, MessageKind};
use crate::kernel::text::prefix;

/// Maximum total bytes of all quoted results.
const QUOTE_LIMIT: usize = 24 * 1024;

/// The text that relays all unanswered announces, up to the last of `messages`.
pub(super) fn relay(messages: &[Arc<Message>]) -> String {
    let answered = messages
        .iter()
        .rposition(|message| message.kind != MessageKind::Announce);
    let unanswered = &messages[answered.map_or(0, |at| at + 1)..];
    let mut out = format!("{DISCLAIMER} These results of ended runs are unchanged.\n");
    let room = QUOTE_LIMIT / unanswered.len().max(1);
    for message in unanswered {
        let text = message.text();
        let parts = parts(&text);
        let _ = writeln!(out, "\n{}", parts.head);
        if let Some(error) = parts.error {
            let _ = writeln!(out, "error: {error}");
        }
        let Some(result) = parts.result else {
            out.push_str("It left no text.\n");
            continue;
        };
        let kept = prefix(result, room);
        for line in kept.lines() {
            let _ = writeln!(out, "> {line}");
        }
        let left = result.len() - kept.len();
        if left > 0 {
            let _ = writeln!(out, "> … {left} more bytes; read the run for all of it");
        }
    }
    out.truncate(out.trim_end().len());
    out
}
