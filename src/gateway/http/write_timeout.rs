//! A stream that fails if its peer reads nothing of a pending write for too long. Every connection
//! is wrapped in it, so that a peer that does not read events or responses cannot hold a seat
//! forever.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A stream whose writes fail with `TimedOut` if the peer reads nothing for `limit`.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    limit: Duration,
    /// Timer, set while a write is pending.
    waits: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    /// Wraps `stream`; `limit` is how long a write may be pending.
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        WriteTimeout {
            stream,
            limit,
            waits: None,
        }
    }

    /// Checks the result of a write; the timer is only created for a write that is pending.
    fn check_timeout<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let limit = self.limit;
        let waits = self.waits.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(waits.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            ErrorKind::TimedOut,
            "the peer does not read",
        )))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.check_timeout(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.check_timeout(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check_timeout(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.stream).poll_shutdown(context);
        self.check_timeout(ended, context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_a_little_now_and_then_is_kept_and_one_that_takes_nothing_is_not() {
        let (own, mut peer) = tokio::io::duplex(8);
        let mut stall = WriteTimeout::new(own, LIMIT);
        let writing = tokio::spawn(async move {
            stall.write_all(&[0; 32]).await.unwrap();
            stall.write_all(&[0; 32]).await
        });
        let mut taken = [0; 8];
        for _ in 0..5 {
            tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
            peer.read_exact(&mut taken).await.unwrap();
        }
        assert!(!writing.is_finished());
        let given_up = tokio::time::timeout(2 * LIMIT, writing).await.unwrap();
        let given_up = given_up.unwrap().unwrap_err();
        assert_eq!(given_up.kind(), ErrorKind::TimedOut);
    }
}
