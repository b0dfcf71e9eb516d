//! One daemon process that can be killed, stopped, and asked whether it is ready.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use abide::tls::Fingerprint;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::client::Link;
use super::eventually;

/// A daemon that has become ready. It is killed on drop.
pub(crate) struct Daemon {
    child: Child,
    url: String,
    /// The certificate that it shows, if it speaks TLS.
    pin: Option<Fingerprint>,
    token: String,
    state: PathBuf,
    log: PathBuf,
}

impl Daemon {
    /// Starts `command` and waits until it is ready; `Err` has the exit status of a process that
    /// ended before.
    pub(super) async fn start(
        mut command: Command,
        state: &Path,
        log: &Path,
    ) -> Result<Daemon, ExitStatus> {
        let out = OpenOptions::new().create(true).append(true).open(log);
        let out = out.unwrap();
        command.stdout(out.try_clone().unwrap()).stderr(out);
        let mut daemon = Daemon {
            child: command.spawn().unwrap(),
            url: String::new(),
            pin: None,
            token: String::new(),
            state: state.to_owned(),
            log: log.to_owned(),
        };
        let pid = u64::from(daemon.pid());
        let file = state.join("endpoint.json");
        loop {
            let started = eventually("a start", || {
                let ended = daemon.child.try_wait().unwrap();
                let url = endpoint(&file, pid);
                async move {
                    match (ended, url) {
                        (Some(status), _) => Some(Err(status)),
                        (None, Some(url)) => Some(Ok(url)),
                        (None, None) => None,
                    }
                }
            })
            .await;
            (daemon.url, daemon.pin) = started?;
            if daemon
                .get("/ready")
                .is_some_and(|(status, _)| status == 200)
            {
                break;
            }
        }
        daemon.token = std::fs::read_to_string(state.join("token")).unwrap();
        Ok(daemon)
    }

    /// Process id of the daemon.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The URL that it listens on.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The bearer token that it accepts.
    pub(crate) fn token(&self) -> &str {
        self.token.trim()
    }

    /// Connects to it; `None` if it no longer accepts connections.
    pub(crate) async fn connect(&self) -> Option<Link> {
        Link::open(&self.url, self.pin, self.token()).await
    }

    /// Connects to it; panics if that fails.
    pub(crate) async fn client(&self) -> Link {
        self.connect().await.unwrap()
    }

    /// Connects with this token; panics if that fails.
    pub(crate) async fn client_with(&self, token: &str) -> Link {
        Link::open(&self.url, self.pin, token).await.unwrap()
    }

    /// `GET path`: status and body; `None` if the connection fails.
    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        match self.url.strip_prefix("http://") {
            Some(address) => get(TcpStream::connect(address).ok()?, address, path),
            // The socket has the same routes, and needs no certificate.
            None => {
                let socket = UnixStream::connect(self.state.join("abide.sock"));
                get(socket.ok()?, "localhost", path)
            }
        }
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        self.signal(Signal::KILL);
        let status = self.ended().await;
        assert_eq!(status.signal(), Some(9), "{status}; {}", self.logged());
    }

    /// Kills it without waiting until it is gone.
    pub(crate) fn kill_without_waiting(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops it with SIGTERM, waits, and returns its exit code.
    pub(crate) async fn stop(mut self) -> i32 {
        self.terminate();
        let status = self.ended().await;
        let code = status.code();
        code.unwrap_or_else(|| panic!("{status}; {}", self.logged()))
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Kills it after this time, whatever it is doing.
    pub(super) fn kill_after(&self, time: Duration) {
        let pid = self.process();
        std::thread::spawn(move || {
            std::thread::sleep(time);
            let _ = kill_process(pid, Signal::KILL);
        });
    }

    fn signal(&self, signal: Signal) {
        // The signal fails if the process has ended; the code that waits for it finds that out.
        let _ = kill_process(self.process(), signal);
    }

    fn process(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap()
    }

    /// The exit status, if its process has ended.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until its process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        eventually("the end of the daemon", || {
            let ended = self.child.try_wait().unwrap();
            async move { ended }
        })
        .await
    }

    /// The log of all daemons of this place.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// URL and certificate in the endpoint file, if this process wrote it.
fn endpoint(file: &Path, pid: u64) -> Option<(String, Option<Fingerprint>)> {
    let text = std::fs::read_to_string(file).ok()?;
    let endpoint: Value = serde_json::from_str(&text).ok()?;
    let pin = endpoint.get("certificate");
    let pin = pin.map(|pin| pin.as_str().unwrap().parse().unwrap());
    (endpoint["pid"] == pid).then(|| (endpoint["url"].as_str().unwrap().to_owned(), pin))
}

fn get(mut stream: impl Read + Write, host: &str, path: &str) -> Option<(u16, String)> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Some((status, body.to_owned()))
}
