//! Carries messages between standard input and output and the daemon. Standard output carries
//! messages only; notes for the user go to standard error.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::frames::{self, FrameInput, FrameReader, Framing};
use super::open::{ExpectedResponse, Id, OpenCalls};
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link;
use crate::cli::link::discover::{Transport, Where};
use crate::cli::link::token::{read_token, token_for_socket};
use crate::cli::link::trust;
use crate::cli::output::{print, text};
use crate::client::ClientError;
use crate::client::pipe::{self, Down, Up};
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// Maximum number of messages that were read and not sent yet.
const AHEAD: usize = 16;

/// Carries messages until standard input has ended and every call is answered; returns the exit
/// code.
pub(super) async fn run(place: &Where) -> u8 {
    match carry(place).await {
        Ok(code) => code,
        Err(failure) => {
            say(&failure);
            failure.code
        }
    }
}

fn say(failure: &Failure) {
    print::note(&format!("abide: {}", text::clean(&failure.to_string())));
}

async fn carry(place: &Where) -> Result<u8, Failure> {
    let ((up, down), _) = link::by_any_way(place, connect).await?;
    let bridge = Bridge {
        open: RefCell::default(),
        framing: Cell::new(Framing::Lines),
        ended: Cell::new(None),
        changed: Notify::new(),
    };
    let mut inputs = inputs()?;
    let over = tokio::select! {
        over = bridge.up(&mut inputs, up) => over,
        over = bridge.down(down) => over,
    };
    match over {
        BridgeEnd::Done(code) => Ok(code),
        BridgeEnd::ReaderGone => Ok(0),
        BridgeEnd::Local(error) => Err(Failure::local("standard output", error)),
        BridgeEnd::Lost(why) => {
            // Messages that were already read will not be sent any more: their calls get an error,
            // too.
            while let Ok((_, input)) = inputs.try_recv() {
                if let FrameInput::Message(text) = input {
                    bridge.open.borrow_mut().sent(&text);
                }
            }
            bridge.give_up(&why);
            Err(Failure::new(
                exit::NO_DAEMON,
                "link_lost",
                format!("the connection to the daemon was lost: {why}"),
            )
            .hint("what the daemon accepted is kept; start this command again to continue"))
        }
    }
}

async fn connect(way: &Transport) -> Result<Result<(Up, Down), ClientError>, Failure> {
    Ok(match way {
        Transport::Socket { path, token_file } => {
            let token = token_for_socket(token_file.as_deref());
            pipe::connect_socket(path, token.as_deref()).await
        }
        Transport::Tcp {
            url,
            token_file,
            pin,
        } => {
            let token = read_token(token_file)?;
            let open = async |trust| pipe::connect(url, trust, &token).await;
            trust::connect(url, *pin, open).await?
        }
    })
}

/// Reads standard input on a separate thread: a read may block forever, and the thread is not
/// joined at the end.
fn inputs() -> Result<mpsc::Receiver<(Framing, FrameInput)>, Failure> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::Builder::new()
        .name("abide-stdin".to_owned())
        .spawn(move || {
            let mut reader = FrameReader::new(io::stdin().lock());
            // A read error counts as the end of standard input.
            while let Ok(Some(input)) = reader.next() {
                if sender.blocking_send(input).is_err() {
                    return;
                }
            }
        })
        .map_err(|error| Failure::local("no thread could be started", error))?;
    Ok(receiver)
}

/// Why the bridge has ended.
enum BridgeEnd {
    /// The input has ended and every call is answered; with the exit code.
    Done(u8),
    /// The reader of standard output has closed it.
    ReaderGone,
    /// Writing to standard output failed.
    Local(io::Error),
    /// The connection to the daemon was lost, with the reason.
    Lost(String),
}

struct Bridge {
    open: RefCell<OpenCalls>,
    framing: Cell<Framing>,
    /// The exit code, once standard input has ended.
    ended: Cell<Option<u8>>,
    changed: Notify,
}

impl Bridge {
    /// Carries standard input to the daemon. It does not return after the end of the input: `down`
    /// decides when the bridge ends.
    async fn up(
        &self,
        inputs: &mut mpsc::Receiver<(Framing, FrameInput)>,
        mut up: Up,
    ) -> BridgeEnd {
        let mut code = 0;
        while let Some((framing, input)) = inputs.recv().await {
            self.framing.set(framing);
            match input {
                FrameInput::Message(text) => {
                    self.open.borrow_mut().sent(&text);
                    if let Err(error) = up.send(text).await {
                        return lost(error);
                    }
                }
                FrameInput::Refused(fault) => {
                    if let Some(over) = self.write(&error(&None, fault).to_string()) {
                        return over;
                    }
                }
                FrameInput::Lost(fault) => {
                    code = exit::USAGE;
                    if let Some(over) = self.write(&error(&None, fault).to_string()) {
                        return over;
                    }
                }
            }
        }
        self.ended.set(Some(code));
        self.changed.notify_one();
        // Keeps the connection until the answers have come.
        std::future::pending().await
    }

    /// Carries the daemon's messages to standard output.
    async fn down(&self, mut down: Down) -> BridgeEnd {
        loop {
            if let Some(code) = self.ended.get()
                && self.open.borrow().is_empty()
            {
                return BridgeEnd::Done(code);
            }
            let text = tokio::select! {
                text = down.next() => text,
                () = self.changed.notified() => continue,
            };
            let text = match text {
                Ok(text) => text,
                Err(error) => return lost(error),
            };
            self.open.borrow_mut().answered(&text);
            if let Some(over) = self.write(&text) {
                return over;
            }
        }
    }

    /// Answers every open call with an error in the daemon's place.
    fn give_up(&self, why: &str) {
        let gone = || {
            Fault::new(
                Kind::Unavailable,
                format!("the connection to the daemon was lost before its answer came: {why}"),
            )
            .hint("accepted work is kept; retry with the same idempotencyKey")
        };
        for expected in self.open.borrow_mut().give_up() {
            let answer = match expected {
                ExpectedResponse::One(id) => error(&id, gone()),
                ExpectedResponse::Batch(ids) => ids.iter().map(|id| error(id, gone())).collect(),
            };
            if self.write(&answer.to_string()).is_some() {
                return;
            }
        }
    }

    fn write(&self, text: &str) -> Option<BridgeEnd> {
        // Nothing else writes there, and the write may block: until it is read, nothing else is to
        // be done.
        match frames::write(&mut io::stdout().lock(), self.framing.get(), text) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Some(BridgeEnd::ReaderGone),
            Err(error) => Some(BridgeEnd::Local(error)),
        }
    }
}

fn lost(error: ClientError) -> BridgeEnd {
    BridgeEnd::Lost(match error {
        ClientError::LinkLost(why) => why,
        other => other.to_string(),
    })
}

fn error(id: &Id, fault: Fault) -> Value {
    let id: Value = id
        .as_deref()
        .and_then(|id| serde_json::from_str(id).ok())
        .unwrap_or(Value::Null);
    json!({ "jsonrpc": "2.0", "id": id, "error": WireError::from(fault) })
}
