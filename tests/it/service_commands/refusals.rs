//! Installations that cannot succeed: what is said, and that nothing half-installed remains.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use super::manager::{Kind, ScriptedManager, told};
use super::{place, put};
use crate::harness::run;

#[test]
fn without_a_service_manager_the_foreground_command_is_named_and_nothing_is_written() {
    let nothing = ScriptedManager::new(place(), Kind::Nothing);
    let offline = ScriptedManager::new(place(), Kind::Systemd);
    fs::write(offline.folder().join("manager"), "offline\n").unwrap();
    for (manager, why) in [
        (nothing, "there is no systemctl"),
        (offline, "systemd is offline"),
    ] {
        for command in ["install", "uninstall", "status", "restart", "logs", "stop"] {
            let told = manager.abide(&["service", command]);
            assert_eq!(told.code, 9, "{command}: {}", told.err);
            assert!(told.err.contains(why), "{command}: {}", told.err);
            assert!(told.err.contains("abide serve --detach"), "{}", told.err);
            assert!(told.err.contains("Nothing was changed"), "{}", told.err);
        }
        assert!(!manager.place().path().join(".config/systemd").exists());
        assert!(!manager.place().state().exists());
        let told = manager.abide(&["service", "status", "--json"]);
        assert_eq!(told.json()["error"]["kind"], "no_service_manager");
    }
}

#[test]
fn a_daemon_that_was_started_by_hand_is_not_fought_with() {
    run(async {
        let manager = ScriptedManager::new(place(), Kind::Systemd);
        let daemon = manager.place().start().await;
        let told = manager.abide(&["service", "install", "--yes"]);
        assert_eq!(told.code, 9, "{}", told.err);
        let process = format!("(process {})", daemon.pid());
        assert!(told.err.contains(&process), "{}", told.err);
        assert!(
            told.err.contains("abide stop && abide service install"),
            "{}",
            told.err
        );
        assert!(!manager.unit().exists());
        assert_eq!(daemon.stop().await, 0);
        // Its runs continue in the service.
        assert_eq!(manager.abide(&["service", "install", "--yes"]).code, 0);
    });
}

#[test]
fn a_service_whose_daemon_does_not_come_up_shows_the_end_of_its_log_and_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let place = place().with("gateway.listen", &format!("\"{address}\""));
    let manager = ScriptedManager::new(place, Kind::Systemd);
    let told = manager.abide(&["service", "install", "--yes"]);
    assert_eq!(told.code, 75, "{}", told.err);
    for expected in [
        "did not come up (failed (failed), exit status 75: the folder, the port or the store is in use)",
        &format!("{address} is in use by another program"),
        "abide service restart",
        "abide service uninstall",
    ] {
        assert!(told.err.contains(expected), "{expected}: {}", told.err);
    }
    drop(taken);
    let told = manager.abide(&["service", "restart"]);
    assert_eq!(told.code, 0, "{}", told.err);
}

#[test]
fn under_launchd_an_exit_status_that_a_repeat_would_give_again_is_a_failure_in_words() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let place = place().with("gateway.listen", &format!("\"{address}\""));
    let manager = ScriptedManager::new(place, Kind::Launchd);
    let told = manager.abide(&["service", "install", "--yes"]);
    assert_eq!(told.code, 75, "{}", told.err);
    let reason = "exit status 75: the folder, the port or the store is in use";
    assert!(told.err.contains(reason), "{}", told.err);
    let shown = manager.abide(&["service", "status"]);
    assert!(shown.out.contains(reason), "{}", shown.out);
}

#[test]
fn the_machine_wide_service_refuses_a_program_that_its_user_cannot_start() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let bin = manager.place().path().join("own");
    let program = put(&bin);
    fs::set_permissions(&bin, fs::Permissions::from_mode(0o700)).unwrap();
    let arguments = ["service", "install", "--system", "--yes", "--json"];
    let mut command = manager.command_of(&program, &arguments);
    let told = told(command.env_remove("ABIDE_STATE_DIR"));
    assert_eq!(told.code, 9, "{}", told.err);
    let refused = told.json();
    assert_eq!(refused["error"]["kind"], "closed_program", "{refused}");
    let text = refused.to_string();
    assert!(
        text.contains("install -m 755") && text.contains("/usr/local/bin/abide"),
        "{text}"
    );
    assert_eq!(manager.calls(), "");
}

#[test]
fn a_path_that_a_unit_cannot_have_is_refused() {
    let manager = ScriptedManager::new(place(), Kind::Systemd);
    let folder = manager.place().path().join("a\nExecStart=/bin/true");
    let folder = folder.to_str().unwrap();
    let told = manager.abide(&["service", "install", "--yes", "--state-dir", folder]);
    assert_eq!(told.code, 2, "{}", told.err);
    assert!(
        told.err
            .contains("the state folder's path has control characters"),
        "{}",
        told.err
    );
    assert!(!manager.unit().exists());
}

#[test]
fn print_shows_the_files_and_needs_no_service_manager() {
    let manager = ScriptedManager::new(place(), Kind::Nothing);
    let printed = manager.abide(&["service", "install", "--print"]);
    assert_eq!(printed.code, 0, "{}", printed.err);
    assert!(
        printed.out.starts_with("# abide service install: {"),
        "{}",
        printed.out
    );
    assert!(!manager.place().path().join(".config/systemd").exists());
    let strict = [
        "service",
        "install",
        "--print",
        "--system",
        "--hardening",
        "strict",
    ];
    let mut command = manager.command(&[&strict[..], &["--socket-activation", "--json"]].concat());
    command
        .env_remove("ABIDE_STATE_DIR")
        .env_remove("ABIDE_CONFIG");
    let printed = told(&mut command);
    assert_eq!(printed.code, 0, "{}", printed.err);
    let files = printed.json()["files"].clone();
    assert_eq!(files[0]["path"], "/etc/systemd/system/abide.service");
    let text = files[0]["text"].as_str().unwrap();
    assert!(text.contains("MemoryDenyWriteExecute=yes"), "{text}");
    assert!(
        text.contains("serve --state-dir /var/lib/abide\n"),
        "{text}"
    );
    assert_eq!(files[1]["path"], "/etc/systemd/system/abide.socket");
    // Its Unix socket is the daemon's own, which programs of runs can open.
    let socket = files[1]["text"].as_str().unwrap();
    let listens: Vec<&str> = socket
        .lines()
        .filter(|line| line.contains("Listen"))
        .collect();
    assert_eq!(listens, ["ListenStream=127.0.0.1:7777"]);
    let state = [
        "service",
        "install",
        "--print",
        "--system",
        "--state-dir",
        "/srv/x",
    ];
    let refused = manager.abide(&state);
    assert_eq!(refused.code, 2, "{}", refused.err);
}
