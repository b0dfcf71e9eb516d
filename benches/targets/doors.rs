//! P20: what other protocols add to the API. A spawn by the MCP server over HTTP beside the same call
//! of the API, and the first token that an editor gets after the model has sent it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::client::ServerAddress;
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::measure::{Round, Samples, TASK};
use crate::sample::Sample;
use crate::talk::{self, Talk};
use crate::turns::InstantModel;

/// Spawns of each kind in a round: a session may have requested at most 200 open runs.
const SPAWNS: usize = 150;
/// Spawns and prompts before the measured ones.
const WARM_UP: usize = 10;
/// Time from the model's first token to its next one.
const PAUSE: Duration = Duration::from_millis(20);

/// Both parts, each on a daemon of its own.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let folder = round.folder.join("mcp");
    let daemon = Daemon::start(round.binary, &folder, Setting::LanesClosed)?;
    let [by_api, by_mcp] = talk::run(spawns(daemon.door(), round.floor_first))?;
    Ok(vec![
        (Figure::SpawnToInbox, by_api),
        (Figure::McpSpawn, by_mcp),
        (Figure::FirstToken, first_tokens(round)?),
    ])
}

/// Spawns by the API and by the MCP server, in turns: each on one open connection, with a session of
/// the client as the parent.
async fn spawns(door: ServerAddress<'_>, api_first: bool) -> Result<[Sample; 2]> {
    let mut talk = Talk::open(door).await?;
    let inbox = r#"{"owner":"client","key":"bench:inbox"}"#;
    talk.call("sessions.create", inbox).await?;
    let mut host = McpHost::open(door)?;
    let mut times = [Vec::new(), Vec::new()];
    for n in 0..SPAWNS + WARM_UP {
        for kind in if api_first { [0, 1] } else { [1, 0] } {
            let task = format!("{n}: {TASK}");
            let begun = Instant::now();
            match kind {
                0 => {
                    let params = json!({ "task": task, "parent": "bench:inbox" });
                    talk.call("sessions.spawn", &params.to_string()).await?;
                }
                _ => host.call("spawn", &json!({ "task": task }))?,
            }
            times[kind].push(begun.elapsed());
        }
    }
    Ok(times.map(of))
}

fn of(times: Vec<Duration>) -> Sample {
    let times: Vec<Duration> = times.into_iter().skip(WARM_UP).collect();
    let whole = times.iter().sum();
    Sample::of(times, whole)
}

/// A host of the revision 2026-07-28, which needs no handshake, on one open connection.
struct McpHost<'a> {
    door: ServerAddress<'a>,
    stream: BufReader<TcpStream>,
}

impl<'a> McpHost<'a> {
    fn open(door: ServerAddress<'a>) -> Result<Self> {
        let stream = TcpStream::connect(door.address)?;
        stream.set_nodelay(true)?;
        Ok(McpHost {
            door,
            stream: BufReader::new(stream),
        })
    }

    /// Calls a tool, which must succeed.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<()> {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let body = call.to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.door.address,
            self.door.token.unwrap_or_default(),
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let answer = self.answer()?;
        match answer.contains(r#""structuredContent""#) {
            true => Ok(()),
            false => Err(format!("{tool} failed: {answer}").into()),
        }
    }

    /// The body of an answer, which has a length or comes in chunks.
    fn answer(&mut self) -> Result<String> {
        let mut length = None;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if let Some(bytes) = line.strip_prefix("content-length:") {
                length = Some(bytes.trim().parse()?);
            }
            if line.is_empty() {
                break;
            }
        }
        if let Some(length) = length {
            return self.bytes(length);
        }
        let mut body = String::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16)?;
            body.push_str(&self.bytes(size)?);
            self.line()?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err("the daemon closed a connection".into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    fn bytes(&mut self, count: usize) -> Result<String> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        Ok(String::from_utf8(bytes)?)
    }
}

/// From the model's first token to the arrival of the editor's first chunk of text, one prompt after
/// another.
fn first_tokens(round: &Round<'_>) -> Result<Sample> {
    let model = InstantModel::pausing(PAUSE)?;
    let folder = round.folder.join("acp");
    let workspace = folder.join("workspace");
    fs::create_dir_all(&workspace)?;
    let _daemon = Daemon::start(round.binary, &folder, Setting::Http(model.port()))?;
    let mut editor = Editor::start(round.binary, &folder)?;
    editor.call("initialize", &json!({ "protocolVersion": 1 }))?;
    let new = json!({ "cwd": workspace, "mcpServers": [] });
    let session = editor.call("session/new", &new)?["sessionId"].clone();
    let mut times = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < round.plan.lasts || times.len() <= WARM_UP {
        let prompt = json!([{ "type": "text", "text": TASK }]);
        let id = editor.send(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        )?;
        let mut arrived = None;
        let response = editor.until(id, |update| {
            if update["sessionUpdate"] == "agent_message_chunk" {
                arrived.get_or_insert_with(Instant::now);
            }
        })?;
        if response["stopReason"] != "end_turn" {
            return Err(format!("a prompt ended with {response}").into());
        }
        let sent = model.first_token().ok_or("the model was not asked")?;
        let arrived = arrived.ok_or("the editor got no text")?;
        times.push(arrived - sent);
    }
    Ok(of(times))
}

/// `abide acp` with the benchmark at its other end; it is killed on drop.
struct Editor {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    last_id: u64,
}

impl Drop for Editor {
    fn drop(&mut self) {
        // The kill fails if the process has already exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Editor {
    /// Starts `abide acp` for the daemon in this folder.
    fn start(binary: &Path, folder: &Path) -> Result<Self> {
        let mut process = Command::new(binary)
            .arg("acp")
            .env_clear()
            .env("HOME", folder)
            .env("ABIDE_STATE_DIR", folder.join("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let (to, from) = (process.stdin.take(), process.stdout.take());
        Ok(Editor {
            to: to.ok_or("no input")?,
            from: BufReader::new(from.ok_or("no output")?),
            process,
            last_id: 0,
        })
    }

    /// Sends a request; returns its id.
    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.to, "{request}")?;
        Ok(id)
    }

    /// Reads until the result of this request; `each` gets every update before it.
    fn until(&mut self, id: u64, mut each: impl FnMut(&Value)) -> Result<Value> {
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line)? == 0 {
                return Err("abide acp has ended".into());
            }
            let mut message: Value = serde_json::from_str(&line)?;
            if message["method"] == "session/update" {
                each(&message["params"]["update"]);
            } else if message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(format!("a request was refused: {error}").into()),
                    None => Ok(message["result"].take()),
                };
            }
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value> {
        let id = self.send(method, params)?;
        self.until(id, |_| {})
    }
}
