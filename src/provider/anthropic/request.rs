//! What is sent: the conversation as Messages of user and assistant in turn. An answer that
//! came from this same provider goes back as it came, thinking and signatures with it: the API
//! refuses a tool's result whose thinking was changed.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::Call;
use super::super::answer::{kept, object, written};
use super::super::history::{EMPTY, NO_OUTPUT, fitting_name, nameless, native_of};
use crate::kernel::message::{Block, Message, Role};
use crate::kernel::options::{Api, for_api};
use crate::kernel::thinking::Thinking;

/// How long an answer may get where the agent does not say: this API wants to be told.
const MAX_TOKENS: u32 = 8192;

/// The least budget for thinking that the API takes.
const LEAST_BUDGET: u32 = 1024;

/// Said in place of what came before a conversation that begins in the middle.
const EARLIER: &str = "(What was said before is left out.)";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "is_not")]
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
    let (request, switches) = (call.request, &call.switches);
    let level = call.level();
    // What is thought is taken out of the limit, which says how long the answer may get.
    let room = level.map_or(0, budget);
    let max_tokens = switches.limited(request.max_tokens.unwrap_or(MAX_TOKENS) + room);
    let body = Body {
        model: &request.model,
        max_tokens,
        stream: !switches.no_stream,
        system: system(call),
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
        more: more(call, level, max_tokens),
    };
    written(&body, request)
}

/// The system prompt, marked as the end of what is the same in every call: tools and prompt
/// are read once and paid for in part from then on.
fn system(call: &Call<'_>) -> Vec<Value> {
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

/// Thinking has one of two forms: older models take a budget of tokens, newer ones an effort.
fn more(call: &Call<'_>, level: Option<Thinking>, max_tokens: u32) -> Map<String, Value> {
    let (request, switches) = (call.request, &call.switches);
    let mut more = for_api(&request.options, Api::Messages);
    match (level, request.temperature) {
        // A model that thinks takes no other temperature than its own.
        (Some(level), _) if switches.adaptive => {
            more.insert("thinking".to_owned(), json!({ "type": "adaptive" }));
            if !switches.no_effort {
                let effort = json!({ "effort": effort(level) });
                more.insert("output_config".to_owned(), effort);
            }
        }
        (Some(level), _) => {
            // It must leave room for an answer, also where the model takes less than was asked for.
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

/// The level as adaptive thinking names it.
fn effort(level: Thinking) -> &'static str {
    match level {
        Thinking::Off | Thinking::Minimal => Thinking::Low.as_str(),
        level => level.as_str(),
    }
}

/// About how many tokens a level may take.
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
