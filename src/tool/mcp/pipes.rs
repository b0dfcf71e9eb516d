//! Messages over the pipes of a program, one a line. A line that is no message is skipped and
//! counted, since many programs print a banner. For a message that is too long, the request that it
//! answers is still determined.

use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    CustomResult, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::flood::Flood;
use crate::clock::Clock;
use crate::kernel::text::{preview, storable};
use crate::process::{LINE_LIMIT, LineBuffer};

/// The maximum number of characters shown of a line that is no message.
const SHOWN: usize = 200;
/// The maximum number of queued messages; beyond it, the program has to wait.
const WAITING: usize = 64;

/// The pipes to and from a program.
pub(super) struct Pipes {
    input: Arc<Mutex<Option<ChildStdin>>>,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
}

impl Pipes {
    /// Starts reading. Each line that is no message is passed to `noise`; `closed` is cancelled
    /// once the output has ended.
    pub(super) fn new(
        input: ChildStdin,
        output: ChildStdout,
        noise: impl Fn(String) + Send + 'static,
        closed: CancellationToken,
        clock: &Clock,
    ) -> Pipes {
        let (sender, messages) = mpsc::channel(WAITING);
        let mut flood = Flood::new(clock.clone());
        tokio::spawn(async move {
            let _closed = closed.drop_guard();
            let mut output = BufReader::new(output);
            let mut line = LineBuffer::default();
            loop {
                flood.wait().await;
                let Some(whole) = line.next(&mut output).await else {
                    return;
                };
                let message = match whole {
                    Ok([]) => {
                        flood.count();
                        continue;
                    }
                    Ok(bytes) => match read(bytes) {
                        Ok(message) => message,
                        Err(_) => {
                            flood.count();
                            let shown = String::from_utf8_lossy(prefix(bytes));
                            noise(preview(&storable(&shown), SHOWN));
                            continue;
                        }
                    },
                    Err(too_long) => {
                        flood.count();
                        noise(format!("a line of more than {LINE_LIMIT} bytes"));
                        match too_long.answers() {
                            Some(id) => refusal(id),
                            None => continue,
                        }
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
            // A separate task, since the sender may be dropped at any time, and a partly written
            // message would corrupt the next one.
            let writing = tokio::spawn(async move {
                match &mut *input.lock().await {
                    Some(input) => input.write_all(&line).await,
                    None => Err(io::ErrorKind::NotConnected.into()),
                }
            });
            writing.await.map_err(io::Error::other)?
        }
    }

    /// Receives the next message; `None` at the end.
    pub(super) async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    /// Closes the program's input.
    pub(super) async fn close(&mut self) {
        drop(self.input.lock().await.take());
    }
}

fn prefix(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(4 * SHOWN)]
}

fn read(bytes: &[u8]) -> serde_json::Result<ServerJsonRpcMessage> {
    let mut message = serde_json::from_slice(bytes)?;
    // A result that the library parses as a bare acknowledgement may contain more, for example a
    // list with an invalid tool.
    if let JsonRpcMessage::Response(answer) = &mut message
        && let ServerResult::TaskAckResult(_) = answer.result
    {
        let mut whole: Value = serde_json::from_slice(bytes)?;
        answer.result = ServerResult::CustomResult(CustomResult::new(whole["result"].take()));
    }
    Ok(message)
}

/// The error that replaces an answer that is too long.
fn refusal(id: i64) -> ServerJsonRpcMessage {
    let why = format!("the answer has more than {LINE_LIMIT} bytes and was not read");
    let error = ErrorData::internal_error(why, None);
    JsonRpcMessage::error(error, Some(RequestId::Number(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_with_a_tool_that_is_none_is_read_as_it_came() {
        let line = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":[7]}}"#;
        let JsonRpcMessage::Response(answer) = read(line.as_bytes()).unwrap() else {
            panic!("it is an answer");
        };
        let ServerResult::CustomResult(result) = answer.result else {
            panic!("{:?}", answer.result);
        };
        assert_eq!(result.0["tools"], serde_json::json!([7]));
    }
}
