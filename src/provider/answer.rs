//! What the adapters make an answer of: pieces for listeners, ids of tool calls, and the
//! provider's own JSON, which is kept as it came.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::failure::Failure;
use super::{ModelAnswer, ModelRequest};
use crate::kernel::blocks::{BlockRef, Given};

/// What listeners hear of an answer while it comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// More of its text.
    Text(String),
    /// More of what the model thinks.
    Thinking(String),
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is to come.
    More,
    /// The reason of the end is known; what follows is of little weight.
    Finished,
    /// Nothing follows.
    Over,
}

/// How much of an answer has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent<'a> {
    /// Bytes of what is kept of it, all fields and the arguments of its calls included.
    pub all: usize,
    /// The call with the longest arguments: its tool, and their bytes.
    pub longest: Option<(&'a str, usize)>,
    /// Bytes of the longest name of a tool.
    pub name: usize,
    /// How many calls it makes.
    pub calls: usize,
    /// How often one of them was begun: some servers give a call again.
    pub begun: usize,
}

/// About what a value in an answer costs beside its text.
const VALUE: usize = 64;
/// What a block, or an element of a list that grows, counts beside what is in it: each one is
/// compared with those before it.
pub(super) const ELEMENT: usize = 2 << 10;

/// About how many bytes a value takes that is kept as it came.
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
    /// With the arguments of one more call.
    pub(super) fn and_call(mut self, tool: &'a str, bytes: usize) -> Self {
        self.all += bytes;
        if self.longest.is_none_or(|(_, longest)| longest < bytes) {
            self.longest = Some((tool, bytes));
        }
        self
    }
}

/// Reads the answer of one kind of provider.
pub(super) trait Reader: Send {
    /// Takes one event of a stream, in order.
    fn event(
        &mut self,
        name: &str,
        data: &str,
        pieces: &mut Vec<Piece>,
    ) -> Result<Progress, Failure>;

    /// Takes the whole answer of a server that does not stream.
    fn whole(&mut self, body: &str, pieces: &mut Vec<Piece>) -> Result<(), Failure>;

    /// How much has come so far.
    fn extent(&self) -> Extent<'_>;

    /// The answer, once the stream is at its end. One without a reason for its end was cut.
    fn answer(self: Box<Self>, known: Known) -> Result<ModelAnswer, Failure>;
}

/// What is known of the conversation when an answer is put in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    ids: BTreeSet<String>,
    seq: i64,
    tools: Arc<BTreeSet<String>>,
}

impl Known {
    /// The ids of tool calls that the conversation has, and how far it has come.
    pub(super) fn of(request: &ModelRequest) -> Self {
        let more = request.messages.iter();
        let more = more.filter(|message| message.content.only_text().is_none());
        let pieces = more.flat_map(|message| message.content.pieces());
        let ids = pieces.filter_map(|piece| match piece {
            BlockRef::ToolCall { id, .. } => Some(id.text().into_owned()),
            _ => None,
        });
        Known {
            ids: ids.collect(),
            seq: request.messages.last().map_or(0, |message| message.seq),
            tools: Arc::new(request.tools.iter().map(|tool| tool.name.clone()).collect()),
        }
    }

    /// The names of the tools that may be called; empty where they are not known.
    pub(super) fn tools(&self) -> &BTreeSet<String> {
        &self.tools
    }

    /// Of a conversation that has these tools and nothing else, for recordings.
    pub(super) fn with_tools<const N: usize>(tools: [&str; N]) -> Self {
        Known {
            tools: Arc::new(tools.map(str::to_owned).into()),
            ..Known::default()
        }
    }

    /// An id for a tool call that no other has: the provider's own where that will do. The
    /// same conversation and answer give the same id.
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

/// Arguments as a provider takes them back: always an object. What was none is shown to the
/// model under a name that says so.
pub(super) fn object(arguments: &Value) -> Value {
    match arguments {
        Value::Object(_) => arguments.clone(),
        Value::Null => json!({}),
        Value::String(text) => json!({ "INVALID_JSON": text }),
        other => json!({ "INVALID_JSON": other.to_string() }),
    }
}

/// As [`object`], written.
pub(super) fn object_text<'a>(arguments: &Given<'a>) -> Cow<'a, str> {
    match arguments {
        Given::Raw(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw.get()),
        other => Cow::Owned(object(&other.value()).to_string()),
    }
}

/// What is asked in `request`, as JSON text. A conversation may be long, and is written with
/// every call: not into a text that grows as it goes.
pub(super) fn written(value: &impl Serialize, request: &ModelRequest) -> String {
    let mut out = Vec::with_capacity(about_bytes(request));
    serde_json::to_writer(&mut out, value).expect("texts, numbers and lists of them have JSON");
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// About how many bytes a request has, in whatever form it is sent.
fn about_bytes(request: &ModelRequest) -> usize {
    const BESIDE: usize = 128;
    let messages = request.messages.iter();
    let messages = messages.map(|one| BESIDE + one.content.bytes());
    let tools = request.tools.iter();
    let tools = tools.map(|tool| BESIDE + tool.description.len() + tool.parameters.get().len());
    let texts = request.system.len() + messages.sum::<usize>() + tools.sum::<usize>();
    // Line breaks and quotes have a backslash before them.
    texts + texts / 16
}

/// `value` as JSON text that is put into other JSON as it is.
pub(super) fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("texts, numbers and lists of them have JSON")
}

/// JSON text that was kept, to be put into other JSON as it is.
pub(super) fn kept(json: &str) -> Option<&RawValue> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique_and_the_same_for_the_same_answer() {
        let known = Known {
            ids: ["a".to_owned()].into(),
            seq: 7,
            ..Known::default()
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
