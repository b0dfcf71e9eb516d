//! Reads a Chat Completions answer, as chunks or whole. Servers that are compatible only by
//! name are read too: calls without an index or an id, arguments as an object, all of them at
//! once, fields that nobody knows, errors in the middle, usage early, late or never.

use serde_json::{Map, Value, json};

use super::super::answer::{Known, Piece, Progress, Reader, arguments, object, raw};
use super::super::failure::Failure;
use super::super::{ModelAnswer, Origin};
use crate::kernel::message::Block;
use crate::kernel::run::Usage;

/// Fields of a message in which models think aloud.
const THINKING: &[&str] = &["reasoning_content", "reasoning"];

/// The answer as it comes together.
pub(in crate::provider) struct Answer {
    origin: Origin,
    text: String,
    refusal: String,
    calls: Vec<Call>,
    /// Fields of the message beyond those that this API has, as they came.
    extra: Map<String, Value>,
    finish: Option<String>,
    usage: Usage,
}

#[derive(Default)]
struct Call {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Fields of the call beyond those that this API has.
    extra: Map<String, Value>,
}

impl Answer {
    pub(in crate::provider) fn new(origin: Origin) -> Self {
        Answer {
            origin,
            text: String::new(),
            refusal: String::new(),
            calls: Vec::new(),
            extra: Map::new(),
            finish: None,
            usage: Usage::default(),
        }
    }

    fn chunk(&mut self, chunk: &Value, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
        match chunk.get("error") {
            None | Some(Value::Null) => {}
            Some(error) => return Err(Failure::in_stream(error)),
        }
        if chunk.get("object").and_then(Value::as_str) == Some("error") {
            return Err(Failure::in_stream(chunk));
        }
        if let Some(usage) = chunk.get("usage") {
            self.usage(usage);
        }
        let choices = chunk.get("choices").and_then(Value::as_array);
        let first = choices.into_iter().flatten().find(|choice| {
            let index = choice.get("index").and_then(Value::as_u64);
            index.unwrap_or(0) == 0
        });
        let Some(choice) = first else {
            return Ok(());
        };
        // Some say it all in the field of an answer that is not streamed.
        let message = choice.get("delta").or_else(|| choice.get("message"));
        if let Some(Value::Object(message)) = message {
            self.message(message, pieces);
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str)
            && !reason.is_empty()
        {
            self.finish = Some(reason.to_owned());
        }
        Ok(())
    }

    fn usage(&mut self, usage: &Value) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        // Those who count along send it again and again, higher each time.
        if let Some(count) = count("prompt_tokens") {
            self.usage.input_tokens = count;
        }
        if let Some(count) = count("completion_tokens") {
            self.usage.output_tokens = count;
        }
    }

    fn message(&mut self, message: &Map<String, Value>, pieces: &mut Vec<Piece>) {
        for (name, value) in message {
            match (name.as_str(), value) {
                ("role", _) | (_, Value::Null) => {}
                ("content", value) => {
                    let text = text_of(value);
                    if !text.is_empty() {
                        self.text.push_str(&text);
                        pieces.push(Piece::Text(text));
                    }
                }
                ("refusal", Value::String(text)) => self.refusal.push_str(text),
                ("tool_calls", Value::Array(calls)) => {
                    for call in calls {
                        self.call(call);
                    }
                }
                (name, value) => {
                    if let Value::String(text) = value
                        && THINKING.contains(&name)
                        && !text.is_empty()
                    {
                        pieces.push(Piece::Thinking(text.clone()));
                    }
                    grow(&mut self.extra, name, value);
                }
            }
        }
    }

    fn call(&mut self, piece: &Value) {
        let text = |value: &Value, name: &str| {
            let text = value.get(name).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let function = piece.get("function").unwrap_or(&Value::Null);
        let (id, name) = (text(piece, "id"), text(function, "name"));
        let index = piece.get("index").and_then(Value::as_u64);
        let found = match index {
            Some(_) => self.calls.iter_mut().rfind(|call| call.index == index),
            None => self.calls.last_mut(),
        };
        // Where all calls have one index, or none, another id begins another call.
        let goes_on = |call: &Call| {
            let other_id = !id.is_empty() && !call.id.is_empty() && id != call.id;
            let again = index.is_none() && id.is_empty() && !name.is_empty();
            !(other_id || again)
        };
        let call = match found {
            Some(call) if goes_on(call) => call,
            _ => {
                self.calls.push(Call {
                    index,
                    ..Call::default()
                });
                self.calls.last_mut().expect("one was just pushed")
            }
        };
        if call.id.is_empty() {
            call.id = id;
        }
        if call.name.is_empty() {
            call.name = name;
        }
        match function.get("arguments") {
            None | Some(Value::Null) => {}
            Some(Value::String(piece)) => call.arguments.push_str(piece),
            Some(whole) => call.arguments = whole.to_string(),
        }
        if let Value::Object(fields) = piece {
            for (name, value) in fields {
                if !matches!(name.as_str(), "index" | "id" | "type" | "function") {
                    grow(&mut call.extra, name, value);
                }
            }
        }
    }
}

/// The text of a content: a text, or parts of which some are texts.
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

/// Adds a piece of a field that is passed through: texts grow, lists grow by element, anything
/// else is replaced.
fn grow(fields: &mut Map<String, Value>, name: &str, piece: &Value) {
    match (fields.get_mut(name), piece) {
        (_, Value::Null) => {}
        (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
        (Some(Value::Array(items)), Value::Array(more)) => {
            for item in more {
                grow_list(items, item);
            }
        }
        _ => {
            fields.insert(name.to_owned(), piece.clone());
        }
    }
}

/// An element that has the same index and type as one that is there goes on with it.
fn grow_list(items: &mut Vec<Value>, piece: &Value) {
    let same = |one: &Value| {
        let is = |name: &str| one.get(name).is_some() && one.get(name) == piece.get(name);
        is("index") && is("type")
    };
    match (items.iter_mut().find(|one| same(one)), piece) {
        (Some(Value::Object(fields)), Value::Object(more)) => {
            for (name, value) in more {
                match name.as_str() {
                    "text" | "summary" | "data" => grow(fields, name, value),
                    _ if value.is_null() => {}
                    _ => {
                        fields.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        _ => items.push(piece.clone()),
    }
}

impl Reader for Answer {
    fn event(
        &mut self,
        name: &str,
        data: &str,
        pieces: &mut Vec<Piece>,
    ) -> Result<Progress, Failure> {
        let data = data.trim();
        if data == "[DONE]" {
            return Ok(Progress::Over);
        }
        if data.is_empty() {
            return Ok(Progress::More);
        }
        let chunk: Value = serde_json::from_str(data).map_err(|error| {
            Failure::passing(format!("a piece of the answer is no JSON: {error}"))
        })?;
        if name == "error" {
            return Err(Failure::in_stream(chunk.get("error").unwrap_or(&chunk)));
        }
        self.chunk(&chunk, pieces)?;
        Ok(match self.finish {
            Some(_) => Progress::Finished,
            None => Progress::More,
        })
    }

    fn whole(&mut self, body: &str, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
        let answer: Value = serde_json::from_str(body)
            .map_err(|error| Failure::passing(format!("the answer is no JSON: {error}")))?;
        self.chunk(&answer, pieces)
    }

    fn answer(mut self: Box<Self>, mut known: Known) -> Result<ModelAnswer, Failure> {
        let Some(finish) = self.finish.take() else {
            return Err(Failure::passing(
                "the answer was cut: it ended without a reason for its end",
            ));
        };
        if self.text.is_empty() && self.calls.is_empty() && finish == "content_filter" {
            return Err(Failure::lasting(
                "refused",
                "the provider's filter has withheld the answer",
            ));
        }
        if self.text.is_empty() && self.calls.is_empty() {
            self.text.push_str(&self.refusal);
        }
        let mut blocks = Vec::new();
        if !self.text.is_empty() {
            blocks.push(Block::Text {
                text: self.text.clone(),
            });
        }
        let mut calls = Vec::new();
        for (index, call) in self.calls.into_iter().enumerate() {
            let id = known.unique(Some(&call.id), index);
            let parsed = arguments(&call.arguments);
            // As the model wrote them, unless no server would take them back.
            let written = match &parsed {
                Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
                Value::Object(_) => call.arguments,
                broken => object(broken).to_string(),
            };
            let mut native = json!({
                "id": id,
                "type": "function",
                "function": { "name": call.name, "arguments": written },
            });
            if let Value::Object(fields) = &mut native {
                fields.extend(call.extra);
            }
            calls.push(native);
            blocks.push(Block::ToolCall {
                id,
                name: call.name,
                arguments: parsed,
            });
        }
        let mut native = Map::new();
        native.insert("role".to_owned(), "assistant".into());
        native.insert("content".to_owned(), self.text.into());
        native.extend(self.extra);
        if !calls.is_empty() {
            native.insert("tool_calls".to_owned(), Value::Array(calls));
        }
        blocks.push(self.origin.native(raw(&native).get()));
        Ok(ModelAnswer {
            blocks,
            usage: self.usage,
            warnings: cut(&finish).into_iter().collect(),
        })
    }
}

/// What a caller should know of an answer that ended so.
fn cut(finish: &str) -> Option<String> {
    match finish {
        "length" => Some("an answer was cut off at its limit of tokens (max_tokens)".to_owned()),
        "content_filter" => Some("an answer was cut off by the provider's filter".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
