//! Reads a Messages answer, streamed or whole. Blocks are kept unchanged, with unknown fields:
//! thinking must be sent back exactly as received. The pieces of tool calls are assembled in
//! `stream`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::{
    AnswerContext, AnswerPiece, AnswerReader, ELEMENT, Extent, StreamProgress, kept, raw, weight,
};
use super::super::failure::AttemptFailure;
use super::super::history::fitting_name;
use super::super::stream::{self, CallPiece, Calls, FinishReasons, LiveText, settle, settled};
use super::super::{AnswerOrigin, ModelAnswer};
use super::request::fitting;
use crate::kernel::run::Usage;
use crate::kernel::session::message::{AnswerFinding, Block};

/// The answer while it is being read.
pub(in crate::provider) struct AnthropicReader {
    origin: AnswerOrigin,
    /// The message id; a stream has only one.
    id: Option<String>,
    parts: Vec<AnswerBlock>,
    /// Index in `parts` of the block that was begun last at each stream index.
    latest_at: BTreeMap<u64, usize>,
    calls: Calls,
    ends: FinishReasons,
    usage: Usage,
    live_text: LiveText,
    live_thinking: LiveText,
    /// Estimated bytes of `parts`.
    bytes: usize,
    /// A key that occurs twice in an object of the current event.
    duplicate_key: Option<String>,
}

/// A block of the answer.
struct AnswerBlock {
    index: u64,
    block: Value,
    /// For a tool call, its index in `calls`.
    call: Option<usize>,
    /// For a call that the provider executes itself, the text of its arguments.
    input: String,
}

impl AnthropicReader {
    pub(in crate::provider) fn new(origin: AnswerOrigin) -> Self {
        AnthropicReader {
            origin,
            id: None,
            parts: Vec::new(),
            latest_at: BTreeMap::new(),
            calls: Calls::default(),
            ends: FinishReasons::default(),
            usage: Usage::default(),
            live_text: LiveText::default(),
            live_thinking: LiveText::default(),
            bytes: 0,
            duplicate_key: None,
        }
    }

    fn usage(&mut self, usage: &Value) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        if let Some(count) = count("input_tokens") {
            let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
            let cached: u64 = cached
                .iter()
                .filter_map(|name| self::count(usage, name))
                .fold(0, u64::saturating_add);
            self.usage.input_tokens = count.saturating_add(cached);
        }
        if let Some(count) = count("output_tokens") {
            self.usage.output_tokens = count;
        }
    }

    /// Takes the start of the message. Fails on a second message id: the two answers must not be
    /// mixed.
    fn start(&mut self, message: &Value) -> Result<(), AttemptFailure> {
        let id = message.get("id").and_then(Value::as_str);
        if let (Some(id), Some(known)) = (id, &self.id)
            && id != known
        {
            return Err(AttemptFailure::passing(
                "a second answer began in the middle of the first",
            ));
        }
        self.id = self.id.take().or(id.map(str::to_owned));
        self.usage(message.get("usage").unwrap_or(&Value::Null));
        Ok(())
    }

    fn begin(&mut self, index: u64, block: &Value, pieces: &mut Vec<AnswerPiece>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut call = None;
        match text("type") {
            "text" => self.say(text("text"), pieces),
            "thinking" => self.think(text("thinking"), pieces),
            "tool_use" => {
                let before = self.calls.count();
                self.calls.begin_list(self.ends.phase(None));
                call = self.call(index, block);
                if let Some(known) = call.filter(|call| *call < before) {
                    // The same call again: its block exists already.
                    let part = self.parts.iter().position(|part| part.call == Some(known));
                    self.latest_at.extend(part.map(|part| (index, part)));
                    return;
                }
            }
            _ => {}
        }
        self.latest_at.insert(index, self.parts.len());
        self.bytes += ELEMENT + weight(block);
        self.parts.push(AnswerBlock {
            index,
            block: block.clone(),
            call,
            input: String::new(),
        });
    }

    /// Begins a tool call. Some servers send all its arguments here.
    fn call(&mut self, index: u64, block: &Value) -> Option<usize> {
        let text = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default();
        let given = match block.get("input") {
            None | Some(Value::Null) => String::new(),
            Some(Value::Object(fields)) if fields.is_empty() => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(whole) => whole.to_string(),
        };
        // The id is sent back in the block, so it must be one that the API accepts.
        let id = match text("id") {
            "" => String::new(),
            id => fitting(id),
        };
        let place = self.calls.take(CallPiece {
            index: Some(index),
            id: &id,
            name: text("name"),
            arguments: &given,
            begins: true,
        });
        if let (Some(place), Some(name), false) = (place, &self.duplicate_key, given.is_empty()) {
            self.calls.note_twice(place, name);
        }
        place
    }

    fn grow(
        &mut self,
        index: u64,
        delta: &Value,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<(), AttemptFailure> {
        let text = |name: &str| delta.get(name).and_then(Value::as_str);
        let kind = text("type").unwrap_or_default();
        let part = self
            .latest_at
            .get(&index)
            .map(|part| &mut self.parts[*part]);
        if kind == "input_json_delta" {
            let more = text("partial_json").unwrap_or_default();
            match part {
                Some(part) if part.call.is_none() => {
                    part.input.push_str(more);
                    self.bytes += more.len();
                }
                _ => {
                    self.calls.take(CallPiece {
                        index: Some(index),
                        arguments: more,
                        ..CallPiece::default()
                    });
                }
            }
            return Ok(());
        }
        let part = part.ok_or_else(|| {
            AttemptFailure::passing(format!(
                "a piece of block {index} arrived before the block began"
            ))
        })?;
        let expected = match kind {
            "text_delta" | "citations_delta" => "text",
            "thinking_delta" | "signature_delta" => "thinking",
            // The API may add kinds of deltas at any time.
            _ => return Ok(()),
        };
        if !part.is(expected) {
            return Err(AttemptFailure::passing(format!(
                "block {index} received a piece ({kind}) for another kind of block"
            )));
        }
        let more = ["text", "thinking", "signature"].map(|name| text(name).map_or(0, str::len));
        self.bytes += more.iter().sum::<usize>() + delta.get("citation").map_or(0, weight);
        match kind {
            "text_delta" => {
                append(&mut part.block, "text", text("text"));
                self.say(text("text").unwrap_or_default(), pieces);
            }
            "thinking_delta" => {
                append(&mut part.block, "thinking", text("thinking"));
                self.think(text("thinking").unwrap_or_default(), pieces);
            }
            "signature_delta" => append(&mut part.block, "signature", text("signature")),
            "citations_delta" => {
                if let (Some(citation), Value::Object(fields)) =
                    (delta.get("citation"), &mut part.block)
                {
                    let list = fields.entry("citations").or_insert_with(|| json!([]));
                    if !list.is_array() {
                        *list = json!([]);
                    }
                    if let Value::Array(list) = list {
                        list.push(citation.clone());
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, text: &str, pieces: &mut Vec<AnswerPiece>) {
        let heard = self.live_text.push(text);
        if !heard.is_empty() {
            pieces.push(AnswerPiece::Text(heard));
        }
    }

    fn think(&mut self, text: &str, pieces: &mut Vec<AnswerPiece>) {
        let heard = self.live_thinking.push(text);
        if !heard.is_empty() {
            pieces.push(AnswerPiece::Thinking(heard));
        }
    }

    fn read(&mut self, text: &str) -> Result<Value, serde_json::Error> {
        let read = stream::read(text)?;
        self.duplicate_key = read.duplicate_key;
        Ok(read.value)
    }

    /// Finishes the blocks and drops repeated ones and blank texts, which the API refuses when they
    /// are sent back.
    fn settle(&mut self) {
        for part in &mut self.parts {
            settle(&mut part.block);
            if !part.input.is_empty()
                && let Ok(mut read) = stream::read(&settled(&part.input))
                && let Value::Object(fields) = &mut part.block
            {
                settle(&mut read.value);
                fields.insert("input".to_owned(), read.value);
            }
        }
        let parts = std::mem::take(&mut self.parts);
        for part in parts {
            let has_type = !part.text("type").is_empty();
            let is_blank = part.is("text") && part.text("text").trim().is_empty();
            let mut before = self.parts.iter();
            let is_again = part.call.is_none()
                && before.any(|one| one.index == part.index && one.block == part.block);
            if has_type && !is_blank && !is_again {
                self.parts.push(part);
            }
        }
    }
}

fn count(usage: &Value, name: &str) -> Option<u64> {
    usage.get(name).and_then(Value::as_u64)
}

fn append(block: &mut Value, name: &str, more: Option<&str>) {
    let (Value::Object(fields), Some(more)) = (block, more) else {
        return;
    };
    match fields.get_mut(name) {
        Some(Value::String(text)) => text.push_str(more),
        _ => {
            fields.insert(name.to_owned(), more.into());
        }
    }
}

impl AnswerBlock {
    fn is(&self, kind: &str) -> bool {
        self.block.get("type").and_then(Value::as_str) == Some(kind)
    }

    fn text(&self, name: &str) -> &str {
        self.block
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// The block of a tool call as JSON text with its fields in their original order, and with this id,
/// name and input.
fn as_called(block: &mut Value, id: &str, name: &str, input: &str) -> Box<RawValue> {
    let Value::Object(fields) = block else {
        return raw(&json!({ "type": "tool_use", "id": id, "name": name, "input": {} }));
    };
    fields.insert("id".to_owned(), id.into());
    fields.insert("name".to_owned(), name.into());
    fields.entry("input").or_insert(Value::Null);
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| {
            let value = match name.as_str() {
                "input" => input.to_owned(),
                _ => value.to_string(),
            };
            format!("{}:{value}", Value::from(name.as_str()))
        })
        .collect();
    let text = format!("{{{}}}", fields.join(","));
    RawValue::from_string(text).unwrap_or_else(|_| raw(block))
}

impl AnswerReader for AnthropicReader {
    fn event(
        &mut self,
        name: &str,
        data: &str,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<StreamProgress, AttemptFailure> {
        let data = data.trim();
        if data.is_empty() {
            return Ok(StreamProgress::More);
        }
        let event = self.read(data).map_err(|error| {
            AttemptFailure::passing(format!("a piece of the answer is not valid JSON: {error}"))
        })?;
        let none = Value::Null;
        let field = |name: &str| event.get(name).unwrap_or(&none);
        let index = field("index").as_u64().unwrap_or(0);
        // The event's name is also in the data; servers that omit one keep the other.
        match field("type").as_str().unwrap_or(name) {
            "message_start" => self.start(field("message"))?,
            "content_block_start" => self.begin(index, field("content_block"), pieces),
            "content_block_delta" => self.grow(index, field("delta"), pieces)?,
            "message_delta" => {
                if let Some(reason) = field("delta").get("stop_reason").and_then(Value::as_str) {
                    self.ends.take(reason);
                }
                self.usage(field("usage"));
            }
            "message_stop" => return Ok(StreamProgress::Over),
            "error" => return Err(AttemptFailure::in_stream(field("error"))),
            // `ping`, the end of a block, and event kinds that the API may add.
            _ => {}
        }
        Ok(match self.ends.is_given() {
            true => StreamProgress::Finished,
            false => StreamProgress::More,
        })
    }

    fn whole(&mut self, body: &str, pieces: &mut Vec<AnswerPiece>) -> Result<(), AttemptFailure> {
        let answer = self.read(body).map_err(|error| {
            AttemptFailure::passing(format!("the answer is not valid JSON: {error}"))
        })?;
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            return Err(AttemptFailure::in_stream(error));
        }
        let blocks = answer.get("content").and_then(Value::as_array);
        for (index, block) in (0..).zip(blocks.into_iter().flatten()) {
            self.begin(index, block, pieces);
        }
        self.usage(answer.get("usage").unwrap_or(&Value::Null));
        if let Some(reason) = answer.get("stop_reason").and_then(Value::as_str) {
            self.ends.take(reason);
        }
        Ok(())
    }

    fn extent(&self) -> Extent<'_> {
        self.calls.extent_with(Extent {
            all: self.bytes,
            ..Extent::default()
        })
    }

    fn answer(
        mut self: Box<Self>,
        mut known: AnswerContext,
    ) -> Result<ModelAnswer, AttemptFailure> {
        self.settle();
        let texts = self.parts.iter().filter(|part| part.is("text"));
        let texts: Vec<&str> = texts.map(|part| part.text("text")).collect();
        let text = texts.join("\n\n");
        let end = self.ends.judge(&text)?;
        let mut calls = self.calls.finish(&mut known, end.is_cut)?;
        end.check(calls.iter().flatten().count(), &text)?;
        let mut blocks = Vec::new();
        let mut native: Vec<Box<RawValue>> = Vec::new();
        for part in &mut self.parts {
            if let Some(place) = part.call {
                if let Some(call) = calls.get_mut(place).and_then(Option::take) {
                    blocks.extend(call.blocks());
                    let written = call.sent_back();
                    let input = kept(&written).map_or("{}", RawValue::get);
                    let name = fitting_name(&call.name);
                    native.push(as_called(&mut part.block, &call.id, &name, input));
                }
                continue;
            }
            if part.is("text") {
                blocks.push(Block::Text {
                    text: part.text("text").to_owned(),
                });
            }
            native.push(raw(&part.block));
        }
        blocks.push(self.origin.native(raw(&native).get()));
        if end.is_paused && !native.is_empty() {
            blocks.push(Block::Note {
                note: AnswerFinding::Paused,
            });
        }
        Ok(ModelAnswer {
            blocks,
            usage: self.usage,
            warnings: end.warning.into_iter().collect(),
        })
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
