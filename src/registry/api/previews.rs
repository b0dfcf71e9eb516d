//! Adds details to approvals when they are read: the call's folder, the names in its environment
//! and, while it is open, the change that it would make to a file.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::answer::ApprovalView;
use crate::contract::preview::{ChangeEffect, FileChange, Preview, UnapprovedCall};
use crate::kernel::policy::approval::ApprovalState;
use crate::kernel::text::redact::Redactor;
use crate::registry::RegistryInner;
use crate::registry::drive::arguments;
use crate::registry::drive::arguments::CallArguments;
use crate::store::tables::{runs, steps};

/// Maximum number of files of one page that are compared concurrently.
const AT_ONCE: usize = 8;
/// Time limit for all comparisons of a page; later files are left out.
const LIMIT: Duration = Duration::from_secs(5);

/// Adds folder, environment names and preview to these approvals.
pub(crate) async fn add(inner: &Arc<RegistryInner>, views: &mut [ApprovalView]) {
    let began = inner.clock.monotonic();
    for some in views.chunks_mut(AT_ONCE) {
        join_all(
            some.iter_mut()
                .map(|view| add_one(inner, view, began, false)),
        )
        .await;
    }
}

/// True if the digest matches the change that the call would make to its file now; computed afresh,
/// without cached previews.
pub(crate) async fn holds(
    inner: &Arc<RegistryInner>,
    view: &mut ApprovalView,
    digest: &str,
) -> bool {
    add_one(inner, view, inner.clock.monotonic(), true).await;
    let change = view.preview.change.as_ref();
    change.is_some_and(|change| change.digest.as_deref() == Some(digest))
}

async fn add_one(inner: &Arc<RegistryInner>, view: &mut ApprovalView, began: Duration, anew: bool) {
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
        // The approval still has its complete arguments.
        Err(fault) => {
            tracing::warn!(run = %id, %fault, "an approval is shown without its folder and diff");
            return;
        }
    };
    view.env = run.env.iter().map(|one| one.name.clone()).collect();
    let mut call = UnapprovedCall {
        agent,
        cwd: run.cwd.clone(),
        tool: view.approval.tool.clone(),
        arguments: Value::Null,
        redactor: Redactor::default(),
        anew,
    };
    // A decided call has no pending change: it was made or never will be.
    if view.approval.state == ApprovalState::Open {
        let said = match &step {
            Some(step) => arguments::arguments(inner, &run, step).await,
            None => Ok(CallArguments::AsStored),
        };
        match (inner.environment_of(&run).await, said) {
            (Ok(environment), Ok(said)) => {
                call.redactor = environment.redactor.clone();
                // A call whose arguments cannot be decrypted will not be made, so there is no
                // preview.
                call.arguments = match said {
                    CallArguments::AsStored => view.approval.arguments.clone(),
                    CallArguments::Otherwise(arguments) => arguments,
                    CallArguments::Lost => Value::Null,
                };
            }
            // Without the environment, secrets could not be masked.
            (Err(fault), _) | (_, Err(fault)) => {
                tracing::warn!(run = %id, %fault, "an approval is shown without its diff");
            }
        }
    }
    let left = LIMIT.saturating_sub(inner.clock.monotonic().saturating_sub(began));
    let preview = tokio::time::timeout(left, inner.runner.preview(call)).await;
    view.preview = preview.unwrap_or_else(|_| late(view));
}

/// The preview of a call whose file was not compared in time.
fn late(view: &ApprovalView) -> Preview {
    let path = view.approval.arguments["path"].as_str();
    let why = "the change was not computed in time, because too many approvals are open";
    Preview {
        folder: None,
        change: path.map(|path| FileChange {
            path: path.to_owned(),
            effect: ChangeEffect::NotShown(why.to_owned()),
            digest: None,
        }),
    }
}
