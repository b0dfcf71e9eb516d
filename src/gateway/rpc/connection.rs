//! One connection of a client: its calls in flight, its subscriptions, and where its notifications go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::mpsc;

use crate::gateway::methods::events::needs_websocket;
use crate::gateway::rpc::subscriptions::Subscriptions;
use crate::kernel::fault::Fault;

/// State of one connection: its calls in flight and its subscriptions.
#[derive(Default)]
pub(crate) struct Connection {
    pub(super) calls: AtomicU32,
    pub(super) waits: AtomicU32,
    /// The peer is a program of a run, or of unknown origin.
    pub(super) is_program: AtomicBool,
    subscriptions: Option<Arc<Subscriptions>>,
    /// Texts of notifications that its task writes as soon as it can.
    notes: Option<mpsc::Sender<String>>,
}

impl Connection {
    /// Sets where the texts of notifications go.
    pub(crate) fn with_notes(self, notes: mpsc::Sender<String>) -> Self {
        Connection {
            notes: Some(notes),
            ..self
        }
    }

    /// Where the texts of notifications go; an error if the transport does not support any.
    pub(crate) fn notes(&self) -> Result<&mpsc::Sender<String>, Fault> {
        self.notes.as_ref().ok_or_else(needs_websocket)
    }

    /// A connection that supports subscriptions.
    pub(crate) fn with(subscriptions: Arc<Subscriptions>) -> Self {
        Connection {
            subscriptions: Some(subscriptions),
            ..Connection::default()
        }
    }

    /// Sets whether the requests of this connection count towards the limit of programs.
    pub(crate) fn set_is_program(&self, is_program: bool) {
        self.is_program.store(is_program, Ordering::Relaxed);
    }

    /// Its subscriptions; an error if the transport does not support any.
    pub(crate) fn subscriptions(&self) -> Result<&Arc<Subscriptions>, Fault> {
        self.subscriptions.as_ref().ok_or_else(needs_websocket)
    }
}
