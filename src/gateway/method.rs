//! How a method is put into the table: a name, a request type, and a function from one to an
//! answer.

use std::error::Error;
use std::sync::Arc;

use jsonrpsee::core::RegisterMethodError;
use jsonrpsee::types::ErrorObjectOwned;
use jsonrpsee::{Methods, RpcModule};
use schemars::JsonSchema;
use serde::Serialize;

use super::discover::{self, Described};
use super::rpc::{Connection, error_object, logged};
use super::{
    Context, Shared, about, agents, care, events, lifecycle, ops, questions, runs, sessions,
    status, trust,
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
    let document = discover::document(&table.described, &shared.url, status::VERSION)?;
    shared.document.get_or_init(|| document);
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

impl Table {
    /// Adds the method `name`: its parameters are read as `P`, its faults become errors.
    pub(super) fn method<P, R, F, Fut>(
        &mut self,
        name: &'static str,
        handler: F,
    ) -> Result<(), RegisterMethodError>
    where
        P: Params + Send + 'static,
        R: Serialize + JsonSchema + Clone + Send + 'static,
        F: Fn(Arc<Context>, P) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send,
    {
        let changes = about::changes(name);
        self.described.push(Described::new::<P, R>(name));
        self.module
            .register_async_method(name, move |params, shared, extensions| async move {
                let params: P = decode(params.as_str()).map_err(error_object)?;
                let answer = match extensions.get::<Arc<Principal>>() {
                    Some(who) => {
                        let shared = Arc::clone(&shared);
                        let principal = Arc::clone(who);
                        let registry = shared.registry.clone();
                        let object = changes.then(|| params.object()).flatten();
                        let who = Arc::clone(&principal);
                        let call = handler(Arc::new(Context { shared, principal }), params);
                        match changes {
                            true => registry.audited(&who, name, object, call).await,
                            false => call.await,
                        }
                    }
                    None => Err(Fault::internal("a call came from nobody")),
                };
                let clock = &shared.clock;
                let answer = answer.map_err(|fault| error_object(logged(name, fault, clock)))?;
                Ok::<R, ErrorObjectOwned>(answer)
            })?;
        Ok(())
    }
}

impl Table {
    /// As [`Table::method`], for methods that belong to the connection that calls them.
    pub(super) fn connected<P, R, F, Fut>(
        &mut self,
        name: &'static str,
        handler: F,
    ) -> Result<(), RegisterMethodError>
    where
        P: Params + Send + 'static,
        R: Serialize + JsonSchema + Clone + Send + 'static,
        F: Fn(Arc<Context>, Arc<Connection>, P) -> Fut + Copy + Send + Sync + 'static,
        Fut: Future<Output = Result<R, Fault>> + Send,
    {
        self.described.push(Described::new::<P, R>(name));
        self.module
            .register_async_method(name, move |params, shared, extensions| async move {
                let params: P = decode(params.as_str()).map_err(error_object)?;
                let who = extensions.get::<Arc<Principal>>();
                let answer = match who.zip(extensions.get::<Arc<Connection>>()) {
                    Some((who, connection)) => {
                        let shared = Arc::clone(&shared);
                        let principal = Arc::clone(who);
                        let context = Arc::new(Context { shared, principal });
                        handler(context, Arc::clone(connection), params).await
                    }
                    None => Err(Fault::internal("a call came from no connection")),
                };
                let clock = &shared.clock;
                let answer = answer.map_err(|fault| error_object(logged(name, fault, clock)))?;
                Ok::<R, ErrorObjectOwned>(answer)
            })?;
        Ok(())
    }
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
