//! Messages over the pipes of a program, one a line. A line that is no message is skipped and
//! counted: many programs greet whoever starts them.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::kernel::text::{preview, storable};

/// The longest message, bytes.
const LINE_LIMIT: usize = 16 << 20;
/// So much is shown of a line that is no message.
const SHOWN: usize = 200;
/// So many messages may wait to be taken; then the program waits.
const WAITING: usize = 64;

/// The two ends of a program.
pub(super) struct Pipes {
    input: Arc<Mutex<Option<ChildStdin>>>,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
}

impl Pipes {
    /// Talks over these. Each line that is no message is given to `noise`; `closed` is cancelled
    /// once nothing more can come.
    pub(super) fn new(
        input: ChildStdin,
        output: ChildStdout,
        noise: impl Fn(String) + Send + 'static,
        closed: CancellationToken,
    ) -> Pipes {
        let (sender, messages) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            let _closed = closed.drop_guard();
            let mut output = BufReader::new(output);
            let mut line = Line::default();
            while let Some(whole) = line.next(&mut output).await {
                let message = match whole {
                    Ok([]) => continue,
                    Ok(bytes) => match serde_json::from_slice(bytes) {
                        Ok(message) => message,
                        Err(_) => {
                            let shown = String::from_utf8_lossy(prefix(bytes));
                            noise(preview(&storable(&shown), SHOWN));
                            continue;
                        }
                    },
                    Err(TooLong) => {
                        noise(format!("a line of more than {LINE_LIMIT} bytes"));
                        continue;
                    }
                };
                if sender.send(message).await.is_err() {
                    return;
                }
            }
        });
        Pipes {
            input: Arc::new(Mutex::new(Some(input))),
            messages,
        }
    }

    /// Sends a message.
    pub(super) fn send(
        &self,
        message: &TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static + use<> {
        let line = serde_json::to_vec(message);
        let input = Arc::clone(&self.input);
        async move {
            let mut line = line?;
            line.push(b'\n');
            // A task of its own: a message of which only a part was written would take the next
            // one with it, and whoever sends may be dropped at any time.
            let writing = tokio::spawn(async move {
                match &mut *input.lock().await {
                    Some(input) => input.write_all(&line).await,
                    None => Err(io::ErrorKind::NotConnected.into()),
                }
            });
            writing.await.map_err(io::Error::other)?
        }
    }

    /// The next message; `None` at the end.
    pub(super) async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    /// Nothing more is said.
    pub(super) async fn close(&mut self) {
        drop(self.input.lock().await.take());
    }
}

fn prefix(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(4 * SHOWN)]
}

/// Collects a line; of one that is too long only that it was.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    is_over: bool,
}

struct TooLong;

impl Line {
    /// The next line, without its end and blanks around it; `None` at the end of the stream,
    /// where a line without its end is none.
    async fn next(
        &mut self,
        output: &mut (impl AsyncBufReadExt + Unpin),
    ) -> Option<Result<&[u8], TooLong>> {
        self.bytes.clear();
        self.is_over = false;
        loop {
            let available = output.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            self.is_over |= self.bytes.len() + taken > LINE_LIMIT;
            if self.is_over {
                self.bytes = Vec::new();
            } else {
                self.bytes.extend_from_slice(&available[..taken]);
            }
            output.consume(end.map_or(taken, |end| end + 1));
            if end.is_some() {
                return Some(match self.is_over {
                    true => Err(TooLong),
                    false => Ok(self.bytes.trim_ascii()),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_and_too_long_ones_are_only_counted() {
        let long = "x".repeat(LINE_LIMIT + 1);
        let text = format!(" one \r\n\n{long}\ntwo\nhalf");
        let mut output = BufReader::new(text.as_bytes());
        let mut line = Line::default();
        let mut found = Vec::new();
        while let Some(next) = line.next(&mut output).await {
            found.push(
                next.map_or_else(|_| "long".into(), String::from_utf8_lossy)
                    .into_owned(),
            );
        }
        assert_eq!(found, ["one", "", "long", "two"]);
    }
}
