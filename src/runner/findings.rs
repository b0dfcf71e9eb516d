//! The findings of a run so far, as text: the result of a run that is cut before it has written an
//! answer. Called by `turn` and `plan`.

use std::fmt::Write as _;

use serde_json::Value;

use super::turn::answer_of;
use crate::contract::journal::RunView;
use crate::contract::linked::DELEGATE;
use crate::kernel::run::step::{Step, StepKind, StepState};
use crate::kernel::session::message::{Block, plain_text};
use crate::kernel::text::prefix;

/// Maximum size of one result in bytes.
const ONE: usize = 8 * 1024;
/// Maximum size of all results in bytes; the latest have priority.
const ALL: usize = 64 * 1024;

/// The model's texts in this run, in order.
pub(super) fn said(view: &RunView) -> Option<String> {
    let answers = view
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Model && step.state == StepState::Done)
        .map(|step| plain_text(answer_of(view, step)));
    joined(answers.collect())
}

/// The results of the tools and agents that this run called, in order.
pub(super) fn results(view: &RunView) -> Option<String> {
    let ended = |step: &&std::sync::Arc<Step>| {
        step.kind == StepKind::Tool && matches!(step.state, StepState::Done | StepState::Failed)
    };
    joined(
        view.steps
            .iter()
            .filter(ended)
            .filter_map(|step| result(view, step))
            .collect(),
    )
}

fn result(view: &RunView, step: &Step) -> Option<String> {
    let (text, failed) = answer_of(view, step).iter().find_map(|block| match block {
        Block::ToolResult { text, is_error, .. } => Some((text, *is_error)),
        _ => None,
    })?;
    let tool = step.tool.as_deref().unwrap_or("a tool");
    let (who, text) = match serde_json::from_str::<Value>(text) {
        Ok(told) if tool == DELEGATE => {
            let who = told["agentName"].as_str().unwrap_or(tool).to_owned();
            let said = ["result", "error", "saidBefore"];
            let said = said.into_iter().find_map(|name| told[name].as_str());
            (who, said.unwrap_or(text).to_owned())
        }
        _ => (tool.to_owned(), text.clone()),
    };
    let how = if failed { "failed" } else { "answered" };
    let shown = prefix(&text, ONE);
    let mut out = format!("{who} {how}:\n{shown}");
    if shown.len() < text.len() {
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "\n… truncated; the transcript has all {} bytes",
            text.len()
        );
    }
    Some(out)
}

/// The latest of these texts that fit into [`ALL`]; `None` if all are empty.
fn joined(texts: Vec<String>) -> Option<String> {
    let mut left = ALL;
    let mut kept: Vec<String> = Vec::new();
    for text in texts.into_iter().rev() {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        if text.len() > left {
            break;
        }
        left -= text.len();
        kept.push(text.to_owned());
    }
    kept.reverse();
    (!kept.is_empty()).then(|| kept.join("\n\n"))
}
