//! Invariants of every answer that is read, whatever a server sends; used by the property tests and
//! the fuzz target.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Replayed;
use crate::config::ProviderKind;
use crate::kernel::session::message::{AnswerFinding, Block};

/// A call that would be executed: tool name and arguments.
pub type ExecutableCall<'a> = (&'a str, &'a Value);

/// The calls of an answer that would be executed; the error names a violated invariant.
pub fn carried_out(replayed: &Replayed) -> Result<Vec<ExecutableCall<'_>>, String> {
    let blocks = &replayed.answer.blocks;
    let refused: BTreeSet<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Note {
                note: AnswerFinding::Refused { tool_call_id, .. },
            } => Some(tool_call_id.as_str()),
            _ => None,
        })
        .collect();
    let mut ids = BTreeSet::new();
    let mut run = Vec::new();
    for block in blocks {
        let Block::ToolCall {
            id,
            name,
            arguments,
        } = block
        else {
            continue;
        };
        if name.trim().is_empty() || id.is_empty() {
            return Err(format!("a call without a name or an id: {block:?}"));
        }
        if !ids.insert(id) {
            return Err(format!("two calls with the id {id:?}"));
        }
        if refused.contains(id.as_str()) {
            continue;
        }
        if !arguments.is_object() {
            return Err(format!("arguments that are no object: {block:?}"));
        }
        run.push((name.as_str(), arguments));
    }
    for (kind, body) in &replayed.sent_back {
        match kind {
            ProviderKind::OpenAi => chat(body),
            ProviderKind::Anthropic => messages(body),
        }
        .map_err(|fault| format!("{kind:?} would refuse {body}: {fault}"))?;
    }
    Ok(run)
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn need(is_so: bool, what: &str) -> Result<(), String> {
    match is_so {
        true => Ok(()),
        false => Err(what.to_owned()),
    }
}

fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    !name.is_empty() && name.len() <= 64 && name.chars().all(fits)
}

/// The rules of the strictest Chat Completions server.
fn chat(body: &Value) -> Result<(), String> {
    let mut open: BTreeMap<&str, ()> = BTreeMap::new();
    for message in list(body, "messages") {
        let content = text(message, "content");
        match text(message, "role") {
            "tool" => {
                let answered = open.remove(text(message, "tool_call_id"));
                need(answered.is_some(), "a result without a call")?;
                need(!content.trim().is_empty(), "an empty result")?;
                continue;
            }
            "assistant" => {
                need(open.is_empty(), "a call without a result")?;
                let calls = list(message, "tool_calls");
                let says_something = !content.trim().is_empty() || !calls.is_empty();
                need(says_something, "an answer with nothing in it")?;
                for call in calls {
                    let function = &call["function"];
                    need(is_name(text(function, "name")), "no name of a tool")?;
                    let arguments = serde_json::from_str::<Value>(text(function, "arguments"));
                    need(arguments.is_ok_and(|read| read.is_object()), "no arguments")?;
                    let id = text(call, "id");
                    let is_new = !id.is_empty() && open.insert(id, ()).is_none();
                    need(is_new, "an id twice, or none")?;
                }
            }
            _ => need(!content.trim().is_empty(), "an empty message")?,
        }
    }
    need(open.is_empty(), "a call without a result")
}

/// The rules of the Messages API.
fn messages(body: &Value) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for message in list(body, "messages") {
        let blocks = list(message, "content");
        need(!blocks.is_empty(), "a message without blocks")?;
        let mut results = BTreeSet::new();
        for block in blocks {
            match text(block, "type") {
                "" => return Err("a block without a type".to_owned()),
                "text" => need(!text(block, "text").trim().is_empty(), "an empty text")?,
                "tool_result" => {
                    need(results.insert(text(block, "tool_use_id")), "a result twice")?;
                }
                "tool_use" => {
                    need(is_name(text(block, "name")), "no name of a tool")?;
                    need(block["input"].is_object(), "no arguments")?;
                }
                _ => {}
            }
        }
        need(results == open, "results that are not those of the calls")?;
        let calls = blocks
            .iter()
            .filter(|block| text(block, "type") == "tool_use");
        let ids: Vec<&str> = calls.map(|call| text(call, "id")).collect();
        open = ids.iter().copied().collect();
        let are_ids = ids.iter().all(|id| !id.is_empty());
        need(open.len() == ids.len() && are_ids, "an id twice, or none")?;
    }
    need(open.is_empty(), "a call without a result")
}
