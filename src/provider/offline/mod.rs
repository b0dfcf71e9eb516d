//! The provider `offline`: a built-in search agent that needs neither network nor key.
//!
//! It answers a task by searching the workspace through the ordinary tools and quoting what
//! it found with file and line. It is not a model: the same transcript always gives the same
//! answer, and it keeps no state beside the transcript:
//!
//! ```text
//! files with the terms (glob, grep) ─▶ their lines (grep in the best files) ─▶ answer
//! ```
//!
//! Announces are relayed, and a task without a word to search for gets an overview.

mod answer;
mod files;
mod overview;
mod relay;
mod search;
mod transcript;
mod words;

use std::sync::Arc;

use serde_json::Value;

use self::transcript::rounds;
use super::{ModelAnswer, ModelRequest, Provider, ProviderFault, latest_input};
use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::run::Usage;
use crate::kernel::session::message::{Block, Message, MessageKind, plain_text};
use crate::kernel::session::send::REPLY_SKIP;

/// The first sentence of every answer, so that no reader takes it for a model's.
const DISCLAIMER: &str = "This is a text search by the built-in offline agent, not a model: it \
                          quotes lines of the files, and it cannot write or judge.";

/// The built-in search agent.
pub(super) struct Offline;

/// A tool call with its arguments.
type Request = (&'static str, Value);

/// The next move: one or more tool calls, or the final text.
enum OfflineReply {
    Calls(Vec<Request>),
    Text(String),
}

impl Provider for Offline {
    fn name(&self) -> &str {
        "offline"
    }

    fn offered(&self) -> Vec<String> {
        vec!["offline/search".to_owned()]
    }

    fn complete(
        &self,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<ModelAnswer, ProviderFault>> {
        Box::pin(async move {
            let blocks = blocks(&request)?;
            for line in plain_text(&blocks).split_inclusive('\n') {
                sink.text(line);
            }
            Ok(ModelAnswer {
                blocks,
                // A search consumes no tokens.
                usage: Usage {
                    model_calls: 1,
                    ..Usage::default()
                },
                warnings: Vec::new(),
            })
        })
    }
}

fn blocks(request: &ModelRequest) -> Result<Vec<Block>, ProviderFault> {
    let messages = &request.messages;
    let latest = latest_input(messages)
        .ok_or_else(|| ProviderFault::new("there is nothing to answer".to_owned()))?;
    if messages[latest].kind == MessageKind::Announce {
        return Ok(text_only(relay::relay(&messages[..=latest])));
    }
    if is_reply(&messages[latest]) {
        // A search cannot add to what another session has answered.
        return Ok(text_only(REPLY_SKIP.to_owned()));
    }
    let missing: Vec<&str> = ["glob", "grep", "list"]
        .into_iter()
        .filter(|name| !request.tools.iter().any(|tool| tool.name == *name))
        .collect();
    if !missing.is_empty() {
        return Ok(text_only(format!(
            "{DISCLAIMER} This agent lacks the tools it searches with: {}.",
            missing.join(", ")
        )));
    }
    let done = rounds(&messages[latest + 1..]);
    let terms = words::terms(&messages[latest].text());
    let reply = if terms.is_empty() {
        overview::next(&done)
    } else {
        search::next(terms, &done)
    };
    Ok(match reply {
        OfflineReply::Text(text) => text_only(text),
        OfflineReply::Calls(calls) => calls
            .into_iter()
            .enumerate()
            .map(|(index, (name, arguments))| Block::ToolCall {
                // Unique in the transcript, and the same for the same transcript.
                id: format!("search-{}-{}-{index}", messages[latest].seq, done.len() + 1),
                name: name.to_owned(),
                arguments,
            })
            .collect(),
    })
}

/// Whether this is a later turn of an exchange between two sessions.
fn is_reply(message: &Message) -> bool {
    let metadata = message.metadata.as_ref();
    metadata.and_then(|metadata| metadata.get("exchange")?.as_u64()) > Some(0)
}

fn text_only(text: String) -> Vec<Block> {
    vec![Block::Text { text }]
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod tests;
