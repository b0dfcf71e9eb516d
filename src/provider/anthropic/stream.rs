//! Reads a Messages answer, as events or whole. The blocks are kept as they came: what was
//! thought must go back unchanged, whatever fields it has.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::super::answer::{Known, Piece, Progress, Reader, arguments, kept, object, raw};
use super::super::failure::Failure;
use super::super::{ModelAnswer, Origin};
use crate::kernel::message::Block;
use crate::kernel::run::Usage;

/// The answer as it comes together.
pub(in crate::provider) struct Answer {
    origin: Origin,
    parts: Vec<Part>,
    stop: Option<String>,
    usage: Usage,
}

/// A block of the answer.
struct Part {
    index: u64,
    block: Value,
    /// For a tool call, its arguments as the model wrote them.
    input: String,
}

impl Answer {
    pub(in crate::provider) fn new(origin: Origin) -> Self {
        Answer {
            origin,
            parts: Vec::new(),
            stop: None,
            usage: Usage::default(),
        }
    }

    fn usage(&mut self, usage: &Value) {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        if let Some(count) = count("input_tokens") {
            let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"];
            let cached: u64 = cached
                .iter()
                .filter_map(|name| self::count(usage, name))
                .sum();
            self.usage.input_tokens = count + cached;
        }
        if let Some(count) = count("output_tokens") {
            self.usage.output_tokens = count;
        }
    }

    fn begin(&mut self, index: u64, block: &Value, pieces: &mut Vec<Piece>) {
        let text = |name: &str| block.get(name).and_then(Value::as_str);
        match text("type") {
            Some("text") => pieces.extend(piece(text("text"), Piece::Text)),
            Some("thinking") => pieces.extend(piece(text("thinking"), Piece::Thinking)),
            _ => {}
        }
        self.parts.push(Part {
            index,
            block: block.clone(),
            input: String::new(),
        });
    }

    fn grow(&mut self, index: u64, delta: &Value, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
        let part = self.parts.iter_mut().rfind(|part| part.index == index);
        let part = part.ok_or_else(|| {
            Failure::passing(format!("a piece of block {index} came before the block"))
        })?;
        let text = |name: &str| delta.get(name).and_then(Value::as_str);
        match text("type") {
            Some("text_delta") => {
                append(&mut part.block, "text", text("text"));
                pieces.extend(piece(text("text"), Piece::Text));
            }
            Some("thinking_delta") => {
                append(&mut part.block, "thinking", text("thinking"));
                pieces.extend(piece(text("thinking"), Piece::Thinking));
            }
            Some("signature_delta") => append(&mut part.block, "signature", text("signature")),
            Some("input_json_delta") => part.input.push_str(text("partial_json").unwrap_or("")),
            Some("citations_delta") => {
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
            // The API may gain kinds of pieces at any time.
            _ => {}
        }
        Ok(())
    }
}

fn count(usage: &Value, name: &str) -> Option<u64> {
    usage.get(name).and_then(Value::as_u64)
}

fn piece(text: Option<&str>, make: fn(String) -> Piece) -> Option<Piece> {
    text.filter(|text| !text.is_empty())
        .map(|text| make(text.to_owned()))
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

impl Part {
    fn is(&self, kind: &str) -> bool {
        self.block.get("type").and_then(Value::as_str) == Some(kind)
    }

    fn text(&self, name: &str) -> &str {
        self.block
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// A tool call: its place in the conversation, and the block as it goes back.
    fn call(&mut self, known: &mut Known, position: usize) -> (Block, Box<RawValue>) {
        let id = known.unique(Some(self.text("id")), position);
        let name = self.text("name").to_owned();
        // Some servers give all of it at the beginning.
        let whole = self.block.get("input").cloned().unwrap_or(Value::Null);
        let given = match self.input.is_empty() {
            true if whole.is_object() => whole,
            true => arguments(""),
            false => arguments(&self.input),
        };
        let as_written = match &given {
            Value::Object(_) if !self.input.is_empty() => {
                kept(self.input.trim()).filter(|written| written.get().starts_with('{'))
            }
            _ => None,
        };
        let input = match as_written {
            Some(written) => written.to_owned(),
            None => raw(&object(&given)),
        };
        let native = with_input(&mut self.block, &id, &input);
        let block = Block::ToolCall {
            id,
            name,
            arguments: given,
        };
        (block, native)
    }
}

/// The block of a tool call as JSON text, in the order in which its fields came, with the
/// arguments as they were written.
fn with_input(block: &mut Value, id: &str, input: &RawValue) -> Box<RawValue> {
    let Value::Object(fields) = block else {
        return raw(&json!({ "type": "tool_use", "id": id }));
    };
    fields.insert("id".to_owned(), id.into());
    fields.entry("input").or_insert(Value::Null);
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| {
            let value = match name.as_str() {
                "input" => input.get().to_owned(),
                _ => value.to_string(),
            };
            format!("{}:{value}", Value::from(name.as_str()))
        })
        .collect();
    let text = format!("{{{}}}", fields.join(","));
    RawValue::from_string(text).unwrap_or_else(|_| raw(block))
}

impl Reader for Answer {
    fn event(
        &mut self,
        name: &str,
        data: &str,
        pieces: &mut Vec<Piece>,
    ) -> Result<Progress, Failure> {
        let data = data.trim();
        if data.is_empty() {
            return Ok(Progress::More);
        }
        let event: Value = serde_json::from_str(data).map_err(|error| {
            Failure::passing(format!("a piece of the answer is no JSON: {error}"))
        })?;
        let none = Value::Null;
        let field = |name: &str| event.get(name).unwrap_or(&none);
        let index = field("index").as_u64().unwrap_or(0);
        // The event's name stands in the data too; servers that leave one away keep the other.
        match field("type").as_str().unwrap_or(name) {
            "message_start" => {
                let message = field("message").clone();
                self.usage(message.get("usage").unwrap_or(&none));
            }
            "content_block_start" => self.begin(index, field("content_block"), pieces),
            "content_block_delta" => self.grow(index, field("delta"), pieces)?,
            "message_delta" => {
                if let Some(reason) = field("delta").get("stop_reason").and_then(Value::as_str) {
                    self.stop = Some(reason.to_owned());
                }
                let usage = field("usage").clone();
                self.usage(&usage);
            }
            "message_stop" => return Ok(Progress::Over),
            "error" => return Err(Failure::in_stream(field("error"))),
            // ping, the end of a block, and whatever the API may gain.
            _ => {}
        }
        Ok(match self.stop {
            Some(_) => Progress::Finished,
            None => Progress::More,
        })
    }

    fn whole(&mut self, body: &str, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
        let answer: Value = serde_json::from_str(body)
            .map_err(|error| Failure::passing(format!("the answer is no JSON: {error}")))?;
        if let Some(error) = answer.get("error").filter(|error| !error.is_null()) {
            return Err(Failure::in_stream(error));
        }
        let blocks = answer.get("content").and_then(Value::as_array);
        for (index, block) in (0..).zip(blocks.into_iter().flatten()) {
            self.begin(index, block, pieces);
        }
        self.usage(answer.get("usage").unwrap_or(&Value::Null));
        let reason = answer.get("stop_reason").and_then(Value::as_str);
        self.stop = reason.map(str::to_owned);
        Ok(())
    }

    fn answer(mut self: Box<Self>, mut known: Known) -> Result<ModelAnswer, Failure> {
        let Some(stop) = self.stop.take() else {
            return Err(Failure::passing(
                "the answer was cut: it ended without a reason for its end",
            ));
        };
        let mut blocks = Vec::new();
        let mut native: Vec<Box<RawValue>> = Vec::new();
        let mut calls = 0;
        for part in &mut self.parts {
            if part.is("tool_use") {
                let (block, as_it_came) = part.call(&mut known, calls);
                calls += 1;
                blocks.push(block);
                native.push(as_it_came);
                continue;
            }
            if part.is("text") {
                let text = part.text("text").to_owned();
                if text.is_empty() {
                    // The API gives empty texts and does not take them back.
                    continue;
                }
                blocks.push(Block::Text { text });
            }
            native.push(raw(&part.block));
        }
        if blocks.is_empty() && stop == "refusal" {
            return Err(Failure::lasting("refused", "the model refuses to answer"));
        }
        blocks.push(self.origin.native(raw(&native).get()));
        Ok(ModelAnswer {
            blocks,
            usage: self.usage,
            warnings: cut(&stop).into_iter().collect(),
        })
    }
}

/// What a caller should know of an answer that ended so.
fn cut(stop: &str) -> Option<String> {
    let why = match stop {
        "max_tokens" => "at its limit of tokens (max_tokens)",
        "model_context_window_exceeded" => "at the end of the model's window",
        "refusal" => "by the model's refusal to go on",
        _ => return None,
    };
    Some(format!("an answer was cut off {why}"))
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
