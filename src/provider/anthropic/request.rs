//! What is sent: the conversation as Messages of user and assistant in turn. An answer that
//! came from this same provider goes back as it came, thinking and signatures with it: the API
//! refuses a tool's result whose thinking was changed.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::answer::{kept, object, written};
use super::super::history::{EMPTY, NO_OUTPUT, fitting_name, nameless, native_of};
use super::super::{Call, ModelRequest};
use crate::kernel::message::{Block, Message, Role};
use crate::kernel::options::{Api, for_api};
use crate::kernel::thinking::Thinking;

/// How long an answer may get where the agent does not say: this API wants to be told.
const MAX_TOKENS: u32 = 8192;

/// Said in place of what came before a conversation that begins in the middle.
const EARLIER: &str = "(What was said before is left out.)";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Turn<'a>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: &'static str,
    content: Content<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Blocks(Vec<Value>),
    AsItCame(&'a RawValue),
}

/// The request as JSON text.
pub(in crate::provider) fn body(call: &Call<'_>) -> String {
    let request = call.request;
    let budget = call.thinking().and_then(budget);
    let body = Body {
        model: &request.model,
        // The budget is taken out of the limit, which says how long the answer may get.
        max_tokens: request.max_tokens.unwrap_or(MAX_TOKENS) + budget.unwrap_or(0),
        stream: true,
        system: system(request),
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                name: &tool.name,
                description: &tool.description,
                input_schema: &tool.parameters,
            })
            .collect(),
        messages: messages(call),
        more: more(request, budget),
    };
    written(&body, request)
}

/// The system prompt, marked as the end of what is the same in every call: tools and prompt
/// are read once and paid for in part from then on.
fn system(request: &ModelRequest) -> Vec<Value> {
    if request.system.is_empty() {
        return Vec::new();
    }
    vec![json!({
        "type": "text",
        "text": request.system,
        "cache_control": { "type": "ephemeral" },
    })]
}

fn more(request: &ModelRequest, budget: Option<u32>) -> Map<String, Value> {
    let mut more = for_api(&request.options, Api::Messages);
    match (budget, request.temperature) {
        // A model that thinks takes no other temperature than its own.
        (Some(tokens), _) => {
            let thinking = json!({ "type": "enabled", "budget_tokens": tokens });
            more.insert("thinking".to_owned(), thinking);
        }
        (None, Some(temperature)) => {
            more.insert("temperature".to_owned(), temperature.into());
        }
        (None, None) => {}
    }
    more
}

fn budget(level: Thinking) -> Option<u32> {
    match level {
        Thinking::Off => None,
        // The least that the API takes.
        Thinking::Minimal => Some(1024),
        Thinking::Low => Some(4096),
        Thinking::Medium => Some(10_240),
        Thinking::High => Some(24_576),
    }
}

fn messages<'a>(call: &Call<'a>) -> Vec<Turn<'a>> {
    let dropped = nameless(call.request);
    let mut turns: Vec<Turn<'a>> = Vec::new();
    let mut said = Vec::new();
    // The API takes no empty texts; a turn that has nothing else says so.
    let mut is_owed = false;
    for message in &call.request.messages {
        if message.role != Role::Assistant {
            // Results of one answer's calls come first and together, as they stand.
            said.extend(blocks(call, message, &dropped));
            is_owed = true;
            continue;
        }
        flush(&mut said, &mut is_owed, &mut turns);
        if turns.is_empty() {
            turns.push(user(vec![json!({ "type": "text", "text": EARLIER })]));
        }
        let content = match native_of(call, message).and_then(kept) {
            Some(as_it_came) => Content::AsItCame(as_it_came),
            None => Content::Blocks(blocks(call, message, &dropped)),
        };
        if !matches!(&content, Content::Blocks(blocks) if blocks.is_empty()) {
            turns.push(Turn {
                role: "assistant",
                content,
            });
        }
    }
    flush(&mut said, &mut is_owed, &mut turns);
    turns
}

fn flush(said: &mut Vec<Value>, is_owed: &mut bool, turns: &mut Vec<Turn<'_>>) {
    let mut said = std::mem::take(said);
    if std::mem::take(is_owed) && said.is_empty() {
        said.push(json!({ "type": "text", "text": EMPTY }));
    }
    if !said.is_empty() {
        turns.push(user(said));
    }
}

fn user<'a>(blocks: Vec<Value>) -> Turn<'a> {
    Turn {
        role: "user",
        content: Content::Blocks(blocks),
    }
}

fn blocks(call: &Call<'_>, message: &Message, dropped: &BTreeSet<&str>) -> Vec<Value> {
    let id = |id: &str| fitting(&call.id(message, id));
    let blocks = message.content.iter().filter_map(|block| match block {
        Block::Text { text } if text.trim().is_empty() => None,
        Block::Text { text } => Some(json!({ "type": "text", "text": text })),
        Block::ToolCall { id, .. }
        | Block::ToolResult {
            tool_call_id: id, ..
        } if dropped.contains(&**id) => None,
        Block::ToolCall {
            id: own,
            name,
            arguments,
        } => Some(json!({
            "type": "tool_use",
            "id": id(own),
            "name": fitting_name(name),
            "input": object(arguments),
        })),
        Block::ToolResult {
            tool_call_id,
            text,
            is_error,
        } => {
            let mut result = json!({
                "type": "tool_result",
                "tool_use_id": id(tool_call_id),
                "content": if text.trim().is_empty() { NO_OUTPUT } else { text },
            });
            if *is_error {
                result["is_error"] = true.into();
            }
            Some(result)
        }
        Block::Native { .. } | Block::Note { .. } => None,
    });
    blocks.collect()
}

/// An id as this API takes it. One that another provider gave may have other characters; it
/// becomes another one, always the same.
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
