//! What calls that wait for approval work on, added to approvals when they are read: their folder,
//! the names in their environment and, while they wait, what they would do to a file.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::Inner;
use super::answer::ApprovalView;
use super::drive::said::{self, Said};
use crate::contract::preview::{ChangeEffect, FileChange, Preview, Waiting};
use crate::kernel::approval::ApprovalState;
use crate::kernel::redact::Redactor;
use crate::store::{runs, steps};

/// So many files of one page are compared at the same time.
const AT_ONCE: usize = 8;
/// Files of one page that were not compared in this time are left out.
const LIMIT: Duration = Duration::from_secs(5);

/// Adds what their calls work on to these approvals.
pub(super) async fn add(inner: &Arc<Inner>, views: &mut [ApprovalView]) {
    let began = inner.clock.monotonic();
    for some in views.chunks_mut(AT_ONCE) {
        join_all(
            some.iter_mut()
                .map(|view| add_one(inner, view, began, false)),
        )
        .await;
    }
}

/// Is this what the call would do to its file, as it is at this moment? What was worked out before
/// does not count.
pub(super) async fn holds(inner: &Arc<Inner>, view: &mut ApprovalView, digest: &str) -> bool {
    add_one(inner, view, inner.clock.monotonic(), true).await;
    let change = view.preview.change.as_ref();
    change.is_some_and(|change| change.digest.as_deref() == Some(digest))
}

async fn add_one(inner: &Arc<Inner>, view: &mut ApprovalView, began: Duration, anew: bool) {
    let (id, step) = (view.approval.run, view.approval.step);
    let pins = Arc::clone(&inner.pins);
    let found = inner.store.read(move |tx| {
        let Some(run) = runs::get(tx, id)? else {
            return Ok(None);
        };
        let agent = pins.get(tx, &run.pins.agent)?;
        Ok(Some((run, agent, steps::get(tx, id, step)?)))
    });
    let (run, agent, step) = match found.await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        // The arguments, which are whole, are there all the same.
        Err(fault) => {
            tracing::warn!(run = %id, %fault, "an approval is shown without its folder and diff");
            return;
        }
    };
    view.env = run.env.iter().map(|one| one.name.clone()).collect();
    let mut call = Waiting {
        agent,
        cwd: run.cwd.clone(),
        tool: view.approval.tool.clone(),
        arguments: Value::Null,
        redactor: Redactor::default(),
        anew,
    };
    // One that is decided changes nothing any more: it has happened, or never will.
    if view.approval.state == ApprovalState::Open {
        let said = match &step {
            Some(step) => said::arguments(inner, &run, step).await,
            None => Ok(Said::AsStored),
        };
        match (inner.environment_of(&run).await, said) {
            (Ok(environment), Ok(said)) => {
                call.redactor = environment.redactor.clone();
                // What was sealed and cannot be opened is not called either.
                call.arguments = match said {
                    Said::AsStored => view.approval.arguments.clone(),
                    Said::Otherwise(arguments) => arguments,
                    Said::Lost => Value::Null,
                };
            }
            // Without it secrets would not be masked.
            (Err(fault), _) | (_, Err(fault)) => {
                tracing::warn!(run = %id, %fault, "an approval is shown without its diff");
            }
        }
    }
    let left = LIMIT.saturating_sub(inner.clock.monotonic().saturating_sub(began));
    let preview = tokio::time::timeout(left, inner.runner.preview(call)).await;
    view.preview = preview.unwrap_or_else(|_| late(view));
}

/// What is shown of a call whose file was not compared in time.
fn late(view: &ApprovalView) -> Preview {
    let path = view.approval.arguments["path"].as_str();
    let why = "too many calls wait to compare all of their files at once";
    Preview {
        folder: None,
        change: path.map(|path| FileChange {
            path: path.to_owned(),
            effect: ChangeEffect::NotShown(why.to_owned()),
            digest: None,
        }),
    }
}
