//! Approvals of tool calls: requested, decided, expired, and remembered.

use serde_json::json;

use super::StepRef;
use super::context::Context;
use super::moves::load;
use super::waiting::{acting, begin, finish, release, until};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::ApprovalId;
use crate::kernel::policy::approval::{
    Approval, ApprovalState, Choice, Consent, Remember, Remembered,
};
use crate::kernel::run::action::EventKind;
use crate::kernel::run::step::{Wait, WaitKind};
use crate::kernel::text::storable;
use crate::store::tables::{approvals, remembered};

/// A tool call that needs an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestApproval {
    /// The step of the call.
    pub by: StepRef,
    /// The rule that requires the approval, and what a remembered decision covers.
    pub consent: Consent,
    /// Time until it expires, in milliseconds.
    pub window_ms: u64,
}

/// A user's decision on an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolveApproval {
    /// The tenant.
    pub org: String,
    /// Id of the approval.
    pub id: ApprovalId,
    /// The decision.
    pub choice: Choice,
    /// The scope of later calls that the decision covers; `None` for this call only.
    pub remember: Option<Remember>,
    /// The actor who decides, recorded on the approval.
    pub by: String,
}

/// Once this returns, the approval is open and its step waits for it, or it is already decided, by
/// a user or by a remembered decision. A repeat does not ask again.
pub fn request(context: &mut Context<'_>, asked: RequestApproval) -> Result<Approval, Fault> {
    let (run, step) = acting(context, asked.by)?;
    let id = ApprovalId(step.id.0);
    if let Some(known) = approvals::get(context.tx, id)? {
        return Ok(known);
    }
    let now = context.now.wall;
    let mut approval = Approval {
        id,
        org: run.org.clone(),
        run: run.id,
        step: step.seq,
        session: run.session,
        root_session: run.root_session,
        agent: run.agent.clone(),
        // The step of an agent that is a program has no tool; its start is what needs approval.
        tool: step.tool.clone().unwrap_or_else(|| step.kind.to_string()),
        arguments: match &asked.consent.arguments {
            Some(arguments) => arguments.clone(),
            None => step.input.clone(),
        },
        consent: Consent {
            why: storable(&asked.consent.why),
            covers: storable(&asked.consent.covers),
            arguments: None,
        },
        asked_at: now,
        expires_at: until(context, asked.window_ms),
        state: ApprovalState::Open,
        resolved_by: None,
        remember: None,
        ended_at: None,
    };
    let known = remembered::of(context.tx, &approval)?;
    if let Some(known) = known {
        approval.state = known.choice.state();
        approval.resolved_by = Some(known.by);
        approval.remember = Some(known.scope);
        approval.ended_at = Some(now);
    }
    let seq = context.take_seq()?;
    approvals::insert(context.tx, seq, &approval)?;
    if approval.state != ApprovalState::Open {
        resolved(context, &approval)?;
        return Ok(approval);
    }
    context.emit(
        EventKind::ApprovalRequested,
        &run,
        json!({
            "approvalId": id,
            "tool": approval.tool,
            "toolCallId": step.tool_call,
            "paramsSummary": step.params_summary,
            "why": approval.consent.why,
            "expiresAt": approval.expires_at,
            "sessionKey": run.session_key,
            "agent": run.agent,
            "label": run.label,
        }),
    );
    let wait = Wait {
        kind: WaitKind::Approval,
        until: Some(approval.expires_at),
    };
    begin(context, &run, &step, wait, &[id.0])?;
    Ok(approval)
}

/// Once this returns, the approval is decided: its step may be carried out, or has the refusal as
/// its outcome. Repeating the same decision changes nothing.
pub fn resolve(context: &mut Context<'_>, said: ResolveApproval) -> Result<Approval, Fault> {
    let found = approvals::get(context.tx, said.id)?;
    let mut approval = found
        .filter(|approval| approval.org == said.org)
        .ok_or_else(|| {
            Fault::not_found("approval", said.id).hint("approvals.list shows the open ones")
        })?;
    let wanted = said.choice.state();
    if approval.state == wanted && approval.remember == said.remember {
        return Ok(approval);
    }
    if approval.state != ApprovalState::Open {
        return Err(over(&approval));
    }
    approval.state = wanted;
    approval.resolved_by = Some(said.by.clone());
    approval.remember = said.remember;
    close(context, &mut approval)?;
    if let Some(scope) = said.remember {
        let one = Remembered {
            id: approval.id,
            org: said.org,
            scope,
            session: approval.session,
            agent: approval.agent.clone(),
            tool: approval.tool.clone(),
            covers: approval.consent.covers.clone(),
            choice: said.choice,
            by: said.by,
            at: context.now.wall,
        };
        let seq = context.take_seq()?;
        remembered::insert(context.tx, seq, &one)?;
    }
    match said.choice {
        Choice::Allow => release(context, approval.run, approval.step)?,
        Choice::Deny => refuse(context, &approval)?,
    }
    Ok(approval)
}

fn over(approval: &Approval) -> Fault {
    let what = match approval.state {
        ApprovalState::Allowed => "is already allowed",
        ApprovalState::Denied => "is already denied",
        ApprovalState::Expired => "has expired and counts as denied",
        ApprovalState::Closed | ApprovalState::Open => "was closed: its run has ended",
    };
    Fault::new(
        Kind::Conflict,
        format!(
            "approval {} {what}; its result for run {} stays",
            approval.id, approval.run
        ),
    )
    .hint("send a message to the session: sessions.send or agent.run")
    .with("state", approval.state.as_str())
    .with("runId", approval.run.to_string())
}

/// Once this returns, the approval has expired, and its step is refused.
pub fn expire(context: &mut Context<'_>, id: ApprovalId) -> Result<(), Fault> {
    if let Some(approval) = end(context, id, ApprovalState::Expired)? {
        refuse(context, &approval)?;
    }
    Ok(())
}

/// Once this returns, the open approval has ended in `state` without a decision; `None` if it was
/// not open.
pub fn end(
    context: &mut Context<'_>,
    id: ApprovalId,
    state: ApprovalState,
) -> Result<Option<Approval>, Fault> {
    let found = approvals::get(context.tx, id)?;
    let Some(mut approval) = found.filter(|one| one.state == ApprovalState::Open) else {
        return Ok(None);
    };
    approval.state = state;
    close(context, &mut approval)?;
    Ok(Some(approval))
}

/// Once this returns, the approval is stored as ended, with an event.
fn close(context: &mut Context<'_>, approval: &mut Approval) -> Result<(), Fault> {
    approval.ended_at = Some(context.now.wall);
    approvals::end(context.tx, approval)?;
    resolved(context, approval)
}

fn resolved(context: &mut Context<'_>, approval: &Approval) -> Result<(), Fault> {
    let run = load(context, approval.run)?;
    context.emit(
        EventKind::ApprovalResolved,
        &run,
        json!({
            "approvalId": approval.id,
            "tool": approval.tool,
            "state": approval.state,
            "by": approval.resolved_by,
            "remember": approval.remember,
        }),
    );
    Ok(())
}

/// Once this returns, the step has the refusal as its outcome.
fn refuse(context: &mut Context<'_>, approval: &Approval) -> Result<(), Fault> {
    let told = approval.refusal();
    finish(context, approval.run, approval.step, (&told, true)).map(|_| ())
}

/// Once this returns, the remembered decision no longer applies.
pub fn forget(context: &mut Context<'_>, org: &str, id: ApprovalId) -> Result<bool, Fault> {
    let gone = remembered::forget(context.tx, org, id)?;
    Ok(gone)
}
