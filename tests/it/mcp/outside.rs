//! Third-party MCP servers of both protocol generations, over pipes and over HTTP. Where they
//! cannot be installed, the test prints a note.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::{go, names, shown, text, until_state};
use crate::harness::peers;
use crate::harness::{Place, Script, calls, eventually, run, says};
use crate::house::root;
use crate::processes::is_alive;
use crate::providers::outside::free_port;

/// The Python interpreter with the protocol's package installed.
pub(crate) fn python() -> Result<PathBuf, String> {
    peers::python().map(|folder| folder.join("bin/python"))
}

/// The path of a program on this machine.
fn found(name: &str) -> String {
    let path = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    let found = files.find(|file| file.is_file()).unwrap();
    found.to_str().unwrap().to_owned()
}

pub(super) fn with_program(place: Place, name: &str, argv: &[&str]) -> Place {
    let (command, args) = argv.split_first().unwrap();
    place
        // A server that is still starting after a sixth of it is taken for one of the older era.
        .with(&format!("mcp.{name}.start_timeout"), "\"20m\"")
        .with(&format!("mcp.{name}.command"), &format!("{command:?}"))
        .with(&format!("mcp.{name}.args"), &json!(args).to_string())
}

/// A place whose agent makes this call on the input `[go]`.
fn place(tool: &str, arguments: Value) -> Place {
    let script = Script::new().on("[go]", [calls(tool, arguments), says("it is over")]);
    Place::new(script).with_agent("worker", "max_loops: 9")
}

/// Takes some 5 s if node is installed: two servers each take seconds to start.
#[test]
fn servers_from_outside_of_the_older_era_serve_over_pipes() {
    let folder = match peers::node("common") {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the outside servers of tools on Node", &why),
    };
    run(async {
        let main = |name: &str| {
            let file = format!("node_modules/@modelcontextprotocol/{name}/dist/index.js");
            folder.join(file).to_str().unwrap().to_owned()
        };
        let node = found("node");
        let read = json!({ "path": "notes.txt" });
        let place = place("files__read_text_file", read);
        let place = with_program(place, "files", &[&node, &main("server-filesystem"), "."]);
        let place = with_program(place, "all", &[&node, &main("server-everything")]);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let all = until_state(&client, "all", "ready").await;
        let files = until_state(&client, "files", "ready").await;
        assert_eq!(all["protocol"], "2025-11-25", "{all}");
        let known = names(&all);
        for tool in ["all__echo", "all__get-env", "all__get-tiny-image"] {
            assert!(known.contains(&tool), "{tool} in {known:?}");
        }
        let effect = |tool: &str| {
            let tools = files["tools"].as_array().unwrap().iter();
            let tool = tools.clone().find(|one| one["tool"] == tool).unwrap();
            tool["effect"].as_str().unwrap().to_owned()
        };
        assert_eq!(effect("read_text_file"), "read");
        assert_ne!(effect("write_file"), "read");
        let told = go(&client).await;
        assert!(text(&told).contains("beta"), "{told}");
        assert_eq!(daemon.stop().await, 0);
        for server in [&all, &files] {
            assert!(!is_alive(super::pid_of(server)));
        }
        peers::announce("the outside servers of tools on Node were called over pipes");
    });
}

/// A process that is killed on drop.
pub(super) struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server and waits until `port` accepts connections.
pub(super) async fn listening(command: &mut Command, port: u16) -> Killed {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let child = Killed(command.spawn().unwrap());
    eventually("the server listens", async || {
        TcpStream::connect(("127.0.0.1", port)).ok()
    })
    .await;
    child
}

/// Takes some 5 s if node is installed: its server takes seconds to start.
#[test]
fn a_server_from_outside_of_the_older_era_serves_over_http() {
    let folder = match peers::node("common") {
        Ok(folder) => folder,
        Err(why) => return peers::skipped("the outside server of tools on Node over HTTP", &why),
    };
    run(async {
        let port = free_port();
        let main = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
        let mut serve = Command::new("node");
        serve
            .args([main, "streamableHttp"])
            .env("PORT", port.to_string())
            .current_dir(&folder);
        let server = listening(&mut serve, port).await;
        let url = format!("\"http://127.0.0.1:{port}/mcp\"");
        let place = place("all__echo", json!({ "message": "hello" })).with("mcp.all.url", &url);
        let daemon = place.start().await;
        let client = daemon.client().await;
        let all = until_state(&client, "all", "ready").await;
        assert_eq!(all["protocol"], "2025-11-25", "{all}");
        let told = go(&client).await;
        assert!(text(&told).contains("hello"), "{told}");
        // The server stops: the call reports it, and the next call after its return succeeds.
        drop(server);
        let told = go(&client).await;
        assert_eq!(told["isError"], true, "{told}");
        let _server = listening(&mut serve, port).await;
        let told = go(&client).await;
        assert!(text(&told).contains("hello"), "{told}");
        assert_eq!(daemon.stop().await, 0);
        peers::announce(
            "the outside server of tools on Node was called over HTTP, and found again",
        );
    });
}

fn peer() -> String {
    let file = root().join("tests/it/mcp/peers/server.py");
    file.to_str().unwrap().to_owned()
}

/// Calls its tool, and finds a tool that it adds meanwhile.
async fn modern(place: Place) {
    let daemon = place.start().await;
    let client = daemon.client().await;
    let server = until_state(&client, "peer", "ready").await;
    assert_eq!(server["protocol"], "2026-07-28", "{server}");
    let told = go(&client).await;
    assert_eq!(text(&told), "5", "{told}");
    let grow = client
        .spawn(json!({ "task": "[grow]", "agent": "worker" }))
        .await;
    client.ended(&grow.id).await;
    eventually("the late tool", async || {
        let server = shown(&client, "peer").await;
        names(&server).contains(&"peer__late").then_some(())
    })
    .await;
    assert_eq!(daemon.stop().await, 0);
}

fn growing() -> Place {
    let script = Script::new()
        .on(
            "[go]",
            [
                calls("peer__add", json!({ "a": 2, "b": 3 })),
                says("it is over"),
            ],
        )
        .on(
            "[grow]",
            [calls("peer__grow", json!({})), says("it is over")],
        );
    Place::new(script).with_agent("worker", "max_loops: 9")
}

/// Takes some 10 s if python is installed: its server takes seconds to start, once per daemon.
#[test]
fn a_server_from_outside_of_the_current_era_serves_over_pipes() {
    match python() {
        Ok(python) => run(async {
            let python = python.to_str().unwrap();
            modern(with_program(growing(), "peer", &[python, &peer()])).await;
            peers::announce("the outside server of tools on Python was called over pipes");
        }),
        Err(why) => peers::skipped("the outside server of tools on Python", &why),
    }
}

/// Takes some 10 s if python is installed: its server takes seconds to start.
#[test]
fn a_server_from_outside_of_the_current_era_serves_over_http() {
    match python() {
        Ok(python) => run(async { over_http(&python).await }),
        Err(why) => peers::skipped("the outside server of tools on Python over HTTP", &why),
    }
}

async fn over_http(python: &Path) {
    let port = free_port();
    let mut serve = Command::new(python);
    serve.args([&peer(), &port.to_string()]);
    let _server = listening(&mut serve, port).await;
    let url = format!("\"http://127.0.0.1:{port}/mcp\"");
    let place = growing().with("mcp.peer.url", &url);
    modern(place.with("mcp.peer.start_timeout", "\"20m\"")).await;
    peers::announce("the outside server of tools on Python was called over HTTP");
}
