//! Handlers of `questions.*`.

use std::sync::Arc;

use super::method::Table;
use super::page::SerializedPage;
use super::{convert, page};
use crate::gateway::Context;
use crate::kernel::fault::Fault;
use crate::kernel::question::QuestionState;
use crate::registry::{QuestionAnswer, QuestionFilter};
use crate::wire::questions as wire;

pub(crate) fn register(table: &mut Table) {
    table.method(list);
    table.method(answer);
}

async fn list(
    context: Arc<Context>,
    params: wire::ListQuestions,
) -> Result<SerializedPage<wire::Questions>, Fault> {
    let filter = QuestionFilter {
        session: params.session_key,
        tree: params.tree.unwrap_or(true),
        state: params.state.map(|state| match state {
            wire::State::Open => QuestionState::Open,
            wire::State::Answered => QuestionState::Answered,
            wire::State::Expired => QuestionState::Expired,
            wire::State::Closed => QuestionState::Closed,
        }),
    };
    let fetch = async |limit| {
        let registry = &context.registry;
        let (filter, cursor) = (filter.clone(), params.cursor.clone());
        let page = registry
            .questions(&context.principal, filter, limit, cursor)
            .await?;
        Ok(wire::Questions {
            questions: page.items.into_iter().map(convert::question).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn answer(
    context: Arc<Context>,
    params: wire::AnswerQuestion,
) -> Result<wire::Question, Fault> {
    let given = match (params.text, params.choice) {
        (Some(text), None) if !text.trim().is_empty() => QuestionAnswer::Text(text),
        (None, Some(choice)) => QuestionAnswer::Choice(choice),
        _ => return Err(Fault::params("text", "give either text or choice")),
    };
    let registry = &context.registry;
    let answered = registry
        .answer(&context.principal, params.id, given)
        .await?;
    Ok(convert::question(answered))
}
