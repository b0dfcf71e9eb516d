//! The provider `offline`: a built-in search agent that needs neither network nor key.
//!
//! It answers a task by searching the workspace through the ordinary tools and quoting what
//! it found with file and line. It is not a model: the same transcript always gives the same
//! answer, and it keeps no state beside the transcript:
//!
//! ```text
//! survey (glob, grep by file) ─▶ passages (grep in the best files) ─▶ reads ─▶ answer
//!    └─ words that are in no file ─▶ survey of similar words ─▶ …
//! ```
//!
//! Announces are relayed, and a task without a word to search for gets an overview.

mod answer;
mod files;
mod overview;
mod passages;
mod relay;
mod survey;
mod transcript;
mod words;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};

use self::answer::{answer, nothing_found};
use self::passages::Passage;
use self::survey::Survey;
use self::transcript::{Call, Shown, rounds, shown_file};
use self::words::Term;
use super::{ModelAnswer, ModelRequest, Provider, ProviderFault, latest_input};
use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::run::Usage;
use crate::kernel::session::message::{Block, Message, MessageKind, plain_text};
use crate::kernel::session::send::REPLY_SKIP;

/// The first sentence of every answer, so that no reader takes it for a model's.
const DISCLAIMER: &str = "This is a text search by the built-in offline agent, not a model: it \
                          quotes lines of the files, and it cannot write or judge.";

/// Maximum number of files that are read.
const READ_LIMIT: usize = 3;

/// Number of lines read before a passage, and in total.
const READ_BEFORE: usize = 30;
const READ_LINES: usize = 44;

/// The built-in search agent.
pub(super) struct Offline;

/// The next move: one or more tool calls, each with its arguments, or the final text.
enum Reply {
    Calls(Vec<(&'static str, Value)>),
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
    let missing: Vec<&str> = ["glob", "grep", "list", "read"]
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
        next(terms, &done)
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

/// The next move of the search for `terms`: each round is read back from `done`, and the first one
/// missing there is requested.
fn next(terms: Vec<Term>, done: &[Vec<Call>]) -> Reply {
    let mut done = done.iter();
    let Some(round) = done.next() else {
        return Reply::Calls(survey::calls(&terms));
    };
    let mut survey = Survey::default();
    survey.add(round, terms.clone());
    let similar: Vec<Term> = survey.absent.iter().filter_map(Term::similar).collect();
    if !similar.is_empty() {
        let Some(round) = done.next() else {
            return Reply::Calls(survey::calls(&similar));
        };
        survey.add(round, similar);
    }
    if survey.is_empty() {
        return Reply::Text(nothing_found(&terms, &survey));
    }
    let files = survey.best_files();
    let Some(round) = done.next() else {
        return Reply::Calls(passages::calls(&survey, &files));
    };
    let best = passages::best(round, &survey);
    let shown: Vec<Shown> = match done.next() {
        None if !best.is_empty() => return Reply::Calls(reads(&best)),
        None => Vec::new(),
        Some(round) => round
            .iter()
            .filter_map(|call| shown_file(&call.text))
            .collect(),
    };
    Reply::Text(answer(&best, &shown, &files, &survey))
}

/// Calls that read around the best passage of each of the best files.
fn reads(best: &[Passage]) -> Vec<(&'static str, Value)> {
    let mut seen = HashSet::new();
    let firsts = best.iter().filter(|passage| seen.insert(&passage.path));
    let read = |passage: &Passage| {
        let from = passage.line.saturating_sub(READ_BEFORE).max(1);
        (
            "read",
            json!({"path": passage.path, "offset": from, "limit": READ_LINES}),
        )
    };
    firsts.take(READ_LIMIT).map(read).collect()
}

/// Whether this is a later turn of an exchange between two sessions.
fn is_reply(message: &Message) -> bool {
    let metadata = message.metadata.as_ref();
    let turn = metadata.and_then(|metadata| metadata.get("exchange")?.as_u64());
    turn.is_some_and(|turn| turn > 0)
}

fn text_only(text: String) -> Vec<Block> {
    vec![Block::Text { text }]
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod tests;
