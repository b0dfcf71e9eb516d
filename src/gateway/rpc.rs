//! Dispatch of JSON-RPC messages: from the text of a message to the text of its response, for both
//! HTTP and WebSocket.
//!
//! Messages are not parsed by jsonrpsee's own server because it treats an id such as -1 as a
//! notification and never answers it, answers invalid messages without `data.kind`, and holds a
//! whole batch before it counts its entries.

mod connection;
pub(crate) mod envelope;
mod reply;
pub(crate) mod subscriptions;

pub(crate) use self::connection::Connection;
use self::reply::{RETRY_AFTER_MS, busy, reply_too_large, result_text};
pub(crate) use self::reply::{error_text, logged};

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use jsonrpsee::types::Id;
use serde_json::value::RawValue;

use super::ClientLimits;
use super::methods::{Methods, Registered, RpcCall};
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::control::{Control, Phase};
use crate::gateway::rpc::envelope::{Entries, Envelope, OnlyId, broken};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::text;
use crate::registry::Principal;
use crate::telemetry::metrics::{self, metrics};
use crate::wire::method::{Dispatch, Requires};

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

    /// Source of time and ids.
    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
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
