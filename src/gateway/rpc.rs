//! Dispatch of JSON-RPC messages: from the text of a message to the text of its response, for both
//! HTTP and WebSocket.
//!
//! Messages are not parsed by jsonrpsee's own server because it treats an id such as -1 as a
//! notification and never answers it, answers invalid messages without `data.kind`, and holds a
//! whole batch before it counts its entries.

pub(crate) mod envelope;
pub(crate) mod subscriptions;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use futures_util::FutureExt;
use jsonrpsee::types::{ErrorObjectOwned, Id, Response, ResponsePayload};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::ClientLimits;
use super::methods::{JsonText, Methods, Registered, RpcCall};
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::control::{Control, Phase};
use crate::gateway::methods::events::needs_websocket;
use crate::gateway::rpc::envelope::{Entries, Envelope, OnlyId, broken};
use crate::gateway::rpc::subscriptions::Subscriptions;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::text;
use crate::registry::Principal;
use crate::telemetry::metrics::{self, metrics};
use crate::wire::error::WireError;
use crate::wire::method::{Dispatch, Requires};

/// `retryAfterMs` of a refused call.
const RETRY_AFTER_MS: u64 = 200;
/// `retryAfterMs` of a call refused because the disk is full.
const ROOM_AFTER_MS: u64 = 5000;

/// Answers messages of all connections.
pub(crate) struct Dispatcher {
    methods: Methods,
    control: Arc<dyn Control>,
    clock: Clock,
    limits: ClientLimits,
    bytes: Arc<AtomicUsize>,
    /// Bytes of requests of programs of runs, counted separately so that they do not reduce the
    /// owner's limit.
    bytes_of_programs: Arc<AtomicUsize>,
}

/// State of one connection: its calls in flight and its subscriptions.
#[derive(Default)]
pub(crate) struct Connection {
    calls: AtomicU32,
    waits: AtomicU32,
    /// The peer is a program of a run, or of unknown origin.
    is_program: AtomicBool,
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

/// Answer to one message.
pub(crate) enum RpcAnswer {
    /// No response, because the message is a notification.
    None,
    /// The response.
    Now(String),
    /// The pending response. Dropping the future abandons the call.
    Later(BoxFuture<'static, String>),
}

/// A slot among the calls or waits of a connection, released on drop.
struct CallSlot {
    connection: Arc<Connection>,
    waits: bool,
    _counted: Option<metrics::GaugeGuard>,
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        let count = match self.waits {
            true => &self.connection.waits,
            false => &self.connection.calls,
        };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Position of a request: alone or in a batch.
enum RequestPosition {
    /// A message of its own, holding its bytes.
    Alone(ReservedBytes),
    /// A batch, which holds the call slot and the bytes for all its entries.
    Batch,
}

/// Reserved bytes of requests in flight, released on drop.
pub(crate) struct ReservedBytes(Arc<AtomicUsize>, usize);

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Dispatcher {
    pub(crate) fn new(
        methods: Methods,
        control: Arc<dyn Control>,
        clock: Clock,
        limits: ClientLimits,
    ) -> Self {
        Dispatcher {
            methods,
            control,
            clock,
            limits,
            bytes: Arc::default(),
            bytes_of_programs: Arc::default(),
        }
    }

    /// Limits for clients.
    pub(crate) fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    /// Current phase of the daemon.
    pub(crate) fn phase(&self) -> Phase {
        self.control.phase()
    }

    /// Reserves `bytes` of the limit for requests in flight; `busy` if it is exhausted.
    pub(crate) fn reserve_bytes(
        &self,
        connection: &Connection,
        bytes: usize,
    ) -> Result<ReservedBytes, Fault> {
        let (budget, most) = match connection.is_program.load(Ordering::Relaxed) {
            true => (&self.bytes_of_programs, self.limits.program_bytes),
            false => (&self.bytes, self.limits.request_bytes),
        };
        let before = budget.fetch_add(bytes, Ordering::Relaxed);
        let held = ReservedBytes(Arc::clone(budget), bytes);
        if before + bytes > most {
            return Err(busy("the limit for bytes of requests in flight is reached"));
        }
        Ok(held)
    }

    /// Starts to answer one message.
    pub(crate) fn answer(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Arc<Principal>,
        text: &str,
    ) -> RpcAnswer {
        let held = match self.reserve_bytes(connection, text.len()) {
            Ok(held) => held,
            Err(fault) => return RpcAnswer::Now(self.refusal(text, fault)),
        };
        if text.trim_start().starts_with('[') {
            self.batch(connection, who, text, held)
        } else {
            self.single(connection, who, text, RequestPosition::Alone(held))
        }
    }

    fn single(
        &self,
        connection: &Arc<Connection>,
        who: &Arc<Principal>,
        text: &str,
        place: RequestPosition,
    ) -> RpcAnswer {
        let message = match serde_json::from_str::<Envelope>(text) {
            Ok(message) if message.jsonrpc == "2.0" => message,
            Ok(_) => return RpcAnswer::Now(broken(text, "jsonrpc must be \"2.0\"")),
            Err(error) => return RpcAnswer::Now(broken(text, &error.to_string())),
        };
        // A notification cannot be refused or answered, and no method here makes sense without its
        // result, so it is not executed.
        let Some(raw) = message.id else {
            tracing::debug!(method = %text::prefix(&message.method, 80), "notification ignored");
            return RpcAnswer::None;
        };
        let Ok(id) = serde_json::from_str::<Id>(raw.get()) else {
            return RpcAnswer::Now(broken(
                text,
                "an id is a string, a whole number from 0 to 2^64-1, or null",
            ));
        };
        match self.call(connection, who, id.clone(), &message, place) {
            Ok(call) => RpcAnswer::Later(call),
            Err(fault) => RpcAnswer::Now(error_text(id, fault)),
        }
    }

    fn call(
        &self,
        connection: &Arc<Connection>,
        who: &Arc<Principal>,
        id: Id,
        message: &Envelope,
        place: RequestPosition,
    ) -> Result<BoxFuture<'static, String>, Fault> {
        let Some(method) = self.methods.find(&message.method) else {
            metrics().refused("unknown", Kind::UnknownMethod.as_str());
            return Err(self.unknown(&message.method));
        };
        let call = RpcCall {
            who: Arc::clone(who),
            connection: Arc::clone(connection),
            params: message.params.map(|params| params.get().into()),
        };
        let name = method.row.name;
        let began = self.begin(method, call, id, place);
        began.inspect_err(|fault| metrics().refused(name, fault.kind.as_str()))
    }

    /// Starts a call of an existing method.
    fn begin(
        &self,
        method: Registered,
        call: RpcCall,
        id: Id,
        place: RequestPosition,
    ) -> Result<BoxFuture<'static, String>, Fault> {
        let Registered { row, handler } = method;
        let name = row.name;
        self.check_phase(row.requires)?;
        let held = match place {
            RequestPosition::Alone(bytes) => {
                let waits = row.dispatch == Dispatch::Waits;
                Some((self.hold(&call.connection, waits)?, bytes))
            }
            RequestPosition::Batch => {
                let why = match row.dispatch {
                    Dispatch::Ordinary => None,
                    Dispatch::Waits => Some("a batch answers when all of its calls are done"),
                    Dispatch::Connection => Some("its events cannot be part of a response"),
                };
                if let Some(why) = why {
                    let message = format!("{name} is not allowed in a batch: {why}");
                    return Err(Fault::new(Kind::InvalidRequest, message)
                        .hint("send it as a message of its own"));
                }
                None
            }
        };
        let id = id.into_owned();
        let most = self.limits.reply;
        let clock = self.clock.clone();
        let began = clock.monotonic();
        Ok(Box::pin(async move {
            let answer = AssertUnwindSafe(async move {
                crate::failpoint::reach("gateway.handler");
                handler(call).await
            });
            let answer = match answer.catch_unwind().await {
                Ok(answer) => answer,
                // The panic hook has logged the location.
                Err(_) => Err(Fault::internal(format_args!(
                    "{name} failed because of a defect"
                ))),
            };
            let answer = answer.and_then(|result| {
                result_text(&id, &result, most).ok_or_else(|| reply_too_large(most))
            });
            let (kind, text) = match answer {
                Ok(text) => ("ok", text),
                Err(fault) => {
                    let kind = fault.kind.as_str();
                    (kind, error_text(id, logged(name, fault, &clock)))
                }
            };
            metrics().answered(name, kind, clock.monotonic() - began);
            drop(held);
            text
        }))
    }

    fn batch(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        who: &Arc<Principal>,
        text: &str,
        bytes: ReservedBytes,
    ) -> RpcAnswer {
        let most = self.limits.batch as usize;
        let Entries { list, count } = match serde_json::from_str(text) {
            Ok(entries) => entries,
            Err(error) => return RpcAnswer::Now(broken(text, &error.to_string())),
        };
        if count == 0 {
            let fault = Fault::new(Kind::InvalidRequest, "a batch needs at least one entry");
            return RpcAnswer::Now(error_text(Id::Null, fault));
        }
        if count > most {
            let fault = Fault::new(
                Kind::Limit,
                format!("a batch may have at most {most} entries; this one has {count}. No entry was executed"),
            )
            .hint("send several batches")
            .with("limit", "batch")
            .with("value", most);
            return RpcAnswer::Now(error_text(Id::Null, fault));
        }
        let held = match self.hold(connection, false) {
            Ok(held) => held,
            Err(fault) => return RpcAnswer::Now(error_text(Id::Null, fault)),
        };
        let list: Vec<Box<RawValue>> = list.into_iter().map(RawValue::to_owned).collect();
        let dispatcher = Arc::clone(self);
        let connection = Arc::clone(connection);
        let who = Arc::clone(who);
        RpcAnswer::Later(Box::pin(async move {
            let mut out = String::from("[");
            for entry in &list {
                let answer =
                    match dispatcher.single(&connection, &who, entry.get(), RequestPosition::Batch)
                    {
                        RpcAnswer::None => continue,
                        RpcAnswer::Now(text) => text,
                        RpcAnswer::Later(answer) => answer.await,
                    };
                if out.len() > 1 {
                    out.push(',');
                }
                // The call was executed; only its response does not fit.
                if out.len() + answer.len() > dispatcher.limits.reply {
                    let fault = reply_too_large(dispatcher.limits.reply);
                    out.push_str(&dispatcher.refusal(entry.get(), fault));
                } else {
                    out.push_str(&answer);
                }
            }
            drop((held, bytes));
            if out.len() == 1 {
                return String::new();
            }
            out.push(']');
            out
        }))
    }

    fn hold(&self, connection: &Arc<Connection>, waits: bool) -> Result<CallSlot, Fault> {
        let (count, most, what) = match waits {
            true => (&connection.waits, self.limits.waits, "waits"),
            false => (&connection.calls, self.limits.in_flight, "calls"),
        };
        let before = count.fetch_add(1, Ordering::Relaxed);
        let held = CallSlot {
            connection: Arc::clone(connection),
            waits,
            _counted: waits.then(|| metrics().wait()),
        };
        if before >= most {
            return Err(busy(&format!(
                "{most} {what} are in flight on this connection, which is the limit"
            )));
        }
        Ok(held)
    }

    fn check_phase(&self, requires: Requires) -> Result<(), Fault> {
        let says = match self.control.phase() {
            Phase::Full if requires >= Requires::Room => {
                return Err(Fault::new(
                    Kind::Unavailable,
                    "the disk with the state folder is full, and runs from before the start \
                     are not resumed yet; nothing was done",
                )
                .hint("free some space; the daemon continues automatically")
                .with("retryAfterMs", ROOM_AFTER_MS));
            }
            Phase::Starting { .. } if requires >= Requires::Start => {
                "the daemon is starting; nothing was done"
            }
            Phase::Draining if requires >= Requires::Intake => {
                "the daemon is draining and takes no new work; nothing was done"
            }
            _ => return Ok(()),
        };
        Err(Fault::new(Kind::Unavailable, says).with("retryAfterMs", RETRY_AFTER_MS))
    }

    fn unknown(&self, method: &str) -> Fault {
        let method = text::prefix(method, 80);
        let near = self
            .methods
            .names()
            .map(|name| (strsim::jaro_winkler(method, name), name))
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .filter(|(likeness, _)| *likeness > 0.8);
        let fault = Fault::new(
            Kind::UnknownMethod,
            format!("there is no method {method:?}"),
        );
        match near {
            Some((_, name)) => fault.hint(format!("did you mean {name}?")),
            None => fault,
        }
    }

    /// Error response to a message of which only the id is parsed.
    fn refusal(&self, text: &str, fault: Fault) -> String {
        let id = serde_json::from_str::<OnlyId>(text).ok();
        let id = id.and_then(|only| only.id.and_then(|id| serde_json::from_str(id.get()).ok()));
        error_text(id.unwrap_or(Id::Null), fault)
    }
}

fn busy(what: &str) -> Fault {
    Fault::new(Kind::Busy, format!("{what}; nothing was done")).with("retryAfterMs", RETRY_AFTER_MS)
}

fn reply_too_large(most: usize) -> Fault {
    Fault::new(
        Kind::TooLarge,
        format!("the response exceeds the limit of {most} bytes"),
    )
    .hint("ask for a smaller page")
    .with("limit", "reply")
    .with("value", most)
}

/// Logs a defect under a reference id and adds that id to the fault. Other faults are the client's
/// to handle and pass unchanged.
pub(crate) fn logged(method: &str, fault: Fault, clock: &Clock) -> Fault {
    if fault.kind != Kind::Internal {
        return fault;
    }
    let reference = clock.new_id().to_string();
    tracing::error!(method, %reference, %fault, "a call failed because of a defect");
    fault.with("reference", reference)
}

/// Converts a fault to jsonrpsee's error object.
pub(crate) fn error_object(fault: Fault) -> ErrorObjectOwned {
    let error = WireError::from(fault);
    ErrorObjectOwned::owned(error.code, error.message, Some(error.data))
}

/// Serializes a fault as a response.
pub(crate) fn error_text(id: Id, fault: Fault) -> String {
    let error = ResponsePayload::<()>::error(error_object(fault));
    json(&Response::new(error, id))
}

/// Serializes a result as a response; `None` if it exceeds `most` bytes.
fn result_text(id: &Id, result: &JsonText, most: usize) -> Option<String> {
    let id = json(id);
    let before = r#"{"jsonrpc":"2.0","id":"#;
    let parts = [before, &id, r#","result":"#, result.as_str(), "}"];
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    (bytes <= most).then(|| parts.concat())
}

/// Serializes a value of strings and numbers.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers have a JSON form")
}
