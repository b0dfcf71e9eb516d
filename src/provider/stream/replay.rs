//! Reads recorded answers as the adapters read them from the network, and shows what is sent back
//! to each API. For the property tests beside this file and the fuzz target in `fuzz/`.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};
use hyper::body::Bytes;
use serde_json::{Map, Value};
use sse_stream::SseStream;
use uuid::Uuid;

use super::super::answer::{AnswerContext, AnswerReader, StreamProgress};
use super::super::failure::{AttemptFailure, Remedy};
use super::super::history::AnswerForm;
use super::super::{
    AnswerOrigin, ModelAnswer, ModelRequest, PreparedRequest, ProviderFault, anthropic, openai,
};
use crate::config::ProviderKind;
use crate::kernel::ids::{MessageId, RunId};
use crate::kernel::session::message::{AnswerFinding, Block, NewMessage};
use crate::kernel::time::Timestamp;

/// A recorded answer after reading.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The answer as the runner gets it.
    pub answer: ModelAnswer,
    /// Request bodies that contain the answer and results of its calls: to the same API, to the
    /// same API in plain form, and to the other API.
    pub sent_back: Vec<(ProviderKind, Value)>,
}

/// The tools used in the recordings.
const TOOLS: [&str; 4] = ["tool_a", "tool_b", "tool_c", "sub_tool_a"];

/// Reads an event stream that arrives in these pieces.
pub fn replay(
    kind: ProviderKind,
    pieces: impl IntoIterator<Item = Vec<u8>>,
) -> Result<Replayed, ProviderFault> {
    let mut reader = reader(kind);
    let bytes = stream::iter(pieces).map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
    let end = stream::iter([Ok(Bytes::from_static(b"\n\n"))]);
    let mut events = pin!(SseStream::from_bytes_stream(bytes.chain(end)));
    let mut heard = Vec::new();
    let mut progress = StreamProgress::More;
    // All pieces are available, so nothing is awaited.
    while let Some(Some(next)) = events.next().now_or_never() {
        let event = match next {
            Ok(event) => event,
            Err(_) if progress == StreamProgress::Finished => break,
            Err(fault) => return Err(over(AttemptFailure::passing(fault.to_string()))),
        };
        let name = event.event.as_deref().unwrap_or_default();
        let data = event.data.as_deref().unwrap_or_default();
        progress = reader.event(name, data, &mut heard).map_err(over)?;
        if progress == StreamProgress::Over {
            break;
        }
    }
    finish(kind, reader)
}

/// Reads an answer that is not streamed.
pub fn replay_whole(kind: ProviderKind, body: &str) -> Result<Replayed, ProviderFault> {
    let mut reader = reader(kind);
    reader.whole(body, &mut Vec::new()).map_err(over)?;
    finish(kind, reader)
}

fn reader(kind: ProviderKind) -> Box<dyn AnswerReader> {
    let origin = AnswerOrigin {
        provider: kind.as_str().to_owned(),
        api: kind.as_str(),
        model: format!("{}/recorded", kind.as_str()),
    };
    match kind {
        ProviderKind::OpenAi => Box::new(openai::OpenAiReader::new(origin)),
        ProviderKind::Anthropic => Box::new(anthropic::AnthropicReader::new(origin)),
    }
}

fn over(failure: AttemptFailure) -> ProviderFault {
    ProviderFault {
        kind: failure.kind,
        switches: failure.remedy != Remedy::Nothing,
        ..ProviderFault::new(failure.message)
    }
}

fn finish(kind: ProviderKind, reader: Box<dyn AnswerReader>) -> Result<Replayed, ProviderFault> {
    let answer = reader
        .answer(AnswerContext::with_tools(TOOLS))
        .map_err(over)?;
    let request = next_request(&answer);
    let other = match kind {
        ProviderKind::OpenAi => ProviderKind::Anthropic,
        ProviderKind::Anthropic => ProviderKind::OpenAi,
    };
    let sent = |to: ProviderKind, plain: bool| {
        let call = PreparedRequest::new(&request, to.as_str(), to.as_str(), "");
        let call = match plain {
            true => call.in_form(AnswerForm::Plain),
            false => call,
        };
        let body = match to {
            ProviderKind::OpenAi => openai::body(&call),
            ProviderKind::Anthropic => anthropic::body(&call),
        };
        (to, serde_json::from_str(&body).unwrap_or_default())
    };
    let sent_back = vec![sent(kind, false), sent(kind, true), sent(other, false)];
    Ok(Replayed { answer, sent_back })
}

/// The request that follows `answer`, with a result for each of its calls.
fn next_request(answer: &ModelAnswer) -> ModelRequest {
    let (id, run) = (MessageId(Uuid::nil()), RunId(Uuid::nil()));
    let results = answer.blocks.iter().filter_map(|block| match block {
        Block::ToolCall { id: call, .. } => Some(NewMessage::tool_result(id, run, call, "", false)),
        _ => None,
    });
    // The runner leaves out empty answers.
    let says_something = answer.blocks.iter().any(|block| match block {
        Block::Text { text } => !text.trim().is_empty(),
        Block::ToolCall { .. }
        | Block::Note {
            note: AnswerFinding::Paused,
        } => true,
        _ => false,
    });
    let answered = NewMessage::answer(id, run, answer.blocks.clone());
    let entries = [NewMessage::user(id, "look")].into_iter();
    let entries = entries
        .chain(says_something.then_some(answered))
        .chain(results);
    let messages = (1..)
        .zip(entries)
        .map(|(seq, entry)| Arc::new(entry.at(seq, 1, Timestamp(0))));
    ModelRequest {
        model: "recorded".to_owned(),
        system: String::new(),
        messages: messages.collect(),
        tools: Vec::new(),
        empty_answers: 0,
        thinking: None,
        temperature: None,
        max_tokens: None,
        options: Map::new(),
        limit: Duration::from_secs(1),
        window: 0,
        is_fallback: false,
    }
}
