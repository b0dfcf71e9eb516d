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
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use super::flood::Flood;
use crate::clock::Clock;
use crate::kernel::text::{preview, storable};

/// The maximum size of a message, in bytes.
const LINE_LIMIT: usize = 16 << 20;
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

/// Reads one line; only both ends of one that is too long.
#[derive(Default)]
struct LineBuffer {
    bytes: Vec<u8>,
    ends: Option<TooLong>,
}

/// The two ends of a line.
#[derive(Default)]
struct TooLong {
    first: Vec<u8>,
    last: Vec<u8>,
}

/// The number of bytes kept of each end.
const END: usize = 128;

impl TooLong {
    fn more(&mut self, bytes: &[u8]) {
        self.first
            .extend(bytes.iter().take(END - self.first.len().min(END)));
        self.last.extend(&bytes[bytes.len().saturating_sub(END)..]);
        let too_many = self.last.len().saturating_sub(END);
        self.last.drain(..too_many);
    }

    /// The id of the request that it answers, if the id is its first or last field.
    fn answers(&self) -> Option<i64> {
        let plain = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            text.replace(|c: char| c.is_ascii_whitespace(), "")
        };
        let (first, last) = (plain(&self.first), plain(&self.last));
        let version = r#""jsonrpc":"2.0","#;
        let head = first.strip_prefix('{')?;
        let head = head.strip_prefix(version).unwrap_or(head);
        if let Some(id) = head.strip_prefix(r#""id":"#) {
            return id.split(',').next()?.parse().ok();
        }
        let tail = last.strip_suffix('}')?;
        let tail = tail
            .strip_suffix(version.trim_end_matches(','))
            .and_then(|tail| tail.strip_suffix(','))
            .unwrap_or(tail);
        tail.rsplit_once(r#","id":"#)?.1.parse().ok()
    }
}

impl LineBuffer {
    /// The next line without its line end and surrounding blanks; `None` at the end of the stream.
    /// An incomplete last line is dropped.
    async fn next(
        &mut self,
        output: &mut (impl AsyncBufReadExt + Unpin),
    ) -> Option<Result<&[u8], TooLong>> {
        self.bytes.clear();
        self.ends = None;
        loop {
            let available = output.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(available.len());
            let more = &available[..taken];
            if self.bytes.len() + taken > LINE_LIMIT && self.ends.is_none() {
                let mut ends = TooLong::default();
                ends.more(&std::mem::take(&mut self.bytes));
                self.ends = Some(ends);
            }
            match &mut self.ends {
                Some(ends) => ends.more(more),
                None => self.bytes.extend_from_slice(more),
            }
            output.consume(end.map_or(taken, |end| end + 1));
            if end.is_some() {
                return Some(match self.ends.take() {
                    Some(ends) => Err(ends),
                    None => Ok(self.bytes.trim_ascii()),
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
        let mut line = LineBuffer::default();
        let mut found = Vec::new();
        while let Some(next) = line.next(&mut output).await {
            found.push(
                next.map_or_else(|_| "long".into(), String::from_utf8_lossy)
                    .into_owned(),
            );
        }
        assert_eq!(found, ["one", "", "long", "two"]);
    }

    #[test]
    fn of_an_answer_that_is_too_long_it_is_known_which_call_it_answers() {
        let filling = "x".repeat(3 * END);
        for (line, id) in [
            (
                format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{filling}"}}}}"#),
                Some(7),
            ),
            (
                format!(r#"{{ "id": 8, "result": {{"a":"{filling}"}} }}"#),
                Some(8),
            ),
            (
                format!(r#"{{"result":{{"a":"{filling}"}},"jsonrpc":"2.0","id":9}}"#),
                Some(9),
            ),
            (
                format!(r#"{{"result":{{"a":"{filling}"}},"id":10,"jsonrpc":"2.0"}}"#),
                Some(10),
            ),
            (format!(r#"{{"result":{{"a":"{filling}","id":11}}}}"#), None),
            (format!(r#"{{"result":"{filling}","id":"text"}}"#), None),
            (filling.clone(), None),
        ] {
            let mut ends = TooLong::default();
            for piece in line.as_bytes().chunks(50) {
                ends.more(piece);
            }
            assert_eq!(ends.answers(), id, "{line}");
        }
    }

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
