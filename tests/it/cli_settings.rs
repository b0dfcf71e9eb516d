//! Commands that write settings: `abide config set|unset` and `abide mcp add|remove`; and the
//! daemon's log (`abide logs --daemon`).

use std::fs;
use std::io::Write;
use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{Place, Script, Terminal, run, says};

fn place() -> Place {
    Place::new(Script::new().on("*", [says("done")]))
}

fn abide(place: &Place, arguments: &[&str]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = place.command(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

fn file(place: &Place) -> String {
    fs::read_to_string(place.path().join("abide.toml")).unwrap()
}

#[test]
fn a_setting_is_written_with_the_rest_as_it_was_and_counts_at_once() {
    let place = place();
    let path = place.path().join("abide.toml");
    let before = format!("# by hand\n{}lanes.main = 2 # two\n", file(&place));
    fs::write(&path, &before).unwrap();
    let (code, out, told) = abide(&place, &["config", "set", "lanes.main", "3"]);
    assert_eq!(code, 0, "{told}");
    assert!(out.contains("lanes.main = 3: written to"), "{out}");
    assert!(told.contains("no daemon runs with this file"), "{told}");
    assert_eq!(file(&place), before.replace("main = 2 #", "main = 3 #"));
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let in_force = async |key: &str| {
            let config = client.call("gateway.config", json!({})).await;
            let mut all = config["settings"].as_array().unwrap().iter();
            all.find(|one| one["key"] == key).unwrap().clone()
        };
        let (code, _, told) = abide(&place, &["config", "set", "lanes.main", "5"]);
        assert_eq!((code, told.trim()), (0, "the daemon uses it now"));
        assert_eq!(in_force("lanes.main").await["value"], 5);
        // A list from several arguments; a setting that needs a restart says so.
        let hosts = ["config", "set", "gateway.allowed_hosts", "a.lan", "b.lan"];
        let (code, out, _) = abide(&place, &hosts);
        assert_eq!(code, 0, "{out}");
        assert_eq!(
            in_force("gateway.allowed_hosts").await["value"],
            json!(["a.lan", "b.lan"])
        );
        let (_, out, _) = abide(&place, &["config", "get", "gateway.allowed_hosts"]);
        assert_eq!(out, "a.lan\nb.lan\n");
        let (_, out, _) = abide(&place, &["config", "get", "lanes.main", "--json"]);
        let said: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&said["value"], &said["source"]),
            (&json!(5), &json!("file"))
        );
        let (code, out, told) = abide(&place, &["config", "get", "lanes.mian"]);
        assert_eq!((code, &*out), (2, ""));
        assert!(told.contains("did you mean \"lanes.main\"?"), "{told}");
        let (code, _, told) = abide(&place, &["config", "set", "agents.poll_each", "7s"]);
        assert_eq!(code, 0, "{told}");
        assert!(
            told.contains("takes effect when the daemon restarts"),
            "{told}"
        );

        let (code, out, _) = abide(&place, &["config", "unset", "lanes.main", "--json"]);
        assert_eq!(code, 0, "{out}");
        let said: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(
            (&said["changed"], &said["inForce"]),
            (&json!(true), &json!("now"))
        );
        assert_eq!(in_force("lanes.main").await["source"], "default");
        assert!(!file(&place).contains("lanes.main"), "{}", file(&place));
        assert!(file(&place).starts_with("# by hand\n"));
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_setting_that_a_start_would_refuse_is_not_written() {
    let place = place();
    let before = file(&place);
    for (arguments, code, what) in [
        (
            &["config", "set", "lanes.mian", "3"][..],
            2,
            "did you mean \"lanes.main\"?",
        ),
        (&["config", "set", "lanes.main", "many"], 2, "lanes.main"),
        (&["config", "set", "lanes.main"], 2, "required"),
        (&["mcp", "add", "Bad Name", "--", "true"], 2, "Bad Name"),
        (&["mcp", "add", "x", "--http", "ftp://x"], 2, "mcp.x.url"),
        (&["mcp", "remove", "x"], 3, "has no server x"),
    ] {
        let (found, out, told) = abide(&place, arguments);
        assert_eq!(found, code, "{arguments:?}: {out}{told}");
        assert!(told.contains(what), "{arguments:?}: {told}");
        assert_eq!(file(&place), before, "{arguments:?}");
    }
    // A variable overrides the file, and the command warns about it.
    let mut command = place.command(&["config", "set", "lanes.main", "3"]);
    let Output { status, stderr, .. } = command.env("ABIDE_LANES__MAIN", "9").output().unwrap();
    assert!(status.success());
    let told = String::from_utf8(stderr).unwrap();
    assert!(told.contains("ABIDE_LANES__MAIN"), "{told}");
    // A file that is not valid TOML is left unchanged.
    fs::write(place.path().join("abide.toml"), "a = [").unwrap();
    let (code, _, told) = abide(&place, &["config", "set", "lanes.main", "3"]);
    assert_eq!(code, 78, "{told}");
    assert!(told.contains("nothing was changed"), "{told}");
    assert_eq!(file(&place), "a = [");
}

#[test]
fn a_server_of_tools_is_added_started_shown_and_removed() {
    let place = place();
    let binary = std::env::current_exe().unwrap();
    let binary = binary.to_str().unwrap();
    let program = [
        binary,
        "--ignored",
        "--exact",
        "mcp::server::serve",
        "--quiet",
    ];
    let add = |start: &str, more: &[&str]| {
        let start = format!("TEST_MCP_START={start}");
        let head = ["mcp", "add", "mem", "--env", &start];
        abide(&place, &[&head[..], more, &["--"], &program].concat())
    };
    run(async {
        let daemon = place.start().await;
        let (code, out, told) = add("", &[]);
        assert_eq!(code, 0, "{out}{told}");
        assert!(out.contains("ready") && out.contains("mem__add"), "{out}");
        assert!(file(&place).contains("[mcp.mem]"), "{}", file(&place));
        let again = add("", &[]);
        assert_eq!(again.0, 9, "{again:?}");
        assert!(again.2.contains("--replace"), "{again:?}");
        // A server that cannot start is reported with its reason and a remedy.
        let bad = add("fail", &["--replace"]);
        assert_eq!(bad.0, 1, "{bad:?}");
        let shown = bad.1.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains("no licence was found"), "{bad:?}");
        assert!(bad.2.contains("abide mcp remove mem"), "{bad:?}");
        let (code, out, told) = abide(&place, &["mcp", "remove", "mem"]);
        assert_eq!(code, 0, "{out}{told}");
        assert!(!file(&place).contains("mem"), "{}", file(&place));
        let (_, _, told) = abide(&place, &["mcp"]);
        assert!(told.contains("abide mcp add"), "{told}");
        // The message names the failure and no internal types.
        let (code, out, told) = abide(&place, &["mcp", "add", "far", "--http", "http://[::1]:9/m"]);
        assert_eq!(code, 1, "{out}{told}");
        let said = out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("Connection refused"), "{said}");
        assert!(
            !said.contains("abide::") && !said.contains("Transport"),
            "{said}"
        );
        assert_eq!(abide(&place, &["mcp", "remove", "far"]).0, 0);
        assert_eq!(daemon.stop().await, 0);
    });
    let reference = ["--env", "KEY=@env:OTHER", "--scope", "run"];
    let (code, ..) = abide(
        &place,
        &[&["mcp", "add", "own"], &reference[..], &["--", "true"]].concat(),
    );
    assert_eq!(code, 0);
    let text: toml::Table = file(&place).parse().unwrap();
    let own = &text["mcp"]["own"];
    assert_eq!(own["command"].as_str(), Some("true"));
    assert_eq!(own["scope"].as_str(), Some("run"));
    assert_eq!(own["env"]["KEY"]["from"].as_str(), Some("env:OTHER"));
}

#[test]
fn the_daemons_log_is_shown_and_followed() {
    let place = place();
    let (code, _, told) = abide(&place, &["logs", "--daemon"]);
    assert_eq!(code, 3, "{told}");
    assert!(told.contains("abide service logs"), "{told}");
    let (code, ..) = abide(&place, &["serve", "--detach"]);
    assert_eq!(code, 0);
    let (code, out, _) = abide(&place, &["logs", "--daemon", "-n", "1"]);
    assert_eq!((code, out.lines().count()), (0, 1), "{out}");
    let command = place.command(&["logs", "--daemon", "--follow"]);
    let mut terminal = Terminal::start(command);
    let mut log = fs::OpenOptions::new()
        .append(true)
        .open(place.state().join("abide.log"))
        .unwrap();
    writeln!(log, "a line of its own").unwrap();
    terminal.until("a line of its own");
    drop(terminal);
    assert_eq!(abide(&place, &["stop"]).0, 0);
}

/// The daemon's settings file is found from any folder.
#[test]
fn a_daemon_with_a_relative_path_to_its_settings_obeys_a_change_from_elsewhere() {
    let place = place();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    run(async {
        let mut command = place.command(&["serve", "--config", "abide.toml"]);
        command.env_remove("ABIDE_CONFIG");
        let daemon = place.start_command(command).await.unwrap();
        let mut command = place.command(&["config", "set", "lanes.main", "7"]);
        let said = command
            .env_remove("ABIDE_CONFIG")
            .current_dir(&other)
            .output()
            .unwrap();
        let told = String::from_utf8(said.stderr).unwrap();
        assert_eq!(told.trim(), "the daemon uses it now");
        assert!(file(&place).contains("main = 7"), "{}", file(&place));
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        let (code, _, told) = abide(&place, &["mcp", "add", "", "--", "true"]);
        assert_eq!(code, 2, "{told}");
        assert_eq!(daemon.stop().await, 0);
    });
}
