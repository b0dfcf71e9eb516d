//! The connection to the program of an outside agent: one message a line over its pipes. A task of
//! its own reads and ends the program; nothing here waits for a program that does not read.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::acp_protocol::{Answered, Incoming, RpcError, call, code, read, response};
use crate::kernel::text::{preview, storable};
use crate::process::{ExitReason, LINE_LIMIT, LineBuffer, Service, ServiceEnd, signal_name};

/// Maximum number of messages that the program has not read yet. A program that reads nothing for
/// longer is ended.
const UNREAD: usize = 256;
/// Maximum number of characters that are shown of what the program has written.
const SHOWN: usize = 400;
/// How long an ended program's output may take to arrive.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Why a request has no result.
#[derive(Clone, Debug)]
pub(super) enum NoResult {
    /// The agent answered with this error.
    Refused(RpcError),
    /// The connection has ended; the text says how.
    Ended(String),
}

/// The connection to a program. The program ends when this is dropped.
pub(super) struct Link {
    lines: mpsc::Sender<String>,
    open: Mutex<OpenRequests>,
    /// The reason for the end, once the connection has ended.
    ended: watch::Sender<Option<String>>,
    stop: CancellationToken,
    /// It does not read its messages.
    is_stuck: AtomicBool,
    /// The program itself has ended, or no message of it is heard any more.
    is_ending: watch::Sender<bool>,
    /// Whether the program has ended with its descendants.
    gone: watch::Sender<bool>,
}

/// Requests that the agent has not answered.
#[derive(Default)]
struct OpenRequests {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Answered<Value>>>,
}

/// What the tasks of a connection take over from its start.
pub(super) struct Unattended {
    /// The name of the program.
    pub name: String,
    service: Service,
    lines: mpsc::Receiver<String>,
}

impl Link {
    /// The connection to a started program, which [`Link::attend`] must serve.
    pub(super) fn to(name: &str, service: Service) -> (Link, Unattended) {
        let (lines, unread) = mpsc::channel(UNREAD);
        let link = Link {
            lines,
            open: Mutex::default(),
            ended: watch::channel(None).0,
            stop: CancellationToken::new(),
            is_stuck: AtomicBool::new(false),
            is_ending: watch::channel(false).0,
            gone: watch::channel(false).0,
        };
        let unattended = Unattended {
            name: name.to_owned(),
            service,
            lines: unread,
        };
        (link, unattended)
    }

    /// True unless the program has ended or cannot be reached any more, or does so within this time.
    /// The end of its descendants may take longer, see [`Link::close`].
    pub(super) async fn stays_open(&self, time: Duration) -> bool {
        let mut is_ending = self.is_ending.subscribe();
        let ends = is_ending.wait_for(|ending| *ending);
        tokio::time::timeout(time, ends).await.is_err()
    }

    /// Serves the connection until its end: `heard` gets each request and notification of the agent.
    /// The program has ended with its descendants once this returns.
    pub(super) async fn attend(&self, of: Unattended, mut heard: impl FnMut(Incoming)) {
        let Unattended {
            name,
            mut service,
            lines,
        } = of;
        let writing = service
            .input
            .take()
            .map(|input| tokio::spawn(write(input, lines)));
        let output = service.output.take();
        let fault = {
            let mut listening = pin!(self.listen(output, &mut heard));
            tokio::select! {
                fault = &mut listening => fault,
                _ = service.ended() => {
                    self.is_ending.send_replace(true);
                    // What it wrote last may still be in the pipe, which other processes may hold.
                    let rest = tokio::time::timeout(LAST_OUTPUT, listening);
                    rest.await.unwrap_or(None)
                }
                () = self.stop.cancelled() => Some(match self.is_stuck.load(Ordering::Relaxed) {
                    true => format!("it left {UNREAD} messages unread"),
                    false => "its run had ended".to_owned(),
                }),
            }
        };
        self.is_ending.send_replace(true);
        if let Some(writing) = writing {
            writing.abort();
        }
        let told = match fault {
            Some(fault) => {
                let end = service.end().await;
                ended_by(&name, &fault, &end)
            }
            None => {
                // Its exit status follows its last output.
                let _ = tokio::time::timeout(LAST_OUTPUT, service.ended()).await;
                ended_by_itself(&name, &service.end().await)
            }
        };
        self.ended.send_replace(Some(told));
        self.open().waiting.clear();
        self.gone.send_replace(true);
    }

    /// Reads messages until the end of the output, or until a line that is none: then returns what
    /// is wrong.
    async fn listen(
        &self,
        output: Option<tokio::process::ChildStdout>,
        heard: &mut impl FnMut(Incoming),
    ) -> Option<String> {
        let mut output = BufReader::new(output?);
        let mut line = LineBuffer::default();
        loop {
            let bytes = match line.next(&mut output).await? {
                Ok([]) => continue,
                Ok(bytes) => bytes,
                Err(_) => return Some(format!("it wrote a line of more than {LINE_LIMIT} bytes")),
            };
            let message = match std::str::from_utf8(bytes) {
                Ok(text) => read(text),
                Err(error) => return Some(format!("it wrote a line that is not UTF-8: {error}")),
            };
            match message {
                Incoming::Response { id, result } => {
                    let id = id.as_u64();
                    let waiting = id.and_then(|id| self.open().waiting.remove(&id));
                    if let Some(waiting) = waiting {
                        // The request may have been given up.
                        let _ = waiting.send(result);
                    }
                }
                Incoming::Invalid { error, .. } => {
                    let shown = preview(&storable(&String::from_utf8_lossy(bytes)), SHOWN);
                    return Some(format!(
                        "it wrote a line that is no message of the protocol ({}): {shown}",
                        error.message
                    ));
                }
                other => heard(other),
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, OpenRequests> {
        // The map is consistent at every moment, so a poisoned lock is safe to use.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, line: String) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.lines.try_send(line) {
            // It does not read; a closed channel means that it has ended.
            self.is_stuck.store(true, Ordering::Relaxed);
            self.stop.cancel();
        }
    }

    /// Sends a request; its result can be awaited later.
    pub(super) fn send(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> oneshot::Receiver<Answered<Value>> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut open = self.open();
            open.last += 1;
            let id = open.last;
            if self.ended.borrow().is_none() {
                open.waiting.insert(id, sender);
            }
            id
        };
        self.line(call(Some(id), method, params));
        receiver
    }

    /// Waits for the result of a request.
    pub(super) async fn result<T: DeserializeOwned>(
        &self,
        method: &str,
        answer: oneshot::Receiver<Answered<Value>>,
    ) -> Result<T, NoResult> {
        let Ok(answer) = answer.await else {
            return Err(NoResult::Ended(self.why_ended().await));
        };
        let result = answer.map_err(NoResult::Refused)?;
        T::deserialize(result).map_err(|error| {
            let message = format!("its result of {method} cannot be read: {error}");
            NoResult::Refused(RpcError::new(code::INTERNAL, message))
        })
    }

    /// Sends a request and waits for its result.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, NoResult> {
        self.result(method, self.send(method, params)).await
    }

    /// Sends a notification.
    pub(super) fn notify(&self, method: &str, params: &impl Serialize) {
        self.line(call(None, method, params));
    }

    /// Answers a request of the agent.
    pub(super) fn respond<T: Serialize>(&self, id: &Value, answered: Answered<T>) {
        self.line(response(id, answered));
    }

    /// How the connection has ended, once it has.
    pub(super) async fn why_ended(&self) -> String {
        let mut ended = self.ended.subscribe();
        // The sender lives in `self`, so this cannot fail.
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// Once this returns, the program has ended with its descendants.
    pub(super) async fn close(&self) {
        self.stop.cancel();
        let mut gone = self.gone.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

async fn write(mut input: ChildStdin, mut lines: mpsc::Receiver<String>) {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        // A program that reads no more is about to end, which its output shows.
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn ended_by_itself(name: &str, end: &ServiceEnd) -> String {
    let how = match end.ending {
        Some(ExitReason::Exited(status)) => format!("exit status {status}"),
        Some(ExitReason::Signal(signal)) => format!("signal {}", signal_name(signal)),
        _ => "its output was closed".to_owned(),
    };
    format!("{name} ended in the middle ({how}){}", said_last(end))
}

fn ended_by(name: &str, fault: &str, end: &ServiceEnd) -> String {
    format!("{name} was ended: {fault}{}", said_last(end))
}

/// The last line of the program's standard error.
fn said_last(end: &ServiceEnd) -> String {
    let said = end.stderr.as_ref().map(|said| said.text());
    let lines = said.as_deref().unwrap_or_default().lines();
    let last = lines.map(str::trim).rfind(|line| !line.is_empty());
    match last {
        Some(last) => format!("; it wrote last: {}", preview(&storable(last), SHOWN)),
        None => "; it wrote nothing to standard error".to_owned(),
    }
}
