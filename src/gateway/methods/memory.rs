//! Handlers of `memory.*`.

use std::sync::Arc;

use super::method::MethodsBuilder;
use super::page;
use super::page::SerializedPage;
use crate::gateway::CallContext;
use crate::kernel::fault::Fault;
use crate::kernel::memory::Memory;
use crate::wire::memory as wire;

pub(crate) fn register(table: &mut MethodsBuilder) {
    table.method(list);
    table.method(search);
    table.method(delete);
}

async fn list(
    context: Arc<CallContext>,
    params: wire::ListMemories,
) -> Result<SerializedPage<wire::Memories>, Fault> {
    let fetch = async |limit| {
        let (space, cursor) = (params.namespace.clone(), params.cursor.clone());
        let listed = context
            .registry
            .memories(&context.principal, space, limit, cursor);
        let page = listed.await?;
        Ok(wire::Memories {
            memories: page.items.into_iter().map(memory).collect(),
            next_cursor: page.next,
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn search(
    context: Arc<CallContext>,
    params: wire::SearchMemories,
) -> Result<SerializedPage<wire::FoundMemories>, Fault> {
    let fetch = async |limit| {
        let space = params.namespace.clone();
        let found =
            context
                .registry
                .search_memories(&context.principal, &params.query, space, limit);
        Ok(wire::FoundMemories {
            memories: found.await?.into_iter().map(memory).collect(),
        })
    };
    page::fit(params.limit.0, fetch).await
}

async fn delete(
    context: Arc<CallContext>,
    params: wire::DeleteMemories,
) -> Result<wire::DeletedMemories, Fault> {
    let gone = context
        .registry
        .forget_memories(&context.principal, params.ids);
    Ok(wire::DeletedMemories {
        deleted: gone.await?,
    })
}

fn memory(memory: Memory) -> wire::Memory {
    wire::Memory {
        id: memory.id,
        namespace: memory.space,
        text: memory.text,
        source: memory.source.as_str().into(),
        run_id: memory.run,
        at: memory.at,
    }
}
