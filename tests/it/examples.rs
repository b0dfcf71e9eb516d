//! The examples of the README and of `docs/reference`, run exactly as written there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::peers;
use crate::home::{Home, output_of};
use crate::house::root;

const README: &str = "README.md";
const AGENTS: &str = "docs/reference/agents.md";
const TOOLS: &str = "docs/reference/tools-and-mcp.md";
const EVENTS: &str = "docs/reference/events.md";

/// A daemon at the usual place of a home folder; it ends with the test.
struct Usual(Home);

impl Usual {
    fn start() -> Usual {
        let usual = Usual(Home::new());
        fs::write(usual.0.path().join("notes.txt"), "errors are reported\n").unwrap();
        let mut serve = usual.command(env!("CARGO_BIN_EXE_abide"));
        let said = output_of(serve.args(["serve", "--detach", "--listen", "127.0.0.1:0"]));
        assert_eq!(said.code, 0, "{}", said.err);
        usual
    }

    /// `program` with this home, and with abide where a shell finds it.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let own = Path::new(env!("CARGO_BIN_EXE_abide")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program.as_ref());
        command
            .env("HOME", self.0.path())
            .env("PATH", format!("{}:{path}", own.display()))
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Usual {
    fn drop(&mut self) {
        self.0.abide(&["stop", "--timeout", "0s"]);
    }
}

/// The blocks of this language under a heading of a document.
fn blocks(document: &str, heading: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let section = text.split_once(&format!("## {heading}\n")).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let fence = format!("```{language}\n");
    let blocks = section.split(&fence).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}

/// What a person would type of a block: the lines behind `$ `, and those that go on with them.
fn typed(block: &str) -> String {
    let mut typed = String::new();
    for line in block.lines() {
        typed.push_str(line.strip_prefix("$ ").unwrap_or(line));
        typed.push('\n');
    }
    typed
}

fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn the_shell_examples_do_what_the_readme_says() {
    if !is_there("curl") || !is_there("bash") {
        println!("skipped: there is no curl or no bash here");
        return;
    }
    let usual = Usual::start();
    let script: String = blocks(README, "From programs", "console")
        .iter()
        .map(|block| typed(block))
        .collect();
    let mut shell = usual.command("bash");
    let output = shell.args(["-euc", &script]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{err}");
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let answers: Vec<Value> = answers.map(Result::unwrap).collect();
    let [made, spawned, status, inbox] = &answers[..] else {
        panic!("{answers:#?}");
    };
    assert_eq!(made["result"]["created"], true, "{made}");
    assert_eq!(spawned["result"]["status"], "accepted", "{spawned}");
    assert_eq!(status["phase"], "ready", "{status}");
    assert!(inbox["announces"].is_array(), "{inbox}");
}

#[test]
fn a_program_is_an_agent_as_the_reference_says() {
    if !is_there("bash") {
        println!("skipped: there is no bash here");
        return;
    }
    let usual = Usual::start();
    let folder = usual.0.path().join(".config/abide/agents");
    fs::create_dir_all(&folder).unwrap();
    let heading = "Programs as agents";
    let agent = blocks(AGENTS, heading, "markdown").concat();
    fs::write(folder.join("words.md"), agent).unwrap();
    let said = usual.0.abide(&["agents", "reload"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let script = typed(&blocks(AGENTS, heading, "console").concat());
    let mut shell = usual.command("bash");
    let output = shell.args(["-euc", &script]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{err}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert_eq!(out.trim(), "5", "{err}");
}

#[test]
fn a_server_brings_tools_as_the_reference_says() {
    if !is_there("bash") || !is_there("npx") {
        println!("skipped: there is no bash or no npx here");
        return;
    }
    let usual = Usual::start();
    let folder = usual.0.path().join(".config/abide");
    fs::create_dir_all(&folder).unwrap();
    let heading = "Tool servers";
    let settings = blocks(TOOLS, heading, "toml").concat();
    fs::write(folder.join("abide.toml"), settings).unwrap();
    let script = typed(&blocks(TOOLS, heading, "console").concat());
    let mut shell = usual.command("bash");
    let output = shell.args(["-euc", &script]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{err}");
    let out = String::from_utf8(output.stdout).unwrap();
    for name in ["files", "search"] {
        assert!(out.contains(name), "{out}");
    }
    let server = |name: &str| -> Value {
        let said = usual.0.abide(&["mcp", name, "--json"]);
        serde_json::from_str(&said.out).unwrap()
    };
    let settled = |name: &str| loop {
        let server = server(name);
        if server["state"] != "starting" {
            return server;
        }
    };
    let search = settled("search")["lastError"].to_string();
    assert!(search.contains("SEARCH_TOKEN"), "{search}");
    let files = settled("files");
    if files["state"] != "ready" {
        println!("skipped: the server was not to be had: {files}");
        return;
    }
    let tools = files["tools"].to_string();
    assert!(tools.contains("files__read_text_file"), "{tools}");
}

#[test]
fn the_event_log_is_followed_as_the_reference_says() {
    if !is_there("curl") || !is_there("bash") {
        println!("skipped: there is no curl or no bash here");
        return;
    }
    let usual = Usual::start();
    let script = typed(&blocks(EVENTS, "Following the log", "console").concat());
    let mut shell = usual.command("bash");
    // Bash becomes the one command that goes on, so that it can be ended.
    let script = script.replace("curl -sN", "exec curl -sN");
    shell.args(["-euc", &script]).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut data = || loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).unwrap();
        }
    };
    assert_eq!(data()["kind"], "snapshot");
    let said = usual.0.abide(&["spawn", "errors", "--agent", "explore"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(data()["kind"], "run.queued");
    shell.kill().unwrap();
    shell.wait().unwrap();
}

#[test]
fn a_stock_websocket_client_speaks_over_the_socket() {
    let python = match peers::python() {
        Ok(folder) => folder.join("bin/python"),
        Err(why) => return peers::skipped("the example with the websockets library", &why),
    };
    let usual = Usual::start();
    let said = usual
        .0
        .abide(&["spawn", "errors", "--agent", "explore", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let run: Value = serde_json::from_str(&said.out).unwrap();
    let example = blocks(README, "From programs", "python").concat();
    let mut command = usual.command(python);
    let output = command.args(["-c", &example]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains(run["runId"].as_str().unwrap()), "{out}");
}
