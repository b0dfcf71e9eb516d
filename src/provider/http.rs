//! One attempt of a model call over HTTP: sends the request once and reads the answer piece by
//! piece under the stall and total timeouts. Called by `remote`, which decides about retries.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use http::{HeaderMap, header};
use hyper::body::Bytes;
use reqwest::{Client, Response, Url, redirect};
use serde_json::Value;
use sse_stream::SseStream;

use super::answer::{AnswerContext, AnswerPiece, AnswerReader, StreamProgress};
use super::failure::{AttemptFailure, Remedy};
use super::health::Permit;
use super::{ModelAnswer, bounds};
use crate::clock::Clock;
use crate::contract::runner::TextSink;
use crate::kernel::text::{in_quotes, preview};
use crate::outbound;

/// Maximum bytes of a streamed answer on the wire: each token has some hundred bytes around it.
const ANSWER_LIMIT: usize = 64 << 20;
/// Maximum bytes of one line of it; an answer that is not streamed is mostly a single line.
const LINE_LIMIT: usize = 4 << 20;
/// Maximum bytes read of an error response.
const REFUSAL_LIMIT: usize = 64 << 10;
/// Of a success that is not an answer: bytes read, and characters of them shown in the error.
const NON_ANSWER_BYTES: usize = 4 << 10;
const NON_ANSWER_SHOWN: usize = 200;
/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Beginning of the failure message when no connection could be made.
pub(super) const NO_CONNECTION: &str = "no connection";
/// How long to wait, after the end of an answer, for events that may follow: its token usage.
const TRAILING_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);

/// Builds an HTTP client for one provider. It follows no redirects, which would lose the body or
/// send the key to another host.
pub(super) fn client(base_url: &str) -> Result<Client, String> {
    let client = outbound::client(base_url)
        .connect_timeout(CONNECT)
        .redirect(redirect::Policy::none())
        .tcp_keepalive(Duration::from_secs(30));
    client.build().map_err(|fault| causes(&fault))
}

/// Forwards pieces to the listeners and remembers whether any were sent.
pub(super) struct Emitter<'a> {
    sink: &'a dyn TextSink,
    has_emitted: AtomicBool,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(sink: &'a dyn TextSink) -> Self {
        Emitter {
            sink,
            has_emitted: AtomicBool::new(false),
        }
    }

    fn emit(&self, pieces: &mut Vec<AnswerPiece>) {
        for piece in pieces.drain(..) {
            self.has_emitted.store(true, Ordering::Relaxed);
            match piece {
                AnswerPiece::Text(text) => self.sink.text(&text),
                AnswerPiece::Thinking(text) => self.sink.thinking(&text),
            }
        }
    }

    /// Tells the listeners to discard what they received: the answer starts again.
    pub(super) fn discard(&self) {
        if self.has_emitted.swap(false, Ordering::Relaxed) {
            self.sink.reset();
        }
    }
}

/// The request of one attempt.
pub(super) struct AttemptRequest<'a> {
    pub client: &'a Client,
    pub url: &'a Url,
    pub headers: &'a HeaderMap,
    pub body: Bytes,
    /// Maximum time without data, before and between the pieces of the answer.
    pub stall: Duration,
    /// Maximum total time of the attempt.
    pub limit: Duration,
}

/// Sends the request once and reads the answer within `letter.limit`.
pub(super) async fn attempt(
    letter: &AttemptRequest<'_>,
    reader: Box<dyn AnswerReader>,
    known: AnswerContext,
    speaking: &Emitter<'_>,
    clock: &Clock,
    permit: &mut Permit,
) -> Result<ModelAnswer, AttemptFailure> {
    let whole = send_and_read(letter, reader, known, speaking, clock, permit);
    match tokio::time::timeout(letter.limit, whole).await {
        Ok(answer) => answer,
        Err(_) => Err(AttemptFailure::timeout(format!(
            "the answer was not complete within {} (timeout)",
            humantime::format_duration(letter.limit)
        ))),
    }
}

async fn send_and_read(
    letter: &AttemptRequest<'_>,
    mut reader: Box<dyn AnswerReader>,
    known: AnswerContext,
    speaking: &Emitter<'_>,
    clock: &Clock,
    permit: &mut Permit,
) -> Result<ModelAnswer, AttemptFailure> {
    let response = check_status(letter, send(letter).await?, clock).await?;
    permit.accepted();
    let kind = content_type(response.headers());
    let mut bytes = Box::pin(pieces_of(response, letter.stall, ReadLimits::ANSWER).fuse());
    let mut begun = Vec::new();
    let mut form = BodyFormat::Unknown;
    while form == BodyFormat::Unknown {
        match bytes.next().await {
            Some(piece) => begun.extend_from_slice(&piece.map_err(AttemptFailure::from)?),
            None => break,
        }
        form = BodyFormat::of(&kind, &begun);
    }
    let received = match form {
        BodyFormat::Page => return Err(not_an_answer(letter.url, &kind, begun, bytes).await),
        BodyFormat::Json => {
            read_whole(letter.url, &kind, begun, bytes, &mut *reader, speaking).await?
        }
        BodyFormat::Events | BodyFormat::Unknown => {
            read_events(letter.stall, begun, bytes, &mut *reader, speaking).await?
        }
    };
    let answer = reader.answer(known)?;
    Ok(bounds::plausible(answer, letter.body.len(), received))
}

/// Sends the request; returns the response as soon as its headers have arrived.
async fn send(letter: &AttemptRequest<'_>) -> Result<Response, AttemptFailure> {
    let sent = letter
        .client
        .post(letter.url.clone())
        .headers(letter.headers.clone())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "text/event-stream, application/json")
        // Compression would delay the pieces of a stream.
        .header(header::ACCEPT_ENCODING, "identity")
        .body(letter.body.clone())
        .send();
    match tokio::time::timeout(letter.stall, sent).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(fault)) => Err(unsent(letter.url, &fault)),
        Err(_) => Err(AttemptFailure::timeout(format!(
            "no answer began within {} (stall_timeout)",
            humantime::format_duration(letter.stall)
        ))),
    }
}

/// Refuses a response that is compressed or no success.
async fn check_status(
    letter: &AttemptRequest<'_>,
    response: Response,
    clock: &Clock,
) -> Result<Response, AttemptFailure> {
    if let Some(encoding) = encoding(response.headers()) {
        return Err(AttemptFailure::elsewhere(
            "provider",
            format!(
                "{} answered with the content encoding {encoding} although only \
                 identity was requested; turn off compression in the server or its proxy",
                shown(letter.url)
            ),
        ));
    }
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let headers = response.headers().clone();
    let body = refusal(response, letter.stall).await;
    let failure = AttemptFailure::of_status(status, &headers, &body, clock.now());
    let names_address = matches!(status.as_u16(), 300..=399 | 404 | 405) || is_page(&body);
    Err(match names_address {
        true => failure.at(&shown(letter.url)),
        false => failure,
    })
}

/// Reads an answer that is one JSON text; returns its number of bytes.
async fn read_whole(
    url: &Url,
    kind: &str,
    mut begun: Vec<u8>,
    mut bytes: impl Stream<Item = Result<Bytes, BodyFault>> + Unpin,
    reader: &mut dyn AnswerReader,
    speaking: &Emitter<'_>,
) -> Result<usize, AttemptFailure> {
    let mut written = bounds::ReceivedBytes::default();
    written.take(begun.len(), false)?;
    while let Some(piece) = bytes.next().await {
        let piece = piece.map_err(AttemptFailure::from)?;
        written.take(piece.len(), false)?;
        begun.extend_from_slice(&piece);
    }
    if !begun.trim_ascii_start().starts_with(b"{") {
        return Err(not_an_answer(url, kind, begun, bytes).await);
    }
    let body = String::from_utf8(begun)
        .map_err(|_| AttemptFailure::passing("the answer is not UTF-8".to_owned()))?;
    if let Some(other) = other_than_answer(&body) {
        let failure = AttemptFailure::in_stream(other.get("error").unwrap_or(&other));
        return Err(
            match failure.remedy == Remedy::Again && other.get("error").is_none() {
                true => not_an_answer(url, kind, body.into_bytes(), bytes).await,
                false => failure,
            },
        );
    }
    let mut pieces = Vec::new();
    reader.whole(&body, &mut pieces)?;
    let received = body.len();
    drop(body);
    bounds::check(&reader.extent())?;
    speaking.emit(&mut pieces);
    Ok(received)
}

/// Reads an answer that is a stream of events; returns the number of bytes of their data.
async fn read_events(
    stall: Duration,
    begun: Vec<u8>,
    bytes: impl Stream<Item = Result<Bytes, BodyFault>>,
    reader: &mut dyn AnswerReader,
    speaking: &Emitter<'_>,
) -> Result<usize, AttemptFailure> {
    let begun = (!begun.is_empty()).then(|| Ok(Bytes::from(begun)));
    // The last event of a properly ended stream counts even without its empty line.
    let bytes = stream::iter(begun)
        .chain(bytes)
        .chain(stream::iter([Ok(bytes_of("\n\n"))]));
    let mut events = std::pin::pin!(SseStream::from_bytes_stream(bytes));
    let (mut received, mut written) = (0, bounds::ReceivedBytes::default());
    let mut pieces = Vec::new();
    let mut progress = StreamProgress::More;
    loop {
        let next = match progress {
            StreamProgress::More => events.next().await,
            StreamProgress::Finished => {
                let wait = TRAILING_EVENTS_TIMEOUT.min(stall);
                match tokio::time::timeout(wait, events.next()).await {
                    Ok(Some(Ok(event))) => Some(Ok(event)),
                    // The answer is complete, whatever happens to the connection.
                    Ok(_) | Err(_) => break,
                }
            }
            StreamProgress::Over => break,
        };
        let event = match next {
            Some(Ok(event)) => event,
            Some(Err(fault)) => return Err(broken(fault)),
            None => break,
        };
        let name = event.event.as_deref().unwrap_or_default();
        let data = event.data.as_deref().unwrap_or_default();
        received += data.len();
        written.take(data.len(), true)?;
        progress = reader.event(name, data, &mut pieces)?;
        bounds::check(&reader.extent())?;
        speaking.emit(&mut pieces);
    }
    Ok(received)
}

fn bytes_of(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

/// The format of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFormat {
    /// Undecided: too few bytes were read.
    Unknown,
    /// A stream of server-sent events.
    Events,
    /// One JSON text.
    Json,
    /// Not a model's answer, for example a web page.
    Page,
}

impl BodyFormat {
    /// Decides by the first bytes: servers send wrong or no content types. A body declared as an
    /// event stream may also begin with bytes that start no known field, unless it looks like a web
    /// page.
    fn of(kind: &str, begun: &[u8]) -> Self {
        match (BodyFormat::of_beginning(begun), kind) {
            (BodyFormat::Page, "text/event-stream")
                if !is_page(&String::from_utf8_lossy(begun)) =>
            {
                BodyFormat::Events
            }
            (form, _) => form,
        }
    }

    fn of_beginning(begun: &[u8]) -> Self {
        const FIELDS: [&[u8]; 5] = [b"data", b"event", b"id", b"retry", b":"];
        let begun = begun.strip_prefix(b"\xef\xbb\xbf").unwrap_or(begun);
        let begun = begun.trim_ascii_start();
        match begun.first() {
            None => BodyFormat::Unknown,
            Some(b'{' | b'[') => BodyFormat::Json,
            Some(b'<') => BodyFormat::Page,
            Some(_) if FIELDS.iter().any(|field| begun.starts_with(field)) => BodyFormat::Events,
            Some(_) if FIELDS.iter().any(|field| field.starts_with(begun)) => BodyFormat::Unknown,
            Some(_) => BodyFormat::Page,
        }
    }
}

/// The content type without its parameters, in lower case.
fn content_type(headers: &HeaderMap) -> String {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

/// The content encoding; `None` if the body is not encoded.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let encoding = headers.get(header::CONTENT_ENCODING)?;
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).to_ascii_lowercase();
    (!matches!(encoding.trim(), "" | "identity")).then_some(encoding)
}

fn is_page(body: &str) -> bool {
    body.trim_start().starts_with('<')
}

/// The address as shown to users: without query, fragment and credentials, which may be secret.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // Both fail only for addresses that cannot have credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// The JSON object in the body of a success that is not a model's answer; `None` if it is one.
fn other_than_answer(body: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(body).ok()?;
    let fields = value.as_object()?;
    let is_answer = ["choices", "content"]
        .iter()
        .any(|field| fields.contains_key(*field));
    (!is_answer).then_some(value)
}

/// A failure for a success response that no model gave; permanent with this provider, since another
/// attempt would give the same.
async fn not_an_answer(
    url: &Url,
    kind: &str,
    begun: Vec<u8>,
    mut rest: impl Stream<Item = Result<Bytes, BodyFault>> + Unpin,
) -> AttemptFailure {
    let mut body = begun;
    while body.len() < NON_ANSWER_BYTES
        && let Some(Ok(piece)) = rest.next().await
    {
        body.extend_from_slice(&piece);
    }
    let body = String::from_utf8_lossy(&body[..body.len().min(NON_ANSWER_BYTES)]).into_owned();
    let what = match is_page(&body) {
        true => "a web page",
        false => "something",
    };
    let kind = match kind {
        "" => "without a content type".to_owned(),
        kind => format!("({})", preview(kind, 80)),
    };
    AttemptFailure::elsewhere(
        "provider",
        format!(
            "{} answered with {what} {kind} that is not a model's answer: {}; check the base_url of \
             the provider",
            shown(url),
            in_quotes(&body, NON_ANSWER_SHOWN)
        ),
    )
}

/// Why reading the body stopped early.
#[derive(Debug)]
enum BodyFault {
    Broken(String),
    Stalled(Duration),
    TooLong(usize),
    LongLine(usize),
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyFault::Broken(why) => write!(f, "the answer is incomplete: {why}"),
            BodyFault::Stalled(stall) => write!(
                f,
                "the answer stalled: no data for {} (stall_timeout)",
                humantime::format_duration(*stall)
            ),
            BodyFault::TooLong(most) => write!(f, "the answer is longer than {most} bytes"),
            BodyFault::LongLine(most) => {
                write!(f, "a line of the answer is longer than {most} bytes")
            }
        }
    }
}

impl std::error::Error for BodyFault {}

impl From<BodyFault> for AttemptFailure {
    fn from(cut: BodyFault) -> Self {
        let message = cut.to_string();
        match cut {
            BodyFault::Broken(_) => AttemptFailure::passing(message),
            BodyFault::Stalled(_) => AttemptFailure::timeout(message),
            BodyFault::TooLong(_) | BodyFault::LongLine(_) => bounds::too_large(message),
        }
    }
}

/// Maximum number of bytes that are read.
#[derive(Clone, Copy)]
struct ReadLimits {
    all: usize,
    /// Maximum bytes of one line.
    line: usize,
}

impl ReadLimits {
    /// Limits for a streamed answer.
    const ANSWER: ReadLimits = ReadLimits {
        all: ANSWER_LIMIT,
        line: LINE_LIMIT,
    };

    /// Limits for a body that is not a stream of lines.
    fn whole(all: usize) -> Self {
        ReadLimits { all, line: all }
    }
}

/// The body as it arrives. Any bytes reset the stall timeout, comments included.
fn pieces_of(
    response: Response,
    stall: Duration,
    limits: ReadLimits,
) -> impl Stream<Item = Result<Bytes, BodyFault>> {
    let begin = Some((Box::pin(response.bytes_stream()), 0, 0));
    stream::unfold(begin, move |state| async move {
        let (mut bytes, so_far, line) = state?;
        match tokio::time::timeout(stall, bytes.next()).await {
            Ok(Some(Ok(piece))) => {
                let so_far = so_far + piece.len();
                let line = match piece.iter().rposition(|byte| *byte == b'\n') {
                    Some(end) => piece.len() - end - 1,
                    None => line + piece.len(),
                };
                if so_far > limits.all {
                    return Some((Err(BodyFault::TooLong(limits.all)), None));
                }
                if line > limits.line {
                    return Some((Err(BodyFault::LongLine(limits.line)), None));
                }
                Some((Ok(piece), Some((bytes, so_far, line))))
            }
            Ok(Some(Err(fault))) => {
                Some((Err(BodyFault::Broken(causes(&fault.without_url()))), None))
            }
            Ok(None) => None,
            Err(_) => Some((Err(BodyFault::Stalled(stall)), None)),
        }
    })
}

/// The body of an error response, as far as it can be read.
async fn refusal(response: Response, stall: Duration) -> String {
    let mut bytes = std::pin::pin!(pieces_of(response, stall, ReadLimits::whole(REFUSAL_LIMIT)));
    let mut body = Vec::new();
    while let Some(Ok(piece)) = bytes.next().await {
        body.extend_from_slice(&piece);
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// A failure for a request that got no response: no connection, or the connection was lost.
fn unsent(url: &Url, fault: &reqwest::Error) -> AttemptFailure {
    let why = causes(fault);
    match fault.is_builder() || fault.is_redirect() {
        true => AttemptFailure::elsewhere("provider", format!("the request cannot be sent: {why}")),
        false if fault.is_connect() => {
            AttemptFailure::passing(format!("{NO_CONNECTION} to {}: {why}", shown(url)))
        }
        false => AttemptFailure::passing(format!("the connection was lost: {why}")),
    }
}

fn broken(fault: sse_stream::Error) -> AttemptFailure {
    match fault {
        sse_stream::Error::Body(cause) => match cause.downcast::<BodyFault>() {
            Ok(cut) => AttemptFailure::from(*cut),
            Err(other) => AttemptFailure::passing(format!("the answer is incomplete: {other}")),
        },
        other => {
            AttemptFailure::passing(format!("the answer is not a valid event stream: {other}"))
        }
    }
}

/// The innermost cause, which is the most specific. The outer ones repeat the address, which may
/// hold a secret.
fn causes(fault: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = fault;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    match innermost.downcast_ref::<reqwest::Error>() {
        // There is no inner cause: describe this error without its address.
        Some(own) => {
            let kind = [
                (own.is_connect(), "connecting failed"),
                (own.is_body(), "the body was cut"),
                (own.is_decode(), "the body cannot be read"),
                (own.is_builder(), "the request is not valid"),
            ];
            let known = kind.iter().find(|(is, _)| *is).map(|(_, words)| *words);
            known.unwrap_or("the request failed").to_owned()
        }
        None => innermost.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_its_beginning() {
        for (begun, form) in [
            ("", BodyFormat::Unknown),
            (" \n", BodyFormat::Unknown),
            ("\u{feff}data: {}", BodyFormat::Events),
            ("da", BodyFormat::Unknown),
            (": ping", BodyFormat::Events),
            ("event: x", BodyFormat::Events),
            (" {\"choices\"", BodyFormat::Json),
            ("[", BodyFormat::Json),
            ("<!doctype", BodyFormat::Page),
            ("Bad gateway", BodyFormat::Page),
        ] {
            assert_eq!(
                BodyFormat::of_beginning(begun.as_bytes()),
                form,
                "{begun:?}"
            );
        }
    }

    #[test]
    fn a_shown_address_holds_no_secret() {
        let url = Url::parse("https://me:canary@a.example/v1?key=canary#canary").unwrap();
        assert_eq!(shown(&url), "https://a.example/v1");
    }
}
