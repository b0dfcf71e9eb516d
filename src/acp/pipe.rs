//! Standard input and output of this process: one message a line. Each has a thread of its own, since
//! both may block forever.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, BufRead, Read, Write};
use std::rc::Rc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::acp_protocol::update::Update;
use crate::acp_protocol::{Answered, Incoming, RpcError, code, read, response};

/// Maximum size of a message in bytes, the same as the daemon's.
const MAX_MESSAGE_BYTES: u64 = 10 * 1024 * 1024;
/// Maximum number of messages that were read and not dispatched yet.
const READ_AHEAD: usize = 16;
/// Maximum number of messages that were not written yet; beyond that the sender waits.
const UNWRITTEN: usize = 256;

/// Reads messages from standard input until its end.
pub(super) fn messages() -> io::Result<mpsc::Receiver<Incoming>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);
    std::thread::Builder::new()
        .name("abide-stdin".to_owned())
        .spawn(move || {
            let mut input = io::stdin().lock();
            // A read error counts as the end.
            while let Ok(Some(message)) = next(&mut input) {
                if sender.blocking_send(message).is_err() {
                    return;
                }
            }
        })?;
    Ok(receiver)
}

/// The next message that is not blank; `None` at the end.
fn next(input: &mut impl BufRead) -> io::Result<Option<Incoming>> {
    loop {
        let mut line = Vec::new();
        let limit = MAX_MESSAGE_BYTES + 1;
        input.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let refused = |code, message: String| {
            Ok(Some(Incoming::Invalid {
                id: Value::Null,
                error: RpcError::new(code, message),
            }))
        };
        if line.len() as u64 == limit && line.last() != Some(&b'\n') {
            input.skip_until(b'\n')?;
            let message = format!("the message is larger than {MAX_MESSAGE_BYTES} bytes");
            return refused(code::INVALID_REQUEST, message);
        }
        match std::str::from_utf8(&line) {
            Ok(text) if text.trim().is_empty() => {}
            Ok(text) => return Ok(Some(read(text.trim_start_matches('\u{feff}')))),
            Err(error) => {
                let message = format!("the message is not UTF-8: {error}");
                return refused(code::PARSE, message);
            }
        }
    }
}

/// What the writing thread carries out.
enum WriterOrder {
    Line(String),
    /// Says when all lines before it are written.
    Flush(oneshot::Sender<()>),
}

/// Writes messages to standard output, in the order of the calls. Cheap to clone.
#[derive(Clone)]
pub(super) struct Output {
    orders: mpsc::Sender<WriterOrder>,
    open: Rc<OpenRequests>,
}

/// Requests of this agent that the editor has not answered.
#[derive(Default)]
struct OpenRequests {
    last: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<Option<Value>>>>,
}

impl Output {
    /// Opens standard output.
    pub(super) fn open() -> io::Result<Output> {
        let (orders, mut receiver) = mpsc::channel(UNWRITTEN);
        std::thread::Builder::new()
            .name("abide-stdout".to_owned())
            .spawn(move || {
                let mut output = io::stdout().lock();
                while let Some(order) = receiver.blocking_recv() {
                    let written = match order {
                        WriterOrder::Line(line) => writeln!(output, "{line}"),
                        WriterOrder::Flush(done) => {
                            // Without a receiver nothing waits for it.
                            let _ = done.send(());
                            Ok(())
                        }
                    };
                    // An editor that is gone reads nothing; the end of the channel says so.
                    if written.and_then(|()| output.flush()).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Output {
            orders,
            open: Rc::default(),
        })
    }

    /// Returns when the editor reads no more.
    pub(super) async fn closed(&self) {
        self.orders.closed().await;
    }

    /// All messages so far are written once this returns, unless the editor is gone.
    pub(super) async fn flushed(&self) {
        let (sender, written) = oneshot::channel();
        if self.orders.send(WriterOrder::Flush(sender)).await.is_ok() {
            // An error means that the editor is gone.
            let _ = written.await;
        }
    }

    async fn line(&self, line: String) {
        // Without a reader the process is about to end.
        let _ = self.orders.send(WriterOrder::Line(line)).await;
    }

    /// Answers a request.
    pub(super) async fn respond<T: Serialize>(&self, id: &Value, answered: Answered<T>) {
        self.line(response(id, answered)).await;
    }

    /// Sends an update of a session.
    pub(super) async fn update(&self, session: &str, update: &Update) {
        let params = json!({ "sessionId": session, "update": update });
        self.notify("session/update", &params).await;
    }

    async fn notify(&self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.line(message.to_string()).await;
    }

    /// Sends a request to the editor.
    pub(super) async fn request(&self, method: &str, params: impl Serialize) -> EditorRequest {
        let id = self.open.last.get() + 1;
        self.open.last.set(id);
        let (sender, answer) = oneshot::channel();
        self.open.waiting.borrow_mut().insert(id, sender);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.line(message.to_string()).await;
        EditorRequest {
            id,
            answer,
            output: self.clone(),
        }
    }

    /// Passes the editor's response on to its request; `None`: an error.
    pub(super) fn answered(&self, id: &Value, result: Option<Value>) {
        let waiting = id
            .as_u64()
            .and_then(|id| self.open.waiting.borrow_mut().remove(&id));
        if let Some(waiting) = waiting {
            // The request may have been withdrawn in this moment.
            let _ = waiting.send(result);
        }
    }
}

/// A request that the editor has not answered yet.
pub(super) struct EditorRequest {
    id: u64,
    answer: oneshot::Receiver<Option<Value>>,
    output: Output,
}

impl EditorRequest {
    /// The editor's result; `None` if it answered with an error. Cancel-safe.
    pub(super) async fn answer(&mut self) -> Option<Value> {
        (&mut self.answer).await.ok().flatten()
    }

    /// Tells the editor that no answer is needed any more.
    pub(super) async fn withdraw(self) {
        let waiting = self.output.open.waiting.borrow_mut().remove(&self.id);
        if waiting.is_some() {
            let params = json!({ "requestId": self.id });
            self.output.notify("$/cancel_request", &params).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_does_not_take_the_next_along() {
        let large = format!("\"{}\"", "x".repeat(MAX_MESSAGE_BYTES as usize));
        let text = format!("\n{large}\n{{\n{{\"id\":1,\"method\":\"a\"}}");
        let mut input = io::Cursor::new([b"\xff\n".as_slice(), text.as_bytes()].concat());
        let mut codes = Vec::new();
        let last = loop {
            match next(&mut input).unwrap() {
                Some(Incoming::Invalid { error, .. }) => codes.push(error.code),
                last => break last,
            }
        };
        assert_eq!(codes, [code::PARSE, code::INVALID_REQUEST, code::PARSE]);
        assert!(matches!(last, Some(Incoming::Request { .. })), "{last:?}");
        assert!(next(&mut input).unwrap().is_none());
    }
}
