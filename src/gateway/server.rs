//! Accepts connections and gives each to the HTTP routes, until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Listeners;
use super::auth::Ends;
use super::http::{self, Door};
use super::peer::{Credentials, Peer};
use super::rpc::Connection;
use super::stall::Stall;
use crate::kernel::fault::{Fault, Kind};
use crate::telemetry::metrics::metrics;

/// How long a client may take to send the head of a request, the next one on an open
/// connection too.
const HEAD: Duration = Duration::from_secs(30);
/// How long accepting rests after the system refused, for example for want of descriptors.
const REST: Duration = Duration::from_millis(100);
/// Connections over the limit that are told so at the same time; further ones are closed.
const TURNED_AWAY: usize = 64;

/// Accepts until the door's shutdown is called, then returns when every connection has ended.
pub(crate) async fn accept(listeners: Listeners, door: Arc<Door>) -> io::Result<()> {
    let seats = Seats::new(door.dispatcher.limits().connections);
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.shutdown.cancelled() => break,
            accepted = listeners.tcp.accept() => {
                accepted.and_then(|(stream, peer)| over_tcp(&door, &seats, stream, peer))
            }
            accepted = accept_local(listeners.unix.as_ref()) => {
                accepted.and_then(|stream| over_unix(&door, &seats, stream))
            }
        };
        if let Err(error) = accepted {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(REST).await;
        }
    }
    drop(listeners);
    door.tasks.close();
    door.tasks.wait().await;
    Ok(())
}

async fn accept_local(listener: Option<&UnixListener>) -> io::Result<UnixStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

fn over_tcp(
    door: &Arc<Door>,
    seats: &Seats,
    stream: TcpStream,
    peer: SocketAddr,
) -> io::Result<()> {
    // Answers are small and waited for, so holding them back helps nobody.
    let ready = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let local = match ready {
        Ok(local) => local,
        // Its peer has left already; that is no fault of accepting.
        Err(error) => {
            tracing::debug!(%error, "a connection ended at once");
            return Ok(());
        }
    };
    let ends = Ends {
        peer: peer.ip().to_canonical(),
        local: local.ip().to_canonical(),
        port: local.port(),
    };
    seats.place(door, stream, Peer::Tcp(ends));
    Ok(())
}

fn over_unix(door: &Arc<Door>, seats: &Seats, stream: UnixStream) -> io::Result<()> {
    // Asked of the system once, for whoever connected: what it hands on is still its own.
    let credentials = stream.peer_cred()?;
    let peer = Peer::Local(Credentials {
        uid: credentials.uid(),
        // Zero: a process of another container, which has no number here.
        pid: credentials.pid().filter(|pid| *pid > 0),
    });
    seats.place(door, stream, peer);
    Ok(())
}

/// Places for connections, over all doors.
struct Seats {
    most: usize,
    free: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
}

impl Seats {
    fn new(most: usize) -> Self {
        Seats {
            most,
            free: Arc::new(Semaphore::new(most)),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY)),
        }
    }

    /// Serves a connection in a task of its own, or says that there are too many.
    fn place<S>(&self, door: &Arc<Door>, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Ok(seat) = Arc::clone(&self.free).try_acquire_owned() {
            door.tasks
                .spawn(connection(Arc::clone(door), stream, peer, seat));
        } else if let Ok(seat) = Arc::clone(&self.turned_away).try_acquire_owned() {
            door.tasks.spawn(turn_away(
                door.shutdown.clone(),
                Stall::new(stream, door.dispatcher.limits().write_timeout),
                self.most,
                seat,
            ));
        }
    }
}

async fn connection<S>(door: Arc<Door>, stream: S, peer: Peer, seat: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let seat = Arc::new((seat, metrics().connection()));
    let stream = Stall::new(stream, door.dispatcher.limits().write_timeout);
    let in_flight = Arc::new(Connection::default());
    let shutdown = door.shutdown.clone();
    let service = service_fn(move |request| {
        http::handle(
            Arc::clone(&door),
            Arc::clone(&in_flight),
            peer,
            Arc::clone(&seat),
            request,
        )
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let served = tokio::select! {
        served = serving.as_mut() => served,
        () = shutdown.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, ?peer, "a connection ended");
    }
}

/// Tells a client that there are too many connections.
async fn turn_away<S>(
    shutdown: CancellationToken,
    stream: S,
    most: usize,
    _seat: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let service = service_fn(move |_| {
        let fault = Fault::new(
            Kind::Busy,
            format!("{most} connections are open, the most there may be"),
        )
        .with("retryAfterMs", 1000);
        std::future::ready(Ok::<_, std::convert::Infallible>(http::refused(fault)))
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "a connection over the limit ended");
        },
        () = shutdown.cancelled() => {}
    }
}
