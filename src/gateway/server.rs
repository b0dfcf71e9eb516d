//! Accepts connections and serves the HTTP routes on them until shutdown.
//!
//! With TLS, the handshake is a part of the time that a stranger has to send its token.

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jsonrpsee::types::Id;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use super::Listeners;
use super::http::{self, HttpGateway, HttpResponse};
use super::rpc::{Connection, error_text};
use crate::gateway::access::auth::TcpEndpoints;
use crate::gateway::access::connection_limits::{Seat, Seats};
use crate::gateway::access::peer::Peer;
use crate::gateway::http::first_bytes::FirstBytes;
use crate::gateway::http::write_timeout::WriteTimeout;
use crate::kernel::fault::{Fault, Kind};
use crate::tls::ServerIdentity;

/// Timeout for the head of a request, including the next one on an open connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of the head of a request in bytes: it is read before its sender is known.
const MAX_HEAD: usize = 64 * 1024;
/// Pause before accepting again after the system refused, for example because descriptors ran out.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// Maximum number of over-limit connections answered with an error at the same time; further ones
/// are closed.
const MAX_REFUSALS: usize = 8;
/// Time for a peer to read why its connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a connection that was accepted before the shutdown to send its first request. Its bytes may
/// be on their way, and without an answer its client could not tell what happened.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_millis(500);

/// Accepts connections until shutdown; returns when every connection has ended. What has not been
/// accepted by then stays in the listener, which may be the service manager's.
pub(crate) async fn accept(listeners: Listeners, door: Arc<HttpGateway>) -> io::Result<()> {
    let seats = Arc::new(Seats::new(door.dispatcher.limits().connections));
    let Listeners {
        tcp,
        identity,
        unix,
    } = listeners;
    // Accepted independently: many connections on one listener must not delay the other. Each loop ends
    // only between two connections: one that is accepted has time for its first request, and gets its
    // answer.
    let over_unix = async {
        if let Some(unix) = unix {
            over_unix(&door, &seats, unix).await;
        }
    };
    tokio::join!(over_tcp(&door, &seats, tcp, identity.as_ref()), over_unix);
    door.tasks.close();
    door.tasks.wait().await;
    Ok(())
}

/// Logs that the system refused a connection, then pauses.
async fn refused_by_system(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_BACKOFF).await;
}

async fn over_tcp(
    door: &Arc<HttpGateway>,
    seats: &Arc<Seats>,
    listener: TcpListener,
    identity: Option<&watch::Receiver<Arc<ServerIdentity>>>,
) {
    loop {
        let next = async { (seats.room().await, listener.accept().await) };
        let Some((room, accepted)) = door.shutdown.run_until_cancelled(next).await else {
            return;
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                refused_by_system(&error).await;
                continue;
            }
        };
        // The peer may have disconnected already; that is not an accept error.
        match ends(&stream, peer) {
            Ok(ends) => {
                let (peer, seat) = (Peer::Tcp(ends), seats.stranger(room));
                match identity.map(|identity| Arc::clone(&identity.borrow().config)) {
                    None => serve(door, stream, peer, seat),
                    Some(config) => {
                        let serving = encrypted(Arc::clone(door), stream, peer, seat, config);
                        door.tasks.spawn(serving);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "the setup of a new connection failed"),
        }
    }
}

fn ends(stream: &TcpStream, peer: SocketAddr) -> io::Result<TcpEndpoints> {
    // Responses are small and awaited, so delaying them (Nagle) helps no client.
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    Ok(TcpEndpoints {
        peer: peer.ip().to_canonical(),
        local: local.ip().to_canonical(),
        port: local.port(),
    })
}

async fn over_unix(door: &Arc<HttpGateway>, seats: &Arc<Seats>, listener: UnixListener) {
    let turned_away = Arc::new(Semaphore::new(MAX_REFUSALS));
    loop {
        let Some(accepted) = door.shutdown.run_until_cancelled(listener.accept()).await else {
            return;
        };
        let accepted = accepted.and_then(|(stream, _)| Ok((stream.peer_cred()?, stream)));
        let (credentials, stream) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                refused_by_system(&error).await;
                continue;
            }
        };
        // Identify the process now: it may pass the stream on or end later.
        let local = door.gate.identify(credentials).await;
        let peer = Peer::Local(local);
        if !door.gate.knows_user(local) {
            if let Some(seat) = seats.other() {
                serve(door, stream, peer, seat);
            }
            continue;
        }
        match seats.local(local.origin) {
            Ok(seat) => serve(door, stream, peer, seat),
            Err(fault) => {
                if let Ok(place) = Arc::clone(&turned_away).try_acquire_owned() {
                    refuse_over_limit(door, stream, fault, place);
                }
            }
        }
    }
}

/// Serves a connection in its own task.
fn serve<S>(door: &Arc<HttpGateway>, stream: S, peer: Peer, seat: Seat)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (door, seat) = (Arc::clone(door), Arc::new(seat));
    door.tasks.clone().spawn(async move {
        let closing = pin!(seat.must_close());
        connection(door, stream, peer, &seat, closing).await;
    });
}

/// Serves a TCP connection with TLS. A client that does not speak it gets an answer that says so.
async fn encrypted(
    door: Arc<HttpGateway>,
    stream: TcpStream,
    peer: Peer,
    seat: Seat,
    config: Arc<ServerConfig>,
) {
    let seat = Arc::new(seat);
    // One deadline for the handshake and the first request.
    let mut closing = pin!(seat.must_close());
    let shaken = tokio::select! {
        shaken = handshake(stream, config) => shaken,
        // Before the end of the handshake there is no way to say why.
        _ = closing.as_mut() => return,
        () = first_bytes_timeout(&door.shutdown) => return,
    };
    match shaken {
        Ok(Handshake::Done(stream)) => connection(door, *stream, peer, &seat, closing).await,
        Ok(Handshake::Plain(stream)) => {
            let stream = WriteTimeout::new(stream, door.dispatcher.limits().write_timeout);
            tokio::select! {
                () = refuse(door.shutdown.clone(), stream, http::needs_tls) => {}
                _ = closing.as_mut() => {}
            }
        }
        Err(error) => tracing::debug!(%error, ?peer, "a TLS handshake failed"),
    }
}

/// Result of a handshake.
enum Handshake {
    /// The connection is encrypted.
    Done(Box<TlsStream<TcpStream>>),
    /// The peer did not begin one.
    Plain(TcpStream),
}

/// First byte of a TLS connection: a record of the handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;

async fn handshake(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Handshake> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE_RECORD {
        return Ok(Handshake::Plain(stream));
    }
    let stream = TlsAcceptor::from(config).accept(stream).await?;
    Ok(Handshake::Done(Box::new(stream)))
}

/// Serves a connection until its end; `closing` resolves when its seat must be given up.
async fn connection<S>(
    door: Arc<HttpGateway>,
    stream: S,
    peer: Peer,
    seat: &Arc<Seat>,
    closing: Pin<&mut impl Future<Output = Option<Fault>>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let began = CancellationToken::new();
    let stream = FirstBytes::new(stream, began.clone());
    let stream = WriteTimeout::new(stream, door.dispatcher.limits().write_timeout);
    let in_flight = Arc::new(Connection::default());
    let shutdown = door.shutdown.clone();
    let held = Arc::clone(seat);
    let service = service_fn(move |request| {
        http::handle(
            Arc::clone(&door),
            Arc::clone(&in_flight),
            peer,
            Arc::clone(&held),
            request,
        )
    });
    let mut serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let served = tokio::select! {
        served = &mut serving => served,
        why = closing => {
            let stream = serving.into_parts().map(|parts| parts.io.into_inner());
            if let (Some(why), Some(mut stream)) = (why, stream) {
                let said = send_close_reason(&mut stream, why);
                // Best effort: the connection is closed either way.
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, said).await;
            }
            return;
        }
        () = ending(&shutdown, &began) => {
            Pin::new(&mut serving).graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, ?peer, "a connection ended");
    }
}

/// Resolves at shutdown, for a connection that has sent nothing a little later: `began` is cancelled at
/// its first bytes.
async fn ending(shutdown: &CancellationToken, began: &CancellationToken) {
    shutdown.cancelled().await;
    // Hyper closes a connection without bytes at once, and one with some after the answer.
    let _ = tokio::time::timeout(FIRST_BYTES_TIMEOUT, began.cancelled()).await;
}

/// Resolves when a connection that was accepted before the shutdown has had its time.
async fn first_bytes_timeout(shutdown: &CancellationToken) {
    shutdown.cancelled().await;
    tokio::time::sleep(FIRST_BYTES_TIMEOUT).await;
}

/// Sends the reason for closing to a peer that has not sent a complete request.
async fn send_close_reason<S>(stream: &mut S, why: Fault) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let status = match why.kind {
        Kind::Busy => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::REQUEST_TIMEOUT,
    };
    let body = error_text(Id::Null, why);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    stream.shutdown().await
}

/// Answers a local connection for which there is no seat with an error.
fn refuse_over_limit(
    door: &Arc<HttpGateway>,
    stream: UnixStream,
    fault: Fault,
    place: OwnedSemaphorePermit,
) {
    let stream = WriteTimeout::new(stream, door.dispatcher.limits().write_timeout);
    let refusing = refuse(door.shutdown.clone(), stream, move || {
        http::refused(fault.clone())
    });
    door.tasks.spawn(async move {
        refusing.await;
        drop(place);
    });
}

/// Answers the first request on `stream` with `answer`, whatever it is.
async fn refuse<S>(shutdown: CancellationToken, stream: S, answer: impl Fn() -> HttpResponse)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(|_| std::future::ready(Ok::<_, std::convert::Infallible>(answer())));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(crate::gateway::access::connection_limits::STRANGER_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "a refused connection ended");
        },
        () = first_bytes_timeout(&shutdown) => {}
    }
}
