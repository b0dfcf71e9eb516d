//! The daemon under measurement: the real binary, started on a folder of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::client::{self, Door};

/// How long a start or a stop may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks whether it is ready, and at most so much too late.
const LOOK_EACH: Duration = Duration::from_micros(200);

/// How it is configured. But for the first, nothing is removed or put aside by age, and no
/// check of the whole store begins in the middle of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// As on a fresh machine.
    Default,
    /// Nothing that is accepted ever runs.
    LanesClosed,
    /// The model answers at once; what runs at the same time is as on a fresh machine.
    Scripted,
    /// The model answers at once, and everything that is accepted runs at once.
    InstantAnswers,
    /// The model is a server on this port; everything that is accepted runs at once.
    Http(u16),
    /// The same, and no conversation is ever shortened.
    HttpWhole(u16),
    /// Sixteen runs at once, whose model does not answer; what begins with [`ASK`] asks a person
    /// instead and holds still.
    Held,
}

/// How the task of a run begins that is to ask a person.
pub const ASK: &str = "ask";

const KEPT: &str = "[retention]\narchive_after = 0\nruns = 0\nevents = 0\n\
     [storage]\ncheck_after = 0\n";

/// The last rules of every script: whatever it is told, a run ends with its first answer.
const ANSWERS: &str = r#"{"match": "*", "answers": [{"text": "There it is."}]},
     {"match": "*", "match_announce": true, "answers": [{"text": "I have seen it."}]}"#;

/// How many runs `gateway.status` says are open.
pub fn open_runs(status: &serde_json::Value) -> u64 {
    ["queued", "running", "paused", "settling"]
        .iter()
        .filter_map(|state| status["counts"][state].as_u64())
        .sum()
}

/// A daemon that is ready; killed when it is dropped.
pub struct Daemon {
    child: Child,
    address: SocketAddr,
    token: String,
    /// From before the process was made to the first `200` of `/ready`.
    pub ready_after: Duration,
}

impl Daemon {
    /// Starts the daemon on `folder` and waits until it is ready.
    pub fn start(binary: &Path, folder: &Path, setting: Setting) -> Result<Self> {
        Daemon::start_with(binary, folder, setting, "")
    }

    /// As [`Daemon::start`]; what its model answers begins with `rules`.
    pub fn start_with(binary: &Path, folder: &Path, setting: Setting, rules: &str) -> Result<Self> {
        let state = folder.join("state");
        let config = folder.join("abide.toml");
        std::fs::create_dir_all(folder)?;
        std::fs::write(&config, text(folder, setting, rules)?)?;
        let log = std::fs::File::create(folder.join("daemon.log"))?;
        // The port is free until somebody else takes it, which ends the benchmark.
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
            if begun.elapsed() > PATIENCE || daemon.child.try_wait()?.is_some() {
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

    /// The way in.
    pub fn door(&self) -> Door<'_> {
        Door {
            address: self.address,
            token: Some(&self.token),
        }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stops it in order and waits until it is gone.
    pub fn stop(mut self) -> Result<()> {
        client::once(self.door(), "gateway.drain", r#"{"then":"stop"}"#)?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
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
        // One that is gone already has nothing to be told.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The configuration file.
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

/// Does `/ready` say 200?
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
    // Nobody there is "not yet".
    ask().unwrap_or(false)
}
