//! The daemon under measurement: the real binary, started on its own folder.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::client::{self, ServerAddress};

/// Deadline for a start or a stop before the benchmark gives up.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Poll interval for readiness; it bounds the measuring error.
const LOOK_EACH: Duration = Duration::from_micros(200);

/// The configuration of the daemon. All variants but the first disable retention and the background
/// check of the whole store.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// The configuration of a fresh machine.
    Default,
    /// No lane runs anything, so accepted runs stay queued.
    LanesClosed,
    /// The scripted model answers at once; concurrency limits are those of a fresh machine.
    Scripted,
    /// The scripted model answers at once, and every accepted run starts immediately.
    InstantAnswers,
    /// The model is an HTTP server on this port; every accepted run starts immediately.
    Http(u16),
    /// As [`Setting::Http`], without compaction of conversations.
    HttpWhole(u16),
    /// No lane runs anything, and all events go to a receiver on this port, once the file `secret` of
    /// the folder is there.
    Webhook(u16),
    /// Sixteen concurrent runs whose model does not answer; a run whose task begins with [`ASK`]
    /// asks the user a question and pauses.
    Held,
}

/// Prefix of the task of a run that is to ask the user a question.
pub const ASK: &str = "ask";

const KEPT: &str = "[retention]\narchive_after = 0\nruns = 0\nevents = 0\n\
     [storage]\ncheck_after = 0\n";

/// The last rules of every script: a run ends with its first answer, whatever its input.
const ANSWERS: &str = r#"{"match": "*", "answers": [{"text": "There it is."}]},
     {"match": "*", "match_announce": true, "answers": [{"text": "I have seen it."}]}"#;

/// The number of open runs that `gateway.status` reports.
pub fn open_runs(status: &serde_json::Value) -> u64 {
    ["queued", "running", "paused", "settling"]
        .iter()
        .filter_map(|state| status["counts"][state].as_u64())
        .sum()
}

/// A daemon that is ready; it is killed on drop.
pub struct Daemon {
    child: Child,
    address: SocketAddr,
    token: String,
    /// Time from just before the process was spawned to the first `200` of `/ready`.
    pub ready_after: Duration,
}

impl Daemon {
    /// Starts the daemon on `folder` and waits until it is ready.
    pub fn start(binary: &Path, folder: &Path, setting: Setting) -> Result<Self> {
        Daemon::start_with(binary, folder, setting, "")
    }

    /// As [`Daemon::start`], with `rules` at the start of its model script.
    pub fn start_with(binary: &Path, folder: &Path, setting: Setting, rules: &str) -> Result<Self> {
        let state = folder.join("state");
        let config = folder.join("abide.toml");
        std::fs::create_dir_all(folder)?;
        std::fs::write(&config, text(folder, setting, rules)?)?;
        let log = std::fs::File::create(folder.join("daemon.log"))?;
        // The port is free until another process takes it, which would end the benchmark.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .args(["--listen", &address.to_string()])
            .arg("--config")
            .arg(&config)
            .arg("--state-dir")
            .arg(&state)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ABIDE_") {
                command.env_remove(name);
            }
        }
        let begun = Instant::now();
        let mut daemon = Daemon {
            child: command.spawn()?,
            address,
            token: String::new(),
            ready_after: Duration::ZERO,
        };
        while !is_ready(address) {
            if begun.elapsed() > TIMEOUT || daemon.child.try_wait()?.is_some() {
                let log = std::fs::read_to_string(folder.join("daemon.log"))?;
                return Err(format!("the daemon does not become ready: {log}").into());
            }
            std::thread::sleep(LOOK_EACH);
        }
        daemon.ready_after = begun.elapsed();
        daemon.token = std::fs::read_to_string(state.join("token"))?
            .trim()
            .to_owned();
        Ok(daemon)
    }

    /// Address and token of this daemon.
    pub fn door(&self) -> ServerAddress<'_> {
        ServerAddress {
            address: self.address,
            token: Some(&self.token),
        }
    }

    /// Process id of the daemon.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Drains the daemon and waits until the process has exited.
    pub fn stop(mut self) -> Result<()> {
        client::once(self.door(), "gateway.drain", r#"{"then":"stop"}"#)?;
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(format!("the daemon ended with {status}").into()),
                };
            }
            std::thread::sleep(LOOK_EACH);
        }
        Err("the daemon does not stop".into())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The kill fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The contents of the configuration file.
fn text(folder: &Path, setting: Setting, rules: &str) -> Result<String> {
    let workspace = folder.join("workspace");
    let script = folder.join("script.json");
    let mut text = format!("[workspace]\nroot = {workspace:?}\n");
    let lanes = |slots: u32| {
        format!("[lanes]\nmain = {slots}\nsubagent = {slots}\nnested = {slots}\nglobal = {slots}\n")
    };
    let answers = match setting {
        Setting::Default => return Ok(text),
        Setting::LanesClosed => return Ok(text + KEPT + &lanes(0)),
        Setting::Webhook(port) => {
            let secret = format!("file:{}", folder.join("secret").display());
            text += &lanes(0);
            text += KEPT;
            text += "[webhooks.fast]\nallow_private = true\nkinds = [\"run.queued\"]\n";
            text += &format!("url = \"http://127.0.0.1:{port}/hook\"\n");
            text += &format!("secret = {{ from = {secret:?} }}\n");
            return Ok(text);
        }
        Setting::Http(port) | Setting::HttpWhole(port) => {
            if matches!(setting, Setting::HttpWhole(_)) {
                text += "[sessions]\noverflow = \"none\"\n";
            }
            text += &lanes(64);
            text += KEPT;
            text += "[defaults]\nmodel = \"instant/m\"\n[providers.instant]\nkind = \"openai\"\n";
            text += &format!("base_url = \"http://127.0.0.1:{port}/v1\"\n");
            return Ok(text);
        }
        Setting::Scripted => ANSWERS.to_owned(),
        Setting::InstantAnswers => {
            text += &lanes(64);
            ANSWERS.to_owned()
        }
        Setting::Held => {
            text += &lanes(16);
            format!(
                r#"{{"match": "{ASK}", "answers": [{{"calls":
                     [{{"tool": "ask", "arguments": {{"question": "Which one?"}}}}]}}]}},
                   {{"match": "*", "answers": [{{"text": "Too late.", "hold": "never"}}]}}"#
            )
        }
    };
    std::fs::write(&script, format!(r#"{{"rules": [{rules} {answers}]}}"#))?;
    text += KEPT;
    text += "[defaults]\nmodel = \"script/instant\"\nmax_children = 20\nmax_queued_turns = 1000\n";
    text += &format!("[providers.script]\nfile = {script:?}\n");
    Ok(text)
}

/// Does `/ready` answer 200?
fn is_ready(address: SocketAddr) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "GET /ready HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        let mut head = [0; 12];
        stream.read_exact(&mut head)?;
        Ok(head.ends_with(b" 200"))
    };
    // A refused connection means "not yet".
    ask().unwrap_or(false)
}
