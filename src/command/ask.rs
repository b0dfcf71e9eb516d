//! Questions of runs to the user.

use serde_json::json;

use super::StepRef;
use super::context::Context;
use super::moves::load;
use super::waiting::{acting, begin, finish, until};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::QuestionId;
use crate::kernel::question::{Question, QuestionState};
use crate::kernel::run::action::EventKind;
use crate::kernel::run::step::{Wait, WaitKind};
use crate::kernel::run::waiting;
use crate::kernel::text::storable;
use crate::store::tables::questions;

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
        EventKind::QuestionAsked,
        &run,
        json!({
            "questionId": question.id,
            "text": question.text,
            "choices": question.choices,
            "expiresAt": question.expires_at,
            "sessionKey": run.session_key,
            "agent": run.agent,
            "label": run.label,
        }),
    );
    let wait = Wait {
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
    end(context, id, QuestionState::Answered, Some((&answer, by)))?;
    let told = waiting::answered(&answer);
    finish(context, question.run, question.step, (&told, false))?;
    let question = questions::get(context.tx, id)?.unwrap_or(question);
    Ok(question)
}

/// Once this returns, the question, if it was open, has ended in `state`, with an event.
pub fn end(
    context: &mut Context<'_>,
    id: QuestionId,
    state: QuestionState,
    answer: Option<(&str, &str)>,
) -> Result<(), Fault> {
    let Some(question) = questions::get(context.tx, id)? else {
        return Ok(());
    };
    if question.state != QuestionState::Open {
        return Ok(());
    }
    questions::end(context.tx, id, state, answer, context.now.wall)?;
    let run = load(context, question.run)?;
    context.emit(
        EventKind::QuestionAnswered,
        &run,
        json!({
            "questionId": id,
            "state": state,
            "answer": answer.map(|(text, _)| text),
            "by": answer.map(|(_, by)| by),
        }),
    );
    Ok(())
}
