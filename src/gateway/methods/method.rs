//! Registration of methods: a name, a request type, and an async function from the request to its
//! result.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    agents, approvals, descriptions, events, lifecycle, maintenance, memory, ops, questions, runs,
    servers, sessions, skills, status, trust, usage,
};
use crate::contract::BoxFuture;
use crate::gateway::access::{run_rights, tokenless_rights};
use crate::gateway::discover::Described;
use crate::gateway::methods::{Answered, Call, Methods, Reply};
use crate::gateway::rpc::Connection;
use crate::gateway::{Context, Shared, discover};
use crate::kernel::fault::Fault;
use crate::registry::Idempotency;
use crate::wire::decode::{Params, decode};

/// Registers all methods.
pub(crate) fn table(shared: Shared) -> Methods {
    let shared = Arc::new(shared);
    let mut table = Table {
        methods: Methods::default(),
        shared: Arc::clone(&shared),
        described: Vec::new(),
    };
    agents::register(&mut table);
    approvals::register(&mut table);
    maintenance::register(&mut table);
    events::register(&mut table);
    questions::register(&mut table);
    lifecycle::register(&mut table);
    memory::register(&mut table);
    runs::register(&mut table);
    servers::register(&mut table);
    sessions::register(&mut table);
    skills::register(&mut table);
    status::register(&mut table);
    trust::register(&mut table);
    usage::register(&mut table);
    ops::register(&mut table);
    discover::register(&mut table);
    shared.described.get_or_init(|| table.described);
    let names = table.methods.names().map(str::to_owned).collect();
    shared.capabilities.get_or_init(|| names);
    table.methods
}

/// The method table under construction.
pub(crate) struct Table {
    methods: Methods,
    shared: Arc<Shared>,
    described: Vec<Described>,
}

/// A call with decoded parameters, ready to execute.
struct Prepared {
    /// Object of the call for the audit log: the id or key it names.
    object: Option<String>,
    work: Work,
}

type Work = BoxFuture<'static, Answered>;

/// Decodes the parameters of a call. This boxed type keeps the code around a call out of the
/// generic functions, so it is compiled once rather than per method.
type Prepare =
    dyn Fn(Arc<Context>, Arc<Connection>, Option<&str>) -> Result<Prepared, Fault> + Send + Sync;

impl Table {
    /// Adds the method `name`: its parameters are decoded as `P`, and faults become error
    /// responses.
    pub(crate) fn method<P, R, F, Fut>(&mut self, name: &'static str, handler: F)
    where
        P: Params + Send + 'static,
        R: Reply + JsonSchema + Send + 'static,
        F: Fn(Arc<Context>, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        self.connected(name, move |context, _, params: P| handler(context, params));
    }

    /// As [`Table::method`], for methods that need the calling connection.
    pub(crate) fn connected<P, R, F, Fut>(&mut self, name: &'static str, handler: F)
    where
        P: Params + Send + 'static,
        R: Reply + JsonSchema + Send + 'static,
        F: Fn(Arc<Context>, Arc<Connection>, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        let changes = descriptions::changes(name);
        self.described.push(Described::new::<P, R>(name));
        self.register(
            name,
            Arc::new(move |context, connection, text: Option<&str>| {
                let params: P = decode(text)?;
                Ok(Prepared {
                    object: changes.then(|| params.object()).flatten(),
                    work: work(handler(context, connection, params)),
                })
            }),
        );
    }

    fn register(&mut self, name: &'static str, prepare: Arc<Prepare>) {
        let changes = descriptions::changes(name);
        let shared = Arc::clone(&self.shared);
        self.methods.add(name, move |call: Call| {
            let prepare = Arc::clone(&prepare);
            let shared = Arc::clone(&shared);
            Box::pin(async move {
                if let Some(run) = call.who.run {
                    run_rights::check(&shared.registry, run, name, call.params.as_deref())?;
                } else if !call.who.with_token {
                    tokenless_rights::check(name, &shared.token_file)?;
                }
                let context = Arc::new(Context {
                    shared: Arc::clone(&shared),
                    principal: Arc::clone(&call.who),
                });
                let prepared = prepare(context, call.connection, call.params.as_deref())?;
                if !changes {
                    return prepared.work.await;
                }
                let registry = &shared.registry;
                registry
                    .audited(&call.who, name, prepared.object, prepared.work)
                    .await
            })
        });
    }
}

fn work<R: Reply>(answer: impl Future<Output = Result<R, Fault>> + Send + 'static) -> Work {
    Box::pin(async move { answer.await?.into_text() })
}

/// The idempotency key of a request, with its other parameters as canonical JSON. `meta` is
/// excluded because it may differ between repeats.
pub(crate) fn idempotency<P: Serialize>(
    key: Option<&str>,
    params: &P,
) -> Result<Option<Idempotency>, Fault> {
    let Some(key) = key else { return Ok(None) };
    let mut request = serde_json::to_value(params).map_err(Fault::internal)?;
    if let Some(fields) = request.as_object_mut() {
        fields.remove("meta");
        fields.remove("idempotencyKey");
    }
    request.sort_all_objects();
    Ok(Some(Idempotency {
        key: key.to_owned(),
        request: request.to_string(),
    }))
}
