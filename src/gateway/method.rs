//! How a method is put into the table: a name, a request type, and a function from one to an
//! answer.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;

use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::{Methods, RpcModule};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::discover::{self, Described};
use super::rpc::{Connection, error_object, logged};
use super::{
    Context, Shared, about, agents, approvals, care, events, lifecycle, ops, questions, runs,
    sessions, status, trust,
};
use crate::kernel::fault::Fault;
use crate::registry::{Idempotency, Principal};
use crate::wire::decode::{Params, decode};

/// Every method.
pub(super) fn table(shared: Shared) -> Result<Methods, Box<dyn Error + Send + Sync>> {
    let shared = Arc::new(shared);
    let mut table = Table {
        module: RpcModule::from_arc(Arc::clone(&shared)),
        described: Vec::new(),
    };
    agents::register(&mut table)?;
    approvals::register(&mut table)?;
    care::register(&mut table)?;
    events::register(&mut table)?;
    questions::register(&mut table)?;
    lifecycle::register(&mut table)?;
    runs::register(&mut table)?;
    sessions::register(&mut table)?;
    status::register(&mut table)?;
    trust::register(&mut table)?;
    ops::register(&mut table)?;
    discover::register(&mut table)?;
    shared.described.get_or_init(|| table.described);
    let methods: Methods = table.module.into();
    let mut names: Vec<String> = methods.method_names().map(str::to_owned).collect();
    names.sort_unstable();
    shared.capabilities.get_or_init(|| names);
    Ok(methods)
}

/// The methods registered so far.
pub(super) struct Table {
    module: RpcModule<Shared>,
    described: Vec<Described>,
}

/// A call whose parameters were read, ready to be carried out.
struct Call {
    /// What it is about, for the audit table.
    object: Option<String>,
    work: Work,
}

type Work = Pin<Box<dyn Future<Output = Result<Box<RawValue>, Fault>> + Send>>;

/// Reads the parameters of a call. Behind this type all methods share what surrounds a call,
/// which is compiled once; of their own they have the reading, the work and the answer's text.
type Prepare = dyn Fn(Caller, Option<&str>) -> Result<Call, Fault> + Send + Sync;

/// Who calls, and by which connection.
struct Caller {
    context: Arc<Context>,
    connection: Option<Arc<Connection>>,
}

impl Table {
    /// Adds the method `name`: its parameters are read as `P`, its faults become errors.
    pub(super) fn method<P, R, F, Fut>(
        &mut self,
        name: &'static str,
        handler: F,
    ) -> Result<(), RegisterMethodError>
    where
        P: Params + Send + 'static,
        R: Serialize + JsonSchema + Send + 'static,
        F: Fn(Arc<Context>, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        let changes = about::changes(name);
        self.described.push(Described::new::<P, R>(name));
        self.register(
            name,
            Arc::new(move |caller: Caller, text: Option<&str>| {
                let params: P = decode(text)?;
                Ok(Call {
                    object: changes.then(|| params.object()).flatten(),
                    work: work(handler(caller.context, params)),
                })
            }),
        )
    }

    /// As [`Table::method`], for methods that belong to the connection that calls them.
    pub(super) fn connected<P, R, F, Fut>(
        &mut self,
        name: &'static str,
        handler: F,
    ) -> Result<(), RegisterMethodError>
    where
        P: Params + Send + 'static,
        R: Serialize + JsonSchema + Send + 'static,
        F: Fn(Arc<Context>, Arc<Connection>, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send + 'static,
    {
        self.described.push(Described::new::<P, R>(name));
        self.register(
            name,
            Arc::new(move |caller: Caller, text: Option<&str>| {
                let params: P = decode(text)?;
                let connection = caller
                    .connection
                    .ok_or_else(|| Fault::internal("a call came from no connection"))?;
                Ok(Call {
                    object: None,
                    work: work(handler(caller.context, connection, params)),
                })
            }),
        )
    }

    fn register(
        &mut self,
        name: &'static str,
        prepare: Arc<Prepare>,
    ) -> Result<(), RegisterMethodError> {
        let changes = about::changes(name);
        self.module
            .register_async_method(name, move |params, shared, extensions| {
                let prepare = Arc::clone(&prepare);
                async move {
                    let answer = match extensions.get::<Arc<Principal>>() {
                        Some(who) => {
                            let principal = Arc::clone(who);
                            let caller = Caller {
                                context: Arc::new(Context {
                                    shared: Arc::clone(&shared),
                                    principal,
                                }),
                                connection: extensions.get::<Arc<Connection>>().cloned(),
                            };
                            match prepare(caller, params.as_str()) {
                                Ok(call) if changes => {
                                    let registry = &shared.registry;
                                    registry.audited(who, name, call.object, call.work).await
                                }
                                Ok(call) => call.work.await,
                                Err(fault) => Err(fault),
                            }
                        }
                        None => Err(Fault::internal("a call came from nobody")),
                    };
                    answer.map_err(|fault| error_object(logged(name, fault, &shared.clock)))
                }
            })?;
        Ok(())
    }
}

fn work<R: Serialize>(answer: impl Future<Output = Result<R, Fault>> + Send + 'static) -> Work {
    Box::pin(async move { to_raw_value(&answer.await?).map_err(Fault::internal) })
}

/// The idempotency of a request: its key, and its other parameters in one canonical text,
/// without `meta`, which may differ between repeats.
pub(super) fn idempotency<P: Serialize>(
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
