//! Decides whether an intended step may begin: the runner's gate decides, or asks the user for an
//! approval. `drive` calls it before each effect.

use std::sync::Arc;

use crate::command::{RequestApproval, StepRef};
use crate::contract::journal::RunView;
use crate::contract::runner::{Admission, StepOutcome};
use crate::failpoint::reach;
use crate::kernel::fault::Fault;
use crate::kernel::policy::approval::{ApprovalState, Consent};
use crate::kernel::run::RunError;
use crate::kernel::run::step::{Step, StepKind};
use crate::kernel::text::storable;
use crate::registry::RegistryInner;
use crate::registry::drive::submit;

/// Checks whether a step's effect may begin, and requests an approval if the gate asks for one.
/// Returns `None` if it may begin, else the step's outcome (refused or waiting).
pub(crate) async fn admit(
    inner: &Arc<RegistryInner>,
    view: &Arc<RunView>,
    step: &Arc<Step>,
) -> Result<Option<StepOutcome>, Fault> {
    if matches!(step.kind, StepKind::Model | StepKind::Compaction) {
        return Ok(None);
    }
    let refused = |text: String| {
        Some(match step.kind {
            // No model reads the result of a command step; only waiters on the run see the refusal.
            StepKind::Command => StepOutcome::failed(RunError::new("denied", text)),
            _ => StepOutcome::ToolResult {
                text,
                is_error: true,
            },
        })
    };
    let runner = &inner.runner;
    let consent = match runner.admit(Arc::clone(view), Arc::clone(step)).await {
        Admission::Allowed => return complete(inner, view, step).await,
        Admission::Refused(text) => return Ok(refused(text)),
        Admission::NeedsApproval(consent) => consent,
    };
    let redactor = &view.environment.redactor;
    let consent = Consent {
        why: redactor.whole(&consent.why).into_owned(),
        covers: redactor.covering(&consent.covers),
        arguments: consent.arguments.map(|mut arguments| {
            redactor.in_value(&mut arguments);
            arguments
        }),
    };
    let covers = storable(&consent.covers);
    reach("drive.asking");
    let command = RequestApproval {
        by: StepRef {
            run: step.run,
            step: step.seq,
            attempt: step.attempts,
        },
        consent,
        window_ms: inner.options().approval_ms,
    };
    let approval = submit(inner, command).await?;
    Ok(match approval.state {
        ApprovalState::Allowed if approval.consent.covers != covers => refused(format!(
            "access denied: the approval covers {}; the same call would now touch {covers}, because a \
             link has changed since. Nothing was done; make a new call to request approval again",
            approval.consent.covers
        )),
        ApprovalState::Allowed => complete(inner, view, step).await?,
        ApprovalState::Open => {
            runner.waits(step);
            Some(StepOutcome::Waits)
        }
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Closed => {
            refused(approval.refusal())
        }
    })
}

/// Allows the step if the run's environment is complete; otherwise the step waits for the missing
/// names.
async fn complete(
    inner: &Arc<RegistryInner>,
    view: &Arc<RunView>,
    step: &Arc<Step>,
) -> Result<Option<StepOutcome>, Fault> {
    if view.environment.missing.is_empty() {
        return Ok(None);
    }
    reach("drive.lacking");
    inner.lack(view, step).await?;
    inner.runner.waits(step);
    Ok(Some(StepOutcome::Waits))
}
