//! Command line output that needs no daemon: help, usage errors, and every way in which a daemon
//! can be missing.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::home::{Home, output_of};

const COMMANDS: &[&str] = &[
    "serve",
    "status",
    "stop",
    "run",
    "spawn",
    "wait",
    "ps",
    "sessions",
    "history",
    "inbox",
    "audit",
    "config",
    "setup",
    "completions",
    "demo",
    "backup",
    "restore",
    "doctor",
];

/// Writes a state folder whose endpoint file names this process and address.
fn state(home: &Home, pid: u32, url: &str) -> String {
    let folder = home.path().join("state");
    fs::create_dir_all(&folder).unwrap();
    let endpoint = json!({
        "version": "0.0.1", "protocol": 1, "pid": pid, "url": url,
        "bootId": "01936f0e-0000-7000-8000-000000000001",
        "startedAt": "2026-11-30T00:53:20.123Z",
    });
    fs::write(folder.join("endpoint.json"), endpoint.to_string()).unwrap();
    folder.to_str().unwrap().to_owned()
}

/// An unused process id: that of a child that has exited and been reaped.
fn gone() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// An address without a listener.
fn silent() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", free.local_addr().unwrap())
}

#[test]
fn every_help_fits_the_screen() {
    let home = Home::new();
    let mut pages = vec![home.abide(&["--help"])];
    pages.extend(COMMANDS.iter().map(|name| home.abide(&[name, "--help"])));
    for page in pages {
        assert_eq!(page.code, 0, "{}", page.err);
        for line in page.out.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
    }
    let main = home.abide(&["--help"]).out;
    for name in COMMANDS {
        assert!(
            main.contains(&format!("\n  {name} ")),
            "--help lacks {name}"
        );
    }
}

#[test]
fn the_version_is_the_packages() {
    let said = Home::new().abide(&["--version"]);
    assert_eq!(said.code, 0);
    let own = format!("abide {}", env!("CARGO_PKG_VERSION"));
    assert!(said.out.starts_with(&own), "{}", said.out);
}

#[test]
fn nonsense_is_a_usage_error() {
    let home = Home::new();
    for line in [
        &[][..],
        &["spwan"],
        &["run"],
        &["wait"],
        &["ps", "--state", "sleeping"],
        &["wait", "x", "--timeout", "soon"],
        &["spawn", "x", "--meta", "{"],
        &["history", "x", "--limit", "0"],
        &["ps", "--url", "http://127.0.0.1:1", "--state-dir", "x"],
        &["ps", "--url", "http://127.0.0.1:1", "--socket", "x"],
        &["serve", "--url", "http://127.0.0.1:1"],
        &["demo", "--state-dir", "x"],
        &["ps", "--url", "ftp://127.0.0.1:1"],
    ] {
        let said = home.abide(line);
        assert_eq!(said.code, 2, "{line:?}: {}", said.err);
        assert!(!said.err.is_empty(), "{line:?}");
        assert!(said.out.is_empty(), "{line:?}: {}", said.out);

        // A program that asked for JSON gets the error as JSON.
        let said = home.abide(&[line, &["--json"]].concat());
        assert_eq!(said.code, 2, "{line:?}: {}", said.err);
        if !line.is_empty() {
            let failure: Value = serde_json::from_str(&said.out).unwrap();
            let error = &failure["error"];
            assert_eq!(
                (&error["kind"], &error["exitCode"]),
                (&json!("usage"), &json!(2))
            );
            assert!(
                !error["message"].as_str().unwrap().is_empty(),
                "{line:?}: {failure}"
            );
        }
    }
}

#[test]
fn g14_without_a_daemon_every_command_says_how_to_start_one() {
    let home = Home::new();
    let dir = home.path().join("other");
    let dir = dir.to_str().unwrap();
    for line in [
        &["status"][..],
        &["stop", "--restart"],
        &["run", "x"],
        &["spawn", "x"],
        &["wait", "x"],
        &["ps"],
        &["sessions"],
        &["history", "x"],
        &["inbox", "x"],
    ] {
        let said = home.abide(line);
        assert_eq!(said.code, 10, "{line:?}: {}", said.err);
        assert!(
            said.err.contains(".local/state/abide"),
            "{line:?}: {}",
            said.err
        );
        assert!(
            said.err.contains("abide serve --detach\n"),
            "{line:?}: {}",
            said.err
        );

        let said = home.abide(&[line, &["--state-dir", dir]].concat());
        assert_eq!(said.code, 10, "{line:?}: {}", said.err);
        let start = format!("abide serve --detach --state-dir {dir}\n");
        assert!(said.err.contains(&start), "{line:?}: {}", said.err);
    }
}

#[test]
fn programs_get_the_failure_as_json() {
    let home = Home::new();
    let said = home.abide(&["ps", "--json"]);
    assert_eq!(said.code, 10);
    assert_eq!(said.err, "");
    let answer: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(answer["error"]["kind"], "no_daemon");
    assert_eq!(answer["error"]["exitCode"], 10);
}

#[test]
fn a_daemon_that_died_is_told_from_one_that_never_was() {
    let home = Home::new();
    let pid = gone();
    let state = state(&home, pid, &silent());
    let said = home.abide(&["ps", "--state-dir", &state]);
    assert_eq!(said.code, 10);
    assert!(
        said.err
            .contains(&format!("(process {pid}) was killed or crashed")),
        "{}",
        said.err
    );
    assert!(
        said.err.contains("abide serve --detach --state-dir"),
        "{}",
        said.err
    );
}

#[test]
fn a_process_that_does_not_answer_is_named() {
    let home = Home::new();
    let url = silent();
    let own = std::process::id();
    let state = state(&home, own, &url);
    fs::write(Path::new(&state).join("token"), "t\n").unwrap();
    let said = home.abide(&["ps", "--state-dir", &state]);
    assert_eq!(said.code, 10);
    let expected = format!("process {own} does not answer at {url}");
    assert!(said.err.contains(&expected), "{}", said.err);
}

#[test]
fn a_token_that_cannot_be_read_is_an_auth_failure() {
    let home = Home::new();
    let state = state(&home, std::process::id(), &silent());
    let said = home.abide(&["ps", "--state-dir", &state]);
    assert_eq!(said.code, 11, "{}", said.err);
    assert!(said.err.contains("token"), "{}", said.err);

    let said = home.abide(&["ps", "--state-dir", &state, "--token-file", "none"]);
    assert_eq!(said.code, 11, "{}", said.err);
    assert!(said.err.contains("none"), "{}", said.err);
}

#[test]
fn g10_a_folders_token_is_sent_to_no_other_address() {
    let home = Home::new();
    let state = state(&home, std::process::id(), &silent());
    fs::write(Path::new(&state).join("token"), "secret\n").unwrap();
    let mut command = home.command(&["ps", "--url", "http://127.0.0.1:9"]);
    let said = output_of(command.env("ABIDE_STATE_DIR", &state));
    assert_eq!(said.code, 11, "{}", said.err);
    assert!(said.err.contains("--token-file"), "{}", said.err);
}

#[test]
fn a_flag_goes_before_every_variable() {
    let home = Home::new();
    let state = home.path().join("empty");
    let state = state.to_str().unwrap();
    let other = silent();
    fs::write(home.path().join("token"), "t").unwrap();
    let run = |arguments: &[&str]| {
        output_of(
            home.command(arguments)
                .env("ABIDE_URL", &other)
                .env("ABIDE_TOKEN_FILE", home.path().join("token")),
        )
    };
    let by_variable = run(&["ps"]);
    assert_eq!(by_variable.code, 10);
    assert!(by_variable.err.contains(&other), "{}", by_variable.err);
    let by_flag = run(&["ps", "--state-dir", state]);
    assert_eq!(by_flag.code, 10);
    assert!(by_flag.err.contains(state), "{}", by_flag.err);
}

#[test]
fn a_script_gets_no_daemon_it_did_not_ask_for() {
    let home = Home::new();
    let said = home.abide(&["run", "where is main?"]);
    assert_eq!(said.code, 10, "{}", said.err);
    assert!(!home.path().join(".local").exists());
}
