//! Bodies of requests: read whole, within the limits for one body and for all requests in flight.

use std::time::Duration;

use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Incoming};

use crate::gateway::http::HttpGateway;
use crate::gateway::rpc::Connection;
use crate::kernel::fault::{Fault, Kind};

/// Maximum number of bytes of a refused body that are read and discarded, so that the client gets
/// to read the error.
const DISCARD_LIMIT: u64 = 64 * 1024 * 1024;

/// Maximum time between two chunks of a body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the body of a request, of at most `most` bytes and within the limits for requests in
/// flight. A declared size above the limit is refused before anything of the body is read.
pub(super) async fn take_body(
    door: &HttpGateway,
    connection: &Connection,
    headers: &HeaderMap,
    body: Incoming,
    most: usize,
) -> Result<Vec<u8>, Fault> {
    let most = most.min(door.dispatcher.limits().payload);
    if body.size_hint().lower() > most as u64 {
        // A client that waits for a word before it sends the body sends none of it.
        if !headers.contains_key(EXPECT) {
            let shutdown = door.shutdown.clone();
            door.tasks.spawn(async move {
                tokio::select! {
                    () = discard(body) => {}
                    () = shutdown.cancelled() => {}
                }
            });
        }
        return Err(too_large(most));
    }
    // The declared size is reserved before the body is read.
    let announced = body.size_hint().upper().unwrap_or(most as u64);
    let held = door
        .dispatcher
        .reserve_bytes(connection, usize::try_from(announced).unwrap_or(most))?;
    let bytes = tokio::select! {
        bytes = read(body, most) => bytes?,
        () = door.shutdown.cancelled() => {
            return Err(Fault::new(
                Kind::Unavailable,
                "the daemon is shutting down and the request was incomplete; nothing was done",
            ));
        }
    };
    drop(held);
    Ok(bytes)
}

/// Reads a whole body of at most `most` bytes; an error if no data arrives for
/// [`BODY_IDLE_TIMEOUT`].
async fn read(body: Incoming, most: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Limited::new(body, most);
    let mut bytes = Vec::new();
    loop {
        let Ok(frame) = tokio::time::timeout(BODY_IDLE_TIMEOUT, body.frame()).await else {
            return Err(Fault::new(
                Kind::InvalidRequest,
                format!(
                    "no data of the body arrived within {BODY_IDLE_TIMEOUT:?}; nothing was done"
                ),
            ));
        };
        match frame {
            None => return Ok(bytes),
            Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Some(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(too_large(most));
            }
            Some(Err(error)) => {
                return Err(Fault::new(
                    Kind::InvalidRequest,
                    format!("the body ended early: {error}"),
                ));
            }
        }
    }
}

/// Reads the rest of a refused body, which keeps the connection usable, and its client from missing
/// the error in a reset.
async fn discard(body: Incoming) {
    if body.size_hint().lower() > DISCARD_LIMIT {
        return;
    }
    let mut body = body;
    while let Ok(Some(Ok(_))) = tokio::time::timeout(BODY_IDLE_TIMEOUT, body.frame()).await {}
}

fn too_large(most: usize) -> Fault {
    Fault::new(
        Kind::TooLarge,
        format!("the body exceeds the limit of {most} bytes"),
    )
    .with("limit", "payload")
    .with("value", most)
}
