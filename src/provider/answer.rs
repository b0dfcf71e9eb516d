//! Shared parts of the adapters: streamed pieces, tool call ids, and the provider's own JSON, which
//! is kept unchanged.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::failure::AttemptFailure;
use super::{ModelAnswer, ModelRequest};
use crate::kernel::session::blocks::{Arguments, BlockRef};

/// A piece of an answer, emitted to listeners while it streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerPiece {
    /// More of the answer's text.
    Text(String),
    /// More of the model's thinking.
    Thinking(String),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamProgress {
    /// More events are expected.
    More,
    /// The finish reason is known; the events that may follow (such as usage) are optional.
    Finished,
    /// The stream is complete; nothing follows.
    Over,
}

/// The size of an answer so far; see `bounds`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent<'a> {
    /// Bytes kept of it, including all fields and tool call arguments.
    pub all: usize,
    /// The call with the longest arguments: tool name and argument bytes.
    pub longest: Option<(&'a str, usize)>,
    /// Bytes of the longest tool name.
    pub name: usize,
    /// Number of tool calls.
    pub calls: usize,
    /// Number of times a call was begun: some servers send a call again.
    pub begun: usize,
}

/// Estimated overhead of one JSON value beyond its text, bytes.
const VALUE: usize = 64;
/// Bytes charged for each block or list element beyond its content: each one is compared with those
/// before it.
pub(super) const ELEMENT: usize = 2 << 10;

/// Estimated bytes of a value that is kept unchanged.
pub(super) fn weight(value: &Value) -> usize {
    VALUE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(fields) => {
                let fields = fields.iter();
                fields.map(|(name, value)| name.len() + weight(value)).sum()
            }
            _ => 0,
        }
}

impl<'a> Extent<'a> {
    /// Adds the arguments of one more call.
    pub(super) fn and_call(mut self, tool: &'a str, bytes: usize) -> Self {
        self.all += bytes;
        if self.longest.is_none_or(|(_, longest)| longest < bytes) {
            self.longest = Some((tool, bytes));
        }
        self
    }
}

/// Reads an answer in the format of one API.
pub(super) trait AnswerReader: Send {
    /// Takes the next event of the stream; pushes its text and thinking to `pieces`.
    fn event(
        &mut self,
        name: &str,
        data: &str,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<StreamProgress, AttemptFailure>;

    /// Takes the whole body of an answer that is not streamed.
    fn whole(&mut self, body: &str, pieces: &mut Vec<AnswerPiece>) -> Result<(), AttemptFailure>;

    /// The size of the answer so far.
    fn extent(&self) -> Extent<'_>;

    /// The finished answer once the stream has ended. Fails if no finish reason was given: the
    /// answer was cut.
    fn answer(self: Box<Self>, known: AnswerContext) -> Result<ModelAnswer, AttemptFailure>;
}

/// What the reader needs to know about the conversation to finish an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerContext {
    ids: BTreeSet<String>,
    seq: i64,
    tools: Arc<BTreeSet<String>>,
}

impl AnswerContext {
    /// Collects the tool call ids of the conversation, its last sequence number and its tools.
    pub(super) fn of(request: &ModelRequest) -> Self {
        let more = request.messages.iter();
        let more = more.filter(|message| message.content.only_text().is_none());
        let pieces = more.flat_map(|message| message.content.pieces());
        let ids = pieces.filter_map(|piece| match piece {
            BlockRef::ToolCall { id, .. } => Some(id.text().into_owned()),
            _ => None,
        });
        AnswerContext {
            ids: ids.collect(),
            seq: request.messages.last().map_or(0, |message| message.seq),
            tools: Arc::new(request.tools.iter().map(|tool| tool.name.clone()).collect()),
        }
    }

    /// Names of the tools that may be called; empty if not known.
    pub(super) fn tools(&self) -> &BTreeSet<String> {
        &self.tools
    }

    /// A conversation that has only these tools, for replaying recordings.
    pub(super) fn with_tools<const N: usize>(tools: [&str; N]) -> Self {
        AnswerContext {
            tools: Arc::new(tools.map(str::to_owned).into()),
            ..AnswerContext::default()
        }
    }

    /// A tool call id that is unique in the conversation: the provider's own if possible.
    /// Deterministic: the same conversation and answer give the same id.
    pub(super) fn unique(&mut self, id: Option<&str>, index: usize) -> String {
        let wish = match id {
            Some(id) if !id.is_empty() => id.replace('\0', "_"),
            _ => format!("call_{}_{index}", self.seq),
        };
        let mut chosen = wish.clone();
        let mut count = 1;
        while !self.ids.insert(chosen.clone()) {
            count += 1;
            chosen = format!("{wish}_{count}");
        }
        chosen
    }
}

/// Tool call arguments in a form that providers accept: always an object. Other values are wrapped
/// under the key `INVALID_JSON`, so that the model sees what was wrong.
pub(super) fn object(arguments: &Value) -> Value {
    match arguments {
        Value::Object(_) => arguments.clone(),
        Value::Null => json!({}),
        Value::String(text) => json!({ "INVALID_JSON": text }),
        other => json!({ "INVALID_JSON": other.to_string() }),
    }
}

/// [`object`] as JSON text.
pub(super) fn object_text<'a>(arguments: &Arguments<'a>) -> Cow<'a, str> {
    match arguments {
        Arguments::Raw(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw.get()),
        other => Cow::Owned(object(&other.value()).to_string()),
    }
}

/// `value` as JSON text. The buffer is allocated up front from the size of `request`: a long
/// conversation is written again with every call.
pub(super) fn written(value: &impl Serialize, request: &ModelRequest) -> String {
    let mut out = Vec::with_capacity(about_bytes(request));
    serde_json::to_writer(&mut out, value).expect("texts, numbers and lists of them have JSON");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Estimated bytes of the request body in any API's format.
fn about_bytes(request: &ModelRequest) -> usize {
    const BESIDE: usize = 128;
    let messages = request.messages.iter();
    let messages = messages.map(|one| BESIDE + one.content.bytes());
    let tools = request.tools.iter();
    let tools = tools.map(|tool| BESIDE + tool.description.len() + tool.parameters.get().len());
    let texts = request.system.len() + messages.sum::<usize>() + tools.sum::<usize>();
    // Room for escaping: line breaks and quotes get a backslash.
    texts + texts / 16
}

/// `value` as JSON text that is embedded in other JSON unchanged.
pub(super) fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("texts, numbers and lists of them have JSON")
}

/// Stored JSON text, to be embedded in other JSON unchanged; `None` if it is not JSON.
pub(super) fn kept(json: &str) -> Option<&RawValue> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_the_same_for_the_same_answer() {
        let known = AnswerContext {
            ids: ["a".to_owned()].into(),
            seq: 7,
            ..AnswerContext::default()
        };
        let name = || {
            let mut known = known.clone();
            [Some("a"), Some("b"), Some("b"), None, Some("")]
                .iter()
                .enumerate()
                .map(|(index, id)| known.unique(*id, index))
                .collect::<Vec<_>>()
        };
        assert_eq!(name(), ["a_2", "b", "b_2", "call_7_3", "call_7_4"]);
        assert_eq!(name(), name());
    }
}
