//! P19: events of a backlog to a fast receiver on the same machine, beside bare POSTs of the same size
//! with the same HTTP client and as many at once.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::Result;
use crate::client::{self, Load, Until};
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::measure::{Round, Samples, spawn_params};
use crate::sample::Sample;

/// Spawns, of which each has a few events.
const SPAWNS: u64 = 2000;
/// Attempts of the daemon at once.
const AT_ONCE: usize = 64;
/// Requests that are not measured: connections are opened for them.
const WARM_UP: usize = 500;
/// Requests of which the time is taken together.
const GROUP: usize = 100;
/// Time limit for the receiver to get everything.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A receiver that accepts everything at once.
struct FastReceiver {
    address: SocketAddr,
    arrivals: Arc<(Mutex<Vec<Instant>>, Condvar)>,
}

impl FastReceiver {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let receiver = FastReceiver {
            address: listener.local_addr()?,
            arrivals: Arc::default(),
        };
        let arrivals = Arc::clone(&receiver.arrivals);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let arrivals = Arc::clone(&arrivals);
                // An error means that the client has disconnected.
                std::thread::spawn(move || accept_all(&stream, &arrivals));
            }
        });
        Ok(receiver)
    }

    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The times of the first `count` requests, once they are there; they are forgotten.
    fn take(&self, count: usize) -> Result<Vec<Instant>> {
        let (arrivals, changed) = &*self.arrivals;
        let known = arrivals.lock().map_err(|_| "a receiver panicked")?;
        let waited = changed.wait_timeout_while(known, TIMEOUT, |known| known.len() < count);
        let (mut known, waited) = waited.map_err(|_| "a receiver panicked")?;
        if waited.timed_out() {
            return Err(format!("{} of {count} requests came", known.len()).into());
        }
        Ok(std::mem::take(&mut *known))
    }
}

fn accept_all(mut stream: &TcpStream, arrivals: &(Mutex<Vec<Instant>>, Condvar)) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut body = Vec::new();
    let mut line = String::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(": ")
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.parse().ok()?;
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body).ok()?;
        arrivals.0.lock().ok()?.push(Instant::now());
        arrivals.1.notify_all();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .ok()?;
    }
}

/// The time for each request, in groups, and the rate of all.
fn of(arrivals: &[Instant]) -> Sample {
    let measured = &arrivals[WARM_UP.min(arrivals.len())..];
    let groups = measured.windows(GROUP + 1).step_by(GROUP);
    let times = groups.map(|group| (group[GROUP] - group[0]) / GROUP as u32);
    let mut sample = Sample::of(times.collect(), Duration::from_secs(1));
    if let (Some(first), Some(last)) = (measured.first(), measured.last()) {
        sample.rate = (measured.len() - 1) as f64 / (*last - *first).as_secs_f64();
    }
    sample
}

/// The events are stored while the webhook's secret is missing, and sent once it is there.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let receiver = FastReceiver::start()?;
    let folder = round.folder.join("webhooks");
    fs::create_dir_all(&folder)?;
    let secret = folder.join("secret");
    let setting = Setting::Webhook(receiver.address.port());
    let daemon = Daemon::start(round.binary, &folder, setting)?;
    client::run(&Load {
        door: daemon.door(),
        connections: 1,
        each: AT_ONCE,
        until: Until::Calls(SPAWNS),
        method: "sessions.spawn",
        params: &spawn_params,
        kept: 0,
    })?;
    fs::write(&secret, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")?;
    let count = SPAWNS as usize;
    let sent = of(&receiver.take(count)?);
    daemon.stop()?;

    let posted = FastReceiver::start()?;
    post(&posted.url(), count)?;
    let floor = of(&posted.take(count)?);
    Ok(vec![
        (Figure::FloorPost, floor),
        (Figure::WebhookRate, sent.clone()),
        (Figure::WebhookEach, sent),
    ])
}

/// Bare POSTs with the size of a message.
fn post(url: &str, count: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let client = abide::outbound::client(url)
        .pool_max_idle_per_host(AT_ONCE)
        .build()?;
    let body = format!("{{\"data\":\"{}\"}}", "x".repeat(600));
    let posts = stream::iter(0..count).map(|_| {
        let post = client.post(url).body(body.clone());
        async move { post.send().await?.bytes().await }
    });
    runtime.block_on(
        posts
            .buffer_unordered(AT_ONCE)
            .try_for_each(async |_| Ok(())),
    )?;
    Ok(())
}
