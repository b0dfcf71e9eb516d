//! The message catalogue: the exact texts that users read when something fails. The texts are in
//! `snapshots/`; a changed text is reviewed as a change of the program.

use std::fs;
use std::net::TcpListener;
use std::process::Command;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{Place, Script, run, says};
use crate::home::{Home, output_of};

/// A command's exit code and complete output, without parts that differ between runs. `replaced`
/// has such texts with their placeholders.
fn screen(command: &mut Command, replaced: &[(&str, &str)]) -> String {
    let line: Vec<String> = command
        .get_args()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    let said = output_of(command.env("COLUMNS", "80"));
    let mut text = format!("$ abide {}\nexit code {}\n", line.join(" "), said.code);
    for (name, part) in [("stdout", said.out), ("stderr", said.err)] {
        // The daemon's log is JSON; the rest is for users.
        let lines = part.lines().filter(|line| !line.starts_with('{'));
        let lines: Vec<&str> = lines.collect();
        if !lines.is_empty() {
            text.push_str(&format!("--- {name}\n{}\n", lines.join("\n")));
        }
    }
    for (found, stand_in) in replaced {
        text = text.replace(found, stand_in);
    }
    without_ids(&text)
}

/// Replaces ids, times and ports by placeholders.
fn without_ids(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word: String = rest
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.'))
            .collect();
        let bare = word.trim_end_matches(['.', ':']);
        let is_id = bare.len() == 36 && bare.matches('-').count() == 4;
        let is_time = bare.len() == 24 && bare.ends_with('Z') && bare.contains('T');
        let stand_in = match (is_id, is_time) {
            (true, _) => Some("[id]"),
            (_, true) => Some("[time]"),
            _ => None,
        };
        match (stand_in, word.is_empty()) {
            (Some(stand_in), _) => {
                out.push_str(stand_in);
                rest = &rest[bare.len()..];
            }
            (None, false) => {
                out.push_str(&word);
                rest = &rest[word.len()..];
            }
            (None, true) => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

#[test]
fn the_first_page_and_a_commands_page() {
    let home = Home::new();
    for (name, line) in [
        ("help", &["--help"][..]),
        ("help_of_run", &["run", "--help"]),
    ] {
        insta::assert_snapshot!(name, screen(&mut home.command(line), &[]));
    }
}

#[test]
fn no_daemon() {
    let home = Home::new();
    let path = home.path().to_str().unwrap();
    let text = screen(&mut home.command(&["ps"]), &[(path, "[home]")]);
    insta::assert_snapshot!("no_daemon", text);
}

#[test]
fn the_wrong_token() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let port = port(daemon.url());
        fs::write(place.path().join("wrong"), "not-the-token\n").unwrap();
        let mut command = place.command(&["ps", "--url", daemon.url(), "--token-file", "wrong"]);
        command.env_remove("ABIDE_STATE_DIR");
        let text = screen(&mut command, &[(&port, "[port]")]);
        insta::assert_snapshot!("wrong_token", text);
        assert_eq!(daemon.stop().await, 0);
    });
}

fn place() -> Place {
    Place::new(
        Script::new()
            .on("[a]", [says("a is done").held_by("go")])
            .on("[b]", [says("b is done")]),
    )
}

fn port(url: &str) -> String {
    url.rsplit_once(':').unwrap().1.to_owned()
}

/// A home whose endpoint file names a daemon of this version and protocol at `url`.
fn older(url: &str, protocol: u32) -> Home {
    let home = Home::new();
    let state = home.path().join(".local/state/abide");
    fs::create_dir_all(&state).unwrap();
    let endpoint = json!({
        "version": "0.0.1", "protocol": protocol, "pid": std::process::id(), "url": url,
        "bootId": "01936f0e-0000-7000-8000-000000000001",
        "startedAt": "2026-11-30T00:53:20.123Z",
    });
    fs::write(state.join("endpoint.json"), endpoint.to_string()).unwrap();
    fs::write(state.join("token"), "t\n").unwrap();
    home
}

/// A daemon that is older than `runs.list`.
async fn old_daemon() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(knows_no_method(stream));
        }
    });
    url
}

async fn knows_no_method(stream: TcpStream) {
    let Ok(mut socket) = accept_async(stream).await else {
        return;
    };
    while let Some(Ok(Message::Text(text))) = socket.next().await {
        let call: Value = serde_json::from_str(&text).unwrap();
        let method = call["method"].as_str().unwrap();
        let data = json!({
            "kind": "unknown_method", "hint": "gateway.hello lists the methods",
            "retryable": false,
        });
        let says = format!("there is no method {method:?}");
        let error = json!({ "code": -32601, "message": says, "data": data });
        let answer = json!({ "jsonrpc": "2.0", "id": call["id"], "error": error });
        if socket
            .send(Message::text(answer.to_string()))
            .await
            .is_err()
        {
            return;
        }
    }
}

#[test]
fn a_program_newer_than_its_daemon() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let url = runtime.block_on(old_daemon());
    // With the preceding word: the number alone may be short and occur in others.
    let kill = format!("kill {}", std::process::id());
    let own = env!("CARGO_PKG_VERSION");
    let replaced = [(kill.as_str(), "kill [pid]"), (own, "[version]")];
    let home = older(&url, 1);
    let text = screen(&mut home.command(&["ps"]), &replaced);
    insta::assert_snapshot!("newer_than_the_daemon", text);
    let home = older(&url, 0);
    let text = screen(&mut home.command(&["ps"]), &replaced);
    insta::assert_snapshot!("another_protocol", text);
}

#[test]
fn a_port_that_is_held() {
    let place = place();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let port = address.port().to_string();
    let text = screen(
        &mut place.command(&["serve", "--listen", &address.to_string()]),
        &[(&port, "[port]")],
    );
    insta::assert_snapshot!("port_held", text);
}

#[test]
fn a_folder_that_is_held() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let path = place.path().canonicalize().unwrap();
        let pid = format!("pid {}", daemon.pid());
        let replaced = [(path.to_str().unwrap(), "[home]"), (&pid, "pid [pid]")];
        let text = screen(&mut place.command(&["serve"]), &replaced);
        insta::assert_snapshot!("lock_held", text);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_state_folder_that_cannot_be_written() {
    let place = place();
    fs::write(place.path().join("file"), "").unwrap();
    let path = place.path().to_str().unwrap();
    let text = screen(
        &mut place.command(&["serve", "--state-dir", "file/state"]),
        &[(path, "[home]")],
    );
    insta::assert_snapshot!("state_not_writable", text);
    let text = screen(
        &mut place.command(&["serve", "--detach", "--state-dir", "file/state"]),
        &[(path, "[home]")],
    );
    insta::assert_snapshot!("state_not_writable_detached", text);
}

#[test]
fn things_that_are_not_there_and_limits() {
    run(async {
        let mut place = place().with("defaults.max_client_children", "1");
        let daemon = place.start().await;
        let client = daemon.client().await;
        let run = json!({
            "task": "[a]", "runId": "01936f0e-0000-7000-8000-00001234abcd", "label": "survey",
        });
        client.spawn(run).await;
        let see = |arguments: &[&str]| screen(&mut place.command(arguments), &[]);
        insta::assert_snapshot!("unknown_run", see(&["wait", "1234abce"]));
        insta::assert_snapshot!("unknown_label", see(&["wait", "surveys"]));
        insta::assert_snapshot!(
            "unknown_agent",
            see(&["spawn", "--agent", "explorer", "[a]"])
        );
        client.session("client", "bot").await;
        let made = json!({"owner": "client", "key": "client:bot"});
        client.call("sessions.create", made).await;
        let spawn = json!({"task": "[a]", "parent": "client:bot"});
        client.spawn(spawn).await;
        let limited = see(&[
            "spawn",
            "--agent",
            "explore",
            "--parent",
            "client:bot",
            "[b]",
        ]);
        insta::assert_snapshot!("limit", limited);
        insta::assert_snapshot!("config_show_unchanged", see(&["config", "reload"]));
        place.set("lanes.main", "-1");
        let path = place.path().to_str().unwrap();
        let broken = screen(
            &mut place.command(&["config", "reload"]),
            &[(path, "[home]")],
        );
        insta::assert_snapshot!("reload_of_a_broken_file", broken);
        place.let_go("go");
        drop(client);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_the_daemon_does_not_know() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut text = String::new();
        for (method, params) in [
            ("sessions.span", json!({})),
            ("sessions.spawn", json!({"task": "t", "agnet": "explore"})),
            ("sessions.spawn", json!({})),
            ("runs.list", json!({"limit": 501})),
        ] {
            let error = client.refused(method, params.clone()).await;
            let data = serde_json::to_string(&error.data).unwrap();
            text.push_str(&format!(
                "{method} {params}\n{} {}\n{data}\n\n",
                error.code, error.message
            ));
        }
        insta::assert_snapshot!("unknown_method_and_parameters", text);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn settings_as_a_person_sees_them() {
    let home = Home::new();
    let path = home.path().to_str().unwrap();
    let file = home.path().join("abide.toml");
    fs::write(
        &file,
        "[lanes]\nmain = 2\nmian = 3\n[gateway]\nallowed_hosts = [\"a.lan\", \"b.lan\"]\n",
    )
    .unwrap();
    let check = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("ABIDE_LANES__SUBAGENT", "5");
        screen(&mut command, &[(path, "[home]")])
    };
    let line = ["config", "check", "--config", "abide.toml"];
    insta::assert_snapshot!("config_check", check(&line));
    fs::write(&file, "[lanes]\nmain = -1\n").unwrap();
    insta::assert_snapshot!("config_check_of_a_broken_file", check(&line));
    fs::write(&file, "[lanes\nmain = 1\n").unwrap();
    insta::assert_snapshot!("config_check_of_no_toml", check(&line));
    let missing = ["config", "check", "--config", "none.toml"];
    insta::assert_snapshot!("config_check_of_no_file", check(&missing));
    fs::write(&file, "[lanes]\nmain = 2\n").unwrap();
    let json = home.abide(&["config", "check", "--config", "abide.toml", "--json"]);
    assert_eq!(json.code, 0, "{}", json.err);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let settings = json["settings"].as_array().unwrap();
    let main = settings
        .iter()
        .find(|of| of["key"] == "lanes.main")
        .unwrap();
    assert_eq!(main["value"], 2);
    assert_eq!(main["source"], "file");
}

#[test]
fn completions_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let said = home.abide(&["completions", shell]);
        assert_eq!(said.code, 0, "{shell}: {}", said.err);
        for command in ["serve", "history", "completions", "audit"] {
            assert!(said.out.contains(command), "{shell} knows {command}");
        }
    }
    // If the shell is installed, it reads its completions.
    let script = home.abide(&["completions", "bash"]).out;
    let file = home.path().join("abide.bash");
    fs::write(&file, script).unwrap();
    if let Ok(status) = Command::new("bash").arg("-n").arg(&file).status() {
        assert!(status.success());
    }
    assert_eq!(home.abide(&["completions", "tcsh"]).code, 2);
}
