//! Writes the request: the conversation as Chat Completions messages. An answer of this same
//! provider is sent back unchanged.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::PreparedRequest;
use super::super::answer::{object_text, written};
use super::super::history::{self, EMPTY, NO_OUTPUT, native_of, unnamed_calls};
use crate::kernel::run::options::{Api, for_api};
use crate::kernel::session::blocks::{BlockRef, Blocks, Quoted};
use crate::kernel::session::message::{Message, Role};

/// The two names of the output limit; each is unknown to some servers.
const NEW_LIMIT: &str = "max_completion_tokens";
const OLD_LIMIT: &str = "max_tokens";

#[derive(Serialize)]
struct OpenAiBody<'a> {
    model: &'a str,
    messages: Vec<SentMessage<'a>>,
    #[serde(skip_serializing_if = "is_not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OpenAiTool<'a>>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Serialize)]
struct OpenAiTool<'a> {
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
pub(in crate::provider) fn body(call: &PreparedRequest<'_>) -> String {
    let request = call.request;
    let body = OpenAiBody {
        model: &request.model,
        messages: messages(call),
        stream: !call.switches.no_stream,
        stream_options: (!call.switches.no_stream_options)
            .then(|| json!({ "include_usage": true })),
        tools: request
            .tools
            .iter()
            .map(|tool| OpenAiTool {
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

fn is_not(flag: &bool) -> bool {
    !flag
}

/// The optional fields: only what is set, without what the model was found not to accept.
fn more(call: &PreparedRequest<'_>) -> Map<String, Value> {
    let (request, switches) = (call.request, &call.switches);
    let mut more = for_api(&request.options, Api::Chat);
    // For `off` the field is omitted: every server accepts that.
    if let Some(level) = call.level() {
        more.insert("reasoning_effort".to_owned(), level.as_str().into());
    }
    if let Some(most) = request.max_tokens.filter(|_| !switches.no_limit) {
        // Only OpenAI itself has dropped the old name.
        let is_openai = call.base_url.starts_with("https://api.openai.com/");
        let name = match is_openai != switches.other_limit {
            true => NEW_LIMIT,
            false => OLD_LIMIT,
        };
        more.insert(name.to_owned(), switches.limited(most).into());
    }
    if let Some(temperature) = request.temperature.filter(|_| !switches.no_temperature) {
        more.insert("temperature".to_owned(), temperature.into());
    }
    more
}

/// One message. Serialized from borrowed parts: the conversation is sent again with each call, and
/// a tree of values per message would dominate the cost.
#[derive(Serialize)]
#[serde(untagged)]
enum SentMessage<'a> {
    /// An answer sent back unchanged.
    AsItCame(Cow<'a, RawValue>),
    Said {
        role: &'static str,
        content: Quoted<'a>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<SentCall<'a>>,
    },
    Result {
        role: &'static str,
        tool_call_id: Quoted<'a>,
        content: Quoted<'a>,
    },
}

#[derive(Serialize)]
struct SentCall<'a> {
    id: Quoted<'a>,
    r#type: &'static str,
    function: SentFunction<'a>,
}

#[derive(Serialize)]
struct SentFunction<'a> {
    name: Quoted<'a>,
    arguments: Cow<'a, str>,
}

fn messages<'a>(call: &PreparedRequest<'a>) -> Vec<SentMessage<'a>> {
    let request = call.request;
    let mut out = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        let system = Quoted::Plain(Cow::Borrowed(&request.system));
        out.push(text("system", system));
    }
    let dropped = unnamed_calls(request);
    let mut pending: Vec<Quoted<'a>> = Vec::new();
    for message in &request.messages {
        match message.role {
            Role::User | Role::System => pending.push(plain(&message.content)),
            Role::Assistant => {
                flush(&mut pending, &mut out);
                out.extend(assistant(call, message));
            }
            Role::Tool => {
                flush(&mut pending, &mut out);
                out.extend(results(call, message, &dropped));
            }
        }
    }
    flush(&mut pending, &mut out);
    out
}

fn text<'a>(role: &'static str, content: Quoted<'a>) -> SentMessage<'a> {
    SentMessage::Said {
        role,
        content,
        tool_calls: Vec::new(),
    }
}

/// The text, borrowed if it is a single piece.
fn plain(content: &Blocks) -> Quoted<'_> {
    let only = content.only_text();
    only.unwrap_or_else(|| Quoted::Plain(Cow::Owned(content.text())))
}

/// `content`, or `instead` if it is blank.
fn or<'a>(content: Quoted<'a>, instead: &'static str) -> Quoted<'a> {
    match content.is_blank() {
        true => Quoted::Plain(Cow::Borrowed(instead)),
        false => content,
    }
}

/// Merges consecutive user entries into one message: many chat templates allow no two messages of
/// the same role in a row.
fn flush<'a>(said: &mut Vec<Quoted<'a>>, out: &mut Vec<SentMessage<'a>>) {
    let content = match said.len() {
        0 => return,
        1 => said.remove(0),
        _ => {
            let texts: Vec<Cow<'_, str>> = said.drain(..).map(|one| one.text()).collect();
            Quoted::Plain(Cow::Owned(texts.join("\n\n")))
        }
    };
    out.push(text("user", or(content, EMPTY)));
}

/// The message for an answer; `None` if it has neither text nor calls.
fn assistant<'a>(call: &PreparedRequest<'a>, message: &'a Message) -> Option<SentMessage<'a>> {
    if let Some(as_it_came) = native_of(call, message) {
        return Some(SentMessage::AsItCame(as_it_came));
    }
    let blocks = match message.content.only_text() {
        Some(_) => Vec::new(),
        None => message.content.pieces(),
    };
    let calls = blocks.into_iter().filter_map(|block| match block {
        BlockRef::ToolCall {
            id,
            name,
            arguments,
        } if !name.is_blank() => Some(SentCall {
            id: call.id(message, id),
            r#type: "function",
            function: SentFunction {
                name: history::fitting(name),
                arguments: object_text(&arguments),
            },
        }),
        _ => None,
    });
    let tool_calls: Vec<SentCall<'a>> = calls.collect();
    let content = plain(&message.content);
    let is_something = !content.is_blank() || !tool_calls.is_empty();
    // Some servers require the content field even if it is empty.
    let content = or(content, "");
    is_something.then_some(SentMessage::Said {
        role: "assistant",
        content,
        tool_calls,
    })
}

/// The results in `message`, except those of dropped calls.
fn results<'a>(
    call: &PreparedRequest<'a>,
    message: &'a Message,
    dropped: &BTreeSet<String>,
) -> impl Iterator<Item = SentMessage<'a>> {
    let blocks = message.content.pieces().into_iter();
    blocks.filter_map(|block| match block {
        BlockRef::ToolResult { call, .. } if dropped.contains(&*call.text()) => None,
        BlockRef::ToolResult {
            call: of,
            text,
            is_error,
        } => Some(SentMessage::Result {
            role: "tool",
            tool_call_id: call.id(message, of),
            // This API has no field for a failed call.
            content: match is_error {
                true => Quoted::Plain(format!("The call failed: {}", text.text()).into()),
                false => or(text, NO_OUTPUT),
            },
        }),
        _ => None,
    })
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
