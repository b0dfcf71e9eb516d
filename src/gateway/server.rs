//! Accepts connections and gives each to the HTTP routes, until it is told to stop.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::auth::Ends;
use super::http::{self, Door};
use super::rpc::Connection;
use crate::kernel::fault::{Fault, Kind};

/// How long a client may take to send the head of a request, the next one on an open
/// connection too.
const HEAD: Duration = Duration::from_secs(30);
/// How long accepting rests after the system refused, for example for want of descriptors.
const REST: Duration = Duration::from_millis(100);
/// Connections over the limit that are told so at the same time; further ones are closed.
const TURNED_AWAY: usize = 64;

/// Accepts until the door's shutdown is called, then returns when every connection has ended.
pub(crate) async fn accept(listener: TcpListener, door: Arc<Door>) -> io::Result<()> {
    let most = door.dispatcher.limits().connections;
    let seats = Arc::new(Semaphore::new(most));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    loop {
        let accepted = tokio::select! {
            biased;
            () = door.shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        if let Ok(seat) = Arc::clone(&seats).try_acquire_owned() {
            door.tasks
                .spawn(connection(Arc::clone(&door), stream, peer, seat));
        } else if let Ok(seat) = Arc::clone(&turned_away).try_acquire_owned() {
            door.tasks
                .spawn(turn_away(door.shutdown.clone(), stream, most, seat));
        }
    }
    drop(listener);
    door.tasks.close();
    door.tasks.wait().await;
    Ok(())
}

async fn connection(
    door: Arc<Door>,
    stream: TcpStream,
    peer: SocketAddr,
    seat: OwnedSemaphorePermit,
) {
    // Answers are small and waited for, so holding them back helps nobody.
    let ready = stream.set_nodelay(true).and_then(|()| stream.local_addr());
    let local = match ready {
        Ok(local) => local,
        Err(error) => {
            tracing::debug!(%error, "a connection ended at once");
            return;
        }
    };
    let ends = Ends {
        peer: peer.ip().to_canonical(),
        local: local.ip().to_canonical(),
        port: local.port(),
    };
    let seat = Arc::new(seat);
    let in_flight = Arc::new(Connection::default());
    let shutdown = door.shutdown.clone();
    let service = service_fn(move |request| {
        http::handle(
            Arc::clone(&door),
            Arc::clone(&in_flight),
            ends,
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
        tracing::debug!(%error, %peer, "a connection ended");
    }
}

/// Tells a client that there are too many connections.
async fn turn_away(
    shutdown: CancellationToken,
    stream: TcpStream,
    most: usize,
    _seat: OwnedSemaphorePermit,
) {
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
