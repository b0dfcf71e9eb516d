//! Whether a step may begin that the journal intends: the runner's gate says so, and where it
//! asks, a person. Called by `drive` before each effect.

use std::sync::Arc;

use super::Inner;
use super::drive::submit_any;
use crate::contract::journal::RunView;
use crate::contract::runner::{Admission, StepOutcome};
use crate::failpoint::reach;
use crate::kernel::approval::{ApprovalState, Consent};
use crate::kernel::fault::Fault;
use crate::kernel::run::RunError;
use crate::kernel::step::{Step, StepKind};
use crate::kernel::text::storable;
use crate::store::command::{RequestApproval, StepRef};
use crate::store::{Command, Reply};

/// Asks whether the effect of a step may begin, and a person where that is needed; the step's
/// outcome if it may not, or not yet.
pub(super) async fn admit(
    inner: &Arc<Inner>,
    view: &Arc<RunView>,
    step: &Arc<Step>,
) -> Result<Option<StepOutcome>, Fault> {
    if matches!(step.kind, StepKind::Model | StepKind::Compaction) {
        return Ok(None);
    }
    let refused = |text: String| {
        Some(match step.kind {
            // There is nobody to tell but who waits for the run.
            StepKind::Command => StepOutcome::failed(RunError::new("denied", text)),
            _ => StepOutcome::ToolResult {
                text,
                is_error: true,
            },
        })
    };
    let runner = &inner.runner;
    let consent = match runner.admit(Arc::clone(view), Arc::clone(step)).await {
        Admission::Goes => return complete(inner, view, step).await,
        Admission::Refused(text) => return Ok(refused(text)),
        Admission::Asks(consent) => consent,
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
    let command = Command::RequestApproval(Box::new(RequestApproval {
        by: StepRef {
            run: step.run,
            step: step.seq,
            attempt: step.attempts,
        },
        consent,
        window_ms: inner.options().approval_ms,
    }));
    let approval = match submit_any(inner, command).await? {
        Reply::Approval(approval) => approval,
        other => return Err(super::spawn::unexpected(&other)),
    };
    Ok(match approval.state {
        ApprovalState::Allowed if approval.consent.covers != covers => refused(format!(
            "access denied: what was allowed is {}; the same call would now touch {covers}, since a \
             link has changed meanwhile. Nothing was done; a new call asks again",
            approval.consent.covers
        )),
        ApprovalState::Allowed => complete(inner, view, step).await?,
        ApprovalState::Open => Some(StepOutcome::Waits),
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Closed => {
            refused(approval.refusal())
        }
    })
}

/// What a run starts is started with its whole environment, or not yet.
async fn complete(
    inner: &Arc<Inner>,
    view: &Arc<RunView>,
    step: &Arc<Step>,
) -> Result<Option<StepOutcome>, Fault> {
    if view.environment.lacks.is_empty() {
        return Ok(None);
    }
    reach("drive.lacking");
    inner.lack(view, step).await?;
    Ok(Some(StepOutcome::Waits))
}
