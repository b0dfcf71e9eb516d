//! `/v1`: the OpenAI-compatible API over HTTP. The caller is admitted as for every route; errors
//! have the form that its clients read.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Either, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use tokio_util::sync::CancellationToken;

use crate::doors::openai::{
    OpenAi, OpenAiAnswer, OpenAiError, OpenAiReply, OpenAiRun, RequestHead, SseEvent,
};
use crate::gateway::access::connection_limits::Seat;
use crate::gateway::access::peer::Peer;
use crate::gateway::http::{HttpGateway, HttpResponse, admit_to_api, json};
use crate::gateway::rpc::Connection;
use crate::kernel::fault::Fault;

/// Interval of comments that keep a stream alive.
const COMMENT: Duration = Duration::from_secs(15);
/// Header with the key of the session that a request continues, or that an answer is from.
const SESSION: HeaderName = HeaderName::from_static("x-abide-session");
/// Header with the id of the run of an answer.
const RUN: HeaderName = HeaderName::from_static("x-abide-run");
/// Header by which the official clients learn not to repeat a request.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Answers one request below `/v1`.
pub(super) async fn answer(
    door: &HttpGateway,
    connection: Arc<Connection>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> HttpResponse {
    let answered = routed(door, connection, peer, seat, request).await;
    answered.unwrap_or_else(|error| refused(&error))
}

async fn routed(
    door: &HttpGateway,
    connection: Arc<Connection>,
    peer: &Peer,
    seat: &Seat,
    request: Request<Incoming>,
) -> Result<HttpResponse, OpenAiError> {
    let (api, head, body) = admit_to_api(door, connection, peer, seat, request).await?;
    let options = *door.parts.openai.borrow();
    let clock = api.clock().clone();
    let openai = OpenAi::new(api, clock, options, door.shutdown.clone());
    let path = head.uri.path().trim_start_matches("/v1/");
    // Clients send the / in the name of a model as %2F.
    let path = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let query = head.uri.query().unwrap_or_default();
    let wants_stream = form_urlencoded::parse(query.as_bytes())
        .any(|(name, value)| name == "stream" && value == "true");
    let answer = match (&head.method, &parts[..]) {
        (&Method::GET, ["models"]) => OpenAiAnswer::Whole(openai.models().await?),
        (&Method::GET, ["models", name @ ..]) => {
            OpenAiAnswer::Whole(openai.model(&name.join("/")).await?)
        }
        (&Method::POST, ["chat", "completions"]) => {
            openai.chat(body, request_head(&head.headers)).await?
        }
        (&Method::POST, ["responses"]) => openai.respond(body, request_head(&head.headers)).await?,
        (&Method::GET, ["responses", id]) if wants_stream => openai.response_again(id).await?,
        (&Method::GET, ["responses", id]) => OpenAiAnswer::Whole(openai.response(id).await?),
        (&Method::POST, ["responses", id, "cancel"]) => {
            OpenAiAnswer::Whole(openai.cancel_response(id).await?)
        }
        (method, _) => {
            let path = crate::kernel::text::prefix(head.uri.path(), 80);
            let fault = Fault::not_found("route", format!("{method} {path}"));
            return Err(fault.hint("the routes are listed in docs/openai.md").into());
        }
    };
    Ok(match answer {
        OpenAiAnswer::Whole(OpenAiReply { body, run }) => {
            with_run(json(StatusCode::OK, body.to_string()), run.as_ref())
        }
        OpenAiAnswer::Stream(run, events) => {
            let response = stream_response(events, door.shutdown.clone());
            with_run(response, Some(&run))
        }
    })
}

/// What the head of a request says about its answer.
fn request_head(headers: &HeaderMap) -> RequestHead {
    let text = |name: HeaderName| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.filter(|value| !value.is_empty()).map(str::to_owned)
    };
    RequestHead {
        session: text(SESSION),
        idempotency_key: text(IDEMPOTENCY_KEY),
    }
}

fn with_run(mut response: HttpResponse, run: Option<&OpenAiRun>) -> HttpResponse {
    let Some(run) = run else {
        return response;
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (RUN, run.run_id.to_string()),
        (SESSION, run.session_key.to_string()),
    ] {
        // Ids and keys have no characters that a header cannot have.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    response
}

/// The response of an error.
fn refused(error: &OpenAiError) -> HttpResponse {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, error.body().to_string());
    let headers = response.headers_mut();
    let should_retry = if error.retryable { "true" } else { "false" };
    headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
    if error.retryable {
        let seconds = error.retry_after_ms.unwrap_or(1000).div_ceil(1000);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if status == StatusCode::UNAUTHORIZED {
        let scheme = HeaderValue::from_static("Bearer");
        headers.insert(http::header::WWW_AUTHENTICATE, scheme);
    }
    response
}

/// Server-sent events, with comments while there are none, until their end or that of the daemon.
fn stream_response(
    events: BoxStream<'static, SseEvent>,
    shutdown: CancellationToken,
) -> HttpResponse {
    let mut comment = tokio::time::interval(COMMENT);
    comment.reset();
    comment.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let state = (events, comment, shutdown);
    let chunks = stream::unfold(state, async |(mut events, mut comment, shutdown)| {
        let chunk = tokio::select! {
            biased;
            event = events.next() => written(&event?),
            () = shutdown.cancelled() => return None,
            _ = comment.tick() => ": keep-alive\n\n".to_owned(),
        };
        let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(chunk)));
        Some((frame, (events, comment, shutdown)))
    });
    let mut response = Response::new(Either::Right(StreamBody::new(chunks).boxed_unsync()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn written(event: &SseEvent) -> String {
    match &event.name {
        Some(name) => format!("event: {name}\ndata: {}\n\n", event.data),
        None => format!("data: {}\n\n", event.data),
    }
}
