//! What calls that wait for approval work on, added to approvals when they are read: their folder,
//! the names in their environment and, while they wait, what they would do to a file.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::Inner;
use super::answer::ApprovalView;
use crate::contract::preview::{ChangeEffect, FileChange, Preview, Waiting};
use crate::kernel::approval::ApprovalState;
use crate::kernel::redact::Redactor;
use crate::store::runs;

/// So many files of one page are compared at the same time.
const AT_ONCE: usize = 8;
/// Files of one page that were not compared in this time are left out.
const LIMIT: Duration = Duration::from_secs(5);

/// Adds what their calls work on to these approvals.
pub(super) async fn add(inner: &Arc<Inner>, views: &mut [ApprovalView]) {
    let began = inner.clock.monotonic();
    for some in views.chunks_mut(AT_ONCE) {
        join_all(some.iter_mut().map(|view| add_one(inner, view, began))).await;
    }
}

async fn add_one(inner: &Arc<Inner>, view: &mut ApprovalView, began: Duration) {
    let id = view.approval.run;
    let pins = Arc::clone(&inner.pins);
    let found = inner.store.read(move |tx| {
        let Some(run) = runs::get(tx, id)? else {
            return Ok(None);
        };
        let agent = pins.get(tx, &run.pins.agent)?;
        Ok(Some((run, agent)))
    });
    let (run, agent) = match found.await {
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
    };
    // One that is decided changes nothing any more: it has happened, or never will.
    if view.approval.state == ApprovalState::Open {
        match inner.environment_of(&run).await {
            Ok(environment) => {
                call.arguments = view.approval.arguments.clone();
                call.redactor = environment.redactor.clone();
            }
            // Without it secrets would not be masked.
            Err(fault) => {
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
        }),
    }
}
