//! The table of methods: by its name, what answers a call. The dispatcher looks methods up in
//! it; `method` fills it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::rpc::Connection;
use crate::contract::BoxFuture;
use crate::kernel::fault::Fault;
use crate::registry::Principal;

/// A call as its message gives it.
pub(crate) struct Call {
    /// On whose behalf it is made.
    pub(crate) who: Arc<Principal>,
    /// The connection that it came by.
    pub(crate) connection: Arc<Connection>,
    /// The text of its parameters, if it has some.
    pub(crate) params: Option<Box<str>>,
}

/// The answer's text, or why there is none.
pub(crate) type Answered = Result<Text, Fault>;

/// JSON as it is sent.
pub(crate) struct Text(String);

impl Text {
    /// What `value` is in JSON.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, Fault> {
        serde_json::to_string(value)
            .map(Text)
            .map_err(Fault::internal)
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a method answers with.
pub(super) trait Reply {
    /// The shape that its text has.
    type Shape;

    /// Its text.
    fn into_text(self) -> Answered;
}

impl<T: Serialize> Reply for T {
    type Shape = T;

    fn into_text(self) -> Answered {
        Text::of(&self)
    }
}

/// Answers calls of one method. What a future gives was written once, and is sent as it is.
pub(super) type Handler = dyn Fn(Call) -> BoxFuture<'static, Answered> + Send + Sync;

/// Every method that can be called.
///
/// jsonrpsee's own table would serve as well, but for its cost: it copies each answer into
/// another buffer and then parses it to see that it is JSON, which a long page pays for with
/// every seventh part of its time; and an error that it has put into words must be parsed again
/// to know its kind.
#[derive(Default)]
pub(crate) struct Methods(BTreeMap<&'static str, Arc<Handler>>);

impl Methods {
    /// Adds a method. Two of one name are a defect that every start would show.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        handler: impl Fn(Call) -> BoxFuture<'static, Answered> + Send + Sync + 'static,
    ) {
        let before = self.0.insert(name, Arc::new(handler));
        assert!(before.is_none(), "{name} is registered twice");
    }

    /// The method called `name`, with that name for as long as there are methods.
    pub(super) fn find(&self, name: &str) -> Option<(&'static str, Arc<Handler>)> {
        let (name, handler) = self.0.get_key_value(name)?;
        Some((name, Arc::clone(handler)))
    }

    /// Every name, in order.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.keys().copied()
    }
}
