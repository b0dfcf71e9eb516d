//! An MCP server for tests: this test binary in a special mode. It speaks the protocol revision
//! that most servers speak, and records the effects of its tools in its folder, so that a test can
//! count them.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Place;

/// The variable that selects how the server behaves at its start.
const START: &str = "TEST_MCP_START";

/// Adds this server to `place` under `name`; `start` as [`serve`] takes it.
pub(crate) fn with_server(place: Place, name: &str, start: &str) -> Place {
    let binary = std::env::current_exe().unwrap();
    let args = json!(["--ignored", "--exact", "mcp::server::serve", "--quiet"]);
    place
        .with(&format!("mcp.{name}.command"), &format!("{binary:?}"))
        .with(&format!("mcp.{name}.args"), &args.to_string())
        .with(
            &format!("mcp.{name}.env"),
            &format!("{{ {START} = {start:?}, TOKEN = \"canary\" }}"),
        )
}

/// As [`with_server`], with a server that ignores a request to stop and is killed soon after.
pub(crate) fn with_stubborn_server(place: Place, name: &str) -> Place {
    let binary = std::env::current_exe().unwrap();
    // A signal that is ignored here stays ignored after `exec`.
    let line = "trap '' TERM; exec \"$0\" \"$@\"";
    let own = ["--ignored", "--exact", "mcp::server::serve", "--quiet"];
    let args = json!([["-c", line, binary.to_str().unwrap()].as_slice(), &own].concat());
    with_server(place, name, "stubborn")
        .with(&format!("mcp.{name}.command"), "\"/bin/sh\"")
        .with(&format!("mcp.{name}.args"), &args.to_string())
        .with("process.grace", "\"100ms\"")
}

/// The number of lines in a file of the server's folder, one per effect.
pub(crate) fn lines(place: &Place, file: &str) -> usize {
    let text = fs::read_to_string(place.work().join(file)).unwrap_or_default();
    text.lines().count()
}

/// The server. Started by a daemon, never by the test runner.
#[test]
#[ignore = "a program that other tests start"]
fn serve() {
    let Ok(start) = std::env::var(START) else {
        return;
    };
    note("starts", &std::process::id().to_string());
    match start.as_str() {
        "hang" => loop {
            std::thread::park();
        },
        "fail" => {
            let _ = writeln!(std::io::stderr(), "no licence was found");
            end(3);
        }
        // Only the first start works.
        "once" if fs::read_to_string("starts").unwrap().lines().count() > 1 => {
            end(4);
        }
        // The first start works; every later one hangs before its first message.
        "hang later" if fs::read_to_string("starts").unwrap().lines().count() > 1 => loop {
            std::thread::park();
        },
        _ => {}
    }
    if start == "chatty" {
        for number in 0..30 {
            say(&format!("loading part {number}"));
        }
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        // Calls do not wait for each other.
        std::thread::spawn(move || {
            for answer in answers(&message) {
                say(&answer.to_string());
            }
        });
    }
    if start == "stubborn" {
        loop {
            std::thread::park();
        }
    }
    end(0);
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server ends as a program does, whatever test runner is around it"
)]
fn end(status: i32) -> ! {
    std::process::exit(status)
}

/// Writes one line to standard output, bypassing the capture of the test runner.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn note(file: &str, line: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .unwrap();
    writeln!(file, "{line}").unwrap();
}

/// The server's answers to a message.
pub(crate) fn answers(message: &Value) -> Vec<Value> {
    let Some(id) = message.get("id") else {
        return Vec::new();
    };
    let result = |result: Value| vec![json!({ "jsonrpc": "2.0", "id": id, "result": result })];
    let params = &message["params"];
    match message["method"].as_str().unwrap_or_default() {
        "initialize" => result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "tools": { "listChanged": true } },
            "serverInfo": { "name": "test", "version": "1" },
        })),
        "tools/list" => result(json!({ "tools": tools() })),
        "tools/call" => {
            let arguments = &params["arguments"];
            let name = params["name"].as_str().unwrap();
            let mut told = Vec::new();
            if name == "grow" {
                note("grown", "yes");
                told.push(json!({
                    "jsonrpc": "2.0", "method": "notifications/tools/list_changed"
                }));
            }
            told.extend(result(called(name, arguments)));
            told
        }
        method => vec![json!({
            "jsonrpc": "2.0", "id": id,
            "error": { "code": -32601, "message": format!("no method {method}") },
        })],
    }
}

fn tools() -> Value {
    let text = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": { "text": { "type": "string" } },
    });
    let tool = |name: &str, hints: Value| {
        let about = format!("{name}s");
        json!({ "name": name, "description": about, "inputSchema": text, "annotations": hints })
    };
    let mut tools = vec![
        tool("add", json!({})),
        tool("look", json!({ "readOnlyHint": true })),
        tool("set", json!({ "idempotentHint": true })),
        tool("big", json!({ "readOnlyHint": true })),
        tool("slow", json!({})),
        tool("die", json!({})),
        tool("fail", json!({})),
        tool("children", json!({})),
        tool("environment", json!({ "readOnlyHint": true })),
        tool("daemon", json!({ "readOnlyHint": true })),
        tool("grow", json!({})),
        tool("Twin", json!({})),
        tool("twin", json!({})),
        tool("dotted.name", json!({ "readOnlyHint": true })),
    ];
    if Path::new("grown").exists() {
        tools.push(tool("late", json!({ "readOnlyHint": true })));
    }
    json!(tools)
}

fn called(name: &str, arguments: &Value) -> Value {
    let says = |text: String| json!({ "content": [{ "type": "text", "text": text }] });
    let text = arguments["text"].as_str().unwrap_or_default();
    match name {
        "add" => {
            note("added", text);
            says(format!("added {text}"))
        }
        "look" => says(fs::read_to_string("added").unwrap_or_default()),
        "set" => {
            note("set", text);
            says("it is set".to_owned())
        }
        "big" => says(format!("{}\nthe end", "long ".repeat(40_000))),
        "slow" => {
            note("begun", text);
            while !Path::new("go").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            says("slow is over".to_owned())
        }
        "die" => {
            note("died", text);
            let _ = writeln!(std::io::stderr(), "a fatal thing");
            end(7);
        }
        "fail" => json!({
            "content": [{ "type": "text", "text": "it cannot be done" }], "isError": true,
        }),
        "children" => {
            let line = "setsid sleep 4000 & echo $! > child.new; mv child.new child; wait";
            let mut child = Command::new("/bin/sh").args(["-c", line]).spawn().unwrap();
            let id = child.id();
            std::thread::spawn(move || child.wait());
            says(format!("started {id}"))
        }
        "environment" => {
            let names = std::env::vars().map(|(name, _)| name);
            let mut names: Vec<String> = names.collect();
            names.sort();
            says(names.join(" "))
        }
        "daemon" => {
            let mut status = Command::new(env!("CARGO_BIN_EXE_abide"));
            let asked = status.args(["status", "--json", "--socket", text]).output();
            let asked = asked.unwrap();
            says(String::from_utf8_lossy(&[asked.stdout, asked.stderr].concat()).into_owned())
        }
        "grow" => says("grown".to_owned()),
        "late" | "dotted.name" => says(format!("{name} answers")),
        other => json!({
            "content": [{ "type": "text", "text": format!("no tool {other}") }], "isError": true,
        }),
    }
}
