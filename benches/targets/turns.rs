//! P5: a whole turn, `agent.run` and `agent.wait`, with a model that answers at once over real
//! HTTP. The model is a thread of this program. The floor is one exchange with it and three inserts
//! of the storing server, which is what a turn writes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use crate::Result;
use crate::client::ServerAddress;
use crate::machine::Watch;
use crate::measure::{TASK, spawn_params};
use crate::sample::Sample;
use crate::talk::{self, Talk};

/// Sessions that run turns at the same time, each on its own connection.
const SESSIONS: usize = 32;

/// The text of the model's answer, as a server-sent event.
const TEXT: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\
    \"content\":\"There it is.\"},\"finish_reason\":null}]}\n\n";
/// The events after it.
const REST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":100,\"completion_tokens\":4}}\n\n\
    data: [DONE]\n\n";

/// A model server that answers at once. Its threads end with their connections.
pub struct InstantModel {
    address: SocketAddr,
    bytes: Arc<AtomicU64>,
    first_token: FirstToken,
}

/// When the latest answer began.
type FirstToken = Arc<Mutex<Option<Instant>>>;

impl InstantModel {
    /// Starts the model server.
    pub fn start() -> Result<Self> {
        InstantModel::pausing(Duration::ZERO)
    }

    /// As [`InstantModel::start`], with a pause after the text of each answer.
    pub fn pausing(pause: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&bytes);
        let first_token = FirstToken::default();
        let noted = Arc::clone(&first_token);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counted, noted) = (Arc::clone(&counted), Arc::clone(&noted));
                // An error means that the client has disconnected.
                std::thread::spawn(move || answer_all(&stream, &counted, &noted, pause));
            }
        });
        Ok(InstantModel {
            address,
            bytes,
            first_token,
        })
    }

    /// When the latest answer began; `None` before the first.
    pub fn first_token(&self) -> Option<Instant> {
        // A thread that panicked in between has left a whole value.
        *self
            .first_token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Total size of the request bodies received, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// One request and answer on an open connection.
    fn exchange(&self, stream: &mut TcpStream) -> Result<()> {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{TASK}"}}]}}"#);
        write!(
            stream,
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut read = Vec::new();
        let mut piece = [0; 4096];
        while !read.ends_with(b"data: [DONE]\n\n") {
            let count = stream.read(&mut piece)?;
            if count == 0 {
                return Err("the model closed the connection".into());
            }
            read.extend_from_slice(&piece[..count]);
        }
        Ok(())
    }
}

fn answer_all(
    stream: &TcpStream,
    counted: &AtomicU64,
    noted: &Mutex<Option<Instant>>,
    pause: Duration,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    let mut length = 0;
    let text = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{TEXT}",
        TEXT.len() + REST.len()
    );
    let whole = format!("{text}{REST}");
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let header = line.trim_end().to_ascii_lowercase();
        if let Some(count) = header.strip_prefix("content-length:") {
            length = count.trim().parse().unwrap_or(0);
        }
        if header.is_empty() {
            reader.read_exact(&mut vec![0; length])?;
            counted.fetch_add(length as u64, Ordering::Relaxed);
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            let mut to = stream;
            if pause.is_zero() {
                to.write_all(whole.as_bytes())?;
            } else {
                to.write_all(text.as_bytes())?;
                std::thread::sleep(pause);
                to.write_all(REST.as_bytes())?;
            }
        }
    }
}

/// Three inserts and one exchange with the model, sequentially.
pub fn floor(door: ServerAddress<'_>, model: &InstantModel, lasts: Duration) -> Result<Sample> {
    talk::run(async {
        let mut talk = Talk::open(door).await?;
        let mut stream = TcpStream::connect(model.address)?;
        stream.set_nodelay(true)?;
        let mut times = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < lasts {
            let asked = Instant::now();
            for number in 0..3 {
                talk.call("insert", &spawn_params(number)).await?;
            }
            model.exchange(&mut stream)?;
            times.push(asked.elapsed());
        }
        Ok(Sample::of(times, begun.elapsed()))
    })
}

/// Sequential turns in one session.
pub fn one_by_one(door: ServerAddress<'_>, lasts: Duration) -> Result<Sample> {
    talk::run(async {
        let begun = Instant::now();
        let times = turns(door, begun, lasts).await?;
        Ok(Sample::of(times, begun.elapsed()))
    })
}

/// The cost of turns while many sessions run them.
pub struct Many {
    /// Interval between the ends of consecutive turns over all sessions, milliseconds.
    pub each: f64,
    /// Processor time of the daemon per turn, milliseconds.
    pub cpu: Option<f64>,
}

/// Runs turns of many sessions at once, sequentially within each.
pub fn at_once(door: ServerAddress<'_>, pid: u32, lasts: Duration) -> Result<Many> {
    talk::run(async {
        let (watch, begun) = (Watch::start(pid), Instant::now());
        let all = (0..SESSIONS).map(|_| turns(door, begun, lasts));
        let count = try_join_all(all).await?.iter().map(Vec::len).sum::<usize>();
        let (seen, took) = (watch.stop(), begun.elapsed());
        let share = |time: Duration| time.as_secs_f64() * 1000.0 / count.max(1) as f64;
        Ok(Many {
            each: share(took),
            cpu: seen.map(|seen| share(seen.server)),
        })
    })
}

async fn turns(door: ServerAddress<'_>, begun: Instant, lasts: Duration) -> Result<Vec<Duration>> {
    let mut talk = Talk::open(door).await?;
    let made = talk.call("sessions.create", r#"{"agent":"build"}"#).await?;
    let key = made["session"]["key"].as_str().ok_or("no key")?.to_owned();
    let mut times = Vec::new();
    while begun.elapsed() < lasts {
        // The transcript stays short: the cost of a long one is a separate figure.
        let asked = Instant::now();
        turn(&mut talk, &key).await?;
        times.push(asked.elapsed());
        if times.len() % 50 == 0 {
            let reset = format!(r#"{{"sessionKey":"{key}"}}"#);
            talk.call("sessions.reset", &reset).await?;
        }
    }
    Ok(times)
}

/// Runs one turn of a session to its end.
pub async fn turn(talk: &mut Talk, key: &str) -> Result<()> {
    let params = format!(r#"{{"sessionKey":"{key}","message":"{TASK}"}}"#);
    let accepted = talk.call("agent.run", &params).await?;
    let run = accepted["runId"].as_str().ok_or("no runId")?;
    let params = format!(r#"{{"runId":"{run}","waitTimeout":60}}"#);
    let waited = talk.call("agent.wait", &params).await?;
    match waited["runs"][0]["result"] == "There it is." {
        true => Ok(()),
        false => Err(format!("unexpected end of a turn: {waited}").into()),
    }
}
