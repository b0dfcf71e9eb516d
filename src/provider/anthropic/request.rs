//! Writes the request: the conversation as alternating user and assistant messages. An answer of
//! this same provider is sent back unchanged, with its thinking and signatures: the API refuses a
//! tool result whose thinking was changed.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::PreparedRequest;
use super::super::answer::{object, written};
use super::super::history::{self, EMPTY, NO_OUTPUT, native_of, unnamed_calls};
use crate::kernel::run::options::{Api, for_api};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::blocks::{Arguments, BlockRef, Quoted};
use crate::kernel::session::message::{Message, Role};

/// Output limit if the agent sets none, tokens: this API requires one.
const MAX_TOKENS: u32 = 8192;

/// Minimum thinking budget that the API accepts, tokens.
const LEAST_BUDGET: u32 = 1024;

/// Text in place of the earlier part of a conversation that begins in the middle.
const EARLIER: &str = "(Earlier messages are omitted.)";

#[derive(Serialize)]
struct AnthropicBody<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "is_not")]
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'a>>,
    messages: Vec<AnthropicMessage<'a>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Serialize)]
struct AnthropicTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
struct AnthropicMessage<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Blocks(Vec<SentBlock<'a>>),
    AsItCame(Cow<'a, RawValue>),
}

/// One content block. Serialized from borrowed parts: the conversation is sent again with each
/// call.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum SentBlock<'a> {
    Text {
        text: Quoted<'a>,
    },
    ToolUse {
        id: String,
        name: Quoted<'a>,
        input: CallInput<'a>,
    },
    ToolResult {
        tool_use_id: String,
        content: Quoted<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// Arguments of a call, always an object.
#[derive(Serialize)]
#[serde(untagged)]
enum CallInput<'a> {
    Raw(&'a RawValue),
    Read(Value),
}

/// A fixed text of this program.
fn fixed_text<'a>(text: &'static str) -> SentBlock<'a> {
    SentBlock::Text {
        text: Quoted::Plain(text.into()),
    }
}

/// The request as JSON text.
pub(in crate::provider) fn body(call: &PreparedRequest<'_>) -> String {
    let (request, switches) = (call.request, &call.switches);
    let level = call.level();
    // Thinking tokens count toward `max_tokens`, so the budget is added to the answer's limit.
    let room = level.map_or(0, budget);
    let max_tokens = switches.limited(request.max_tokens.unwrap_or(MAX_TOKENS) + room);
    let body = AnthropicBody {
        model: &request.model,
        max_tokens,
        stream: !switches.no_stream,
        system: system(call),
        tools: request
            .tools
            .iter()
            .map(|tool| AnthropicTool {
                name: &tool.name,
                description: &tool.description,
                input_schema: &tool.parameters,
            })
            .collect(),
        messages: messages(call),
        more: more(call, level, max_tokens),
    };
    written(&body, request)
}

/// The system prompt with a cache mark: tools and prompt are the same in every call, so the
/// provider caches them and charges only a part from then on.
fn system(call: &PreparedRequest<'_>) -> Vec<Value> {
    let request = call.request;
    if request.system.is_empty() {
        return Vec::new();
    }
    let mut prompt = json!({ "type": "text", "text": request.system });
    if !call.switches.no_cache_control {
        prompt["cache_control"] = json!({ "type": "ephemeral" });
    }
    vec![prompt]
}

fn is_not(flag: &bool) -> bool {
    !flag
}

/// Thinking, temperature and the agent's options. Thinking has two forms: older models take a token
/// budget, newer ones an effort.
fn more(
    call: &PreparedRequest<'_>,
    level: Option<Thinking>,
    max_tokens: u32,
) -> Map<String, Value> {
    let (request, switches) = (call.request, &call.switches);
    let mut more = for_api(&request.options, Api::Messages);
    match (level, request.temperature) {
        // With thinking on, a model accepts only its default temperature.
        (Some(level), _) if switches.adaptive => {
            more.insert("thinking".to_owned(), json!({ "type": "adaptive" }));
            if !switches.no_effort {
                let effort = json!({ "effort": effort(level) });
                more.insert("output_config".to_owned(), effort);
            }
        }
        (Some(level), _) => {
            // The budget must leave room for an answer, also if the model accepts a smaller limit
            // than wanted.
            let answer = request.max_tokens.unwrap_or(MAX_TOKENS).min(max_tokens / 4);
            let most = max_tokens.saturating_sub(answer).max(LEAST_BUDGET);
            let tokens = budget(level).min(most);
            let thinking = json!({ "type": "enabled", "budget_tokens": tokens });
            more.insert("thinking".to_owned(), thinking);
        }
        (None, Some(temperature)) if !switches.no_temperature => {
            more.insert("temperature".to_owned(), temperature.into());
        }
        (None, _) => {}
    }
    more
}

/// The level's name in adaptive thinking.
fn effort(level: Thinking) -> &'static str {
    match level {
        Thinking::Off | Thinking::Minimal => Thinking::Low.as_str(),
        level => level.as_str(),
    }
}

/// Approximate thinking budget of a level, tokens.
fn budget(level: Thinking) -> u32 {
    match level {
        Thinking::Off => 0,
        Thinking::Minimal => LEAST_BUDGET,
        Thinking::Low => 4096,
        Thinking::Medium => 10_240,
        Thinking::High => 24_576,
        Thinking::XHigh => 40_960,
        Thinking::Max => 57_344,
    }
}

fn messages<'a>(call: &PreparedRequest<'a>) -> Vec<AnthropicMessage<'a>> {
    let dropped = unnamed_calls(call.request);
    let mut turns: Vec<AnthropicMessage<'a>> = Vec::new();
    let mut said = Vec::new();
    // The API refuses empty text; a user turn without content gets a placeholder.
    let mut has_input = false;
    for message in &call.request.messages {
        if message.role != Role::Assistant {
            // Tool results are already in order, directly after the answer with their calls.
            said.extend(blocks(call, message, &dropped));
            has_input = true;
            continue;
        }
        flush(&mut said, &mut has_input, &mut turns);
        if turns.is_empty() {
            turns.push(user(vec![fixed_text(EARLIER)]));
        }
        let content = match native_of(call, message) {
            Some(as_it_came) => Content::AsItCame(as_it_came),
            None => Content::Blocks(blocks(call, message, &dropped)),
        };
        if !matches!(&content, Content::Blocks(blocks) if blocks.is_empty()) {
            turns.push(AnthropicMessage {
                role: "assistant",
                content,
            });
        }
    }
    flush(&mut said, &mut has_input, &mut turns);
    turns
}

fn flush<'a>(
    said: &mut Vec<SentBlock<'a>>,
    is_owed: &mut bool,
    turns: &mut Vec<AnthropicMessage<'a>>,
) {
    let mut said = std::mem::take(said);
    if std::mem::take(is_owed) && said.is_empty() {
        said.push(fixed_text(EMPTY));
    }
    if !said.is_empty() {
        turns.push(user(said));
    }
}

fn user(blocks: Vec<SentBlock<'_>>) -> AnthropicMessage<'_> {
    AnthropicMessage {
        role: "user",
        content: Content::Blocks(blocks),
    }
}

fn blocks<'a>(
    call: &PreparedRequest<'_>,
    message: &'a Message,
    dropped: &BTreeSet<String>,
) -> Vec<SentBlock<'a>> {
    let id = |id: Quoted<'_>| fitting(&call.id(message, id).text());
    let blocks = message.content.pieces().into_iter();
    let blocks = blocks.filter_map(|block| match block {
        BlockRef::Text(text) if text.is_blank() => None,
        BlockRef::Text(text) => Some(SentBlock::Text { text }),
        BlockRef::ToolCall { id, .. } | BlockRef::ToolResult { call: id, .. }
            if !dropped.is_empty() && dropped.contains(&*id.text()) =>
        {
            None
        }
        BlockRef::ToolCall {
            id: own,
            name,
            arguments,
        } => Some(SentBlock::ToolUse {
            id: id(own),
            name: history::fitting(name),
            input: match arguments {
                Arguments::Raw(raw) if raw.get().starts_with('{') => CallInput::Raw(raw),
                other => CallInput::Read(object(&other.value())),
            },
        }),
        BlockRef::ToolResult {
            call,
            text,
            is_error,
        } => Some(SentBlock::ToolResult {
            tool_use_id: id(call),
            content: match text.is_blank() {
                true => Quoted::Plain(NO_OUTPUT.into()),
                false => text,
            },
            is_error,
        }),
        BlockRef::Native { .. } | BlockRef::Note(_) => None,
    });
    blocks.collect()
}

/// An id that this API accepts. Another provider's id may have other characters; it is replaced by
/// a hash of it, always the same.
pub(super) fn fitting(id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !id.is_empty() && id.len() <= 256 && id.chars().all(fits) {
        return id.to_owned();
    }
    let hash = blake3::hash(id.as_bytes()).to_hex();
    format!("call_{}", &hash[..32])
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
