//! Follows a run to its end: the pieces of its text as they come, what it does meanwhile, and the
//! run as it ended. The text of a run is that of all its answers, an empty line between two.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::Value;

use super::{OpenAiError, OpenAiRun};
use crate::doors::api::{Api, EventFeed, ask};
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::session::message::Block;
use crate::wire::events::{Event, LAGGED, SNAPSHOT, SubscribeEvents};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::GetRun;
use crate::wire::sessions::GetHistory;
use crate::wire::shapes::{Message, Run};

/// Kinds of events that are followed, beside streamed text.
const KINDS: [&str; 5] = [
    "message.added",
    "run.ended",
    "tool.started",
    "question.asked",
    "approval.requested",
];
/// Shown where the text of an answer that was interrupted is followed by its next attempt.
const AGAIN: &str = "\n\n[The answer was interrupted and starts again.]\n\n";
/// Pause before a lost subscription is made again.
const RETRY: Duration = Duration::from_millis(250);

/// What comes of a run.
pub(super) enum Piece {
    /// More of its text.
    Text(String),
    /// A line about what it does, or more of its thinking.
    Reasoning(String),
    /// The run, which has ended. Nothing follows.
    Ended(Box<Run>),
    /// The run can be followed no further, and goes on. Nothing follows.
    Lost(OpenAiError),
}

/// How far a message was passed on.
#[derive(Default)]
struct Passed {
    text: usize,
    thinking: usize,
}

struct Follower<A> {
    api: A,
    run: OpenAiRun,
    feed: Option<EventFeed>,
    passed: BTreeMap<MessageId, Passed>,
    /// Whether any text was passed on.
    has_text: bool,
    ready: VecDeque<Piece>,
    is_over: bool,
}

/// The pieces of `run`, from its beginning if it has already begun.
pub(super) fn pieces<A: Api>(api: A, run: OpenAiRun) -> BoxStream<'static, Piece> {
    let follower = Follower {
        api,
        run,
        feed: None,
        passed: BTreeMap::new(),
        has_text: false,
        ready: VecDeque::new(),
        is_over: false,
    };
    stream::unfold(follower, async |mut follower| {
        let piece = follower.next().await?;
        Some((piece, follower))
    })
    .boxed()
}

/// The whole text of a run that has ended.
pub(super) async fn whole_text<A: Api>(api: &A, run: &OpenAiRun) -> Result<String, OpenAiError> {
    let messages = answers(api, run).await?;
    let texts = messages.iter().map(text_of);
    Ok(texts.collect::<Vec<String>>().join("\n\n"))
}

impl<A: Api> Follower<A> {
    async fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            if self.is_over {
                return None;
            }
            match self.step().await {
                Ok(()) => {}
                // The run goes on meanwhile, and what is missed is read with the next subscription.
                Err(error) if error.retryable => {
                    self.feed = None;
                    let pause = error.retry_after_ms.map_or(RETRY, Duration::from_millis);
                    tokio::time::sleep(pause).await;
                }
                Err(error) => {
                    self.is_over = true;
                    self.ready.push_back(Piece::Lost(error));
                }
            }
        }
    }

    /// Takes the next event.
    async fn step(&mut self) -> Result<(), OpenAiError> {
        let event = match &mut self.feed {
            Some(feed) => feed.next().await,
            None => {
                let request = SubscribeEvents {
                    run_id: Some(self.run.run_id),
                    kinds: KINDS.map(str::to_owned).to_vec(),
                    deltas: true,
                    ..SubscribeEvents::default()
                };
                self.feed = Some(self.api.follow(request).await?);
                return Ok(());
            }
        };
        let Some(event) = event else {
            // The subscription has ended: its reader was too slow, or the daemon stops.
            self.feed = None;
            tokio::time::sleep(RETRY).await;
            return Ok(());
        };
        match event.kind.as_str() {
            // The run as it is at the beginning of the subscription.
            SNAPSHOT | "run.ended" => self.look().await,
            LAGGED => {
                self.feed = None;
                Ok(())
            }
            // Other entries have no text of an answer.
            "message.added" if event.data.get("kind").and_then(Value::as_str) == Some("text") => {
                self.catch_up().await
            }
            _ => {
                self.take(&event);
                Ok(())
            }
        }
    }

    /// Ends if the run has.
    async fn look(&mut self) -> Result<(), OpenAiError> {
        let run_id = self.run.run_id;
        let run = ask(&self.api, &GetRun { run_id }).await?;
        self.catch_up().await?;
        if !run.is_open() {
            self.is_over = true;
            self.ready.push_back(Piece::Ended(Box::new(run)));
        }
        Ok(())
    }

    /// Passes on what is stored of the run's text and was not streamed.
    async fn catch_up(&mut self) -> Result<(), OpenAiError> {
        for message in answers(&self.api, &self.run).await? {
            self.text(message.id, 0, &text_of(&message));
        }
        Ok(())
    }

    /// Takes an event of streamed text, or of what the run does.
    fn take(&mut self, event: &Event) {
        let field = |name: &str| event.data.get(name).and_then(Value::as_str);
        let message = field("messageId").and_then(|id| id.parse::<MessageId>().ok());
        match (event.kind.as_str(), message) {
            ("message.delta" | "message.partial", Some(message)) => {
                let offset = event.data.get("offset").and_then(Value::as_u64);
                let offset = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
                let text = field("text").unwrap_or_default();
                match field("channel") {
                    Some("thinking") => self.thinking(message, offset, text),
                    _ => self.text(message, offset, text),
                }
            }
            ("message.reset", Some(message)) => {
                let passed = self.passed.entry(message).or_default();
                if std::mem::take(passed).text > 0 {
                    self.ready.push_back(Piece::Text(AGAIN.to_owned()));
                }
            }
            ("tool.started", _) => {
                let tool = field("toolName").unwrap_or("a tool");
                let about = field("paramsSummary").unwrap_or_default();
                self.line(&format!("{tool} {about}"));
            }
            ("question.asked", _) => {
                let text = field("text").unwrap_or_default();
                self.line(&format!("waits for an answer (abide answer): {text}"));
            }
            ("approval.requested", _) => {
                let tool = field("tool").unwrap_or("a call");
                self.line(&format!(
                    "waits for an approval of {tool} (abide approvals)"
                ));
            }
            _ => {}
        }
    }

    fn line(&mut self, line: &str) {
        let line = format!("{}\n", line.trim_end());
        self.ready.push_back(Piece::Reasoning(line));
    }

    /// Passes on what is new of `text`, which begins at the byte `offset` of the message.
    fn text(&mut self, message: MessageId, offset: usize, text: &str) {
        let before = self.passed.get(&message);
        let is_first = before.is_none_or(|passed| passed.text == 0);
        let passed = self.passed.entry(message).or_default();
        let Some(new) = beyond(&mut passed.text, offset, text) else {
            return;
        };
        let gap = if is_first && self.has_text {
            "\n\n"
        } else {
            ""
        };
        self.has_text = true;
        self.ready.push_back(Piece::Text(format!("{gap}{new}")));
    }

    fn thinking(&mut self, message: MessageId, offset: usize, text: &str) {
        let passed = self.passed.entry(message).or_default();
        if let Some(new) = beyond(&mut passed.thinking, offset, text) {
            let piece = Piece::Reasoning(new.to_owned());
            self.ready.push_back(piece);
        }
    }
}

/// What of `text`, which begins at `offset`, lies beyond the first `passed` bytes; they are counted
/// as passed then.
fn beyond<'a>(passed: &mut usize, offset: usize, text: &'a str) -> Option<&'a str> {
    let end = offset.saturating_add(text.len());
    // A gap is filled when the message is stored.
    if end <= *passed || offset > *passed {
        return None;
    }
    let new = text.get(*passed - offset..)?;
    *passed = end;
    Some(new)
}

fn text_of(message: &Message) -> String {
    let texts = message.content.iter().filter_map(|block| match block {
        Block::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The stored answers of a run with a text, in order.
async fn answers<A: Api>(api: &A, run: &OpenAiRun) -> Result<Vec<Message>, OpenAiError> {
    let mut found: VecDeque<Message> = VecDeque::new();
    let mut before = None;
    loop {
        let request = GetHistory {
            session_key: run.session_key.clone(),
            before,
            after: None,
            tools: None,
            limit: PageSize(PAGE_LIMIT),
        };
        let page = ask(api, &request).await?;
        let first = page.messages.first().map(|message| message.seq);
        // The entries of a turn are not interrupted by those of another one.
        let mut is_reached = !found.is_empty();
        let mut is_passed = false;
        for message in page.messages.into_iter().rev() {
            let is_own = message.run_id == Some(run.run_id);
            is_reached |= is_own;
            is_passed |= is_reached && is_other_turn(&message, run.run_id);
            let is_answer = message.role == "assistant" && !text_of(&message).is_empty();
            if is_own && is_answer && message.tool_call_id.is_none() {
                found.push_front(message);
            }
        }
        match first {
            Some(first) if page.truncated && !is_passed => before = Some(first),
            _ => return Ok(found.into()),
        }
    }
}

/// Whether the entry begins the turn of another run.
fn is_other_turn(message: &Message, run: RunId) -> bool {
    message.role == "user" && message.run_id.is_some_and(|other| other != run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_of_a_text_is_passed_on_once() {
        let mut passed = 0;
        let mut whole = String::new();
        for (offset, text) in [
            (0, "a€"),
            // Repeated, overlapping, and behind a gap.
            (0, "a€"),
            (1, "€b"),
            (9, "lost"),
            (0, "a€bcd"),
        ] {
            whole.extend(beyond(&mut passed, offset, text));
        }
        assert_eq!(whole, "a€bcd");
        assert_eq!(passed, whole.len());
    }
}
