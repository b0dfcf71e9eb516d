//! The output of a running program on its way to the gateway: collected and sent a few times a
//! second. What the link cannot take in time is left out here; the result of the call has it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::kernel::node::OutputStream;

/// Interval of sending.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of bytes of each stream that wait to be sent.
const PENDING_LIMIT: usize = 32 * 1024;

/// Output that was not sent yet.
#[derive(Default)]
pub(super) struct LiveOutput([Mutex<Vec<u8>>; 2]);

const STREAMS: [OutputStream; 2] = [OutputStream::Stdout, OutputStream::Stderr];

impl LiveOutput {
    /// Adds a piece of a stream.
    pub(super) fn push(&self, stream: OutputStream, bytes: &[u8]) {
        let pending = &self.0[usize::from(stream == OutputStream::Stderr)];
        let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
        let room = PENDING_LIMIT.saturating_sub(pending.len());
        pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Takes what can be sent now. The beginning of a character waits for the rest of it, unless
    /// `is_last`.
    pub(super) fn take(&self, is_last: bool) -> Vec<(OutputStream, String)> {
        let streams = STREAMS.into_iter().zip(&self.0);
        let texts = streams.map(|(stream, pending)| {
            let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = match is_last {
                true => 0,
                false => begun_character(&pending),
            };
            let whole = pending.len() - rest;
            let text = String::from_utf8_lossy(&pending[..whole]).into_owned();
            pending.drain(..whole);
            (stream, text)
        });
        texts.filter(|(_, text)| !text.is_empty()).collect()
    }
}

/// The number of bytes at the end that are the beginning of a character.
fn begun_character(bytes: &[u8]) -> usize {
    match bytes.utf8_chunks().last() {
        Some(chunk) => {
            let invalid = chunk.invalid();
            let fault = std::str::from_utf8(invalid).err();
            match fault {
                Some(fault) if fault.error_len().is_none() => invalid.len(),
                _ => 0,
            }
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_arrive_whole_and_floods_are_cut() {
        let live = LiveOutput::default();
        assert!(live.take(false).is_empty());
        live.push(OutputStream::Stdout, b"a\xc3");
        live.push(OutputStream::Stderr, b"e\xff");
        let text = |text: &str| text.to_owned();
        assert_eq!(
            live.take(false),
            [
                (OutputStream::Stdout, text("a")),
                (OutputStream::Stderr, text("e\u{fffd}"))
            ]
        );
        live.push(OutputStream::Stdout, b"\xa4b\xc3");
        assert_eq!(live.take(false), [(OutputStream::Stdout, text("äb"))]);
        assert_eq!(live.take(true), [(OutputStream::Stdout, text("\u{fffd}"))]);
        live.push(OutputStream::Stdout, &[b'x'; 2 * PENDING_LIMIT]);
        assert_eq!(live.take(false)[0].1.len(), PENDING_LIMIT);
    }
}
