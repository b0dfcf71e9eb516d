//! The pipe between standard input and output and the daemon. Standard output carries messages
//! and nothing else; what a person should know goes to standard error.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind};

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::frames::{self, Framing, Input, Reader};
use super::open::{Expected, Id, OpenCalls};
use crate::cli::discover::{Way, Where};
use crate::cli::failure::{Failure, exit};
use crate::cli::token::{read_token, token_for_socket};
use crate::cli::{link, print, text};
use crate::client::ClientError;
use crate::client::pipe::{self, Down, Up};
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// Messages that were read and are not yet sent.
const AHEAD: usize = 16;

/// Carries messages until standard input ends and every call is answered; the exit code.
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
        Over::Done(code) => Ok(code),
        Over::NobodyReads => Ok(0),
        Over::Local(error) => Err(Failure::local("standard output", error)),
        Over::Lost(why) => {
            // What was read already will not be sent any more either.
            while let Ok((_, input)) = inputs.try_recv() {
                if let Input::Message(text) = input {
                    bridge.open.borrow_mut().sent(&text);
                }
            }
            bridge.give_up(&why);
            Err(Failure::new(
                exit::NO_DAEMON,
                "link_lost",
                format!("the link to the daemon was lost: {why}"),
            )
            .hint("what the daemon accepted is kept; start this again to go on"))
        }
    }
}

async fn connect(way: &Way) -> Result<Result<(Up, Down), ClientError>, Failure> {
    Ok(match way {
        Way::Socket { path, token_file } => {
            let token = token_for_socket(token_file.as_deref());
            pipe::connect_socket(path, token.as_deref()).await
        }
        Way::Tcp { url, token_file } => pipe::connect(url, &read_token(token_file)?).await,
    })
}

/// What is read, on a thread of its own: it may stand still in a read for ever, and nobody
/// waits for it at the end.
fn inputs() -> Result<mpsc::Receiver<(Framing, Input)>, Failure> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::Builder::new()
        .name("abide-stdin".to_owned())
        .spawn(move || {
            let mut reader = Reader::new(io::stdin().lock());
            // A fault of standard input is its end.
            while let Ok(Some(input)) = reader.next() {
                if sender.blocking_send(input).is_err() {
                    return;
                }
            }
        })
        .map_err(|error| Failure::local("no thread could be started", error))?;
    Ok(receiver)
}

/// Why it is over.
enum Over {
    /// Everything was read and answered.
    Done(u8),
    /// Nobody reads standard output any more.
    NobodyReads,
    /// Standard output takes nothing.
    Local(io::Error),
    /// The daemon is gone.
    Lost(String),
}

struct Bridge {
    open: RefCell<OpenCalls>,
    framing: Cell<Framing>,
    /// Standard input has ended, and what the exit code is then.
    ended: Cell<Option<u8>>,
    changed: Notify,
}

impl Bridge {
    /// From standard input to the daemon. After the end of the input it stands still: the other
    /// way says when it is over.
    async fn up(&self, inputs: &mut mpsc::Receiver<(Framing, Input)>, mut up: Up) -> Over {
        let mut code = 0;
        while let Some((framing, input)) = inputs.recv().await {
            self.framing.set(framing);
            match input {
                Input::Message(text) => {
                    self.open.borrow_mut().sent(&text);
                    if let Err(error) = up.send(text).await {
                        return lost(error);
                    }
                }
                Input::Refused(fault) => {
                    if let Some(over) = self.write(&error(&None, fault).to_string()) {
                        return over;
                    }
                }
                Input::Lost(fault) => {
                    code = exit::USAGE;
                    if let Some(over) = self.write(&error(&None, fault).to_string()) {
                        return over;
                    }
                }
            }
        }
        self.ended.set(Some(code));
        self.changed.notify_one();
        // The link is kept until the answers have come.
        std::future::pending().await
    }

    /// From the daemon to standard output.
    async fn down(&self, mut down: Down) -> Over {
        loop {
            if let Some(code) = self.ended.get()
                && self.open.borrow().is_empty()
            {
                return Over::Done(code);
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

    /// Answers every open call in the daemon's place.
    fn give_up(&self, why: &str) {
        let gone = || {
            Fault::new(
                Kind::Unavailable,
                format!("the link to the daemon was lost before its answer came: {why}"),
            )
            .hint("what it accepted is kept; ask again with the same idempotencyKey")
        };
        for expected in self.open.borrow_mut().give_up() {
            let answer = match expected {
                Expected::One(id) => error(&id, gone()),
                Expected::Batch(ids) => ids.iter().map(|id| error(id, gone())).collect(),
            };
            if self.write(&answer.to_string()).is_some() {
                return;
            }
        }
    }

    fn write(&self, text: &str) -> Option<Over> {
        // Nobody else writes there, and while nobody reads there, nothing is to be done.
        match frames::write(&mut io::stdout().lock(), self.framing.get(), text) {
            Ok(()) => None,
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Some(Over::NobodyReads),
            Err(error) => Some(Over::Local(error)),
        }
    }
}

fn lost(error: ClientError) -> Over {
    Over::Lost(match error {
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
