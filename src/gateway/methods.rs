//! The table of method handlers by name. `method` fills it; the dispatcher looks methods up in it.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod convert;
pub(crate) mod entries;
pub(crate) mod events;
pub(crate) mod lifecycle;
pub(crate) mod maintenance;
pub(crate) mod memory;
pub(crate) mod method;
pub(crate) mod nodes;
pub(crate) mod ops;
pub(crate) mod page;
pub(crate) mod questions;
pub(crate) mod runs;
pub(crate) mod servers;
pub(crate) mod sessions;
pub(crate) mod skills;
pub(crate) mod status;
pub(crate) mod tokens;
pub(crate) mod trust;
pub(crate) mod usage;
pub(crate) mod webhooks;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::rpc::Connection;
use crate::contract::BoxFuture;
use crate::kernel::fault::Fault;
use crate::registry::Principal;
use crate::wire::method::MethodRow;

/// A call with undecoded parameters.
pub(crate) struct RpcCall {
    /// Principal that makes the call.
    pub(crate) who: Arc<Principal>,
    /// Connection the call arrived on.
    pub(crate) connection: Arc<Connection>,
    /// Raw JSON of the parameters; `None` if absent.
    pub(crate) params: Option<Box<str>>,
}

/// JSON text of the result, or the fault.
pub(crate) type MethodResult = Result<JsonText, Fault>;

/// Serialized JSON.
pub(crate) struct JsonText(String);

impl JsonText {
    /// Serializes `value`.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, Fault> {
        serde_json::to_string(value)
            .map(JsonText)
            .map_err(Fault::internal)
    }

    /// Takes `text`, which is JSON.
    pub(crate) fn json(text: &str) -> Self {
        JsonText(text.to_owned())
    }

    /// The JSON text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// A method result that can be serialized.
pub(super) trait MethodReply {
    /// Wire type that the JSON represents.
    type Shape;

    /// Serializes the result.
    fn into_text(self) -> MethodResult;
}

impl<T: Serialize> MethodReply for T {
    type Shape = T;

    fn into_text(self) -> MethodResult {
        JsonText::of(&self)
    }
}

/// Answers calls of one method. The result is serialized once and sent unchanged.
type Handler = dyn Fn(RpcCall) -> BoxFuture<'static, MethodResult> + Send + Sync;

/// A method that can be called.
#[derive(Clone)]
pub(crate) struct Registered {
    /// Its row in the method table.
    pub(crate) row: &'static MethodRow,
    /// Answers its calls.
    pub(crate) handler: Arc<Handler>,
}

/// Table of all methods.
///
/// jsonrpsee's own table is not used because of its cost: it copies each response into another
/// buffer and parses it to check that it is JSON, which takes a seventh of the time of a long page.
/// That table also serializes errors; their kind would have to be parsed out of the text again.
#[derive(Default)]
pub(crate) struct Methods(BTreeMap<&'static str, Registered>);

impl Methods {
    /// Adds a method. A duplicate name is a defect and panics at startup.
    pub(crate) fn add(
        &mut self,
        row: &'static MethodRow,
        handler: impl Fn(RpcCall) -> BoxFuture<'static, MethodResult> + Send + Sync + 'static,
    ) {
        let handler = Arc::new(handler);
        let before = self.0.insert(row.name, Registered { row, handler });
        assert!(before.is_none(), "{} is registered twice", row.name);
    }

    /// Looks up a method.
    pub(super) fn find(&self, name: &str) -> Option<Registered> {
        self.0.get(name).cloned()
    }

    /// All names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
