//! What is sent: the conversation as Chat Completions messages. An answer that came from this
//! same provider goes back as it came.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::answer::{kept, object, written};
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
    messages: Vec<Sent<'a>>,
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
    parameters: &'a RawValue,
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
    written(&body, request)
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

/// One message. Written out of what it is made of: a conversation is sent again with each call,
/// and a tree of values for each message would take longer than all else about it.
#[derive(Serialize)]
#[serde(untagged)]
enum Sent<'a> {
    /// An answer that goes back as it came.
    AsItCame(&'a RawValue),
    Said {
        role: &'static str,
        content: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<SentCall<'a>>,
    },
    Result {
        role: &'static str,
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

#[derive(Serialize)]
struct SentCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: SentFunction<'a>,
}

#[derive(Serialize)]
struct SentFunction<'a> {
    name: &'a str,
    arguments: String,
}

fn messages<'a>(call: &Call<'a>) -> Vec<Sent<'a>> {
    let request = call.request;
    let mut out = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        out.push(text("system", Cow::Borrowed(&request.system)));
    }
    let mut said: Vec<Cow<'a, str>> = Vec::new();
    for message in &request.messages {
        match message.role {
            Role::User | Role::System => said.push(plain(&message.content)),
            Role::Assistant => {
                flush(&mut said, &mut out);
                out.push(assistant(call, message));
            }
            Role::Tool => {
                flush(&mut said, &mut out);
                out.extend(results(message));
            }
        }
    }
    flush(&mut said, &mut out);
    out
}

fn text<'a>(role: &'static str, content: Cow<'a, str>) -> Sent<'a> {
    Sent::Said {
        role,
        content,
        tool_calls: Vec::new(),
    }
}

/// As [`plain_text`], without a copy of what is one piece already.
fn plain(content: &[Block]) -> Cow<'_, str> {
    match content {
        [Block::Text { text }] => Cow::Borrowed(text),
        content => Cow::Owned(plain_text(content)),
    }
}

/// What was said in a row is one message: the templates of many models take no two of one role
/// after each other.
fn flush<'a>(said: &mut Vec<Cow<'a, str>>, out: &mut Vec<Sent<'a>>) {
    let content = match said.len() {
        0 => return,
        1 => said.remove(0),
        _ => Cow::Owned(std::mem::take(said).join("\n\n")),
    };
    out.push(text("user", content));
}

fn assistant<'a>(call: &Call<'a>, message: &'a Message) -> Sent<'a> {
    if let Some(as_it_came) = native_of(call, &message.content).and_then(kept) {
        return Sent::AsItCame(as_it_came);
    }
    let calls = message.content.iter().filter_map(|block| match block {
        Block::ToolCall {
            id,
            name,
            arguments,
        } => Some(SentCall {
            id,
            r#type: "function",
            function: SentFunction {
                name,
                arguments: object(arguments).to_string(),
            },
        }),
        _ => None,
    });
    Sent::Said {
        role: "assistant",
        // Some servers insist on a content, if it be empty.
        content: plain(&message.content),
        tool_calls: calls.collect(),
    }
}

fn results(message: &Message) -> impl Iterator<Item = Sent<'_>> {
    message.content.iter().filter_map(|block| match block {
        Block::ToolResult {
            tool_call_id,
            text,
            is_error,
        } => Some(Sent::Result {
            role: "tool",
            tool_call_id,
            // This API has no field for it.
            content: match is_error {
                true => Cow::Owned(format!("The call failed: {text}")),
                false => Cow::Borrowed(text),
            },
        }),
        _ => None,
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
