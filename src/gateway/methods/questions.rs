//! Handlers of `questions.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page;
use super::page::SerializedPage;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::wire::input::PageSize;
use crate::wire::questions as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(answer);
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListQuestions,
) -> Result<SerializedPage<wire::Questions>, Fault> {
    let fetch = async |limit| {
        let filter = wire::ListQuestions {
            limit: PageSize(limit),
            ..params.clone()
        };
        let registry = &context.registry;
        let page = registry.questions(&context.principal, filter).await?;
        Ok(wire::Questions {
            questions: page.items,
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn answer(
    context: Arc<CallContext>,
    params: wire::AnswerQuestion,
) -> Result<wire::Question, Fault> {
    context.registry.answer(&context.principal, params).await
}
