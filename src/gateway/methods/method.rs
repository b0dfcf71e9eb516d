//! Registration of methods: an async function from the parameters of a method to its result.

use std::sync::Arc;

use serde_json::Value;

use super::{
    agents, approvals, events, lifecycle, maintenance, memory, nodes, ops, questions, runs,
    servers, sessions, skills, status, tokens, trust, usage, webhooks,
};
use crate::contract::BoxFuture;
use crate::gateway::access::rights;
use crate::gateway::methods::{MethodReply, MethodResult, Methods, RpcCall};
use crate::gateway::rpc::Connection;
use crate::gateway::{CallContext, GatewayState, discover};
use crate::kernel::fault::Fault;
use crate::wire::decode::decode;
use crate::wire::method::{Dispatch, Effect, Method, MethodRow};
use crate::wire::methods::METHODS;

/// Registers all methods.
pub(crate) fn table(shared: GatewayState) -> Methods {
    let mut table = MethodsBuilder {
        methods: Methods::default(),
        shared: Arc::new(shared),
    };
    agents::register(&mut table);
    approvals::register(&mut table);
    maintenance::register(&mut table);
    events::register(&mut table);
    questions::register(&mut table);
    lifecycle::register(&mut table);
    memory::register(&mut table);
    nodes::register(&mut table);
    runs::register(&mut table);
    servers::register(&mut table);
    sessions::register(&mut table);
    skills::register(&mut table);
    status::register(&mut table);
    tokens::register(&mut table);
    trust::register(&mut table);
    usage::register(&mut table);
    webhooks::register(&mut table);
    ops::register(&mut table);
    discover::register(&mut table);
    for row in METHODS {
        let found = table.methods.find(row.name);
        assert!(found.is_some(), "{} has no handler", row.name);
    }
    table.methods
}

/// The table of handlers under construction.
pub(crate) struct MethodsBuilder {
    methods: Methods,
    shared: Arc<GatewayState>,
}

/// A call with decoded parameters, ready to execute.
struct Prepared {
    /// Object of the call for the audit log: the id or key it names.
    object: Option<String>,
    work: CallFuture,
}

type CallFuture = BoxFuture<'static, MethodResult>;

/// Decodes the parameters of a call. This boxed type keeps the code around a call out of the
/// generic functions, so it is compiled once rather than per method.
type Prepare = dyn Fn(Arc<CallContext>, Arc<Connection>, Option<&str>) -> Result<Prepared, Fault>
    + Send
    + Sync;

impl MethodsBuilder {
    /// Adds the method with the parameters `M`; faults become error responses.
    pub(crate) fn method<M, R, F, Fut>(&mut self, handler: F)
    where
        M: Method + 'static,
        R: MethodReply<Shape = M::Answer> + Send + 'static,
        F: Fn(Arc<CallContext>, M) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        self.connected(move |context, _, params: M| handler(context, params));
    }

    /// As [`Table::method`], for methods that need the calling connection.
    pub(crate) fn connected<M, R, F, Fut>(&mut self, handler: F)
    where
        M: Method + 'static,
        R: MethodReply<Shape = M::Answer> + Send + 'static,
        F: Fn(Arc<CallContext>, Arc<Connection>, M) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        self.register(
            M::ROW,
            Arc::new(move |context, connection, text: Option<&str>| {
                let params: M = decode(text)?;
                Ok(Prepared {
                    object: audited_object(&params)?,
                    work: work(handler(context, connection, params)),
                })
            }),
        );
    }

    fn register(&mut self, row: &'static MethodRow, prepare: Arc<Prepare>) {
        let shared = Arc::clone(&self.shared);
        self.methods.add(row, move |call: RpcCall| {
            let prepare = Arc::clone(&prepare);
            let shared = Arc::clone(&shared);
            Box::pin(async move {
                let (registry, params) = (&shared.registry, call.params.as_deref());
                let who = rights::check(registry, &call.who, row, params, &shared.token_file)?;
                let context = Arc::new(CallContext {
                    shared: Arc::clone(&shared),
                    principal: Arc::clone(&who),
                });
                let Prepared { object, work } = prepare(context, call.connection, params)?;
                let work = async {
                    // What is waited for must not be shown to a holder whose token has ended.
                    tokio::select! {
                        biased;
                        fault = who.ended(), if row.dispatch == Dispatch::Waits => Err(fault),
                        answer = work => answer,
                    }
                };
                if row.effect == Effect::Reads {
                    return work.await;
                }
                registry.audited(&who, row.name, object, work).await
            })
        });
    }
}

fn work<R: MethodReply>(
    answer: impl Future<Output = Result<R, Fault>> + Send + 'static,
) -> CallFuture {
    Box::pin(async move { answer.await?.into_text() })
}

/// The object of a changing call for the audit: the first of the row's object parameters that is
/// set. `None` if the call only reads or names no object.
fn audited_object<M: Method>(params: &M) -> Result<Option<String>, Fault> {
    if M::ROW.effect == Effect::Reads || M::ROW.object.is_empty() {
        return Ok(None);
    }
    let params = serde_json::to_value(params).map_err(Fault::internal)?;
    let mut given = M::ROW.object.iter().map(|name| (name, &params[name]));
    Ok(given.find_map(|(name, value)| match value {
        Value::String(id) => Some(id.clone()),
        Value::Array(ids) => match &ids[..] {
            [Value::String(id)] => Some(id.clone()),
            ids => Some(format!("{} {name}", ids.len())),
        },
        _ => None,
    }))
}
