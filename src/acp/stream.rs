//! The text of answers as it arrives: what the editor has been sent of each, so that nothing is sent
//! twice and nothing is missing. Pieces announce the text; the stored message is authoritative.

use std::collections::{HashMap, VecDeque};

use crate::kernel::ids::MessageId;
use crate::wire::events::MessageText;

/// Number of stored messages whose late pieces are recognized.
const REMEMBERED: usize = 64;

/// The channel of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextChannel {
    Answer,
    Thinking,
}

/// The answers that are being streamed.
#[derive(Default)]
pub(super) struct Streams {
    open: HashMap<MessageId, [Sent; 2]>,
    stored: VecDeque<MessageId>,
}

/// What was sent of one channel.
#[derive(Default)]
struct Sent {
    text: String,
    /// The text of the present attempt while it is behind the text that was sent.
    repeat: Option<String>,
}

impl Streams {
    /// True if a piece of this message has come, or if it is stored.
    pub(super) fn knows(&self, message: MessageId) -> bool {
        self.open.contains_key(&message) || self.stored.contains(&message)
    }

    /// Takes a piece and returns the text to send.
    pub(super) fn delta(&mut self, piece: &MessageText) -> Option<(TextChannel, String)> {
        let text = piece.text.as_deref()?;
        let channel = match piece.channel.as_deref() {
            Some("thinking") => TextChannel::Thinking,
            _ => TextChannel::Answer,
        };
        let offset = usize::try_from(piece.offset?).ok()?;
        let sent = self.sent(piece.message_id, channel)?;
        let fresh = match &mut sent.repeat {
            Some(repeat) => {
                repeat.push_str(text.get(repeat.len().checked_sub(offset)?..)?);
                let now = std::mem::take(repeat);
                sent.replace(now)
            }
            None => {
                // After a gap the stored message brings the rest.
                let fresh = text.get(sent.text.len().checked_sub(offset)?..)?;
                sent.text.push_str(fresh);
                Some(fresh.to_owned())
            }
        };
        fresh
            .filter(|text| !text.is_empty())
            .map(|text| (channel, text))
    }

    /// Takes the text so far, and returns what is missing.
    pub(super) fn partial(&mut self, so_far: &MessageText) -> Option<String> {
        let text = so_far.text.clone()?;
        self.sent(so_far.message_id, TextChannel::Answer)?
            .replace(text)
    }

    /// The answer starts over.
    pub(super) fn reset(&mut self, message: MessageId) {
        for sent in self.open.get_mut(&message).into_iter().flatten() {
            sent.repeat = Some(String::new());
        }
    }

    /// The message is stored with this text; returns what is missing. Later pieces of it are ignored.
    pub(super) fn stored(&mut self, message: MessageId, text: String) -> Option<String> {
        let missing = self.sent(message, TextChannel::Answer).and_then(|sent| {
            let missing = sent.replace(text);
            // The last attempt is shorter than an earlier one, of which more was sent.
            let shorter = sent.repeat.take().filter(|text| !text.is_empty());
            missing.or(shorter.map(|text| format!("\n\n{text}")))
        });
        self.open.remove(&message);
        if self.stored.len() == REMEMBERED {
            self.stored.pop_front();
        }
        self.stored.push_back(message);
        missing
    }

    fn sent(&mut self, message: MessageId, channel: TextChannel) -> Option<&mut Sent> {
        if self.stored.contains(&message) {
            return None;
        }
        let channels = self.open.entry(message).or_default();
        Some(&mut channels[channel as usize])
    }
}

impl Sent {
    /// The text is now `now`; returns what the editor lacks of it. A text cannot be taken back: one
    /// that continues otherwise is sent again as a whole, after an empty line.
    fn replace(&mut self, now: String) -> Option<String> {
        let missing = if let Some(rest) = now.strip_prefix(&self.text) {
            rest.to_owned()
        } else if self.text.starts_with(&now) {
            // Nothing is missing yet, and maybe it continues as before.
            self.repeat = Some(now);
            return None;
        } else {
            format!("\n\n{now}")
        };
        self.repeat = None;
        self.text = now;
        Some(missing).filter(|missing| !missing.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const ID: MessageId = MessageId(Uuid::from_u128(1));

    fn piece(offset: u64, text: &str) -> MessageText {
        MessageText {
            run_id: crate::kernel::ids::RunId(Uuid::nil()),
            message_id: ID,
            channel: Some("text".to_owned()),
            offset: Some(offset),
            text: Some(text.to_owned()),
        }
    }

    fn answer(text: &str) -> Option<(TextChannel, String)> {
        Some((TextChannel::Answer, text.to_owned()))
    }

    #[test]
    fn nothing_is_sent_twice_and_the_stored_message_fills_gaps() {
        let mut streams = Streams::default();
        assert_eq!(streams.delta(&piece(0, "one ")), answer("one "));
        assert_eq!(streams.delta(&piece(0, "one ")), None);
        assert_eq!(streams.delta(&piece(2, "e two")), answer("two"));
        assert_eq!(streams.delta(&piece(20, "lost")), None);
        assert_eq!(
            streams.stored(ID, "one two three".to_owned()),
            Some(" three".to_owned())
        );
        assert_eq!(streams.delta(&piece(13, "late")), None);
        assert_eq!(streams.stored(ID, "one two three".to_owned()), None);
    }

    #[test]
    fn a_repeated_answer_continues_where_it_was_and_another_one_starts_anew() {
        let mut streams = Streams::default();
        assert_eq!(streams.delta(&piece(0, "one two")), answer("one two"));
        streams.reset(ID);
        assert_eq!(streams.delta(&piece(0, "one")), None);
        assert_eq!(streams.delta(&piece(3, " two three")), answer(" three"));
        streams.reset(ID);
        assert_eq!(streams.delta(&piece(0, "two")), answer("\n\ntwo"));
        assert_eq!(streams.delta(&piece(3, " one")), answer(" one"));
        assert_eq!(streams.stored(ID, "two one".to_owned()), None);

        let mut streams = Streams::default();
        assert_eq!(streams.delta(&piece(0, "one two")), answer("one two"));
        assert_eq!(
            streams.stored(ID, "one".to_owned()),
            Some("\n\none".to_owned())
        );
    }
}
