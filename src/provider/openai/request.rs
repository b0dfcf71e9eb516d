//! What is sent: the conversation as Chat Completions messages. An answer that came from this
//! same provider goes back as it came.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::answer::{kept, object, raw, written};
use super::super::{Call, native_of};
use crate::kernel::message::{Block, Message, Role, plain_text};
use crate::kernel::options::{Api, for_api};
use crate::kernel::thinking::Thinking;

/// The names that some servers know fields by and others do not.
const NEW_LIMIT: &str = "max_completion_tokens";
const OLD_LIMIT: &str = "max_tokens";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Box<RawValue>>,
    stream: bool,
    stream_options: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

/// The request as JSON text.
pub(in crate::provider) fn body(call: &Call<'_>) -> String {
    let request = call.request;
    let body = Body {
        model: &request.model,
        messages: messages(call),
        stream: true,
        stream_options: json!({ "include_usage": true }),
        tools: request
            .tools
            .iter()
            .map(|tool| Tool {
                r#type: "function",
                function: Function {
                    name: &tool.name,
                    description: &tool.description,
                    parameters: &tool.parameters,
                },
            })
            .collect(),
        more: more(call),
    };
    written(&body)
}

/// What is sent only where somebody has set it: servers refuse what their model does not know.
fn more(call: &Call<'_>) -> Map<String, Value> {
    let request = call.request;
    let mut more = for_api(&request.options, Api::Chat);
    if let Some(level) = request.thinking.and_then(effort) {
        more.insert("reasoning_effort".to_owned(), level.into());
    }
    if let Some(most) = request.max_tokens {
        // Only OpenAI itself has given the old name up.
        let is_openai = call.base_url.starts_with("https://api.openai.com/");
        let name = if is_openai { NEW_LIMIT } else { OLD_LIMIT };
        more.insert(name.to_owned(), most.into());
    }
    if let Some(temperature) = request.temperature {
        more.insert("temperature".to_owned(), temperature.into());
    }
    more
}

fn effort(level: Thinking) -> Option<&'static str> {
    match level {
        // To leave the field away is the one form that every server takes.
        Thinking::Off => None,
        Thinking::Minimal => Some("minimal"),
        Thinking::Low => Some("low"),
        Thinking::Medium => Some("medium"),
        Thinking::High => Some("high"),
    }
}

fn messages(call: &Call<'_>) -> Vec<Box<RawValue>> {
    let request = call.request;
    let mut out = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        out.push(raw(&json!({ "role": "system", "content": request.system })));
    }
    let mut said: Vec<String> = Vec::new();
    for message in &request.messages {
        match message.role {
            Role::User | Role::System => {
                said.push(message.text());
                continue;
            }
            Role::Assistant | Role::Tool => flush(&mut said, &mut out),
        }
        match message.role {
            Role::Assistant => out.push(assistant(call, message)),
            _ => out.extend(results(message)),
        }
    }
    flush(&mut said, &mut out);
    out
}

/// What was said in a row is one message: the templates of many models take no two of one role
/// after each other.
fn flush(said: &mut Vec<String>, out: &mut Vec<Box<RawValue>>) {
    if !said.is_empty() {
        let text = std::mem::take(said).join("\n\n");
        out.push(raw(&json!({ "role": "user", "content": text })));
    }
}

fn assistant(call: &Call<'_>, message: &Message) -> Box<RawValue> {
    if let Some(as_it_came) = native_of(call, &message.content).and_then(kept) {
        return as_it_came;
    }
    let calls: Vec<Value> = message
        .content
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall {
                id,
                name,
                arguments,
            } => Some(json!({
                "id": id,
                "type": "function",
                "function": { "name": name, "arguments": object(arguments).to_string() },
            })),
            _ => None,
        })
        .collect();
    // Some servers insist on a content, if it be empty.
    let mut out = json!({ "role": "assistant", "content": plain_text(&message.content) });
    if !calls.is_empty() {
        out["tool_calls"] = Value::Array(calls);
    }
    raw(&out)
}

fn results(message: &Message) -> impl Iterator<Item = Box<RawValue>> + '_ {
    message.content.iter().filter_map(|block| match block {
        Block::ToolResult {
            tool_call_id,
            text,
            is_error,
        } => {
            // This API has no field for it.
            let text = match is_error {
                true => format!("The call failed: {text}"),
                false => text.clone(),
            };
            Some(raw(&json!({
                "role": "tool",
                "tool_call_id": tool_call_id,
                "content": text,
            })))
        }
        _ => None,
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
