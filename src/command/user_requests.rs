//! Requests of runs to users: questions, and approvals of tool calls.

use super::StepRef;
use super::context::Context;
use super::moves::load;
use super::waiting::{acting, begin, finish, release, until};
use crate::kernel::event::{ApprovalRequested, ApprovalResolved, QuestionAnswered, QuestionAsked};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::{ApprovalId, QuestionId};
use crate::kernel::policy::approval::{
    Approval, ApprovalState, Choice, Consent, Remember, Remembered,
};
use crate::kernel::question::{Question, QuestionState};
use crate::kernel::run::step::{StepWait, WaitKind};
use crate::kernel::run::waiting;
use crate::kernel::text::storable;
use crate::store::tables::{approvals, questions, remembered};

/// A question of a run to the user.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// The step that asks.
    pub by: StepRef,
    /// The question text.
    pub text: String,
    /// The proposed answers; may be empty.
    pub choices: Vec<String>,
    /// Time until it expires, in milliseconds.
    pub window_ms: u64,
}

/// Once this returns, the question is open, and the step that asks it waits for the answer.
pub fn ask(context: &mut Context<'_>, ask: Ask) -> Result<(), Fault> {
    let (run, step) = acting(context, ask.by)?;
    if step.waits.is_some() {
        return Ok(());
    }
    let question = Question {
        id: QuestionId(step.id.0),
        org: run.org.clone(),
        run: run.id,
        step: step.seq,
        session: run.session,
        root_session: run.root_session,
        text: storable(&ask.text),
        choices: ask.choices.iter().map(|choice| storable(choice)).collect(),
        asked_at: context.now.wall,
        expires_at: until(context, ask.window_ms),
        state: QuestionState::Open,
        answer: None,
        answered_by: None,
        ended_at: None,
    };
    let seq = context.take_seq()?;
    questions::insert(context.tx, seq, &question)?;
    context.emit(
        &run,
        QuestionAsked {
            question_id: question.id,
            text: question.text,
            choices: question.choices,
            expires_at: question.expires_at,
            session_key: run.session_key.clone(),
            agent: run.agent.clone(),
            label: run.label.clone(),
        },
    );
    let wait = StepWait {
        kind: WaitKind::Answer,
        until: Some(question.expires_at),
    };
    begin(context, &run, &step, wait, &[question.id.0])?;
    Ok(())
}

/// Once this returns, the question is answered, and the step that asked has the answer as its
/// outcome. Repeating the same answer changes nothing.
pub fn answer(
    context: &mut Context<'_>,
    org: &str,
    id: QuestionId,
    answer: &str,
    by: &str,
) -> Result<Question, Fault> {
    let found = questions::get(context.tx, id)?;
    let question = found
        .filter(|question| question.org == org)
        .ok_or_else(|| {
            Fault::not_found("question", id).hint("questions.list shows the open ones")
        })?;
    let answer = storable(answer);
    if question.state == QuestionState::Answered && question.answer.as_deref() == Some(&*answer) {
        return Ok(question);
    }
    if question.state != QuestionState::Open {
        let what = match question.state {
            QuestionState::Answered => "is already answered",
            QuestionState::Expired => "has expired without an answer",
            QuestionState::Closed | QuestionState::Open => "was closed: its run has ended",
        };
        return Err(Fault::new(
            Kind::Conflict,
            format!(
                "question {id} {what}; the result that run {} got stays",
                question.run
            ),
        )
        .hint("send it to the session: sessions.send or agent.run")
        .with("state", question.state.as_str())
        .with("runId", question.run.to_string()));
    }
    end_question(context, id, QuestionState::Answered, Some((&answer, by)))?;
    let told = waiting::answered(&answer);
    finish(context, question.run, question.step, (&told, false))?;
    let question = questions::get(context.tx, id)?.unwrap_or(question);
    Ok(question)
}

/// Once this returns, the question, if it was open, has ended in `state`, with an event.
pub fn end_question(
    context: &mut Context<'_>,
    id: QuestionId,
    state: QuestionState,
    answer: Option<(&str, &str)>,
) -> Result<(), Fault> {
    let found = questions::get(context.tx, id)?;
    let Some(mut question) = found.filter(|one| one.state == QuestionState::Open) else {
        return Ok(());
    };
    question.state = state;
    question.answer = answer.map(|(text, _)| text.to_owned());
    question.answered_by = answer.map(|(_, by)| by.to_owned());
    question.ended_at = Some(context.now.wall);
    questions::end(context.tx, &question)?;
    let run = load(context, question.run)?;
    context.emit(
        &run,
        QuestionAnswered {
            question_id: id,
            state: state.as_str().into(),
            answer: question.answer,
            by: question.answered_by,
        },
    );
    Ok(())
}

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
pub fn request_approval(
    context: &mut Context<'_>,
    asked: RequestApproval,
) -> Result<Approval, Fault> {
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
        show_resolved(context, &approval)?;
        return Ok(approval);
    }
    context.emit(
        &run,
        ApprovalRequested {
            approval_id: id,
            tool: approval.tool.clone(),
            tool_call_id: step.shown_call(),
            params_summary: step.params_summary.clone(),
            why: approval.consent.why.clone(),
            expires_at: approval.expires_at,
            session_key: run.session_key.clone(),
            agent: run.agent.clone(),
            label: run.label.clone(),
        },
    );
    let wait = StepWait {
        kind: WaitKind::Approval,
        until: Some(approval.expires_at),
    };
    begin(context, &run, &step, wait, &[id.0])?;
    Ok(approval)
}

/// Once this returns, the approval is decided: its step may be carried out, or has the refusal as
/// its outcome. Repeating the same decision changes nothing.
pub fn resolve_approval(
    context: &mut Context<'_>,
    said: ResolveApproval,
) -> Result<Approval, Fault> {
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
        return Err(already_over(&approval));
    }
    approval.state = wanted;
    approval.resolved_by = Some(said.by.clone());
    approval.remember = said.remember;
    close_approval(context, &mut approval)?;
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
        Choice::Deny => refuse_call(context, &approval)?,
    }
    Ok(approval)
}

fn already_over(approval: &Approval) -> Fault {
    let what = match approval.state {
        ApprovalState::Allowed => "is already allowed",
        ApprovalState::Denied => "is already denied",
        ApprovalState::Expired => "has expired and counts as denied",
        ApprovalState::Closed | ApprovalState::Open => {
            "was closed: its run has ended, or its agent has dropped the question"
        }
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
pub fn expire_approval(context: &mut Context<'_>, id: ApprovalId) -> Result<(), Fault> {
    if let Some(approval) = end_approval(context, id, ApprovalState::Expired)? {
        refuse_call(context, &approval)?;
    }
    Ok(())
}

/// Once this returns, the open approval has ended in `state` without a decision; `None` if it was
/// not open.
pub fn end_approval(
    context: &mut Context<'_>,
    id: ApprovalId,
    state: ApprovalState,
) -> Result<Option<Approval>, Fault> {
    let found = approvals::get(context.tx, id)?;
    let Some(mut approval) = found.filter(|one| one.state == ApprovalState::Open) else {
        return Ok(None);
    };
    approval.state = state;
    close_approval(context, &mut approval)?;
    Ok(Some(approval))
}

/// Once this returns, the approval is stored as ended, with an event.
fn close_approval(context: &mut Context<'_>, approval: &mut Approval) -> Result<(), Fault> {
    approval.ended_at = Some(context.now.wall);
    approvals::end(context.tx, approval)?;
    show_resolved(context, approval)
}

fn show_resolved(context: &mut Context<'_>, approval: &Approval) -> Result<(), Fault> {
    let run = load(context, approval.run)?;
    context.emit(
        &run,
        ApprovalResolved {
            approval_id: approval.id,
            tool: approval.tool.clone(),
            state: approval.state.as_str().into(),
            by: approval.resolved_by.clone(),
            remember: approval.remember.map(|scope| scope.as_str().into()),
        },
    );
    Ok(())
}

/// Once this returns, the step has the refusal as its outcome.
fn refuse_call(context: &mut Context<'_>, approval: &Approval) -> Result<(), Fault> {
    let told = approval.refusal();
    finish(context, approval.run, approval.step, (&told, true)).map(|_| ())
}

/// Once this returns, the remembered decision no longer applies.
pub fn forget_approval(
    context: &mut Context<'_>,
    org: &str,
    id: ApprovalId,
) -> Result<bool, Fault> {
    let gone = remembered::forget(context.tx, org, id)?;
    Ok(gone)
}
