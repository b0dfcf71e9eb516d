//! A receiver of webhooks over real sockets. It answers as a test says, keeps every attempt, and
//! outlives the daemons that send to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::harness::Place;

/// What the receiver does with an attempt.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It answers with this status.
    Status(u16),
    /// The same, with a header.
    With(u16, &'static str, String),
    /// It answers 200 once [`Receiver::let_go`] is called.
    Late,
    /// It answers with this status and a header once [`Receiver::let_go`] is called.
    LateWith(u16, &'static str, String),
    /// It answers 500, and repeats the path that was called.
    Echo,
    /// It never answers.
    Hang,
    /// It closes the connection in the middle of a 200.
    Close,
}

/// An attempt as it was received.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// `webhook-id`.
    pub(crate) id: String,
    /// `webhook-timestamp`.
    pub(crate) timestamp: i64,
    /// `webhook-signature`; empty if there is none.
    pub(crate) signature: String,
    /// The body, byte by byte.
    pub(crate) raw: String,
    /// The body as JSON.
    pub(crate) body: Value,
    /// The path that was called.
    pub(crate) path: String,
    /// True if it was answered with 2xx.
    pub(crate) accepted: bool,
}

impl Attempt {
    /// The run of the event.
    pub(crate) fn run(&self) -> Option<&str> {
        self.body["data"]["runId"].as_str()
    }

    /// The event's cursor.
    pub(crate) fn cursor(&self) -> i64 {
        self.body["data"]["cursor"].as_i64().unwrap()
    }

    /// The event's kind.
    pub(crate) fn kind(&self) -> &str {
        self.body["type"].as_str().unwrap()
    }
}

/// Decides on an attempt; the number says how many attempts of the same id came before it.
type Decide = Box<dyn Fn(&Attempt, usize) -> Verdict + Send + Sync>;

struct State {
    decide: Arc<Decide>,
    attempts: Vec<Attempt>,
    seen: BTreeMap<String, usize>,
    released: bool,
    connections: usize,
}

/// A running receiver. It ends with the test's process.
#[derive(Clone)]
pub(crate) struct Receiver {
    address: String,
    shared: Arc<(Mutex<State>, Condvar)>,
}

/// Every receiver of this process.
static ALL: Mutex<Vec<Receiver>> = Mutex::new(Vec::new());

impl Receiver {
    /// A receiver that accepts everything.
    pub(crate) fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let receiver = Receiver {
            address: listener.local_addr().unwrap().to_string(),
            shared: Arc::new((
                Mutex::new(State {
                    decide: Arc::new(Box::new(|_: &Attempt, _| Verdict::Status(200)) as Decide),
                    attempts: Vec::new(),
                    seen: BTreeMap::new(),
                    released: false,
                    connections: 0,
                }),
                Condvar::new(),
            )),
        };
        ALL.lock().unwrap().push(receiver.clone());
        let serving = receiver.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let one = serving.clone();
                one.shared.0.lock().unwrap().connections += 1;
                std::thread::spawn(move || one.serve(stream));
            }
        });
        receiver
    }

    /// The receiver that a place sends to.
    pub(crate) fn of(place: &Place) -> Receiver {
        let settings = std::fs::read_to_string(place.path().join("abide.toml")).unwrap();
        let all = ALL.lock().unwrap();
        let found = all.iter().find(|one| settings.contains(&one.url()));
        found.unwrap().clone()
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// From now on attempts are decided like this.
    pub(crate) fn decide(
        &self,
        decide: impl Fn(&Attempt, usize) -> Verdict + Send + Sync + 'static,
    ) {
        self.shared.0.lock().unwrap().decide = Arc::new(Box::new(decide));
    }

    /// Answers what is [`Verdict::Late`], and does not hold up anything more.
    pub(crate) fn let_go(&self) {
        self.shared.0.lock().unwrap().released = true;
        self.shared.1.notify_all();
    }

    /// Every attempt so far.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        self.shared.0.lock().unwrap().attempts.clone()
    }

    /// Attempts that were accepted, each event once: the first time counts.
    pub(crate) fn delivered(&self) -> Vec<Attempt> {
        let mut ids = BTreeSet::new();
        let attempts = self.attempts().into_iter();
        attempts
            .filter(|one| one.accepted && ids.insert(one.id.clone()))
            .collect()
    }

    /// The number of connections that were opened.
    pub(crate) fn connections(&self) -> usize {
        self.shared.0.lock().unwrap().connections
    }

    /// Waits until `is_enough` of the attempts.
    pub(crate) fn until(&self, what: &str, is_enough: impl Fn(&[Attempt]) -> bool) -> Vec<Attempt> {
        let (state, changed) = &*self.shared;
        let limit = Duration::from_secs(60);
        let (state, waited) = changed
            .wait_timeout_while(state.lock().unwrap(), limit, |state| {
                !is_enough(&state.attempts)
            })
            .unwrap();
        assert!(
            !waited.timed_out(),
            "{what} did not come; received: {:#?}",
            state.attempts
        );
        state.attempts.clone()
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(mut attempt) = read(&mut reader) {
            let (state, changed) = &*self.shared;
            let mut state = state.lock().unwrap();
            let before = state.seen.entry(attempt.id.clone()).or_default();
            let nth = *before;
            *before += 1;
            let decide = Arc::clone(&state.decide);
            let mut verdict = decide(&attempt, nth);
            attempt.accepted = matches!(verdict, Verdict::Status(200..=299));
            state.attempts.push(attempt);
            let place = state.attempts.len() - 1;
            changed.notify_all();
            let path = state.attempts[place].path.clone();
            match verdict {
                Verdict::Late => {
                    let mut state = changed.wait_while(state, |state| !state.released).unwrap();
                    state.attempts[place].accepted = true;
                    verdict = Verdict::Status(200);
                    changed.notify_all();
                }
                Verdict::LateWith(status, name, value) => {
                    let state = changed.wait_while(state, |state| !state.released).unwrap();
                    verdict = Verdict::With(status, name, value);
                    drop(state);
                }
                _ => drop(state),
            }
            if !carry_out(&stream, &verdict, &path) {
                break;
            }
        }
    }
}

/// Answers; false if the connection is over.
fn carry_out(mut stream: &TcpStream, verdict: &Verdict, path: &str) -> bool {
    let (status, header) = match verdict {
        Verdict::Status(status) => (*status, String::new()),
        Verdict::With(status, name, value) => (*status, format!("{name}: {value}\r\n")),
        Verdict::Hang => {
            // The other side gives up at some time.
            let _ = stream.read(&mut [0]);
            return false;
        }
        Verdict::Close => {
            let _ = stream.write_all(b"HTTP/1.1 200 O");
            let _ = stream.shutdown(Shutdown::Both);
            return false;
        }
        Verdict::Echo => (500, String::new()),
        Verdict::Late | Verdict::LateWith(..) => return false,
    };
    let body = match verdict {
        Verdict::Echo => format!("cannot POST {path}"),
        _ => format!("status {status}"),
    };
    let answer = format!(
        "HTTP/1.1 {status} Said\r\n{header}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).is_ok()
}

/// The next request of a connection.
fn read(reader: &mut BufReader<TcpStream>) -> Option<Attempt> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length: usize = headers.get("content-length")?.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let raw = String::from_utf8(body).ok()?;
    let mut take = |name: &str| headers.remove(name).unwrap_or_default();
    Some(Attempt {
        id: take("webhook-id"),
        timestamp: take("webhook-timestamp").parse().ok()?,
        signature: take("webhook-signature"),
        body: serde_json::from_str(&raw).ok()?,
        raw,
        path,
        accepted: false,
    })
}
