//! Streams the answer of a run for a conversation: complete lines and finished tool calls are
//! printed permanently, in the order in which they happened; the line that is still being written
//! is shown below them. Events announce the text; the stored messages are authoritative, so that
//! text that was missed during a lost connection is shown, and nothing twice. `view.rs` draws it.

use std::collections::{HashSet, VecDeque};

use serde::Deserialize;

use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::markdown::Markdown;
use crate::cli::output::print::{DIM, styled};
use crate::cli::output::text::clean;
use crate::kernel::event::{MessageAdded, StepMoved};
use crate::kernel::ids::{MessageId, RunId, SessionKey, StepId};
use crate::kernel::session::message::plain_text;
use crate::wire::events::{Event, MessageText};
use crate::wire::input::PageSize;
use crate::wire::sessions::{GetHistory, History};
use crate::wire::shapes::{Message, Run};

/// Streaming state of one run's answer.
pub(crate) struct AnswerStream {
    run: RunId,
    news: VecDeque<PendingEvent>,
    /// The message that is being written.
    coming: Option<StreamedMessage>,
    /// Messages, and below them calls, that were printed completely.
    messages: HashSet<MessageId>,
    calls: HashSet<StepId>,
    /// Messages for which [`Stream::calls_before`] was called.
    begun: HashSet<MessageId>,
    /// What to print next.
    ready: Vec<StreamOutput>,
    /// Text of the last complete message.
    last: String,
    /// True until something was shown.
    is_empty_yet: bool,
}

/// A message that is being written.
struct StreamedMessage {
    id: MessageId,
    text: String,
    /// Number of bytes of the text that were printed: complete lines.
    shown: usize,
    markdown: Markdown,
}

/// An event that was not processed yet.
enum PendingEvent {
    Text(MessageText, TextKind),
    Stored(SessionKey, MessageAdded),
    Call(StepId),
}

#[derive(Clone, Copy)]
enum TextKind {
    More,
    All,
    Anew,
}

/// Output that stays on the screen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StreamOutput {
    /// Lines of text.
    Lines(Vec<String>),
    /// A tool call that has ended.
    Call(StepId),
}

impl AnswerStream {
    /// The initial state for a run.
    pub(crate) fn of(run: RunId) -> AnswerStream {
        AnswerStream {
            run,
            news: VecDeque::new(),
            coming: None,
            messages: HashSet::new(),
            calls: HashSet::new(),
            begun: HashSet::new(),
            ready: Vec::new(),
            last: String::new(),
            is_empty_yet: true,
        }
    }

    /// The run whose answer is streamed.
    pub(crate) fn run(&self) -> RunId {
        self.run
    }

    /// The calls that were printed.
    pub(crate) fn calls(&self) -> &HashSet<StepId> {
        &self.calls
    }

    /// Marks a call as not printed.
    pub(crate) fn forget_call(&mut self, call: StepId) {
        self.calls.remove(&call);
    }

    /// Queues an event for [`Stream::catch_up`].
    pub(crate) fn hear(&mut self, event: &Event) {
        if event.run_id != Some(self.run) {
            return;
        }
        let kind = match event.kind.as_str() {
            "message.delta" => TextKind::More,
            "message.partial" => TextKind::All,
            "message.reset" => TextKind::Anew,
            "message.added" => {
                let key = event.session_key.as_deref().map(SessionKey::parse);
                if let (Some(Ok(key)), Ok(added)) = (key, MessageAdded::deserialize(&event.data)) {
                    self.news.push_back(PendingEvent::Stored(key, added));
                }
                return;
            }
            "tool.completed" => {
                // Steps of a plan's delegates carry a source, and are not part of this run's
                // answer.
                if let Ok(moved) = StepMoved::deserialize(&event.data)
                    && moved.source.is_none()
                {
                    self.news.push_back(PendingEvent::Call(moved.step_id));
                }
                return;
            }
            _ => return,
        };
        let Ok(text) = MessageText::deserialize(&event.data) else {
            return;
        };
        if text.channel.as_deref() != Some("thinking") {
            self.news.push_back(PendingEvent::Text(text, kind));
        }
    }

    /// Queues calls that have ended and of which no event arrived.
    pub(crate) fn hear_calls(&mut self, calls: impl Iterator<Item = StepId>) {
        self.news.extend(calls.map(PendingEvent::Call));
    }

    /// Takes what is to be printed now.
    pub(crate) fn ready(&mut self) -> Vec<StreamOutput> {
        std::mem::take(&mut self.ready)
    }

    /// Queues calls that ended before the next message: the model has seen their results, whether
    /// their events have arrived or not.
    pub(crate) fn calls_before(&mut self, calls: impl DoubleEndedIterator<Item = StepId>) {
        self.begun.extend(self.begins());
        for call in calls.rev() {
            self.news.push_front(PendingEvent::Call(call));
        }
    }

    /// The next message, if none of it was processed and the calls before it were not queued yet.
    fn begins(&self) -> Option<MessageId> {
        let id = match self.news.front()? {
            PendingEvent::Text(text, _) => text.message_id,
            PendingEvent::Stored(_, added) if &*added.kind != "tool_result" => added.message_id,
            PendingEvent::Stored(..) | PendingEvent::Call(_) => return None,
        };
        (!self.messages.contains(&id) && !self.begun.contains(&id)).then_some(id)
    }

    /// Processes the queued events; `false`: [`Stream::calls_before`] must be called first. Events
    /// that cannot be processed because the connection is lost stay queued. Cancel-safe.
    pub(crate) async fn catch_up(
        &mut self,
        link: &DaemonLink,
        columns: usize,
    ) -> Result<bool, Failure> {
        loop {
            if self.begins().is_some() {
                return Ok(false);
            }
            let stored = match self.news.front() {
                None => return Ok(true),
                Some(PendingEvent::Stored(key, added)) => Some((key.clone(), added.clone())),
                Some(PendingEvent::Text(..) | PendingEvent::Call(_)) => None,
            };
            // Tool results are shown on lines of their own.
            if let Some((key, added)) = stored
                && matches!(&*added.kind, "text" | "tool_call")
                && !self.messages.contains(&added.message_id)
                && let Some(message) = read(link, &key, added.seq).await?
                && &*message.role == "assistant"
            {
                self.store(message.id, &plain_text(&message.content), columns);
            }
            match self.news.pop_front() {
                Some(PendingEvent::Text(text, kind)) => self.take(&text, kind, columns),
                Some(PendingEvent::Call(step)) if self.calls.insert(step) => {
                    self.is_empty_yet = false;
                    self.ready.push(StreamOutput::Call(step));
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, said: &MessageText, kind: TextKind, columns: usize) {
        if self.messages.contains(&said.message_id) {
            return;
        }
        let text = said.text.as_deref().unwrap_or_default();
        let is_known = self
            .coming
            .as_ref()
            .is_some_and(|one| one.id == said.message_id);
        if !is_known {
            self.coming = Some(StreamedMessage::of(said.message_id));
        }
        let Some(coming) = &mut self.coming else {
            return;
        };
        match kind {
            TextKind::Anew => {
                let began = coming.shown > 0;
                *coming = StreamedMessage::of(said.message_id);
                if began {
                    self.note(ANEW);
                }
            }
            TextKind::All => self.replace(text),
            TextKind::More => {
                let at = said.offset.and_then(|at| usize::try_from(at).ok());
                match at
                    .unwrap_or(coming.text.len())
                    .checked_sub(coming.text.len())
                {
                    Some(0) => coming.text.push_str(text),
                    // Text in between is missing: the stored message will have it.
                    Some(_) => {}
                    // All or a part of it has arrived before.
                    None => {
                        let known = coming.text.len() - at.unwrap_or(0);
                        coming.text.push_str(text.get(known..).unwrap_or_default());
                    }
                }
            }
        }
        self.show_lines(columns, false);
    }

    /// Replaces the text of the message by its current or its stored text.
    fn replace(&mut self, text: &str) {
        let Some(coming) = &mut self.coming else {
            return;
        };
        let stands = &coming.text[..coming.shown];
        if text.starts_with(stands) {
            if text.len() > coming.text.len() || !coming.text.starts_with(text) {
                coming.text = text.to_owned();
            }
        } else if !stands.starts_with(text) {
            *coming = StreamedMessage::of(coming.id);
            coming.text = text.to_owned();
            self.note(ANEW);
        }
    }

    /// Completes a message: what was not printed yet is printed.
    fn store(&mut self, id: MessageId, text: &str, columns: usize) {
        if !self.messages.insert(id) {
            return;
        }
        if self.coming.as_ref().is_none_or(|one| one.id != id) {
            self.coming = Some(StreamedMessage::of(id));
        }
        self.replace(text);
        if let Some(coming) = &mut self.coming {
            coming.text = text.to_owned();
            coming.shown = coming.shown.min(text.len());
        }
        self.show_lines(columns, true);
        self.coming = None;
        self.last = text.trim().to_owned();
    }

    /// Prints the run's result at its end, if it was not shown as a message.
    pub(crate) fn end(&mut self, run: &Run, columns: usize) {
        let result = run.result.as_deref().unwrap_or_default().trim();
        let stands = self.last.as_str();
        let is_shown = stands == result || run.result_truncated && stands.starts_with(result);
        if !result.is_empty() && !is_shown {
            let id = self.coming.as_ref().map(|one| one.id);
            match id {
                Some(id) => self.store(id, result, columns),
                None => {
                    let lines = Markdown::render(result, columns);
                    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
                    if !self.is_empty_yet {
                        lines.insert(0, String::new());
                    }
                    self.push(lines);
                }
            }
        } else if let Some(coming) = &self.coming {
            // The run ended in the middle of a message, of which the text that has arrived is kept.
            let (id, text) = (coming.id, coming.text.clone());
            self.store(id, &text, columns);
        }
    }

    /// Prints complete lines; with `whole` also the last one.
    fn show_lines(&mut self, columns: usize, whole: bool) {
        let Some(coming) = &mut self.coming else {
            return;
        };
        let rest = &coming.text[coming.shown..];
        // Blank lines are printed together with the text after them.
        let lines_end = rest.rfind('\n').map_or(0, |at| at + 1);
        let part = if whole { rest } else { &rest[..lines_end] }.trim_end();
        let end = match rest[part.len()..].find('\n') {
            _ if whole => rest.len(),
            _ if part.is_empty() => return,
            Some(at) => part.len() + at + 1,
            None => return,
        };
        let is_first = coming.shown == 0;
        let mut lines = Vec::new();
        for line in part.lines() {
            // Blank lines before the first word of a message are skipped.
            if !(is_first && lines.is_empty() && line.trim().is_empty()) {
                lines.extend(coming.markdown.line(line, columns, false));
            }
        }
        coming.shown += end;
        if is_first && !lines.is_empty() && !self.is_empty_yet {
            lines.insert(0, String::new());
        }
        self.push(lines);
    }

    fn push(&mut self, lines: Vec<String>) {
        if !lines.is_empty() {
            self.is_empty_yet = false;
            self.ready.push(StreamOutput::Lines(lines));
        }
    }

    fn note(&mut self, text: &str) {
        self.push(vec![styled(DIM, text)]);
    }

    /// The line that is still being written, cut to its last `rows` lines on the screen.
    pub(crate) fn tail(&self, columns: usize, rows: usize) -> Vec<String> {
        let Some(coming) = &self.coming else {
            return Vec::new();
        };
        let rest = &coming.text[coming.shown..];
        let rest = rest.rsplit('\n').next().unwrap_or(rest);
        if clean(rest).trim().is_empty() {
            return Vec::new();
        }
        let mut lines = coming.markdown.clone().line(rest, columns, true);
        if coming.shown == 0 && !self.is_empty_yet {
            lines.insert(0, String::new());
        }
        let from = lines.len().saturating_sub(rows);
        lines.split_off(from)
    }
}

const ANEW: &str = "(the model call was repeated; its answer starts over)";

impl StreamedMessage {
    fn of(id: MessageId) -> StreamedMessage {
        StreamedMessage {
            id,
            text: String::new(),
            shown: 0,
            markdown: Markdown::default(),
        }
    }
}

/// The message with this sequence number in a session.
async fn read(link: &DaemonLink, key: &SessionKey, seq: i64) -> Result<Option<Message>, Failure> {
    let request = GetHistory {
        session_key: key.clone(),
        before: None,
        after: Some(seq - 1),
        tools: Some(true),
        limit: PageSize(1),
    };
    let raw = link.raw(&request).await?;
    let page: History = link::read(&raw)?;
    Ok(page.messages.into_iter().find(|one| one.seq == seq))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const MESSAGE: &str = "01936f0e-0000-7000-8000-00004f2a91d1";

    fn stream() -> AnswerStream {
        AnswerStream::of("01936f0e-0000-7000-8000-00004f2a91c1".parse().unwrap())
    }

    fn said(offset: Option<u64>, text: &str) -> MessageText {
        serde_json::from_value(json!({
            "runId": "01936f0e-0000-7000-8000-00004f2a91c1", "messageId": MESSAGE,
            "channel": "text", "offset": offset, "text": text,
        }))
        .unwrap()
    }

    fn lines(shown: Vec<StreamOutput>) -> Vec<String> {
        let plain = |line: String| anstream::adapter::strip_str(&line).to_string();
        shown
            .into_iter()
            .flat_map(|one| match one {
                StreamOutput::Lines(lines) => lines,
                StreamOutput::Call(_) => Vec::new(),
            })
            .map(plain)
            .collect()
    }

    #[test]
    fn whole_lines_are_shown_as_they_come_and_the_last_one_stands_below() {
        let mut stream = stream();
        stream.take(&said(Some(0), "one\ntw"), TextKind::More, 80);
        assert_eq!(stream.tail(80, 5), ["tw"]);
        stream.take(&said(Some(6), "o\nthree"), TextKind::More, 80);
        // The same text arrives again.
        stream.take(&said(Some(0), "one\ntw"), TextKind::More, 80);
        stream.store(MESSAGE.parse().unwrap(), "one\ntwo\nthree", 80);
        assert_eq!(lines(stream.ready()), ["one", "two", "three"]);
        assert!(stream.tail(80, 5).is_empty());
    }

    #[test]
    fn what_was_missed_comes_from_the_stored_message() {
        let mut stream = stream();
        stream.take(&said(Some(0), "one\n"), TextKind::More, 80);
        stream.take(&said(Some(8), "three\n"), TextKind::More, 80);
        stream.store(MESSAGE.parse().unwrap(), "one\ntwo\nthree", 80);
        assert_eq!(lines(stream.ready()), ["one", "two", "three"]);
    }

    #[test]
    fn an_answer_that_begins_anew_is_shown_whole_with_a_note() {
        let mut stream = stream();
        stream.take(&said(Some(0), "one\ntwo"), TextKind::More, 80);
        stream.take(&said(None, ""), TextKind::Anew, 80);
        stream.take(&said(Some(0), "other\n"), TextKind::More, 80);
        stream.store(MESSAGE.parse().unwrap(), "other\nend", 80);
        assert_eq!(lines(stream.ready()), ["one", ANEW, "", "other", "end"]);
    }

    proptest! {
        #[test]
        fn however_it_is_cut_the_text_is_shown_once(
            text in "[a-z子\n ]{1,80}", cuts in proptest::collection::vec(0usize..80, 0..6),
        ) {
            let mut stream = stream();
                let mut at = 0;
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary((*cut).min(text.len()))).map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            for cut in cuts {
                stream.take(&said(Some(at as u64), &text[at..cut]), TextKind::More, 200);
                at = cut;
            }
            stream.store(MESSAGE.parse().unwrap(), &text, 200);
            let bare = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(bare(&lines(stream.ready()).concat()), bare(&text));
        }
    }
}
