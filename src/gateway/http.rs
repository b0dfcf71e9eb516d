//! The HTTP routes: public health and readiness; authenticated calls, events, metrics and WebSocket
//! upgrades.

mod body;
pub(crate) mod first_bytes;
pub(crate) mod hooks;
pub(crate) mod mcp;
pub(crate) mod metrics;
pub(crate) mod openai;
pub(crate) mod socket;
pub(crate) mod sse;
pub(crate) mod write_timeout;

use std::convert::Infallible;
use std::sync::Arc;

use http::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use jsonrpsee::types::Id;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::rpc::{Connection, Dispatcher, RpcAnswer, error_text};
use crate::contract::control::Phase;
use crate::gateway::HttpParts;
use crate::gateway::access::connection_limits::Seat;
use crate::gateway::access::peer::{Peer, PeerGate};
use crate::gateway::access::rights;
use crate::gateway::http::body::take_body;
use crate::gateway::http::sse::SseOutcome;
use crate::gateway::local_api::LocalApi;
use crate::gateway::methods::status::phase_name;
use crate::gateway::nodes::{self, NodeRoute};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::scope::Scope;
use crate::registry::Principal;
use crate::wire::gateway::{Readiness, Restoring};
use crate::wire::method::Concerns;

/// State shared by all requests.
pub(crate) struct HttpGateway {
    pub(crate) gate: PeerGate,
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(super) parts: HttpParts,
    pub(crate) shutdown: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

pub(crate) type HttpResponse = Response<Either<Full<Bytes>, UnsyncBoxBody<Bytes, Infallible>>>;

/// Answers one request of a connection.
pub(crate) async fn handle(
    door: Arc<HttpGateway>,
    connection: Arc<Connection>,
    peer: Peer,
    seat: Arc<Seat>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Infallible> {
    let peer = door.gate.client(peer, request.headers());
    let route = (request.method(), request.uri().path());
    let answered = match route {
        (&Method::GET | &Method::HEAD, "/health") => json(StatusCode::OK, "{\"state\":\"live\"}"),
        (&Method::GET | &Method::HEAD, "/ready") => ready(door.dispatcher.phase()),
        (_, "/health" | "/ready") => wrong_method("GET"),
        (&Method::GET | &Method::HEAD, "/metrics") => {
            match metrics_route(&door, &peer, &seat, &request).await {
                Ok(answered) => answered,
                Err(fault) => refused(fault),
            }
        }
        (_, "/metrics") => wrong_method("GET"),
        (_, "/") => match rpc_route(&door, connection, peer, &seat, request).await {
            Ok(answered) => answered,
            Err(fault) => refused(fault),
        },
        (&Method::GET, "/events") => match events(&door, &peer, &seat, request).await {
            Ok(answered) => answered,
            Err(fault) => refused(fault),
        },
        (_, "/events") => wrong_method("GET"),
        (_, "/mcp") => match mcp_route(&door, connection, &peer, &seat, request).await {
            Ok(answered) => answered,
            Err(fault) => refused(fault),
        },
        (_, path) if path.starts_with("/v1/") => {
            openai::answer(&door, connection, &peer, &seat, request).await
        }
        (_, path) if path.starts_with(hooks::PATH) => {
            hooks::answer(&door, connection, &peer, &seat, request).await
        }
        (&Method::GET, "/pair") => node_route(&door, NodeRoute::Pair, &peer, &seat, request),
        (&Method::GET, "/node") => node_route(&door, NodeRoute::Link, &peer, &seat, request),
        (_, "/pair" | "/node") => wrong_method("GET"),
        (_, path) => {
            let path = crate::kernel::text::prefix(path, 80);
            let fault = Fault::not_found("route", path);
            refused(fault.hint(
                "the routes are /, /events, /health, /hooks/, /mcp, /ready, /metrics, /pair, /node and \
                 /v1/",
            ))
        }
    };
    seat.mark_answered();
    Ok(answered)
}

fn node_route(
    door: &Arc<HttpGateway>,
    route: NodeRoute,
    peer: &Peer,
    seat: &Arc<Seat>,
    request: Request<Incoming>,
) -> HttpResponse {
    nodes::route(door, route, peer, seat, request).unwrap_or_else(refused)
}

/// Authenticates a request and returns its principal; the connection then holds a seat of that
/// principal's kind.
fn admit(
    door: &HttpGateway,
    peer: &Peer,
    seat: &Seat,
    headers: &HeaderMap,
) -> Result<Arc<Principal>, Fault> {
    let who = door.gate.admit(peer, headers)?;
    seat.assign_to(&who, peer)?;
    Ok(who)
}

/// `GET /metrics`, for principals other than runs.
async fn metrics_route(
    door: &HttpGateway,
    peer: &Peer,
    seat: &Seat,
    request: &Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    let who = admit(door, peer, seat, request.headers())?;
    if let Some(run) = who.run {
        return Err(rights::refusal(run, "/metrics"));
    }
    rights::check_client(&who, "/metrics", Some(Scope::Read), Concerns::Daemon)?;
    let text = (door.parts.metrics)().await?;
    let mut answered = json(StatusCode::OK, text);
    let kind = HeaderValue::from_static(crate::telemetry::metrics::CONTENT_TYPE);
    answered.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(answered)
}

async fn rpc_route(
    door: &Arc<HttpGateway>,
    connection: Arc<Connection>,
    peer: Peer,
    seat: &Arc<Seat>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    let who = admit(door, &peer, seat, request.headers())?;
    match *request.method() {
        Method::POST => {
            connection.set_is_program(seat.is_of_program());
            call(door, connection, &who, request).await
        }
        Method::GET if wants_websocket(request.headers()) => {
            upgrade(door, who, Arc::clone(seat), request)
        }
        _ => Ok(wrong_method("POST")),
    }
}

/// `/mcp`: the MCP server over HTTP.
async fn mcp_route(
    door: &HttpGateway,
    connection: Arc<Connection>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    let (api, head, body) = admit_to_api(door, connection, peer, seat, request).await?;
    let request = Request::from_parts(head, Full::new(body));
    Ok(mcp::answer(api, door.shutdown.clone(), request).await)
}

/// Admits a request of another protocol: the API with the caller's rights, and the request with its
/// whole body, which only a POST has.
async fn admit_to_api(
    door: &HttpGateway,
    connection: Arc<Connection>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> Result<(LocalApi, http::request::Parts, Bytes), Fault> {
    let who = admit(door, peer, seat, request.headers())?;
    connection.set_is_program(seat.is_of_program());
    let (head, body) = request.into_parts();
    let body = match head.method {
        Method::POST => take_body(door, &connection, &head.headers, body, usize::MAX).await?,
        _ => Vec::new(),
    };
    let api = LocalApi::new(Arc::clone(&door.dispatcher), connection, who);
    Ok((api, head, Bytes::from(body)))
}

/// `GET /events`: events as server-sent events.
async fn events(
    door: &Arc<HttpGateway>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    let who = admit(door, peer, seat, request.headers())?;
    let query = request.uri().query().unwrap_or_default();
    let headers = request.headers();
    match sse::open(&door.dispatcher, &who, &door.shutdown, query, headers).await? {
        SseOutcome::Stream(stream) => Ok(stream.map(Either::Right)),
        SseOutcome::Refused(code, text) => {
            let status = u16::try_from(code).ok();
            let status = status.and_then(|code| StatusCode::from_u16(code).ok());
            Ok(json(status.unwrap_or(StatusCode::BAD_REQUEST), text))
        }
    }
}

/// Answers one JSON-RPC message sent by HTTP POST.
async fn call(
    door: &HttpGateway,
    connection: Arc<Connection>,
    who: &Arc<Principal>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    if !is_json(request.headers()) {
        return Ok(error(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Fault::new(
                Kind::InvalidRequest,
                "the Content-Type must be application/json",
            ),
        ));
    }
    let (head, body) = request.into_parts();
    let bytes = take_body(door, &connection, &head.headers, body, usize::MAX).await?;
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            let fault = Fault::new(Kind::ParseError, format!("the body is not UTF-8: {error}"));
            return Ok(json(StatusCode::OK, error_text(Id::Null, fault)));
        }
    };
    let text = match door.dispatcher.answer(&connection, who, text) {
        RpcAnswer::None => String::new(),
        RpcAnswer::Now(text) => text,
        RpcAnswer::Later(answer) => answer.await,
    };
    Ok(json(StatusCode::OK, text))
}

/// Upgrades the request to a WebSocket, which is served in its own task.
fn upgrade(
    door: &Arc<HttpGateway>,
    who: Arc<Principal>,
    seat: Arc<Seat>,
    request: Request<Incoming>,
) -> Result<HttpResponse, Fault> {
    let (answered, upgraded) = switch_to_websocket(request)?;
    let dispatcher = Arc::clone(&door.dispatcher);
    let shutdown = door.shutdown.clone();
    let is_program = seat.is_of_program();
    door.tasks.spawn(async move {
        match upgraded.await {
            Ok(io) => {
                socket::serve(TokioIo::new(io), dispatcher, who, is_program, shutdown).await;
            }
            Err(error) => tracing::debug!(%error, "a WebSocket upgrade failed"),
        }
        drop(seat);
    });
    Ok(answered)
}

/// The answer that switches to WebSocket, and the connection after it.
pub(crate) fn switch_to_websocket(
    mut request: Request<Incoming>,
) -> Result<(HttpResponse, OnUpgrade), Fault> {
    let headers = request.headers();
    let is_upgrade = wants_websocket(headers)
        && headers
            .get(SEC_WEBSOCKET_VERSION)
            .is_some_and(|version| version == "13");
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_upgrade) else {
        return Err(Fault::new(
            Kind::InvalidRequest,
            "a WebSocket upgrade needs Sec-WebSocket-Key, and Sec-WebSocket-Version 13",
        ));
    };
    let accept = derive_accept_key(key.as_bytes());
    let upgraded = hyper::upgrade::on(&mut request);
    let mut answered = Response::new(Either::Left(Full::default()));
    *answered.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answered.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::try_from(accept).map_err(Fault::internal)?;
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok((answered, upgraded))
}

fn wants_websocket(headers: &HeaderMap) -> bool {
    let names = |header, token: &str| {
        headers.get_all(header).iter().any(|value| {
            let value = value.to_str().unwrap_or_default();
            value
                .split(',')
                .any(|part| part.trim().eq_ignore_ascii_case(token))
        })
    };
    names(UPGRADE, "websocket") && names(CONNECTION, "upgrade")
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let kind = value.and_then(|value| value.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn ready(phase: Phase) -> HttpResponse {
    let (status, restoring) = match phase {
        Phase::Ready | Phase::Full => (StatusCode::OK, Restoring::default()),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, Restoring::default()),
        Phase::Starting { done, total } => {
            (StatusCode::SERVICE_UNAVAILABLE, Restoring { done, total })
        }
    };
    let body = Readiness {
        state: phase_name(phase).to_owned(),
        restoring,
    };
    match serde_json::to_string(&body) {
        Ok(body) => json(status, body),
        Err(error) => refused(Fault::internal(error)),
    }
}

fn wrong_method(allowed: &'static str) -> HttpResponse {
    let fault = Fault::new(
        Kind::InvalidRequest,
        format!("this route accepts {allowed}; / also accepts a WebSocket upgrade"),
    );
    let mut answered = error(StatusCode::METHOD_NOT_ALLOWED, fault);
    let headers = answered.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allowed));
    answered
}

/// Error response before the message was parsed, with the HTTP status of the error kind.
pub(crate) fn refused(fault: Fault) -> HttpResponse {
    let status = match fault.kind {
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Kind::Busy | Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Kind::CursorExpired | Kind::CursorUnknown => StatusCode::GONE,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_REQUEST,
    };
    error(status, fault)
}

/// Answer to a request without TLS at a port that speaks it.
pub(crate) fn needs_tls() -> HttpResponse {
    let fault = Fault::new(
        Kind::InvalidRequest,
        "this port speaks TLS, and the request was sent without; nothing was done",
    )
    .hint("begin the URL with https:// or wss://");
    let mut answered = error(StatusCode::UPGRADE_REQUIRED, fault);
    let protocol = HeaderValue::from_static("TLS/1.2");
    answered.headers_mut().insert(UPGRADE, protocol);
    answered
}

fn error(status: StatusCode, fault: Fault) -> HttpResponse {
    let wait = fault.data.get("retryAfterMs").and_then(|ms| ms.as_u64());
    let mut answered = json(status, error_text(Id::Null, fault));
    let headers = answered.headers_mut();
    if let Some(ms) = wait {
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
    }
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        headers.insert(http::header::WWW_AUTHENTICATE, scheme);
    }
    answered
}

fn json(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    let mut answered = Response::new(Either::Left(Full::new(body.into())));
    *answered.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    answered.headers_mut().insert(CONTENT_TYPE, kind);
    answered
}
