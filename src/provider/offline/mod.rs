//! The provider `offline`: a search agent that is built in and needs neither network nor key.
//!
//! It answers a task by searching the workspace through the ordinary tools and quoting what
//! it found with file and line. It is no model: the same transcript always gives the same
//! answer, and everything it knows it reads back from the transcript:
//!
//! ```text
//! survey (glob, grep by file) ─▶ lines (grep in the best files) ─▶ reads ─▶ answer
//!    └─ nothing found ─▶ survey with looser words ─▶ …
//! ```
//!
//! Announces are relayed, and a task without a word to search for gets an overview.

mod answer;
mod hits;
mod kin;
mod line;
mod overview;
mod relay;
mod search;
mod stem;
mod survey;
mod terms;
mod transcript;

use std::sync::Arc;

use serde_json::Value;

use super::{ModelAnswer, ModelRequest, Provider, ProviderFault, latest_input};
use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::message::{Block, Message, MessageKind, plain_text};
use crate::kernel::run::Usage;
use crate::kernel::send::REPLY_SKIP;
use transcript::rounds;

/// The first sentence of every answer: nobody shall take it for a model's.
const DISCLAIMER: &str = "This is a text search by the built-in offline agent, not a model: it \
                          quotes what stands in the files, and it cannot write or judge.";

/// The built-in search agent.
pub(super) struct Offline;

/// What comes next.
enum Reply {
    /// These tool calls at the same time: name and arguments.
    Calls(Vec<(&'static str, Value)>),
    /// The end of the turn.
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
                // It reads no tokens and writes none.
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
        return Ok(text_only(relay::relay(messages, latest)));
    }
    if is_reply(&messages[latest]) {
        // A search has nothing to add to what another session has answered.
        return Ok(text_only(REPLY_SKIP.to_owned()));
    }
    let missing: Vec<&str> = ["glob", "grep", "list", "read"]
        .into_iter()
        .filter(|name| !request.tools.iter().any(|tool| tool.name == *name))
        .collect();
    if !missing.is_empty() {
        let text = format!(
            "{DISCLAIMER} This agent lacks the tools it searches with: {}.",
            missing.join(", ")
        );
        return Ok(text_only(text));
    }
    let task = messages[latest].text();
    let done = rounds(&messages[latest + 1..]);
    let terms = terms::terms(&task);
    let reply = if terms.is_empty() {
        overview::next(&done)
    } else {
        search::next(terms, &done)
    };
    Ok(match reply {
        Reply::Text(text) => text_only(text),
        Reply::Calls(calls) => calls
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

/// Is it a turn of an exchange after its first message?
fn is_reply(message: &Message) -> bool {
    let known = message.metadata.as_ref();
    let turn = known.and_then(|known| known.get("exchange")?.as_u64());
    turn.is_some_and(|turn| turn > 0)
}

fn text_only(text: String) -> Vec<Block> {
    vec![Block::Text { text }]
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod tests;
