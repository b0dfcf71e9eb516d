//! Reads a Chat Completions answer, in chunks or whole. Tolerates servers that are only nominally
//! compatible: calls without an index or id, arguments as an object, all arguments at once, unknown
//! fields, errors within the stream, early, late or missing usage, and a whole message after its
//! pieces. The pieces of tool calls are assembled in `stream`.

use serde_json::{Map, Value, json};

use super::super::answer::{
    AnswerContext, AnswerPiece, AnswerReader, ELEMENT, Extent, StreamProgress, raw, weight,
};
use super::super::failure::AttemptFailure;
use super::super::history::fitting_name;
use super::super::stream::{
    self, CallPiece, Calls, FinishPhase, FinishReasons, LiveText, settle_fields, settled,
};
use super::super::{AnswerOrigin, ModelAnswer};
use crate::kernel::run::Usage;
use crate::kernel::session::message::{AnswerFinding, Block};

/// Message fields that carry the model's thinking.
const THINKING: &[&str] = &["reasoning_content", "reasoning"];

/// The answer while it is being read.
pub(in crate::provider) struct OpenAiReader {
    origin: AnswerOrigin,
    text: String,
    refusal: String,
    calls: Calls,
    /// Message fields beyond those of this API, unchanged.
    extra: Map<String, Value>,
    /// Estimated bytes of `extra` and of the extra fields of its calls.
    extra_bytes: usize,
    ends: FinishReasons,
    usage: Usage,
    live_text: LiveText,
    live_thinking: LiveText,
    /// A key that occurs twice in an object of the current event.
    duplicate_key: Option<String>,
}

impl OpenAiReader {
    pub(in crate::provider) fn new(origin: AnswerOrigin) -> Self {
        OpenAiReader {
            origin,
            text: String::new(),
            refusal: String::new(),
            calls: Calls::default(),
            extra: Map::new(),
            extra_bytes: 0,
            ends: FinishReasons::default(),
            usage: Usage::default(),
            live_text: LiveText::default(),
            live_thinking: LiveText::default(),
            duplicate_key: None,
        }
    }

    fn chunk(
        &mut self,
        chunk: &Value,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<(), AttemptFailure> {
        match chunk.get("error") {
            None | Some(Value::Null) => {}
            Some(error) => return Err(AttemptFailure::in_stream(error)),
        }
        if chunk.get("object").and_then(Value::as_str) == Some("error") {
            return Err(AttemptFailure::in_stream(chunk));
        }
        if let Some(usage) = chunk.get("usage") {
            self.usage(usage);
        }
        let choices = chunk.get("choices").and_then(Value::as_array);
        // Some servers send the text in one choice and the calls in another, both with index 0.
        let own = choices.into_iter().flatten().filter(|choice| {
            let index = choice.get("index").and_then(Value::as_u64);
            index.unwrap_or(0) == 0
        });
        let mut has_message = false;
        for choice in own {
            let reason = choice.get("finish_reason").and_then(Value::as_str);
            let phase = self.ends.phase(reason);
            if let Some(Value::Object(delta)) = choice.get("delta") {
                self.delta(delta, phase, pieces);
            }
            // The whole message: in an answer that is not streamed, and from some servers after its
            // pieces.
            if let Some(Value::Object(message)) = choice.get("message") {
                let is_rest = std::mem::replace(&mut has_message, true);
                if !is_rest {
                    self.calls.begin_repetition();
                }
                self.message(message, is_rest, pieces);
            }
            if let Some(reason) = reason {
                self.ends.take(reason);
            }
        }
        Ok(())
    }

    fn usage(&mut self, usage: &Value) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        // Some servers send usage repeatedly with growing counts; the last one is kept.
        if let Some(count) = count("prompt_tokens") {
            self.usage.input_tokens = count;
        }
        if let Some(count) = count("completion_tokens") {
            self.usage.output_tokens = count;
        }
    }

    /// Takes a piece of the message.
    fn delta(
        &mut self,
        delta: &Map<String, Value>,
        phase: FinishPhase,
        pieces: &mut Vec<AnswerPiece>,
    ) {
        let mut has_thought = false;
        for (name, value) in delta {
            match (name.as_str(), value) {
                ("role", _) | (_, Value::Null) => {}
                ("content", value) => self.say(&text_of(value), pieces),
                ("refusal", Value::String(text)) => self.refusal.push_str(text),
                ("tool_calls", Value::Array(calls)) => {
                    self.calls.begin_list(phase);
                    calls.iter().for_each(|call| self.call(call, false));
                }
                ("function_call", call) => {
                    self.calls.begin_list(phase);
                    self.function(call, CallPiece::default(), false);
                }
                // A field of this API with an unexpected type.
                ("refusal" | "tool_calls", _) => {}
                (name, value) => {
                    if let Value::String(text) = value
                        && THINKING.contains(&name)
                        // Some servers send the same text under both names.
                        && !std::mem::replace(&mut has_thought, true)
                    {
                        self.think(text, pieces);
                    }
                    self.extra_bytes += grow(&mut self.extra, name, value);
                }
            }
        }
    }

    /// Takes the whole message; what its pieces already brought is not repeated. `is_rest`: an
    /// earlier choice of the same event had a message too.
    fn message(
        &mut self,
        message: &Map<String, Value>,
        is_rest: bool,
        pieces: &mut Vec<AnswerPiece>,
    ) {
        let mut has_thought = THINKING.iter().any(|name| self.extra.contains_key(*name));
        for (name, value) in message {
            match (name.as_str(), value) {
                ("role", _) | (_, Value::Null) => {}
                ("content", value) => {
                    let whole = text_of(value);
                    if let Some(rest) = whole.strip_prefix(&self.text) {
                        self.say(rest, pieces);
                    } else if is_rest && !self.text.ends_with(&whole) {
                        self.say(&whole, pieces);
                    }
                }
                ("refusal", Value::String(text)) => self.refusal.clone_from(text),
                ("tool_calls", Value::Array(calls)) => {
                    self.calls.repetition().begin_list(FinishPhase::Before);
                    calls.iter().for_each(|call| self.call(call, true));
                }
                ("function_call", call) => {
                    self.calls.repetition().begin_list(FinishPhase::Before);
                    self.function(call, CallPiece::default(), true);
                }
                // A field of this API with an unexpected type.
                ("refusal" | "tool_calls", _) => {}
                (name, value) if !self.extra.contains_key(name) => {
                    if let Value::String(text) = value
                        && THINKING.contains(&name)
                        && !std::mem::replace(&mut has_thought, true)
                    {
                        self.think(text, pieces);
                    }
                    self.extra_bytes += name.len() + weight(value);
                    self.extra.insert(name.to_owned(), value.clone());
                }
                _ => {}
            }
        }
    }

    fn say(&mut self, text: &str, pieces: &mut Vec<AnswerPiece>) {
        self.text.push_str(text);
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

    fn call(&mut self, piece: &Value, is_whole: bool) {
        let index = piece.get("index").and_then(Value::as_u64);
        let place = self.function(
            piece.get("function").unwrap_or(&Value::Null),
            CallPiece {
                index,
                id: text(piece, "id"),
                begins: is_whole,
                ..CallPiece::default()
            },
            is_whole,
        );
        if let (Value::Object(fields), Some(place)) = (piece, place) {
            for (name, value) in fields {
                if !matches!(name.as_str(), "index" | "id" | "type" | "function") {
                    self.extra_bytes += grow(self.target_calls(is_whole).extra(place), name, value);
                }
            }
        }
    }

    /// The calls of the whole message, or those assembled from pieces.
    fn target_calls(&mut self, is_whole: bool) -> &mut Calls {
        match is_whole {
            true => self.calls.repetition(),
            false => &mut self.calls,
        }
    }

    /// Takes the name and arguments of a call; returns the call's index.
    fn function(
        &mut self,
        function: &Value,
        piece: CallPiece<'_>,
        is_whole: bool,
    ) -> Option<usize> {
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(piece)) => piece.clone(),
            // Some servers send an empty object first and then the arguments as text.
            Some(Value::Object(fields)) if fields.is_empty() => String::new(),
            Some(whole) => whole.to_string(),
        };
        let twice = self.duplicate_key.clone();
        let calls = self.target_calls(is_whole);
        let place = calls.take(CallPiece {
            name: text(function, "name"),
            arguments: &arguments,
            ..piece
        });
        let is_text = function.get("arguments").is_none_or(Value::is_string);
        if let (Some(place), Some(name), false) = (place, &twice, is_text) {
            calls.note_twice(place, name);
        }
        place
    }

    fn read(&mut self, text: &str) -> Result<Value, serde_json::Error> {
        let read = stream::read(text)?;
        self.duplicate_key = read.duplicate_key;
        Ok(read.value)
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The text of a message's content: a string, or an array of parts of which some have text.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect()
        }
        _ => String::new(),
    }
}

/// Appends to a pass-through field: texts are concatenated, arrays extended by element, anything
/// else is replaced. Returns the estimated number of bytes added.
fn grow(fields: &mut Map<String, Value>, name: &str, piece: &Value) -> usize {
    match (fields.get_mut(name), piece) {
        (_, Value::Null) => 0,
        (Some(Value::String(text)), Value::String(more)) => {
            text.push_str(more);
            more.len()
        }
        (Some(Value::Array(items)), Value::Array(more)) => {
            more.iter().map(|item| grow_list(items, item)).sum()
        }
        _ => put(fields, name, piece),
    }
}

/// Sets the field and returns the estimated number of bytes added.
fn put(fields: &mut Map<String, Value>, name: &str, value: &Value) -> usize {
    match fields.insert(name.to_owned(), value.clone()) {
        Some(before) => weight(value).saturating_sub(weight(&before)),
        None => name.len() + weight(value),
    }
}

/// Appends an array element; one with the same index and type as an existing element is merged into
/// it. Returns the estimated number of bytes added.
fn grow_list(items: &mut Vec<Value>, piece: &Value) -> usize {
    let same = |one: &Value| {
        let is = |name: &str| one.get(name).is_some() && one.get(name) == piece.get(name);
        is("index") && is("type")
    };
    match (items.iter_mut().find(|one| same(one)), piece) {
        (Some(Value::Object(fields)), Value::Object(more)) => more
            .iter()
            .map(|(name, value)| match name.as_str() {
                "text" | "summary" | "data" => grow(fields, name, value),
                _ if value.is_null() => 0,
                _ => put(fields, name, value),
            })
            .sum(),
        _ => {
            items.push(piece.clone());
            ELEMENT + weight(piece)
        }
    }
}

impl AnswerReader for OpenAiReader {
    fn event(
        &mut self,
        name: &str,
        data: &str,
        pieces: &mut Vec<AnswerPiece>,
    ) -> Result<StreamProgress, AttemptFailure> {
        let data = data.trim();
        if data == "[DONE]" {
            return Ok(StreamProgress::Over);
        }
        if data.is_empty() {
            return Ok(StreamProgress::More);
        }
        let chunk = self.read(data).map_err(|error| {
            AttemptFailure::passing(format!("a piece of the answer is not valid JSON: {error}"))
        })?;
        if name == "error" {
            return Err(AttemptFailure::in_stream(
                chunk.get("error").unwrap_or(&chunk),
            ));
        }
        self.chunk(&chunk, pieces)?;
        Ok(match self.ends.is_given() {
            true => StreamProgress::Finished,
            false => StreamProgress::More,
        })
    }

    fn whole(&mut self, body: &str, pieces: &mut Vec<AnswerPiece>) -> Result<(), AttemptFailure> {
        let answer = self.read(body).map_err(|error| {
            AttemptFailure::passing(format!("the answer is not valid JSON: {error}"))
        })?;
        self.chunk(&answer, pieces)
    }

    fn extent(&self) -> Extent<'_> {
        self.calls.extent_with(Extent {
            all: self.text.len() + self.refusal.len() + self.extra_bytes,
            ..Extent::default()
        })
    }

    fn answer(
        mut self: Box<Self>,
        mut known: AnswerContext,
    ) -> Result<ModelAnswer, AttemptFailure> {
        let mut text = settled(&self.text);
        let end = self.ends.judge(&text)?;
        let calls = self.calls.finish(&mut known, end.is_cut)?;
        let calls: Vec<_> = calls.into_iter().flatten().collect();
        end.check(calls.len(), &text)?;
        if text.trim().is_empty() {
            // Some servers refuse a blank text when it is sent back.
            text = match calls.is_empty() {
                true => settled(&self.refusal),
                false => String::new(),
            };
        }
        let mut blocks = Vec::new();
        if !text.is_empty() {
            blocks.push(Block::Text { text: text.clone() });
        }
        let mut native_calls = Vec::new();
        for call in calls {
            let mut native = json!({
                "id": call.id,
                "type": "function",
                "function": { "name": fitting_name(&call.name), "arguments": call.sent_back() },
            });
            blocks.extend(call.blocks());
            if let Value::Object(fields) = &mut native {
                let mut extra = call.extra;
                settle_fields(&mut extra);
                fields.extend(extra);
            }
            native_calls.push(native);
        }
        let mut native = Map::new();
        native.insert("role".to_owned(), "assistant".into());
        native.insert("content".to_owned(), text.into());
        settle_fields(&mut self.extra);
        native.extend(self.extra);
        if !native_calls.is_empty() {
            native.insert("tool_calls".to_owned(), Value::Array(native_calls));
        }
        let is_paused = end.is_paused && !blocks.is_empty();
        blocks.push(self.origin.native(raw(&native).get()));
        if is_paused {
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
