//! The daemon under measurement: the real binary, started on a folder of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::client::{self, Door};

/// How long a start or a stop may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks whether it is ready, and at most so much too late.
const LOOK_EACH: Duration = Duration::from_micros(200);

/// How it is configured.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    /// As on a fresh machine.
    Default,
    /// Nothing that is accepted ever runs.
    LanesClosed,
    /// Everything that is accepted runs at once, and ends with its first answer.
    InstantAnswers,
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
        let state = folder.join("state");
        let config = folder.join("abide.toml");
        std::fs::create_dir_all(folder)?;
        std::fs::write(&config, text(folder, setting)?)?;
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
fn text(folder: &Path, setting: Setting) -> Result<String> {
    let workspace = folder.join("workspace");
    let mut text = format!("[workspace]\nroot = {workspace:?}\n");
    match setting {
        Setting::Default => {}
        Setting::LanesClosed => {
            text += "[lanes]\nmain = 0\nsubagent = 0\nnested = 0\nglobal = 0\n";
        }
        Setting::InstantAnswers => {
            let script = folder.join("script.json");
            std::fs::write(
                &script,
                r#"{"rules": [{"match": "*", "answers": [{"text": "There it is."}]}]}"#,
            )?;
            text += "[lanes]\nmain = 64\nsubagent = 64\nnested = 64\nglobal = 64\n";
            text += "[defaults]\nmodel = \"script/instant\"\n";
            text += &format!("[providers.script]\nfile = {script:?}\n");
        }
    }
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
