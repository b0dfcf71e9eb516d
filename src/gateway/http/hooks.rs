//! `/hooks/NAME`: deliveries of other services. They carry no token: the hook's own check proves
//! that a sender has its secret, over the whole body, so the body is read before.

use std::sync::Arc;

use http::header::{ORIGIN, RETRY_AFTER};
use http::{HeaderValue, Method, Request, StatusCode};
use hyper::body::Incoming;

use crate::doors::hooks::{Delivered, Delivery, Hook, HookError};
use crate::gateway::access::connection_limits::Seat;
use crate::gateway::access::peer::Peer;
use crate::gateway::http::body::take_body;
use crate::gateway::http::{HttpGateway, HttpResponse, json, wrong_method};
use crate::gateway::local_api::LocalApi;
use crate::gateway::rpc::Connection;
use crate::kernel::fault::{Fault, Kind};
use crate::registry::{Principal, Registry};

/// Below this path are the hooks, by name.
pub(super) const PATH: &str = "/hooks/";
/// What the audit log calls a delivery that has failed its check.
const AUDITED: &str = "hooks.deliver";

/// Records a refused delivery in the audit log.
pub(crate) type AuditRefusal = Box<dyn Fn(&Principal, &Fault) + Send + Sync>;

/// The audit log of the registry.
pub(crate) fn audit_of(registry: Registry) -> AuditRefusal {
    Box::new(move |who, fault| registry.audit_refusal(who, AUDITED, fault))
}

/// Answers one request below `/hooks/`.
pub(super) async fn answer(
    door: &HttpGateway,
    connection: Arc<Connection>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> HttpResponse {
    if request.method() != Method::POST {
        return wrong_method("POST");
    }
    let answered = deliver(door, connection, peer, seat, request).await;
    answered.unwrap_or_else(|error| refused(&error))
}

async fn deliver(
    door: &HttpGateway,
    connection: Arc<Connection>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> Result<HttpResponse, HookError> {
    let Peer::Tcp(ends) = peer else {
        let fault = Fault::not_found("route", PATH);
        return Err(not_found(fault.hint("hooks are served at the TCP address")));
    };
    let refused_names = |fault| HookError::of(403, fault);
    let names = door.gate.check_names(peer, request.headers());
    names.map_err(refused_names)?;
    if request.headers().contains_key(ORIGIN) {
        // No web page has the secret, and the only senders are servers.
        let message = "a web page may not send to a hook; nothing was started";
        return Err(refused_names(Fault::new(Kind::Forbidden, message)));
    }
    let path = request.uri().path();
    let name = path.strip_prefix(PATH).unwrap_or_default();
    let table = door.parts.hooks.borrow().get(name).cloned();
    let Some(table) = table else {
        let name = crate::kernel::text::prefix(name, 80);
        let fault = Fault::not_found("hook", name).hint("each is a table [hooks.NAME]");
        return Err(not_found(door.gate.refuse(peer, fault)));
    };
    let hook = Hook {
        name: name.to_owned(),
        table,
    };
    let who = Principal {
        address: Some(ends.peer),
        ..Principal::of_hook(&hook.name)
    };
    hook.check_form(request.headers())?;
    let (head, body) = request.into_parts();
    let most = usize::try_from(hook.table.max_body).unwrap_or(usize::MAX);
    let body = take_body(door, &connection, &head.headers, body, most).await?;
    let delivery = Delivery {
        headers: &head.headers,
        body: &body,
    };
    let secret = hook.table.read_secret();
    let secret = secret
        .map_err(|why| HookError::misconfigured(&format!("hooks.{}.secret: {why}", hook.name)))?;
    if !hook.is_genuine(&secret, &delivery, door.dispatcher.clock().now()) {
        let fault = door.gate.refuse(peer, not_genuine());
        (door.parts.refused_delivery)(&who, &fault);
        return Err(fault.into());
    }
    seat.assign_to(&who, peer)?;
    let api = LocalApi::new(Arc::clone(&door.dispatcher), connection, Arc::new(who));
    let delivered = hook.start(&api, &delivery).await.inspect_err(|error| {
        let (status, why) = (error.status, error.message());
        tracing::warn!(
            hook = hook.name,
            status,
            why,
            "a genuine delivery was refused"
        );
    })?;
    let status = match delivered {
        Delivered::Run { .. } => StatusCode::ACCEPTED,
        Delivered::Ping { .. } => StatusCode::OK,
    };
    let text = serde_json::to_string(&delivered).map_err(Fault::internal)?;
    Ok(json(status, text))
}

/// A delivery without the right proof. It says nothing about what is wrong.
fn not_genuine() -> Fault {
    Fault::new(
        Kind::Unauthorized,
        "this delivery does not prove that its sender has the secret; nothing was started",
    )
    .hint("compare the secret and the check of the hook with those of the sender")
}

/// The refusal of a path without a hook: unlike a missing agent it is no fault of the settings.
fn not_found(fault: Fault) -> HookError {
    match fault.kind {
        Kind::NotFound => HookError::of(404, fault),
        _ => fault.into(),
    }
}

fn refused(error: &HookError) -> HttpResponse {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, error.body().to_string());
    if let Some(seconds) = error.retry_after() {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
